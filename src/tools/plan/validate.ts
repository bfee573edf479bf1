/**
 * Validation: fit on a stated part of the cells, predict the others, and say how far off. The parts are stated here and
 * nowhere else, so nobody can choose them by their result.
 */
import { type Cell, cellName, continuation, observe, shippedCells } from './cells.js';
import { fitCells } from './fit.js';
import { byOrigin, type Calibration, calibrate, machineOf, nominalOf } from './machines.js';
import type { Nominal, Work } from './model.js';
import { type Prediction, predict } from './predict.js';

/** Cells, and which of them are held out, part by part. */
export interface Split {
  readonly name: string;
  readonly of: (cell: Cell) => boolean;
  readonly parts: readonly ((cell: Cell) => boolean)[];
  /** What was asked of the mean error and of the share of cells within 12 %, where something was. */
  readonly goal?: { readonly mean: number; readonly within12?: number };
}

const ep = (size: number) => [(cell: Cell): boolean => cell.ep === size];
const heddleRounds = (cell: Cell): boolean => cell.lib === 'heddle' && cell.phase === 'both';

export const goals: readonly Split[] = [
  {
    name: 'one-sided on GB200: EP8, EP16 → EP32',
    of: (cell) => cell.set === 'trtllm' && cell.ep <= 32,
    parts: ep(32),
    goal: { mean: 0.06, within12: 0.9 },
  },
  {
    name: 'pplx-garden hybrid, ConnectX-7 and EFA: EP8, EP16 → EP32',
    of: (cell) => cell.set === 'garden' && cell.ep <= 32,
    parts: ep(32),
    goal: { mean: 0.05 },
  },
  {
    name: 'DeepEP low latency, ConnectX-7: EP8, EP32 → EP16',
    of: ({ lib, mode, fabric, ep: size }) =>
      lib === 'deepep_v1' && mode === 'll' && fabric === 'cx7' && size <= 32,
    parts: ep(16),
    goal: { mean: 0.08 },
  },
  { name: 'Heddle on H200: EP4 → EP2', of: heddleRounds, parts: ep(2), goal: { mean: 0.08 } },
  { name: 'Heddle on H200: EP2 → EP4', of: heddleRounds, parts: ep(4), goal: { mean: 0.08 } },
];

/** What is asked of every source that has cells enough. */
const questions: readonly {
  readonly name: string;
  parts(cells: readonly Cell[]): Split['parts'];
}[] = [
  {
    name: 'every other number of tokens, either way',
    parts(cells) {
      const sizes = [...new Set(cells.map(({ tokens }) => tokens))].sort((a, b) => a - b);
      const turn = (rest: number) => (cell: Cell) => sizes.indexOf(cell.tokens) % 2 === rest;
      return sizes.length > 3 ? [turn(0), turn(1)] : [];
    },
  },
  {
    name: 'few tokens from many, many from few',
    parts(cells) {
      const sizes = [...new Set(cells.map(({ tokens }) => tokens))].sort((a, b) => a - b);
      const few = (cell: Cell) => cell.tokens < sizes[sizes.length >> 1]!;
      return sizes.length > 1 ? [few, (cell) => !few(cell)] : [];
    },
  },
  {
    name: 'each EP from the others',
    parts(cells) {
      const sizes = [...new Set(cells.map((cell) => cell.ep))];
      return sizes.length > 1 ? sizes.flatMap(ep) : [];
    },
  },
  {
    name: 'EP64 and more from EP32 and less',
    parts: (cells) => (cells.some((cell) => cell.ep >= 64) ? [(cell) => cell.ep >= 64] : []),
  },
];

/** Every question to every source; then every source from others that measured the same system on the same kind of machine. */
function crossValidation(cells: readonly Cell[]): Split[] {
  const sources = new Map<string, Cell[]>();
  for (const cell of cells) {
    if (cell.phase === 'both') continue;
    const name = sourceOf(cell);
    sources.set(name, [...(sources.get(name) ?? []), cell]);
  }
  const asked = questions.flatMap((question) =>
    [...sources].flatMap(([source, mine]): Split[] => {
      const parts = question.parts(mine);
      const of = (cell: Cell) => cell.phase !== 'both' && sourceOf(cell) === source;
      return parts.length > 0 ? [{ name: `${question.name}: ${source}`, of, parts }] : [];
    }),
  );
  const others = [...sources].map(([source, mine]): Split => {
    const { set: own } = mine[0]!;
    const systems = new Set(mine.map((cell) => JSON.stringify([cell.phase, kindOf(cell)])));
    return {
      name: `another source: ${source}`,
      of: (cell) => systems.has(JSON.stringify([cell.phase, kindOf(cell)])),
      parts: [(cell) => cell.set === own],
    };
  });
  const known = ({ of, parts }: Split) => cells.some((cell) => of(cell) && !parts[0]!(cell));
  return [...asked, ...others.filter(known)];
}

const sourceOf = ({ set: name, lib, mode }: Cell): string => `${lib}/${mode} (${name})`;

/** A system on a kind of GPU and network. */
function kindOf({ lib, mode, ep: ranks, domain, fabric, hw }: Cell): string {
  const network = ranks > domain ? fabric : 'one node';
  return JSON.stringify([lib, mode, network, hw.startsWith('H') ? 'Hopper' : hw]);
}

/** A held-out cell beside what was predicted without it. Errors are predicted ÷ measured − 1. */
export interface Check {
  readonly cell: Cell;
  readonly measured: number;
  readonly predicted: Prediction;
  readonly error: number;
  /** Of what is believed before any cell is seen. */
  readonly prior: number;
  /** Of half of the last step again, where two EPs of the same load are known; else null. */
  readonly rule: number | null;
  /** Of bytes over nominal bandwidth, and nothing else. */
  readonly bytesAlone: number;
}

export interface Summary {
  readonly cells: number;
  /** Means of the errors' sizes. */
  readonly mean: number;
  readonly prior: number;
  /** Of the cells for which the rule says anything; null where it says nothing. */
  readonly rule: number | null;
  readonly bytesAlone: number;
  readonly worst: number;
  /** Shares of the cells whose error is at most 12 %, and which lie in the predicted range. */
  readonly within12: number;
  readonly inRange: number;
}

export interface SplitResult {
  readonly name: string;
  readonly goal?: NonNullable<Split['goal']>;
  readonly reached: boolean | null;
  readonly summary: Summary;
  readonly checks: readonly Check[];
}

/** The goals, then cross-validation source by source, and of each question the sum over sources. */
export function validate(cells: readonly Cell[] = shippedCells()): SplitResult[] {
  const run = ({ name, of, parts, goal }: Split): SplitResult => {
    const mine = cells.filter(of);
    const checks = parts.flatMap((held) => {
      const fitted = mine.filter((cell) => !held(cell));
      return checksOf(fitted, mine.filter(held)).flatMap((check) => check ?? []);
    });
    const summary = summarise(checks);
    const reached =
      goal === undefined ? null : summary.mean <= goal.mean && summary.within12 >= (goal.within12 ?? 0);
    return { name, ...(goal === undefined ? {} : { goal }), reached, summary, checks };
  };
  const crossed = crossValidation(cells).map(run);
  const all = (name: string, checks: readonly Check[]): SplitResult => ({
    name,
    reached: null,
    summary: summarise(checks),
    checks,
  });
  const asked = [...questions.map(({ name }) => name), 'another source'].map((name) =>
    all(
      `${name}: all`,
      crossed.filter((one) => one.name.startsWith(`${name}:`)).flatMap(({ checks }) => checks),
    ),
  );
  return [
    ...goals.map(run),
    ...crossed,
    ...asked,
    all(
      'all',
      asked.flatMap(({ checks }) => checks),
    ),
  ];
}

/** Other cells against everything that is shipped; `unknown` are those of systems or machines without any cell. */
export function validateCells(others: readonly Cell[]): {
  readonly result: SplitResult;
  readonly unknown: readonly Cell[];
} {
  const found = checksOf(shippedCells(), others);
  const checks = found.flatMap((check) => check ?? []);
  return {
    result: {
      name: 'the cells of the file, fitted on all that is shipped',
      reached: null,
      summary: summarise(checks),
      checks,
    },
    unknown: others.filter((_, i) => found[i] === undefined),
  };
}

/** By the same source where it is known, else by the most cells of the same system on the same kind of machine. */
function checksOf(fitted: readonly Cell[], held: readonly Cell[]): (Check | undefined)[] {
  const known = byOrigin(fitted).map((group) => calibrate(group, nominalOf(group[0]!)));
  return held.map((cell) => {
    const cells = ({ fits }: Calibration) => fits[cell.phase]?.seen.length ?? 0;
    const same = known
      .filter((one) => one.lib === cell.lib && one.mode === cell.mode && cells(one) > 0)
      .sort((a, b) => cells(b) - cells(a));
    const machine = machineOf(cell);
    const here = ({ hw, fabric }: Calibration) =>
      (hw === cell.hw && fabric === cell.fabric) ||
      (machine !== undefined && machineOf({ hw, fabric }) === machine);
    const by =
      same.find((one) => one.set === cell.set && here(one)) ??
      same.find(here) ??
      same.find(({ hw }) => cell.hw.startsWith('H') && hw.startsWith('H'));
    return by && check(by, cell, fitted);
  });
}

function check(by: Calibration, cell: Cell, fitted: readonly Cell[]): Check {
  const { us, work } = observe(cell);
  const nominal = nominalOf(cell);
  const assumes = by.set === cell.set ? [] : [`measured by another source, ${by.set}`];
  const predicted = predict({ fit: by.fits[cell.phase]!, assumes }, work, cell.tokens);
  const prior = predict({ fit: fitCells([], nominal), assumes: [] }, work, cell.tokens);
  const rule = byRule(cell, fitted);
  return {
    cell,
    measured: us,
    predicted,
    error: predicted.time / us - 1,
    prior: prior.time / us - 1,
    rule: rule === null ? null : rule / us - 1,
    bytesAlone: bytesAlone(work, nominal) / us - 1,
  };
}

/** What the last two doublings of the fitted cells of the same load say, from EP16 on. */
function byRule(cell: Cell, fitted: readonly Cell[]): number | null {
  const of = (size: number) => fitted.find((one) => cellName(one) === cellName({ ...cell, ep: size }));
  const last = [cell.ep / 2, cell.ep / 4].find((size) => size >= 32 && of(size) && of(size / 2));
  if (last === undefined) return null;
  const [us, before] = [observe(of(last)!).us, observe(of(last / 2)!).us];
  return continuation(us, us - before, last, cell.ep).at(-1)!.us;
}

/** µs of bytes at nominal bandwidth. */
const bytesAlone = ({ nvlinkBytes, networkBytes }: Work, { nvlink, nic }: Nominal): number =>
  Math.max(nvlinkBytes / nvlink, networkBytes > 0 ? networkBytes / nic : 0) / 1000;

export function summarise(checks: readonly Check[]): Summary {
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + Math.abs(value), 0) / values.length;
  const rules = checks.flatMap(({ rule }) => rule ?? []);
  return {
    cells: checks.length,
    mean: mean(checks.map(({ error }) => error)),
    prior: mean(checks.map(({ prior }) => prior)),
    rule: rules.length === 0 ? null : mean(rules),
    bytesAlone: mean(checks.map((check) => check.bytesAlone)),
    worst: Math.max(...checks.map(({ error }) => Math.abs(error))),
    within12: mean(checks.map(({ error }) => (Math.abs(error) <= 0.12 ? 1 : 0))),
    inRange: mean(
      checks.map(({ measured, predicted: { low, high } }) => (measured >= low && measured <= high ? 1 : 0)),
    ),
  };
}

/** Two sources' figures for the same system, ranks, tokens, phase and format on the same kind of GPU and network. */
export interface Disagreement {
  readonly system: string;
  readonly what: string;
  readonly figures: readonly { readonly src: string; readonly hw: string; readonly us: number }[];
  /** Largest ÷ smallest. */
  readonly ratio: number;
}

export function disagreements(): Disagreement[] {
  const groups = new Map<string, Cell[]>();
  for (const cell of shippedCells()) {
    const { phase, dtype, ep: ranks, tokens } = cell;
    const key = JSON.stringify([kindOf(cell), phase, dtype, ranks, tokens]);
    groups.set(key, [...(groups.get(key) ?? []), cell]);
  }
  const found = [...groups.values()]
    .filter((cells) => new Set(cells.map((cell) => cell.set)).size > 1)
    .map((cells): Disagreement => {
      const { lib, mode, phase, dtype, ep: ranks, tokens } = cells[0]!;
      const figures = cells.map((cell) => ({ src: cell.src, hw: cell.hw, us: observe(cell).us }));
      const times = figures.map(({ us }) => us);
      return {
        system: `${lib} ${mode}`,
        what: `${phase} ${dtype}, EP${ranks}, ${tokens} tokens`,
        figures,
        ratio: Math.max(...times) / Math.min(...times),
      };
    });
  return found.sort((a, b) => b.ratio - a.ratio);
}
