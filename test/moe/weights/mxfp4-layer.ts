/** A layer of gpt-oss, of random bytes, as its files hold it. */
import { randomBytes } from '../../../src/verify/testing/index.js';
import { drawn, type StoredModel, stored } from './stored.js';

export const mxfp4Bytes = (shape: readonly number[], seed: number) =>
  stored(
    'U8',
    shape,
    randomBytes(
      shape.reduce((a, b) => a * b, 1),
      seed,
    ),
  );
/** From 2^−5 to 1. */
export const mxfp4Scales = (shape: readonly number[], seed: number) => {
  const of = mxfp4Bytes(shape, seed);
  return { ...of, bits: of.bits.map((byte) => 122 + (byte % 6)) };
};

export function mxfp4Layer(
  layer: number,
  { experts, hidden, inner }: { readonly experts: number; readonly hidden: number; readonly inner: number },
  seed = 0,
): StoredModel {
  const stem = `model.layers.${layer}.mlp.`;
  return {
    [`${stem}experts.gate_up_proj_blocks`]: mxfp4Bytes([experts, 2 * inner, hidden / 32, 16], seed + 1),
    [`${stem}experts.gate_up_proj_scales`]: mxfp4Scales([experts, 2 * inner, hidden / 32], seed + 2),
    [`${stem}experts.gate_up_proj_bias`]: drawn('BF16', [experts, 2 * inner], seed + 3),
    [`${stem}experts.down_proj_blocks`]: mxfp4Bytes([experts, hidden, inner / 32, 16], seed + 4),
    [`${stem}experts.down_proj_scales`]: mxfp4Scales([experts, hidden, inner / 32], seed + 5),
    [`${stem}experts.down_proj_bias`]: drawn('BF16', [experts, hidden], seed + 6),
    [`${stem}router.weight`]: drawn('BF16', [experts, hidden], seed + 7),
    [`${stem}router.bias`]: drawn('BF16', [experts], seed + 8),
  };
}
