/** The memory of a rank that layers take: their buffers; and for a whole model their weights. */

import { requireInteger } from '../base/errors.js';
import { expertsShapeOf } from './experts/experts-options.js';
import { evenRows, rowsOfPlan, sortsRows, sumsOfParts } from './experts/index.js';
import { usualMultiprocessors } from './families/index.js';
import { dtypes, expertsOf, type Layer, scaleBlock } from './layer/index.js';
import type { LayerPlan } from './moe-options.js';
import { type MemoryPart, type MemoryUse, useOf } from './rounds/memory.js';
import { layerOf } from './rounds/options.js';

/** `carrier`: what the windows and buffers of the ExpertParallel take. */
export function layerMemory(
  { model, rounds, maxTokens, carrier: options, planned: how, weights, gemm }: LayerPlan,
  { ranks, rank }: { readonly ranks: number; readonly rank: number },
  carrier: MemoryUse,
): MemoryUse {
  const layer: Layer = layerOf(ranks, options);
  const shape = expertsShapeOf(layer, rank, how(ranks));
  const planned = rowsOfPlan(shape);
  const routes = ranks * maxTokens * model.topK;
  const { hidden, inner, sharedInner } = model;
  const takesPlans = options.weighting === 'plan';
  /** The bytes of a row that a GEMM multiplies. */
  const multiplied = (length: number): number =>
    weights === 'fp8' ? length + (4 * length) / scaleBlock : dtypes.bf16.size * length;
  const sorted = sortsRows({ of: 'plan', rows: evenRows(layer) });
  const scaleBytes = weights === 'fp8' && sorted ? (4 * hidden) / scaleBlock : 0;
  // With cuBLAS gates lie beside what they scale until SwiGLU.
  const ofExperts =
    dtypes.bf16.size * hidden +
    (gemm === 'cublas' ? dtypes.bf16.size * 3 * inner : multiplied(inner) + scaleBytes);
  const ofShared =
    sharedInner === undefined ? 0 : multiplied(sharedInner) + (weights === 'fp8' ? multiplied(hidden) : 0);
  const hasExperts = expertsOf(layer, rank).count > 0;
  const onHopper = (of: 'plan' | 'all', experts: number, rows: number, inner: number): number =>
    gemm === 'cublas'
      ? 0
      : sumsOfParts({
          ...{
            of,
            experts,
            rows,
            hidden,
            inner,
            topK: model.topK,
            kind: 'cuda',
            multiprocessors: usualMultiprocessors,
          },
          dtype: weights === 'fp8' ? 'e4m3' : 'bf16',
        });
  const own = (purpose: string, bytes: number): MemoryPart => ({ purpose, section: null, bytes });
  const parts = [
    own('router', maxTokens * 4 * (model.experts + 2 * model.topK)),
    own('plan', 4 * ((takesPlans ? 2 : 1) * routes + planned + 2 * shape.experts + 2)),
    own(
      'rows of experts',
      planned *
        (hasExperts
          ? ofExperts + onHopper('plan', shape.experts, evenRows(layer), inner)
          : dtypes.bf16.size * hidden),
    ),
    own(
      'shared expert',
      maxTokens * (ofShared + (sharedInner ? onHopper('all', 1, maxTokens, sharedInner) : 0)),
    ),
  ];
  return useOf([...carrier.parts, ...parts.map((part) => ({ ...part, bytes: part.bytes * rounds }))]);
}

/** That of a model's layers over one set of buffers, with their weights; without `layers`, of the buffers alone. */
export function modelMemory(
  plan: LayerPlan,
  { ranks, rank }: { readonly ranks: number; readonly rank: number },
  carrier: MemoryUse,
  layers?: number,
): MemoryUse {
  const buffers = layerMemory(plan, { ranks, rank }, carrier);
  if (layers === undefined) return buffers;
  requireInteger('layers', layers, 1, 1024);
  const { model, weights, carrier: options } = plan;
  const { hidden, inner, sharedInner = 0, biases } = model;
  const layer = layerOf(ranks, options);
  const matrices = (inner: number): number =>
    weights === 'fp8'
      ? 3 * inner * hidden * (1 + 4 / scaleBlock ** 2)
      : dtypes.bf16.size * 3 * inner * hidden;
  const { count } = expertsOf(layer, rank);
  const placement = carrier.parts.find(({ purpose }) => purpose === 'placement')?.bytes ?? 0;
  const part = (purpose: string, bytes: number): MemoryPart => ({
    purpose,
    section: null,
    bytes: layers * bytes,
  });
  return useOf([
    ...buffers.parts,
    part(
      'weights of experts',
      count * (matrices(inner) + (biases ? dtypes.bf16.size * (2 * inner + hidden) : 0)),
    ),
    part('weights of shared experts', sharedInner === 0 ? 0 : matrices(sharedInner)),
    part('weights of routers', dtypes.bf16.size * model.experts * hidden),
    { ...part('placement of further layers', placement), bytes: (layers - 1) * placement },
  ]);
}
