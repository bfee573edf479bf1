/** The keys that a shape may have for a layer, and the layer that it means. */
import { ArgumentError } from '../../base/errors.js';
import { usualChip } from '../../moe/families/index.js';
import {
  formatNames,
  type Layer,
  limits,
  payloadsFor,
  requireShape,
  rowFormatNames,
  scaleBlock,
  weightings,
} from '../../moe/layer/index.js';
import { number, oneOf, type Parameters, type ShapeOf, yesNo } from './shape.js';

export const aGpu = { kind: 'cuda', ...usualChip } as const;

/** DeepSeek-V3's layer on the 8 GPUs of a machine. */
export const layerParameters = {
  ranks: number('ranks that share the experts', [1, limits.ranks], 8),
  replicas: number('consecutive ranks that hold the same tokens', [1, limits.ranks], 1),
  tokens: number('most tokens a rank', [1, limits.maxTokens], 128),
  hidden: number('elements of a row', [1, 2 ** 18], 7168),
  experts: number('experts of all ranks', [1, limits.experts], 256),
  topk: number('routes of a token', [1, limits.topK], 8),
  dtype: oneOf('of a row’s elements', ['bf16', 'f16', 'f32'], 'bf16'),
  weights: oneOf('router weights travel', yesNo, 'yes'),
} satisfies Parameters;

export const travelling = {
  ...layerParameters,
  counts: oneOf('routes are counted', yesNo, 'no'),
  masks: oneOf('ranks may be left out', yesNo, 'no'),
  waits: oneOf('waits for peers are counted', yesNo, 'no'),
  placed: number(
    'experts that live in so many places as `experts` says; 0: an id is a place',
    [0, limits.experts],
    0,
  ),
  format: oneOf('of rows that dispatch carries; same: as dtype', ['same', ...formatNames], 'same'),
  rounded: oneOf('dispatch makes rows of fp8 or mxfp8 from bf16', yesNo, 'no'),
  scales: number('bytes of a second payload; 0 for none', [0, 2 ** 20], 0),
  weighting: oneOf('who applies the router weights', weightings, 'experts'),
  combineFormat: oneOf('how rows come back', rowFormatNames, 'rows'),
} satisfies Parameters;

export function layerOf(shape: ShapeOf<typeof travelling>): Layer {
  const { ranks, experts, replicas, dtype, hidden, weighting, format, combineFormat } = shape;
  const rounded = { fp8: 'e4m3', mxfp8: 'mxfp8' } as const;
  const rounds = shape.rounded === 'yes';
  if (rounds && !(format in rounded && hidden % scaleBlock === 0))
    throw new ArgumentError(
      '--shape rounded',
      'yes',
      `'no', unless format is fp8 or mxfp8 and hidden a multiple of ${scaleBlock}`,
    );
  const carried = payloadsFor(format === 'same' ? dtype : format, hidden).map((payload, p) => ({
    ...payload,
    ...(rounds && p === 0 && { rounded: rounded[format as keyof typeof rounded] }),
  }));
  const scales = { name: 'scales', rowBytes: shape.scales };
  if (scales.rowBytes > 0 && carried.length > 1)
    throw new ArgumentError(
      '--shape scales',
      scales.rowBytes,
      `0: rows of ${format} have scales of their own`,
    );
  const layer: Layer = {
    ...{ ranks, experts, topK: shape.topk, maxTokens: shape.tokens, replicas },
    payloads: scales.rowBytes > 0 ? [...carried, scales] : carried,
    output: { dtype, hidden, weighting, combineFormat },
    weights: weighting !== 'experts' || shape.weights === 'yes',
    counts: shape.counts === 'yes',
    ...(shape.masks === 'yes' && { masks: true }),
    ...(shape.waits === 'yes' && { waits: true }),
    ...(shape.placed > 0 && { placed: shape.placed }),
  };
  requireShape(layer);
  return layer;
}
