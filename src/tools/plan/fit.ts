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

/** What one set of cells says about one phase. */
export interface Fit {
  readonly parameters: Parameters;
  /** Of the logarithms of the parameters, row by row, after the fit. */
  readonly covariance: readonly (readonly number[])[];
  /** Standard deviation of the logarithm of measured ÷ fitted, far from every cell. */
  readonly scatter: number;
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

/** What a source is believed to scatter before its cells are seen, as if one cell had said so. */
const usualScatter = 0.25;
/** The share of it that two cells of the very same place do not have in common. */
const own = 0.02;
/** Doublings over which likeness falls to a third. */
const reach = { ranks: 2, tokens: 32 };

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
  let scatter = usualScatter;
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
    scatter = Math.sqrt((usualScatter ** 2 + dot(off, off)) / (1 + off.length));
  }
  const places = over(found.at).map((value, i): Seen => {
    const { tokens, work } = all[i]!;
    return { tokens, work, over: value };
  });
  return {
    parameters: parametersAt(found.at),
    covariance: inverse(found.normal),
    scatter,
    seen: places.slice(0, measured.length),
    continued: places.slice(measured.length),
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
