/**
 * Small experts for demonstrations, tests and the check. An expert is two numbers, and each slot's row becomes
 *
 *     out = Σ over its routes to experts of this rank: weight · (x · scale[expert] + bias[expert])
 *
 * in f32, in the order of the routes, every step rounded, and once more to the row's type at the end. Where combine
 * takes the rows of a plan each route has a row of its own: x · scale[expert] + bias[expert]. Not a model, but all that
 * dispatch and combine can get wrong shows in it: the row, its routes, their weights, their order.
 *
 * Slots without a local expert are neither read nor written, as real experts would do it.
 */
import { kernel, list, pointer } from '../../../lang/index.js';
import { rowsOf } from '../../families/common/received.js';
import { memoized } from '../../families/family.js';
import type { RowDtype } from '../../layer/index.js';

export interface ExampleExpertsShape {
  /** Slots of the window: ranks · maxTokens. */
  readonly slots: number;
  readonly topK: number;
  /** Elements of a row, and their type, of `x` and `out` alike. */
  readonly hidden: number;
  readonly dtype: RowDtype;
  /** Router weights came along; otherwise each counts as 1. */
  readonly weights: boolean;
  /** A row for each route instead of a slot, not weighted, where a plan put it. */
  readonly planned?: boolean;
  /** The most threads a block is launched with. */
  readonly threads: number;
}

/** Made once for all ranks of a process and all runs of a check. */
export const exampleExpertsKernel = memoized((shape: ExampleExpertsShape) => {
  const { dtype, planned = false, threads } = shape;
  return kernel(
    {
      name: 'example_experts',
      maxThreads: threads,
      params: {
        /** The rows that dispatch delivered: [slot][k] ids (-1: not here) and weights, [slot][hidden] rows. */
        experts: pointer('i32'),
        weights: pointer('f32'),
        x: pointer(dtype),
        /** [slot][hidden], or [row][hidden] of a plan: where combine reads. */
        out: pointer(dtype),
        /** [slot][k]: rows of a plan. */
        scatter: list(pointer('i32'), planned ? 1 : 0),
        /** [local expert] */
        scale: pointer('f32'),
        bias: pointer('f32'),
        /** The id of this rank's first expert. */
        first: 'u32',
      },
      using: constants(shape),
    },
    (g, { experts, weights, x, out, scatter, scale, bias, first }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      for (let slot = g.blockIdx.x; slot < u.SLOTS; slot += g.gridDim.x) {
        let routes = g.u32(0);
        for (let k = g.u32(0); k < u.K; k += 1) {
          if (g.load(experts.at(slot * u.K + k)) >= 0) routes += 1;
        }
        if (routes > 0) {
          for (let i = g.threadIdx.x; i < u.UNITS; i += g.blockDim.x) {
            const row = g.registers('f32', u.LANES);
            if (u.VECTORS) {
              const vector = g.load(x.as('v16').at(slot * u.UNITS + i));
              for (const lane of g.unroll(u.LANES)) row[lane] = g.f32(g.lane(vector, u.DTYPE, lane));
            } else {
              row[0] = g.f32(g.load(x.at(slot * u.UNITS + i)));
            }
            const sums = g.registers('f32', u.LANES);
            for (let k = g.u32(0); k < u.K; k += 1) {
              const id = g.load(experts.at(slot * u.K + k));
              if (id >= 0) {
                const expert = g.u32(id) - first;
                const by = g.load(scale.at(expert));
                const plus = g.load(bias.at(expert));
                let weight = g.f32(1);
                if (u.WEIGHTS && !u.PLANNED) weight = g.load(weights.at(slot * u.K + k));
                if (u.PLANNED) {
                  for (const lane of g.unroll(u.LANES)) sums[lane] = row[lane]! * by + plus;
                  const at = g.u32(g.load(scatter[0]!.at(slot * u.K + k))) * u.UNITS + i;
                  if (u.VECTORS) g.store(out.as('v16').at(at), g.pack(u.DTYPE, sums));
                  else g.store(out.at(at), g.convert(u.DTYPE, sums[0]!));
                } else {
                  for (const lane of g.unroll(u.LANES)) sums[lane]! += weight * (row[lane]! * by + plus);
                }
              }
            }
            if (!u.PLANNED) {
              if (u.VECTORS) g.store(out.as('v16').at(slot * u.UNITS + i), g.pack(u.DTYPE, sums));
              else g.store(out.at(slot * u.UNITS + i), g.convert(u.DTYPE, sums[0]!));
            }
          }
        }
      }
    },
  );
});

function constants({ slots, topK, hidden, dtype, weights, planned = false }: ExampleExpertsShape) {
  const { vectors, lanes, units } = rowsOf({ output: { dtype, hidden } }, dtype);
  return {
    ...{ SLOTS: slots, K: topK, WEIGHTS: weights, PLANNED: planned, DTYPE: dtype },
    ...{ VECTORS: vectors, LANES: lanes, UNITS: units },
  };
}
