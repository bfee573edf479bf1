/**
 * Validation: fit on a stated part of the cells, predict the others, and say how far off. The parts are stated here and
 * nowhere else, so nobody can choose them by their result.
 */
import { type Cell, observe, shippedCells } from './cells.js';
import { byOrigin, type Calibration, calibrate, machineOf, nominalOf } from './machines.js';
import type { Nominal, Work } from './model.js';
import { type Prediction, predict } from './predict.js';

/** Cells, and which of them are held out. */
export interface Split {
  readonly name: string;
  readonly of: (cell: Cell) => boolean;
  readonly held: (cell: Cell) => boolean;
  /** What was asked of the mean error and of the share of cells within 12 %, where something was. */
  readonly goal?: { readonly mean: number; readonly within12?: number };
}

const set =
  (...names: readonly string[]) =>
  (cell: Cell): boolean =>
    names.includes(cell.set);
const system =
  (lib: string, mode: string, more: (cell: Cell) => boolean = () => true) =>
  (cell: Cell): boolean =>
    cell.lib === lib && cell.mode === mode && more(cell);
const ep =
  (...sizes: readonly number[]) =>
  (cell: Cell): boolean =>
    sizes.includes(cell.ep);
const heddleRounds = (cell: Cell): boolean => cell.lib === 'heddle' && cell.phase === 'both';

export const splits: readonly Split[] = [
  {
    name: 'one-sided on GB200: EP8, EP16 → EP32',
    of: set('trtllm'),
    held: ep(32),
    goal: { mean: 0.06, within12: 0.9 },
  },
  {
    name: 'pplx-garden hybrid, ConnectX-7 and EFA: EP8, EP16 → EP32',
    of: set('garden'),
    held: ep(32),
    goal: { mean: 0.05 },
  },
  {
    name: 'DeepEP low latency, ConnectX-7: EP8, EP32 → EP16',
    of: system('deepep_v1', 'll', (cell) => cell.fabric === 'cx7' && cell.ep <= 32),
    held: ep(16),
    goal: { mean: 0.08 },
  },
  { name: 'Heddle on H200: EP4 → EP2', of: heddleRounds, held: ep(2), goal: { mean: 0.08 } },
  { name: 'Heddle on H200: EP2 → EP4', of: heddleRounds, held: ep(4), goal: { mean: 0.08 } },
  {
    name: 'Heddle on H200, dispatch: bf16 → fp8',
    of: (cell) => cell.lib === 'heddle' && cell.phase === 'dispatch',
    held: ({ dtype }) => dtype === 'fp8',
  },
  {
    name: 'DeepEP low latency, EP8 in one node: every other number of tokens',
    of: set('aic_ll_ep8'),
    held: ({ tokens }) => Math.log2(tokens) % 2 === 1,
  },
  {
    name: 'DeepEP low latency, as pplx-garden measured it: EP8 to EP32 → EP64',
    of: (cell) => cell.set === 'garden_deepep' && cell.mode === 'll',
    held: ep(64),
  },
  {
    name: 'DeepEP normal, as pplx-garden measured it: EP8 to EP32 → EP64',
    of: (cell) => cell.set === 'garden_deepep' && cell.mode === 'normal',
    held: ep(64),
  },
  {
    name: 'DeepEP normal, as its README has it: EP8 to EP32 → EP64',
    of: set('deepep_normal_h800'),
    held: ep(64),
  },
  { name: 'NCCL EP: EP8 to EP32 → EP64', of: set('nccl_ep'), held: ep(64) },
  { name: 'UCCL low latency: the largest EP', of: set('uccl_ll'), held: ep(32) },
  { name: 'UCCL normal: the largest EP', of: set('uccl_normal'), held: ep(32) },
  {
    name: 'pplx-kernels over IBGDA: EP16 to EP64 → EP128',
    of: system('pplx-kernels', 'ibgda'),
    held: ep(128),
  },
  {
    name: 'pplx-kernels over a proxy (IBRC): EP16 to EP64 → EP128',
    of: system('pplx-kernels', 'ibrc'),
    held: ep(128),
  },
];

/** A held-out cell beside what was predicted without it. */
export interface Check {
  readonly cell: Cell;
  readonly measured: number;
  readonly predicted: Prediction;
  /** Predicted ÷ measured − 1. */
  readonly error: number;
  /** Of bytes over nominal bandwidth, and nothing else. */
  readonly bytesAlone: number;
}

export interface Summary {
  readonly cells: number;
  /** Means of the errors' sizes. */
  readonly mean: number;
  readonly worst: number;
  /** Shares of the cells whose error is at most 12 %, and which lie in the predicted range. */
  readonly within12: number;
  readonly inRange: number;
  readonly bytesAlone: number;
}

export interface SplitResult {
  readonly name: string;
  readonly fitted: number;
  readonly goal?: NonNullable<Split['goal']>;
  readonly reached: boolean | null;
  readonly summary: Summary;
  readonly checks: readonly Check[];
}

export function validate(cells: readonly Cell[] = shippedCells()): SplitResult[] {
  return splits.map(({ name, of, held, goal }) => {
    const mine = cells.filter(of);
    const known = byOrigin(mine.filter((cell) => !held(cell))).map((group) =>
      calibrate(group, nominalOf(group[0]!)),
    );
    const checks = mine.filter(held).flatMap((cell) => checkWith(known, cell) ?? []);
    const summary = summarise(checks);
    const reached =
      goal === undefined ? null : summary.mean <= goal.mean && summary.within12 >= (goal.within12 ?? 0);
    const fitted = mine.length - mine.filter(held).length;
    return { name, fitted, ...(goal === undefined ? {} : { goal }), reached, summary, checks };
  });
}

/** Other cells against everything that is shipped; `unknown` are those of systems or machines without any cell. */
export function validateCells(others: readonly Cell[]): {
  readonly result: SplitResult;
  readonly unknown: readonly Cell[];
} {
  const shipped = shippedCells();
  const known = byOrigin(shipped).map((group) => calibrate(group, nominalOf(group[0]!)));
  const found = others.map((cell) => checkWith(known, cell));
  const checks = found.flatMap((check) => check ?? []);
  return {
    result: {
      name: 'the cells of the file, fitted on all that is shipped',
      fitted: shipped.length,
      reached: null,
      summary: summarise(checks),
      checks,
    },
    unknown: others.filter((_, i) => found[i] === undefined),
  };
}

/** By the same source where it is known, else by another that measured the same system on the same machine. */
function checkWith(known: readonly Calibration[], cell: Cell): Check | undefined {
  const same = known.filter(
    ({ lib, mode, hw, fabric, fits }) =>
      lib === cell.lib &&
      mode === cell.mode &&
      fits[cell.phase] !== undefined &&
      ((hw === cell.hw && fabric === cell.fabric) ||
        (machineOf(cell) !== undefined && machineOf({ hw, fabric }) === machineOf(cell))),
  );
  const by = same.find((one) => one.set === cell.set) ?? same[0];
  if (by === undefined) return undefined;
  const { us, work } = observe(cell);
  const predicted = predict({ fit: by.fits[cell.phase]!, assumes: [] }, work, cell.tokens);
  return {
    cell,
    measured: us,
    predicted,
    error: predicted.time / us - 1,
    bytesAlone: bytesAlone(work, nominalOf(cell)) / us - 1,
  };
}

/** µs of bytes at nominal bandwidth. */
const bytesAlone = ({ nvlinkBytes, networkBytes }: Work, { nvlink, nic }: Nominal): number =>
  Math.max(nvlinkBytes / nvlink, networkBytes > 0 ? networkBytes / nic : 0) / 1000;

export function summarise(checks: readonly Check[]): Summary {
  const mean = (of: (check: Check) => number): number =>
    checks.reduce((sum, check) => sum + of(check), 0) / checks.length;
  return {
    cells: checks.length,
    mean: mean(({ error }) => Math.abs(error)),
    worst: Math.max(...checks.map(({ error }) => Math.abs(error))),
    within12: mean(({ error }) => (Math.abs(error) <= 0.12 ? 1 : 0)),
    inRange: mean(({ measured, predicted: { low, high } }) => (measured >= low && measured <= high ? 1 : 0)),
    bytesAlone: mean((check) => Math.abs(check.bytesAlone)),
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
    const { lib, mode, phase, dtype, ep: ranks, tokens, hw } = cell;
    const network = ranks > cell.domain ? cell.fabric : 'one node';
    const chip = hw.startsWith('H') ? 'Hopper' : hw;
    const key = JSON.stringify([lib, mode, phase, dtype, ranks, tokens, network, chip]);
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
