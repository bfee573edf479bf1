/** The options of an experts' plan, and the shape for which its kernels are made. */
import {
  ArgumentError,
  HeddleError,
  oneOf,
  requireInteger,
  requireMembers,
  type Table,
} from '../../base/errors.js';
import { memoized } from '../families/family.js';
import { unitBytes, widestUnit } from '../families/index.js';
import {
  type Alignment,
  alignments,
  type ExpertForm,
  expertForms,
  expertsOf,
  type Layer,
  outputRowBytes,
} from '../layer/index.js';
import { expandKernel } from './kernels/expand.js';
import { expertsPlanKernel } from './kernels/plan.js';
import { reduceKernel } from './kernels/reduce.js';
import {
  type Chip,
  type ExpertsShape,
  mostLocalExperts,
  planSpread,
  routesOf,
  rowsOfPlan,
  rowsSpread,
} from './kernels/shape.js';

export interface ExpertsPlanOptions {
  /** Experts follow each other (default); or each has `capacity` rows of its own, `[experts, capacity]`. */
  readonly form?: ExpertForm;
  /** The rows of each expert begin at a multiple of it: 1 (default), 16, 64 or 128. */
  readonly alignment?: Alignment;
  /**
   * Rows of all experts together; of each, in the masked form. Default: what no round can exceed, sources · maxTokens · topK; masked, sources ·
   * maxTokens are enough where no token names an expert twice. Routes that find no room take no part, and are counted in `overflow`.
   */
  readonly capacity?: number;
}

const planOptions: Table<ExpertsPlanOptions> = { form: oneOf(expertForms), alignment: true, capacity: true };

/** The shape for which the kernels of rank `rank` are made. */
export function expertsShapeOf(layer: Layer, rank: number, options: ExpertsPlanOptions): ExpertsShape {
  requireMembers('options', options, planOptions);
  const { form = 'contiguous', alignment = 1, capacity: wanted } = options;
  if (!alignments.includes(alignment))
    throw new ArgumentError('alignment', alignment, `one of ${alignments.join(', ')}`);
  const routes = routesOf(layer);
  if (routes >= 2 ** 31) {
    const most = Math.floor((2 ** 31 - 1) / (layer.ranks * layer.topK));
    throw new ArgumentError('maxTokens', layer.maxTokens, `at most ${most}, so that routes can be numbered`);
  }
  const { count } = expertsOf(layer, rank);
  if (count > mostLocalExperts) {
    const possible = `at most ${mostLocalExperts} on each rank, ${mostLocalExperts * layer.ranks} in all`;
    throw new ArgumentError('experts', layer.experts, possible);
  }
  // A rank without experts plans for one that never gets a route, so that its rows end where they begin.
  const experts = Math.max(1, count);
  // A token may name one expert topK times.
  const most = form === 'masked' ? routes : routes + Math.min(experts, routes) * (alignment - 1);
  const round = form === 'masked' ? Math.ceil : Math.floor;
  const capacity = wanted ?? Math.max(1, round(most / alignment)) * alignment;
  const shape: ExpertsShape = {
    ...{ layer, experts, alignment, capacity },
    form: count === 0 ? 'contiguous' : form,
  };
  requireInteger('capacity', capacity, 1, mostCapacity(shape));
  if (capacity % alignment !== 0)
    throw new ArgumentError('capacity', capacity, `a multiple of the alignment, ${alignment}`);
  return shape;
}

/** Kernels count the units of all rows as u32. */
function mostCapacity(shape: ExpertsShape): number {
  const { payloads } = shape.layer;
  const bytes = [...payloads.map(({ rowBytes }) => rowBytes), outputRowBytes(shape.layer)];
  const units = Math.max(...bytes.map((row) => row / unitBytes[widestUnit(row)]));
  const rows = Math.min(2 ** 31, Math.floor((2 ** 32 - 1) / units));
  return Math.floor(rows / rowsOfPlan({ ...shape, capacity: 1 }));
}

/** The launches of a plan, made once for all ranks of a process that are alike. */
export const expertsKernels = memoized(({ shape, ...chip }: { readonly shape: ExpertsShape } & Chip) => {
  const [sorting, moving] = [planSpread(shape, chip), rowsSpread(shape, chip)];
  return {
    plan: { kernel: expertsPlanKernel(shape, sorting), ...sorting },
    expand: { kernel: expandKernel(shape, moving), ...moving },
    reduce: { kernel: reduceKernel(shape, moving), ...moving },
  };
});

export const notPlanned = (call: string): HeddleError =>
  new HeddleError('HEDDLE_NO_PLAN', `${call} was called before plan; plan first, or give scatter indices`);
