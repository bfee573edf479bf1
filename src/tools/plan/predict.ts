/** Predictions with ranges: what a fit says about a phase that it may not have seen. */
import type { Family } from '../../moe/families/index.js';
import { type Covered, type Fit, gradient } from './fit.js';
import type { Calibration, Machine } from './machines.js';
import { type Bound, boundOf, type Parts, parameterNames, partsOf, time, type Work } from './model.js';

export interface Prediction {
  /** µs. */
  readonly time: number;
  /** Nine of ten measurements are expected from `low` to `high`. */
  readonly low: number;
  readonly high: number;
  readonly bound: Bound;
  readonly parts: Parts;
  /** What lies outside of what was measured; empty where the fit interpolates. */
  readonly beyond: readonly string[];
}

/** Half of the width that nine tenths of a normal distribution have, in standard deviations. */
const ninety = 1.645;
/** What every doubling beyond the measured ranks, or tokens, adds to the logarithm's standard deviation. */
const perDoubling = { ranks: 0.05, tokens: 0.03 };
/** The same for a network of which no cell crossed any, and for what was never built or measured there. */
const unseen = { network: 0.15, kernel: 0.15 };

/** What is put together from several fits, or stands in for something unmeasured, says so here. */
export interface Basis {
  readonly fit: Fit;
  /** Why the fit is not of the very thing, where it is not. */
  readonly assumes: readonly string[];
}

export function predict({ fit, assumes }: Basis, work: Work, tokens: number): Prediction {
  const { parameters, covariance, scatter, covered } = fit;
  const slopes = gradient(parameters, work);
  const doubt = covariance.reduce(
    (sum, row, i) => sum + row.reduce((inner, value, j) => inner + value * slopes[i]! * slopes[j]!, 0),
    0,
  );
  const { beyond, spread } = distance(covered, work, tokens);
  const untried = assumes.length > 0 ? unseen.kernel : 0;
  const deviation = Math.sqrt(scatter ** 2 + doubt + spread ** 2 + untried ** 2);
  const middle = time(parameters, work);
  const parts = partsOf(parameters, work);
  return {
    time: middle,
    low: middle * Math.exp(-ninety * deviation),
    high: middle * Math.exp(ninety * deviation),
    bound: boundOf(parameters, parts),
    parts,
    beyond: [...assumes, ...beyond],
  };
}

/** How far a phase lies from what was measured, in words and as a standard deviation. */
function distance(covered: Covered, work: Work, tokens: number) {
  const crosses = work.networkBytes > 0 && !covered.network;
  const off = {
    ranks: doublingsBeyond(work.ranks, covered.ep),
    tokens: doublingsBeyond(tokens, covered.tokens),
  };
  const measured = ([least, most]: readonly [number, number]) =>
    least === most ? `${least}` : `${least} to ${most}`;
  return {
    beyond: [
      ...(off.ranks > 0 ? [`beyond the EP measured, ${measured(covered.ep)}`] : []),
      ...(off.tokens > 0 ? [`beyond the tokens measured, ${measured(covered.tokens)}`] : []),
      ...(crosses ? ['nothing measured crossed the network'] : []),
    ],
    spread: Math.hypot(
      perDoubling.ranks * off.ranks,
      perDoubling.tokens * off.tokens,
      crosses ? unseen.network : 0,
    ),
  };
}

function doublingsBeyond(value: number, [least, most]: readonly [number, number]): number {
  return Math.max(0, Math.log2(value / most), Math.log2(least / value));
}

const networkNames: readonly string[] = ['serial', 'latency', 'peer', 'message', 'nic'];

/**
 * One of Heddle's families on a machine: what was measured to be needed inside a node, at the machine's NVLink, and
 * for what crosses the network what another library needs for bulk messages on such NICs.
 */
export function heddleBasis(
  family: Family,
  machine: Machine,
  phase: 'dispatch' | 'combine',
  crosses: boolean,
  { local, network }: { readonly local: Calibration; readonly network: Calibration },
): Basis {
  const inside = local.fits[phase]!;
  const outside = network.fits[phase]!;
  const here = machine.name === 'h200-nvlink';
  const faster = Math.log(450 / machine.nominal.nvlink);
  const measured = local.mode === family.name.replaceAll('-', '_');
  const assumes = [
    ...(measured ? [] : ['a prediction, no measurement of it enters the model']),
    ...(here ? [] : ['Heddle was measured on H200 only']),
    ...(crosses ? [`network as ${network.lib} on ${network.hw}`] : []),
  ];
  const from = (name: string) => (crosses && networkNames.includes(name) ? outside : inside);
  const parameters = {
    ...inside.parameters,
    nvlink: inside.parameters.nvlink * Math.exp(faster),
    ...(crosses
      ? {
          serial: outside.parameters.serial,
          latency: outside.parameters.latency,
          peer: outside.parameters.peer,
          message: outside.parameters.message,
          nic: outside.parameters.nic,
        }
      : {}),
  };
  const covariance = parameterNames.map((a, i) =>
    parameterNames.map((b, j) => (from(a) === from(b) ? from(a).covariance[i]![j]! : 0)),
  );
  const covered: Covered = crosses
    ? { ...outside.covered, cells: inside.covered.cells + outside.covered.cells }
    : inside.covered;
  const scatter = crosses ? Math.max(inside.scatter, outside.scatter) : inside.scatter;
  return { fit: { parameters, covariance, scatter, covered }, assumes };
}
