/** The memory of a rank that layers take: their buffers; and for a whole model their weights. */

import { requireInteger } from '../base/errors.js';
import { expertsShapeOf } from './experts/experts-options.js';
import {
  evenRows,
  fewRows,
  groupRows,
  rowsOfForms,
  rowsOfPlan,
  sizesOfPlan,
  sortsRows,
  sumsOfParts,
} from './experts/index.js';
import { cublasRows } from './experts/mlp-cublas.js';
import { hopperRows } from './experts/mlp-hopper.js';
import type { RowsOf } from './experts/products.js';
import { usualChip } from './families/index.js';
import { combineWeighs, dtypes, expertsOf, type Layer, mxfp4Block, scaleBlock } from './layer/index.js';
import type { LayerPlan } from './moe-options.js';
import { type MemoryPart, type MemoryUse, useOf } from './rounds/memory.js';
import { layerOf } from './rounds/options.js';
import { wrap } from './rounds/tensor.js';

export const bytesOfWeight = {
  bf16: dtypes.bf16.size,
  fp8: 1 + 4 / scaleBlock ** 2,
  mxfp4: 1 / 2 + 1 / mxfp4Block,
};

/** `carrier`: what the windows and buffers of the ExpertParallel take. */
export function layerMemory(
  { model, rounds, maxTokens, carrier: options, planned: how, weights, gemm, invariant }: LayerPlan,
  { ranks, rank }: { readonly ranks: number; readonly rank: number },
  carrier: MemoryUse,
): MemoryUse {
  const layer: Layer = layerOf(ranks, options);
  const shape = expertsShapeOf(layer, rank, how(ranks));
  const planned = rowsOfPlan(shape);
  const routes = ranks * maxTokens * model.topK;
  const { hidden, inner, sharedInner } = model;
  const takesPlans = combineWeighs(layer);
  const dtype = weights === 'fp8' ? 'e4m3' : 'bf16';
  const packed = weights === 'mxfp4';
  const chip = { kind: 'cuda', multiprocessors: usualChip.multiprocessors } as const;
  /** The bytes of the sums of parts that an MLP has for each row. */
  const sumsOf = (of: 'plan' | 'all', experts: number, rows: number, inner: number): number =>
    (of === 'plan' && (gemm === 'cublas' || packed)) || experts === 0
      ? 0
      : sumsOfParts({ of, experts, rows, hidden, inner, topK: model.topK, dtype, invariant, ...chip });
  /** The bytes of the other rows of its own, of each: what its products allocate. */
  const bytesOfRow = (of: 'plan' | 'all', experts: number, evenly: number, inner: number): number => {
    let bytes = 0;
    const own: RowsOf['own'] = (columns, _, type = 'bf16') => {
      bytes += columns * dtypes[type].size;
      return wrap(0, type, [1, columns]);
    };
    const rows = { hidden, inner, rows: 1, made: of === 'plan' ? own(hidden, '') : null, own };
    if (experts === 0) return bytes;
    if (gemm === 'cublas' && of === 'plan') cublasRows(rows);
    else if (packed && of === 'plan') own(inner, '');
    else hopperRows(rows, dtype, !sortsRows({ of, rows: evenly }));
    return bytes;
  };
  const local = expertsOf(layer, rank).count === 0 ? 0 : shape.experts;
  const even = evenRows(layer);
  const ofExperts = bytesOfRow('plan', local, even, inner) + sumsOf('plan', local, even, inner);
  const ofFew = fewRows(shape) * sumsOf('plan', local, groupRows, inner);
  const ofShared = (inner: number): number =>
    maxTokens * bytesOfRow('all', 1, maxTokens, inner) +
    Math.max(...rowsOfForms(maxTokens).map((rows) => rows * sumsOf('all', 1, rows, inner)));
  const own = (purpose: string, bytes: number): MemoryPart => ({ purpose, section: null, bytes });
  const parts = [
    own('router', maxTokens * 4 * (model.experts + 2 * model.topK)),
    own('plan', 4 * ((takesPlans ? 2 : 1) * routes + planned + sizesOfPlan(shape))),
    own('rows of experts', planned * ofExperts + ofFew),
    own('shared expert', sharedInner === undefined ? 0 : ofShared(sharedInner)),
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
  const matrices = (inner: number): number => 3 * inner * hidden * bytesOfWeight[weights];
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
