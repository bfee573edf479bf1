/** The parts of an MLP, whichever library multiplies: its weights, and two products with SwiGLU between them. */
import { ArgumentError, requireOneOf } from '../../base/errors.js';
import type { Device, Stream } from '../../gpu/index.js';
import { type Activation, activations, type Dtype, mxfp4Block, scaleBlock } from '../layer/index.js';
import { requireTensor, requireVectors, type Tensor } from '../rounds/tensor.js';
import type { ExpertSizes, ExpertsPlan } from './experts-plan.js';
import type { MlpShape } from './kernels/gemm/kernels.js';

/**
 * bf16; or e4m3 with an f32 for every 128 × 128 weights, as DeepSeek-V3 is published; or MXFP4: u8 of two e2m1, the first in the lower half, so that rows
 * have half as many, and a ue8m0 for every 32. On the device; they stay the caller's. `experts` leads all shapes, except where there is one expert only.
 */
export interface MlpWeights {
  /** [experts, 2 · inner, hidden]: the gates' rows, then those of what they scale. */
  readonly gateUp: Tensor;
  /** [experts, hidden, inner] */
  readonly down: Tensor;
  /** Scales of weights of e4m3: [experts, 2 · inner / 128, hidden / 128]. Of MXFP4: u8 [experts, hidden / 32, 2 · inner]. */
  readonly gateUpScales?: Tensor;
  /** Scales of weights of e4m3: [experts, hidden / 128, inner / 128]. Of MXFP4: u8 [experts, inner / 32, hidden]. */
  readonly downScales?: Tensor;
  /** bf16 [experts, 2 · inner], in the order of gateUp's rows, and [experts, hidden]. They are added to f32 sums. Default: none. */
  readonly gateUpBias?: Tensor;
  readonly downBias?: Tensor;
  /** What becomes of gates and of what they scale. Default 'swiglu'; 'clamped-swiglu' is gpt-oss's. */
  readonly activation?: Activation;
}

/** Whether weights are MXFP4. */
export const isPacked = ({ gateUp }: Pick<MlpWeights, 'gateUp'>): boolean => gateUp.dtype === 'u8';

/** The options of kernels beside the sizes of weights. */
export const kindOf = ({ gateUpBias, downBias, activation = 'swiglu' }: MlpWeights) => ({
  ...{ activation, gateUpBias: gateUpBias !== undefined, downBias: downBias !== undefined },
});

/** The shape for which an MLP's kernels are made. `dtype`: of rows that come in. `few`: multiprocessors, if fewer than the device's. */
export const mlpShapeOf = (
  { device, hidden, inner, rows, weights, routed, invariant }: ProductsOf,
  dtype: MlpShape['dtype'],
  multiprocessors = device.multiprocessors,
): MlpShape => ({
  ...{ dtype, hidden, inner, multiprocessors, kind: device.kind, packed: isPacked(weights) },
  of: routed === null ? 'all' : 'plan',
  experts: routed?.experts ?? 1,
  topK: routed?.topK ?? 1,
  rows: routed?.evenRows ?? rows,
  ...kindOf(weights),
  ...(invariant && { invariant }),
});

/** `hidden` and `inner` are multiples of this: a tile of the kernels takes so many elements. */
export const mlpUnit = 64;

/** Requires sizes that kernels for weights of a type take. */
export function requireUnits(
  weights: Dtype,
  sizes: { readonly hidden: number; readonly inner: number },
): void {
  const unit = weights === 'e4m3' ? scaleBlock : mlpUnit;
  for (const [name, length] of Object.entries(sizes))
    if (length === 0 || length % unit !== 0)
      throw new ArgumentError(name, length, `a multiple of ${unit}, what a tile of the kernels takes`);
}

/**
 * Requires weights of so many experts (null: of the one that takes all rows); returns `inner`, which is that of `gateUp` unless it
 * is given. `within` is what an error writes before the name.
 */
export function requireWeights(
  within: string,
  weights: MlpWeights,
  experts: number | null,
  hidden: number,
  given?: number,
): number {
  const { gateUp, down, gateUpScales, downScales, activation = 'swiglu' } = weights;
  requireOneOf(`${within}activation`, activation, activations);
  const lead = experts === null ? [] : [experts];
  requireTensor(`${within}gateUp`, gateUp);
  const inner = given ?? Math.floor((gateUp.shape.at(-2) ?? 0) / 2);
  const packed = isPacked(weights);
  const stored = (columns: number): number => (packed ? columns / 2 : columns);
  requireVectors(`${within}gateUp`, gateUp, ['bf16', 'e4m3', 'u8'], [...lead, 2 * inner, stored(hidden)]);
  // Where the two differ in `inner`, either may be wrong.
  const why = given === undefined ? `because of ${2 * inner} rows of gateUp` : '';
  requireVectors(`${within}down`, down, [gateUp.dtype], [...lead, hidden, stored(inner)], why);
  const scaled = gateUp.dtype === 'e4m3';
  requireUnits(gateUp.dtype, { hidden, inner });
  for (const [name, scales, rows, columns] of [
    ['gateUpScales', gateUpScales, 2 * inner, hidden],
    ['downScales', downScales, hidden, inner],
  ] as const) {
    if (scaled || packed) {
      if (scales === undefined) {
        const possible = packed
          ? 'a ue8m0 for every 32 weights, because they are MXFP4 (u8)'
          : 'an f32 for every 128 × 128 weights, because they are e4m3';
        throw new ArgumentError(`${within}${name}`, scales, possible);
      }
      requireTensor(`${within}${name}`, scales);
      const of = packed ? [columns / mxfp4Block, rows] : [rows / scaleBlock, columns / scaleBlock];
      requireVectors(`${within}${name}`, scales, [packed ? 'u8' : 'f32'], [...lead, ...of]);
    } else if (scales !== undefined)
      throw new ArgumentError(`${within}${name}`, 'given', 'absent: weights of bf16 have no scales');
  }
  for (const [name, length] of [
    ['gateUpBias', 2 * inner],
    ['downBias', hidden],
  ] as const) {
    const bias = weights[name];
    if (bias !== undefined) requireVectors(`${within}${name}`, bias, ['bf16'], [...lead, length]);
  }
  return inner;
}

/** The experts whose rows a plan sorts. */
export interface Routed {
  readonly plan: ExpertsPlan;
  readonly experts: number;
  readonly topK: number;
  /** Rows of each expert if routes were even. */
  readonly evenRows: number;
  /** The most tokens of this rank with which an expert is likely to have few rows. */
  readonly fewTokens: number;
  /** Scales of rows that come in as e4m3; null where they are bf16. */
  readonly scales: Tensor | null;
}

/** The sizes of an MLP's rows, and the memory for them. */
export interface RowsOf {
  readonly hidden: number;
  readonly inner: number;
  readonly rows: number;
  /** Memory in which the second product leaves a plan's rows, bf16. Until then the first may have rows sorted there. Null without a plan. */
  readonly made: Tensor | null;
  /** Memory for all rows of the MLP, by default of bf16. It is freed with the MLP. */
  own(columns: number, purpose: string, dtype?: Dtype): Tensor;
}

/** The shape for which the products are made. */
export interface ProductsOf extends RowsOf {
  readonly device: Device;
  /** The most multiprocessors that a launch takes; null for all. */
  readonly sms: number | null;
  readonly weights: MlpWeights;
  /** Null where one expert has all rows. */
  readonly routed: Routed | null;
  /** As ExpertsMlp has it. */
  readonly invariant: boolean;
  /** Has something else freed with it. */
  freed(free: () => void): void;
}

export interface Products {
  readonly instructions: 'wgmma' | 'mma.sync' | 'cublas';
  /** Rows of an expert that are multiplied are a multiple of it. */
  readonly rowUnit: number;
  /** Where rows of a plan, and their scales, must lie in its order; null where its routes find them. */
  readonly sorted: { readonly rows: Tensor; readonly scales: Tensor | null } | null;
  /**
   * Takes how many rows come: a number where one expert has all; of a plan what its `sizes` gave, or how many tokens this rank brought. Nothing
   * is enqueued before, so that a refusal has no effect.
   */
  take(rows: number | ExpertSizes | undefined): void;
  /** Gate, up and SwiGLU, of rows where `sorted` wants them; of those that came where it is null. */
  widen(from: Tensor, stream: Stream): void;
  /** Down, of as many rows. */
  narrow(to: Tensor, stream: Stream): void;
}
