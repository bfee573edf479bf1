/** Predictions with ranges: what a fit says about a phase that it may not have seen. */
import type { Family } from '../../moe/families/index.js';
import { alike, distance, type Fit, fitCells, gradient, likeness, ninety, type Seen } from './fit.js';
import { dot, solve } from './linear.js';
import type { Calibration, Machine } from './machines.js';
import { boundOf, parameterNames, partsOf, time, type Work } from './model.js';

/** The amount that another machine or kernel than was measured adds to the logarithm's standard deviation. */
const unlike = 0.2;

/** An answer that is put together from several fits, or stands in for something unmeasured, says so here. */
export interface Basis {
  readonly fit: Fit;
  /** Why the fit is not of the very thing, where it is not. */
  readonly assumes: readonly string[];
  /** By how much another harness than one's own may differ, which measured the very thing: a standard deviation of the logarithm. */
  readonly elsewhere?: number;
}

/** Times in µs. Nine of ten measurements are expected from `low` to `high`. */
export function predict(basis: Basis, work: Work, tokens: number) {
  const { assumes, elsewhere = 0 } = basis;
  const here = { work, tokens };
  const { beyond, scatters, aside } = distance(basis.fit.seen, here);
  // Phases that cross the network hide what NVLink costs: of one that does not, they say less than nominal figures.
  const fit = aside && work.networkBytes === 0 ? fitCells([], basis.fit.nominal) : basis.fit;
  const { parameters, covariance, scatter, width, seen, continued } = fit;
  // This will be off by as much as the cells near by were, as far as it is like them.
  const known = [...seen, ...continued];
  const to = (places: readonly Seen[]) => places.map((place) => alike(here, place));
  const off = solve(
    likeness(known),
    known.map(({ over }) => over),
  );
  const share = solve(likeness(seen), to(seen));
  const told = dot(share, to(seen));
  const ofCells = seen.map((place) => gradient(parameters, place.work));
  const slopes = gradient(parameters, work).map(
    (slope, i) =>
      slope -
      dot(
        share,
        ofCells.map((one) => one[i]!),
      ),
  );
  const doubt = covariance.reduce((sum, row, i) => sum + slopes[i]! * dot(row, slopes), 0);
  const other = Math.max(elsewhere, assumes.length > 0 ? unlike : 0);
  const own = Math.sqrt(scatter ** 2 * (1 - told + scatters ** 2) + doubt);
  const half = Math.hypot(width * own, ninety * other);
  const middle = time(parameters, work) * Math.exp(dot(off, to(known)));
  const parts = partsOf(parameters, work);
  return {
    time: middle,
    low: middle * Math.exp(-half),
    high: middle * Math.exp(half),
    bound: boundOf(parts),
    // Of the model alone, before what its cells say of places near by.
    parts,
    // The inputs that lie outside of what was measured; empty where the fit interpolates.
    beyond: [...assumes, ...beyond],
  };
}

/**
 * One of Heddle's families on a machine. Inside a node it is what one-sided was measured to need, at the machine's NVLink.
 * Beyond it, NVLink costs that, and all else what another library needs for bulk messages, at the machine's NIC.
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
  const nvlink = inside.parameters.nvlink * (local.nominal.nvlink / machine.nominal.nvlink);
  const measured = local.mode === family.name.replaceAll('-', '_');
  const assumes = [
    ...(measured ? [] : ['a prediction, no measurement of it enters the model']),
    ...(machine.cells.some(({ hw, fabric }) => hw === local.hw && fabric === local.fabric)
      ? []
      : ['Heddle was measured on H200 only']),
    ...(crosses ? [`network as ${network.lib} on ${network.hw}`] : []),
  ];
  if (!crosses) return { fit: { ...inside, parameters: { ...inside.parameters, nvlink } }, assumes };
  const from = (name: string) => (name === 'nvlink' ? inside : outside);
  return {
    fit: {
      nominal: machine.nominal,
      parameters: {
        ...outside.parameters,
        nvlink,
        nic: outside.parameters.nic * (network.nominal.nic / machine.nominal.nic),
      },
      covariance: parameterNames.map((a, i) =>
        parameterNames.map((b, j) => (from(a) === from(b) ? from(a).covariance[i]![j]! : 0)),
      ),
      scatter: Math.max(inside.scatter, outside.scatter),
      width: Math.max(inside.width, outside.width),
      // The other library's rows go another way, so what its cells were off says nothing here.
      seen: [],
      continued: [],
    },
    assumes,
  };
}
