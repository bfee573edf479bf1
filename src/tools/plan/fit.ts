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

/** Measurements of one phase on one machine. */
interface Measured {
  readonly observations: readonly Observation[];
  /** Of the machine. */
  readonly nominal: Nominal;
}

/** The prediction of one set of cells for one phase. */
export interface Fit {
  /** Of the machine that the cells were measured on. */
  readonly nominal: Nominal;
  readonly parameters: Parameters;
  /** Of the logarithms of the parameters, row by row, after the fit. */
  readonly covariance: readonly (readonly number[])[];
  /** Standard deviation of the logarithm of measured ÷ fitted, far from every cell: one for all cells of a source. */
  readonly scatter: number;
  /** In so many standard deviations lie nine of ten of the source's cells that are predicted without them. */
  readonly width: number;
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

/**
 * The belief about a source before its cells are seen, as if so many cells had said so: how much they scatter, and how many standard
 * deviations to either side hold nine tenths (Student's distribution, where two cells have said what a deviation is).
 */
const usual = { cells: 2, scatter: 0.2, width: 2.92 };
/** The share of it that two cells of the very same place do not have in common. */
const own = 0.02;
/** Doublings over which likeness falls to a third. */
const reach = { ranks: 2, tokens: 32 };

/** The amount that every doubling beyond the measured ranks, or tokens, adds to the standard deviation: times the scatter. */
const perDoubling = { ranks: 0.5, tokens: 0.25 };
/** The same for a network of which no cell crossed any. */
const unseenNetwork = 0.75;

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

interface Size {
  readonly ranks: number;
  readonly tokens: number;
}

const distinct = (values: readonly number[]): number[] => [...new Set(values)].sort((a, b) => a - b);

/** The questions that cross-validation asks of a source with cells enough: its parts are left out one by one. */
export const questions: readonly {
  readonly name: string;
  parts(cells: readonly Size[]): readonly ((one: Size) => boolean)[];
}[] = [
  {
    name: 'every other number of tokens, either way',
    parts(cells) {
      const sizes = distinct(cells.map(({ tokens }) => tokens));
      const turn = (rest: number) => (one: Size) => sizes.indexOf(one.tokens) % 2 === rest;
      return sizes.length > 3 ? [turn(0), turn(1)] : [];
    },
  },
  {
    name: 'few tokens from many, many from few',
    parts(cells) {
      const sizes = distinct(cells.map(({ tokens }) => tokens));
      const few = (one: Size) => one.tokens < sizes[sizes.length >> 1]!;
      return sizes.length > 1 ? [few, (one) => !few(one)] : [];
    },
  },
  {
    name: 'each EP from the others',
    parts(cells) {
      const sizes = distinct(cells.map(({ ranks }) => ranks));
      return sizes.length > 1
        ? sizes.map(
            (size) =>
              ({ ranks }: Size) =>
                ranks === size,
          )
        : [];
    },
  },
];

export const fitCells = (observations: readonly Observation[], nominal: Nominal): Fit =>
  fitSource([{ observations, nominal }])[0]!;

/** Fits all that one source measured of a system. Each phase and machine has its own parameters; how wide ranges are, all of them say together. */
export function fitSource(measured: readonly Measured[]): Fit[] {
  const problems = measured.map(problemOf);
  let { scatter } = usual;
  let found = problems.map(({ centre }): ReturnType<typeof leastSquares> => ({ at: centre, normal: [] }));
  // How much a source scatters is seen once it is fitted, and changes what the priors weigh.
  for (let turn = 0; turn < 3; turn++) {
    found = problems.map(({ residuals }, i) => leastSquares(residuals(scatter), found[i]!.at));
    const said = problems.map(({ said }, i) => said(found[i]!));
    const cells = said.reduce((sum, one) => sum + one.cells, usual.cells);
    const squares = said.reduce((sum, one) => sum + one.squares, usual.cells * usual.scatter ** 2);
    scatter = Math.sqrt(squares / cells);
  }
  const fits = problems.map(({ at }, i) => at(found[i]!, scatter));
  const left = fits.flatMap(({ missed }) => missed);
  const cells = fits.reduce((sum, { missed, fit }) => sum + (missed.length > 0 ? fit.seen.length : 0), 0);
  const needed = left.sort((a, b) => a - b)[Math.ceil(0.9 * left.length - 0.5)] ?? usual.width;
  const width = usual.width * (needed / usual.width) ** (cells / (usual.cells + cells));
  return fits.map(({ fit }) => ({ ...fit, width }));
}

/** The least squares of one phase on one machine. */
function problemOf({ observations, nominal }: Measured) {
  const before = priors(nominal);
  const centre = parameterNames.map((name) => Math.log(before[name][0]));
  const spread = parameterNames.map((name) => before[name][1]);
  const cells = observations.map(({ cell: { tokens }, work, us }) => ({ tokens, work, us }));
  const places = [...cells, ...continuedBeyond(observations)];
  const over = (at: readonly number[], of = places): number[] => {
    const parameters = parametersAt(at);
    return of.map(({ us, work }) => Math.log(us / time(parameters, work)));
  };
  const [lower, ofCells] = [likeness(places), likeness(cells)];
  type Found = ReturnType<typeof leastSquares>;
  return {
    centre,
    residuals: (scatter: number) => (at: readonly number[]) => [
      ...forward(lower, over(at)).map((off) => off / scatter),
      ...at.map((value, i) => (value - centre[i]!) / spread[i]!),
    ],
    /** How far off the cells are, and how many say so: a cell that a parameter follows says nothing of scatter. */
    said({ at, normal }: Found) {
      const off = forward(ofCells, over(at, cells));
      const used = inverse(normal).reduce((sum, row, i) => sum + 1 - row[i]! / spread[i]! ** 2, 0);
      return { squares: dot(off, off), cells: Math.max(0, off.length - used) };
    },
    at({ at, normal }: Found, scatter: number) {
      const all = over(at).map((value, i): Seen => ({ ...places[i]!, over: value }));
      const seen = all.slice(0, cells.length);
      const parameters = parametersAt(at);
      const slopes = seen.map(({ work }) => gradient(parameters, work));
      const moved = at.map((value, i) => value - centre[i]!);
      const believed = seen.map(({ over: off }, i) => off + dot(slopes[i]!, moved));
      const together = seen.map((a, i) =>
        seen.map((b, j) => {
          const shared = slopes[i]!.reduce(
            (sum, slope, k) => sum + slope * slopes[j]![k]! * spread[k]! ** 2,
            0,
          );
          return shared + scatter ** 2 * (i === j ? 1 : alike(a, b));
        }),
      );
      const covariance = inverse(normal);
      const continued = all.slice(cells.length);
      return {
        fit: { nominal, parameters, covariance, scatter, seen, continued },
        missed: leftOut(seen, believed, inverse(together), scatter),
      };
    },
  };
}

/** By how many standard deviations each cell is missed that a part of a question leaves out. */
function leftOut(
  seen: readonly Seen[],
  off: readonly number[],
  precision: readonly (readonly number[])[],
  scatter: number,
): number[] {
  const sizes = seen.map(({ tokens, work: { ranks } }) => ({ tokens, ranks }));
  const weighted = precision.map((row) => dot(row, off));
  return questions.flatMap(({ parts }) =>
    parts(sizes).flatMap((held) => {
      const out = [...seen.keys()].filter((i) => held(sizes[i]!));
      const rest = seen.filter((_, i) => !held(sizes[i]!));
      const spread = inverse(out.map((i) => out.map((j) => precision[i]![j]!)));
      const here = out.map((i) => weighted[i]!);
      return out.map((i, n) => {
        const deviation = Math.hypot(Math.sqrt(spread[n]![n]!), scatter * distance(rest, seen[i]!).scatters);
        return Math.abs(dot(spread[n]!, here)) / deviation;
      });
    }),
  );
}

/** How far a phase lies from what was measured, in words and in scatters of its source; and whether it alone crosses the network, or alone does not. */
export function distance(seen: readonly Seen[], { work, tokens }: Omit<Seen, 'over'>) {
  if (seen.length === 0) return { beyond: [], scatters: 0, aside: false };
  const crosses = work.networkBytes > 0;
  const aside = seen.every((one) => one.work.networkBytes > 0 !== crosses);
  const beyond = (what: string, each: number, value: number, values: readonly number[]) => {
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const doublings = Math.max(0, Math.log2(value / most), Math.log2(least / value));
    // From cells of one size nobody knows how the time grows with the size, so the range is twice as wide.
    const scatters = each * doublings * (least === most ? 2 : 1);
    const measured = least === most ? `${least}` : `${least} to ${most}`;
    return { scatters, words: doublings > 0 ? [`beyond the ${what} measured, ${measured}`] : [] };
  };
  const ranks = seen.map((one) => one.work.ranks);
  const sizes = seen.map((one) => one.tokens);
  const off = [
    beyond('EP', perDoubling.ranks, work.ranks, ranks),
    beyond('tokens', perDoubling.tokens, tokens, sizes),
    {
      scatters: aside && crosses ? unseenNetwork : 0,
      words: aside ? [`nothing measured ${crosses ? 'crossed the network' : 'stayed in a node'}`] : [],
    },
  ];
  return {
    aside,
    beyond: off.flatMap(({ words }) => words),
    scatters: Math.hypot(...off.map(({ scatters }) => scatters)),
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
