/** What an MoE layer takes of a rank's memory beside its weights. */

import { expertsShapeOf } from './experts/experts-options.js';
import { rowsOfPlan } from './experts/index.js';
import { dtypes, type Layer, outputRowBytes, scaleBlock } from './layer/index.js';
import type { LayerPlan } from './moe-options.js';
import { type MemoryPart, type MemoryUse, useOf } from './rounds/memory.js';
import { layerOf } from './rounds/options.js';

/** `carrier`: what the windows and buffers of one micro-batch's ExpertParallel take. */
export function layerMemory(
  { model, microBatches, maxTokens, carrier: options, planned: how, rows, gemm }: LayerPlan,
  { ranks, rank }: { readonly ranks: number; readonly rank: number },
  carrier: MemoryUse,
): MemoryUse {
  const layer: Layer = layerOf(ranks, options);
  const shape = expertsShapeOf(layer, rank, how);
  const planned = rowsOfPlan(shape);
  const routes = ranks * maxTokens * model.topK;
  const row = outputRowBytes(layer);
  const between = dtypes.bf16.size * (model.sharedInner ?? 0);
  const { hidden, inner } = model;
  // cuBLAS's rows are copied first, and gates lie beside what they scale until SwiGLU.
  const elements = gemm === 'cublas' ? 2 * hidden + 3 * inner : hidden + inner;
  const own = (purpose: string, bytes: number): MemoryPart => ({ purpose, section: null, bytes });
  const parts = [
    own('router', maxTokens * 4 * (model.experts + 2 * model.topK)),
    own('rows as fp8', rows === 'fp8' ? maxTokens * (hidden + (4 * hidden) / scaleBlock) : 0),
    ...carrier.parts,
    own('plan', 4 * (routes + planned + 2 * shape.experts + 2)),
    own('rows of experts', planned * dtypes.bf16.size * elements),
    own('shared expert', between === 0 ? 0 : maxTokens * (between + row)),
  ];
  return useOf(parts.map((part) => ({ ...part, bytes: part.bytes * microBatches })));
}
