/**
 * Fitting by least squares on relative error (of logarithms), with the priors as further observations: Levenberg and
 * Marquardt's method. Parameters are fitted as logarithms, so none can become negative.
 */
import type { Observation } from './cells.js';
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
  /** Standard deviation of the logarithm of measured ÷ fitted. */
  readonly scatter: number;
  readonly covered: Covered;
}

/** What the cells of a fit covered: beyond it, it extrapolates. */
export interface Covered {
  readonly cells: number;
  readonly ep: readonly [number, number];
  readonly tokens: readonly [number, number];
  /** Some crossed a network. */
  readonly network: boolean;
}

/** No source is believed to be more exact than this: runs of one kernel differ by as much. */
const leastScatter = 0.03;

export function fitCells(observations: readonly Observation[], nominal: Nominal): Fit {
  // First as if the source were exact, to see how much it scatters; then with that against the priors.
  const first = fitWith(observations, nominal, leastScatter);
  const scatter = Math.max(leastScatter, first.scatter);
  const { at, normal } = scatter === leastScatter ? first : fitWith(observations, nominal, scatter);
  return {
    parameters: parametersAt(at),
    covariance: inverse(normal),
    scatter,
    covered: coveredBy(observations),
  };
}

function fitWith(observations: readonly Observation[], nominal: Nominal, scatter: number) {
  const before = priors(nominal);
  const centre = parameterNames.map((name) => Math.log(before[name][0]));
  const spread = parameterNames.map((name) => before[name][1]);
  const off = (at: readonly number[]): number[] => {
    const parameters = parametersAt(at);
    return observations.map(({ us, work }) => Math.log(time(parameters, work) / us));
  };
  const { at, normal } = leastSquares(
    (point) => [
      ...off(point).map((error) => error / scatter),
      ...point.map((value, i) => (value - centre[i]!) / spread[i]!),
    ],
    centre,
  );
  const squares = off(at).reduce((sum, error) => sum + error ** 2, 0);
  // About half of the parameters are what the cells decide; the others stay where the priors have them.
  const free = Math.max(1, observations.length - parameterNames.length / 2);
  return { at, normal, scatter: Math.sqrt(squares / free) };
}

function coveredBy(observations: readonly Observation[]): Covered {
  const range = (values: readonly number[]): [number, number] => [Math.min(...values), Math.max(...values)];
  return {
    cells: observations.length,
    ep: range(observations.map(({ cell }) => cell.ep)),
    tokens: range(observations.map(({ cell }) => cell.tokens)),
    network: observations.some(({ work }) => work.networkBytes > 0),
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

type Residuals = (at: readonly number[]) => number[];

/** Minimises the sum of squares; also the normal matrix there. */
export function leastSquares(
  residuals: Residuals,
  start: readonly number[],
): { readonly at: readonly number[]; readonly normal: number[][] } {
  let at = [...start];
  let now = residuals(at);
  let cost = dot(now, now);
  let damping = 1e-2;
  let slopes = difference(residuals, at, now);
  for (let turn = 0; turn < 100 && damping < 1e9; turn++) {
    const normal = slopes.map((a) => slopes.map((b) => dot(a, b)));
    const downhill = slopes.map((a) => -dot(a, now));
    const damped = normal.map((row, i) => row.map((v, j) => (i === j ? v * (1 + damping) : v)));
    const step = solve(damped, downhill);
    const next = at.map((value, i) => value + step[i]!);
    const there = residuals(next);
    const costThere = dot(there, there);
    if (!(costThere < cost)) {
      damping *= 4;
      continue;
    }
    const gained = cost - costThere;
    [at, now, cost] = [next, there, costThere];
    damping /= 3;
    slopes = difference(residuals, at, now);
    if (gained < 1e-9 * (1 + cost)) break;
  }
  return { at, normal: slopes.map((a) => slopes.map((b) => dot(a, b))) };
}

/** For each coordinate, how every residual answers. */
function difference(residuals: Residuals, at: readonly number[], here = residuals(at)): number[][] {
  const h = 1e-6;
  return at.map((_, i) => {
    const moved = residuals(at.map((value, j) => (i === j ? value + h : value)));
    return moved.map((value, r) => (value - here[r]!) / h);
  });
}

const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0);

/** Solves a symmetric positive definite system by Cholesky's factors. */
function solve(matrix: readonly (readonly number[])[], right: readonly number[]): number[] {
  const size = right.length;
  const lower = matrix.map(() => new Array<number>(size).fill(0));
  for (let i = 0; i < size; i++) {
    for (let j = 0; j <= i; j++) {
      let value = matrix[i]![j]!;
      for (let k = 0; k < j; k++) value -= lower[i]![k]! * lower[j]![k]!;
      lower[i]![j] = i === j ? Math.sqrt(Math.max(value, 1e-300)) : value / lower[j]![j]!;
    }
  }
  const x = [...right];
  for (let i = 0; i < size; i++) {
    for (let k = 0; k < i; k++) x[i]! -= lower[i]![k]! * x[k]!;
    x[i]! /= lower[i]![i]!;
  }
  for (let i = size - 1; i >= 0; i--) {
    for (let k = i + 1; k < size; k++) x[i]! -= lower[k]![i]! * x[k]!;
    x[i]! /= lower[i]![i]!;
  }
  return x;
}

const inverse = (matrix: readonly (readonly number[])[]): number[][] =>
  matrix.map((_, i) =>
    solve(
      matrix,
      matrix.map((_, j) => (i === j ? 1 : 0)),
    ),
  );
