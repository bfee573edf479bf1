/**
 * Fitting by least squares on relative error (of logarithms), with the priors as further observations. Parameters are fitted
 * as logarithms, so none can become negative. Cells near to each other are off alike; that is part of the fit, so cells
 * that repeat each other count as few, and what the model cannot follow is carried to the places near by.
 */
import { continuedBeyond, type Observation } from './cells.js';
import { difference, dot, factor, forward, inverse, leastSquares } from './linear.js';
import {
  type Nominal,
  type ParameterName,
  type Parameters,
  parameterNames,
  priors,
  time,
  type Work,
} from './model.js';

/** The prediction of one set of cells for one phase. */
export interface Fit {
  /** Of the machine that the cells were measured on. */
  readonly nominal: Nominal;
  readonly parameters: Parameters;
  /** Of the logarithms of the parameters, row by row, after the fit. */
  readonly covariance: readonly (readonly number[])[];
  /** Standard deviation of the logarithm of measured ÷ fitted, far from every cell. */
  readonly scatter: number;
  /** The number of cells that have said so: of few the scatter is not known well. */
  readonly freedom: number;
  /** How much wider ranges are than the model has them, so that its cells lie in those that are predicted without them. */
  readonly wider: number;
  readonly seen: readonly Seen[];
  /** Where they would go on with more ranks (`continuedBeyond`). */
  readonly continued: readonly Seen[];
}

/** A place where the time is known, or believed. */
export interface Seen {
  readonly tokens: number;
  readonly work: Work;
  /** The logarithm of the time there ÷ the model's. */
  readonly over: number;
}

/** Half of the width that nine tenths of a normal distribution have, in standard deviations. */
export const ninety = 1.645;

/** The scatter that a source is believed to have before its cells are seen, as if so many cells had said so. */
const usual = { scatter: 0.2, cells: 2 };
/** The share of it that two cells of the very same place do not have in common. */
const own = 0.02;
/** Doublings over which likeness falls to a third. */
const reach = { ranks: 2, tokens: 32 };

/** The amount that every doubling beyond the measured ranks, or tokens, adds to the logarithm's standard deviation. */
const perDoubling = { ranks: 0.1, tokens: 0.05 };
/** The same for a network of which no cell crossed any. */
const unseenNetwork = 0.15;

/** How alike two places are off: nothing where only one of them crosses the network. */
export function alike(a: Omit<Seen, 'over'>, b: Omit<Seen, 'over'>): number {
  if (a.work.networkBytes > 0 !== b.work.networkBytes > 0) return 0;
  const ranks = Math.abs(Math.log2(a.work.ranks / b.work.ranks)) / reach.ranks;
  const tokens = Math.abs(Math.log2(a.tokens / b.tokens)) / reach.tokens;
  return (1 - own) * Math.exp(-ranks - tokens);
}

/** The factor of the matrix of their likeness. */
export const likeness = (all: readonly Omit<Seen, 'over'>[]): number[][] =>
  factor(all.map((a, i) => all.map((b, j) => (i === j ? 1 : alike(a, b)))));

export function fitCells(observations: readonly Observation[], nominal: Nominal): Fit {
  const before = priors(nominal);
  const centre = parameterNames.map((name) => Math.log(before[name][0]));
  const spread = parameterNames.map((name) => before[name][1]);
  const measured = observations.map(({ cell: { tokens }, work, us }) => ({ tokens, work, us }));
  const all = [...measured, ...continuedBeyond(observations)];
  const over = (at: readonly number[], of = all): number[] => {
    const parameters = parametersAt(at);
    return of.map(({ us, work }) => Math.log(us / time(parameters, work)));
  };
  const [lower, ofMeasured] = [likeness(all), likeness(measured)];
  let { scatter, cells: freedom } = usual;
  let found: ReturnType<typeof leastSquares> = { at: centre, normal: [] };
  // How much a source scatters is seen once it is fitted, and changes what the priors weigh.
  for (let turn = 0; turn < 3; turn++) {
    found = leastSquares(
      (point) => [
        ...forward(lower, over(point)).map((off) => off / scatter),
        ...point.map((value, i) => (value - centre[i]!) / spread[i]!),
      ],
      found.at,
    );
    const off = forward(ofMeasured, over(found.at, measured));
    // A cell that a parameter follows says nothing of scatter.
    const used = inverse(found.normal).reduce((sum, row, i) => sum + 1 - row[i]! / spread[i]! ** 2, 0);
    freedom = usual.cells + Math.max(0, off.length - used);
    scatter = Math.sqrt((usual.cells * usual.scatter ** 2 + dot(off, off)) / freedom);
  }
  const places = over(found.at).map((value, i): Seen => {
    const { tokens, work } = all[i]!;
    return { tokens, work, over: value };
  });
  const seen = places.slice(0, measured.length);
  const parameters = parametersAt(found.at);
  const slopes = seen.map(({ work }) => gradient(parameters, work));
  const moved = found.at.map((value, i) => value - centre[i]!);
  const believed = seen.map(({ over: off }, i) => off + dot(slopes[i]!, moved));
  const together = seen.map((a, i) =>
    seen.map((b, j) => {
      const shared = slopes[i]!.reduce((sum, slope, k) => sum + slope * slopes[j]![k]! * spread[k]! ** 2, 0);
      return shared + scatter ** 2 * (i === j ? 1 : alike(a, b));
    }),
  );
  return {
    ...{ nominal, parameters, covariance: inverse(found.normal), scatter, freedom, seen },
    wider: leftOut(seen, believed, inverse(together)),
    continued: places.slice(measured.length),
  };
}

/**
 * Each EP from the others, few tokens from many and back, every other number of tokens: how much wider than the fit says ranges
 * must be to hold nine of ten cells that are left out. Each question counts as much as another, and one more as having been
 * asked before, with the answer 1.
 */
function leftOut(
  seen: readonly Seen[],
  off: readonly number[],
  precision: readonly (readonly number[])[],
): number {
  const sizes = [...new Set(seen.map(({ tokens }) => tokens))].sort((a, b) => a - b);
  const ranks = [...new Set(seen.map(({ work }) => work.ranks))];
  const at = ({ tokens }: Seen) => sizes.indexOf(tokens);
  const questions: ((one: Seen) => boolean)[] = [
    ...(ranks.length > 1
      ? ranks.map(
          (ep) =>
            ({ work }: Seen) =>
              work.ranks === ep,
        )
      : []),
    ...(sizes.length > 1
      ? [0, 1].map((half) => (one: Seen) => Number(at(one) >= sizes.length >> 1) === half)
      : []),
    ...(sizes.length > 3 ? [0, 1].map((turn) => (one: Seen) => at(one) % 2 === turn) : []),
  ];
  const weighted = precision.map((row) => dot(row, off));
  const asked = questions.flatMap((held) => {
    const out = [...seen.keys()].filter((i) => held(seen[i]!));
    const rest = seen.filter((one) => !held(one));
    const spread = inverse(out.map((i) => out.map((j) => precision[i]![j]!)));
    const here = out.map((i) => weighted[i]!);
    return out.map((i, n) => {
      const variance = spread[n]![n]! + distance(rest, seen[i]!).spread ** 2;
      return { weight: 1 / out.length, far: Math.abs(dot(spread[n]!, here)) / Math.sqrt(variance) };
    });
  });
  return (nineOfTen(asked) / ninety) ** (questions.length / (1 + questions.length));
}

/** The value below which nine tenths of the weight lie; of nothing that of a normal distribution. */
function nineOfTen(values: readonly { readonly far: number; readonly weight: number }[]): number {
  const sorted = [...values].sort((a, b) => a.far - b.far);
  const all = sorted.reduce((sum, { weight }) => sum + weight, 0);
  let before = 0;
  for (const { far, weight } of sorted) {
    if (before + weight / 2 >= 0.9 * all) return far;
    before += weight;
  }
  return sorted.at(-1)?.far ?? ninety;
}

/** How far a phase lies from what was measured, in words and as a standard deviation; and whether it alone crosses the network, or alone does not. */
export function distance(seen: readonly Seen[], { work, tokens }: Omit<Seen, 'over'>) {
  if (seen.length === 0) return { beyond: [], spread: 0, aside: false };
  const crosses = work.networkBytes > 0;
  const aside = seen.every((one) => one.work.networkBytes > 0 !== crosses);
  const beyond = (what: string, each: number, value: number, values: readonly number[]) => {
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const doublings = Math.max(0, Math.log2(value / most), Math.log2(least / value));
    // From cells of one size nobody knows how the time grows with the size, so the range is twice as wide.
    const spread = each * doublings * (least === most ? 2 : 1);
    const measured = least === most ? `${least}` : `${least} to ${most}`;
    return { spread, words: doublings > 0 ? [`beyond the ${what} measured, ${measured}`] : [] };
  };
  const ranks = seen.map((one) => one.work.ranks);
  const sizes = seen.map((one) => one.tokens);
  const off = [
    beyond('EP', perDoubling.ranks, work.ranks, ranks),
    beyond('tokens', perDoubling.tokens, tokens, sizes),
    {
      spread: aside && crosses ? unseenNetwork : 0,
      words: aside ? [`nothing measured ${crosses ? 'crossed the network' : 'stayed in a node'}`] : [],
    },
  ];
  return {
    aside,
    beyond: off.flatMap(({ words }) => words),
    spread: Math.hypot(...off.map(({ spread }) => spread)),
  };
}

function parametersAt(logs: readonly number[]): Parameters {
  const parameters = {} as Record<ParameterName, number>;
  for (const [i, name] of parameterNames.entries()) parameters[name] = Math.exp(logs[i]!);
  return parameters;
}

/** How the logarithm of the time answers to the logarithms of the parameters. */
export function gradient(of: Parameters, work: Work): number[] {
  const logs = parameterNames.map((name) => Math.log(of[name]));
  return difference((at) => [Math.log(time(parametersAt(at), work))], logs).map(([slope]) => slope!);
}
