/**
 * Validation: fit on a stated part of the cells, predict the others, and say how far off. The parts are stated here and
 * nowhere else, so nobody can choose them by their result.
 */
import { type Cell, cellName, continuation, grouped, observe, shippedCells } from './cells.js';
import { type Fit, fitCells, questions } from './fit.js';
import { calibrate, machineOf, nominalOf, originOf, sourceOf } from './machines.js';
import type { Nominal, Work } from './model.js';
import { predict } from './predict.js';

/** Cells, and which of them are held out, part by part. */
export interface Split {
  readonly name: string;
  readonly of: (cell: Cell) => boolean;
  readonly parts: readonly ((cell: Cell) => boolean)[];
}

const ep = (size: number) => [(cell: Cell): boolean => cell.ep === size];
const heddleRounds = (cell: Cell): boolean => cell.lib === 'heddle' && cell.phase === 'both';

export const splits: readonly Split[] = [
  {
    name: 'one-sided on GB200: EP8, EP16 → EP32',
    of: (cell) => cell.set === 'trtllm' && cell.ep <= 32,
    parts: ep(32),
  },
  {
    name: 'pplx-garden hybrid, ConnectX-7 and EFA: EP8, EP16 → EP32',
    of: (cell) => cell.set === 'garden' && cell.ep <= 32,
    parts: ep(32),
  },
  {
    name: 'DeepEP low latency, ConnectX-7: EP8, EP32 → EP16',
    of: ({ lib, mode, fabric, ep: size }) =>
      lib === 'deepep_v1' && mode === 'll' && fabric === 'cx7' && size <= 32,
    parts: ep(16),
  },
  { name: 'Heddle on H200: EP4 → EP2', of: heddleRounds, parts: ep(2) },
  { name: 'Heddle on H200: EP2 → EP4', of: heddleRounds, parts: ep(4) },
];

const nothing = 'no cell of its source';

/** The questions that are put to each source with enough cells. */
const asked: typeof questions = [
  ...questions,
  {
    name: 'EP64 and more from EP32 and less',
    parts: (cells) => (cells.some(({ ranks }) => ranks >= 64) ? [({ ranks }) => ranks >= 64] : []),
  },
  { name: nothing, parts: () => [() => true] },
];

export type Check = ReturnType<typeof checksOf>[number];
export type Summary = ReturnType<typeof summarise>;

export interface SplitResult {
  readonly name: string;
  readonly summary: Summary;
  readonly checks: readonly Check[];
}

/**
 * The splits; every question to every source; and the sums: of each source, over the questions that its other cells answer, of each
 * question, and of all.
 */
export function validate(cells: readonly Cell[] = shippedCells()): SplitResult[] {
  const sources = grouped(
    cells.filter(({ phase }) => phase !== 'both'),
    sourceOf,
  );
  const sizeOf = ({ ep: ranks, tokens }: Cell) => ({ ranks, tokens });
  const crossed = asked.flatMap(({ name: question, parts }) =>
    sources.flatMap((mine) => {
      const held = parts(mine.map(sizeOf)).map((part) => (cell: Cell) => part(sizeOf(cell)));
      const checks = checksOfSplit({ of: () => true, parts: held }, mine);
      return checks.length > 0 ? [{ question, source: sourceOf(mine[0]!), checks }] : [];
    }),
  );
  const sum = (name: string, of: (one: (typeof crossed)[number]) => boolean): SplitResult => {
    const checks = crossed.filter(of).flatMap((one) => one.checks);
    return { name, summary: summarise(checks), checks };
  };
  return [
    ...splits.map((split) => validateSplit(split, cells)),
    ...crossed.map((one) => sum(`${one.question}: ${one.source}`, (other) => other === one)),
    ...sources.map((mine) =>
      sum(
        `of ${sourceOf(mine[0]!)}`,
        ({ question, source }) => source === sourceOf(mine[0]!) && question !== nothing,
      ),
    ),
    ...asked.map(({ name }) => sum(`${name}: all`, ({ question }) => question === name)),
    sum('all that a source’s other cells answer', ({ question }) => question !== nothing),
  ];
}

function checksOfSplit({ of, parts }: Pick<Split, 'of' | 'parts'>, cells: readonly Cell[]): Check[] {
  const mine = cells.filter(of);
  return parts.flatMap((held) =>
    checksOf(
      mine.filter((cell) => !held(cell)),
      mine.filter(held),
    ),
  );
}

export function validateSplit(split: Split, cells: readonly Cell[]): SplitResult {
  const checks = checksOfSplit(split, cells);
  return { name: split.name, summary: summarise(checks), checks };
}

/** Other cells against everything that is shipped; `unknown` are those of machines of which nothing is known. */
export function validateCells(others: readonly Cell[]) {
  const known = others.filter((cell) => machineOf(cell) !== undefined);
  const checks = checksOf(shippedCells(), known);
  const name = 'the cells of the file, fitted on all that is shipped';
  return {
    result: { name, summary: summarise(checks), checks },
    unknown: others.filter((cell) => !known.includes(cell)),
  };
}

/**
 * Held-out cells beside what is predicted without them: by the fit of the same source on such a machine, else from nominal
 * figures alone, for fits of another source were off by more than those are. Errors are predicted ÷ measured − 1.
 */
function checksOf(fitted: readonly Cell[], held: readonly Cell[]) {
  const known = calibrate(fitted);
  return held.map((cell) => {
    const { us, work } = observe(cell);
    const nominal = nominalOf(cell);
    const by = known.find((one) => originOf(one) === originOf(cell))?.fits[cell.phase];
    const from = (fit: Fit) => predict({ fit, assumes: [] }, work, cell.tokens);
    const none = from(fitCells([], nominal));
    const predicted = by ? from(by) : { ...none, beyond: ['no cell of its source'] };
    const rule = byRule(cell, fitted);
    return {
      cell,
      measured: us,
      predicted,
      error: predicted.time / us - 1,
      // Of what is believed before any cell is seen.
      prior: none.time / us - 1,
      // Of the rule that each doubling adds half of the last step; null where no two EPs of the same load are known.
      rule: rule === null ? null : rule / us - 1,
      // Of bytes over nominal bandwidth, and nothing else.
      bytesAlone: bytesAlone(work, nominal) / us - 1,
    };
  });
}

/** The trend of the last two doublings of the fitted cells of the same load, from EP16 on. */
function byRule(cell: Cell, fitted: readonly Cell[]): number | null {
  const of = (size: number) => fitted.find((one) => cellName(one) === cellName({ ...cell, ep: size }));
  const last = [cell.ep / 2, cell.ep / 4].find((size) => size >= 32 && of(size) && of(size / 2));
  if (last === undefined) return null;
  const [us, before] = [observe(of(last)!).us, observe(of(last / 2)!).us];
  return continuation({ us, before, ep: last }, cell.ep).at(-1)!.us;
}

const bytesAlone = ({ nvlinkBytes, networkBytes }: Work, { nvlink, nic }: Nominal): number =>
  Math.max(nvlinkBytes / nvlink, networkBytes > 0 ? networkBytes / nic : 0) / 1000;

/** The means of the errors' sizes, and how ranges hold. */
export function summarise(checks: readonly Check[]) {
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + Math.abs(value), 0) / values.length;
  const ruled = checks.filter(({ rule }) => rule !== null);
  const ofRuled = (of: (check: Check) => number) => (ruled.length === 0 ? null : mean(ruled.map(of)));
  return {
    cells: checks.length,
    mean: mean(checks.map(({ error }) => error)),
    prior: mean(checks.map(({ prior }) => prior)),
    // Of the cells for which the rule says anything; beside it the mean error of the prediction, of the same cells.
    rule: ofRuled(({ rule }) => rule!),
    besideRule: ofRuled(({ error }) => error),
    bytesAlone: mean(checks.map((check) => check.bytesAlone)),
    worst: Math.max(...checks.map(({ error }) => Math.abs(error))),
    within12: mean(checks.map(({ error }) => (Math.abs(error) <= 0.12 ? 1 : 0))),
    ...inRange(checks),
  };
}

function inRange(checks: readonly Check[]) {
  const cells = checks.length;
  const within = checks.filter(
    ({ measured, predicted: { low, high } }) => measured >= low && measured <= high,
  ).length;
  // The shares that ranges may hold in the long run, so that as many are within by chance, or as few, once in twenty times.
  const possible = [1 - highest(cells - within, cells), highest(within, cells)] as const;
  const [low, high] = cells < enough ? possible : [within / cells, within / cells];
  // Whether the ranges hold nine of ten: 85 to 95 %. Null where the cells are too few to tell.
  const holds = low <= 0.95 && high >= 0.85;
  return { within, inRange: within / cells, possible, holds: holds && cells < enough ? null : holds };
}

/** A percentage of fewer cells means nothing. */
const enough = 20;

/** The probability at which at most so many of `cells` happen once in twenty times. */
function highest(most: number, cells: number): number {
  if (most === cells) return 1;
  let [low, high] = [0, 1];
  for (let turn = 0; turn < 40; turn++) {
    const p = (low + high) / 2;
    let [one, sum] = [(1 - p) ** cells, 0];
    for (let n = 0; n <= most; n++) {
      sum += one;
      one *= ((cells - n) / (n + 1)) * (p / (1 - p));
    }
    if (sum > 0.05) low = p;
    else high = p;
  }
  return low;
}
