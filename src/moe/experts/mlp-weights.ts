/** The weights of experts, as they must be given. */
import { ArgumentError, requireObject } from '../../base/errors.js';
import { requireTensor, type Tensor } from '../rounds/tensor.js';
import { requireWeightTensor } from '../rounds/weights.js';

/** bf16, on the device; they stay the caller's. `experts` leads both shapes, except where there is one expert only. */
export interface MlpWeights {
  /** [experts, 2 · inner, hidden]: the gates' rows, then those of what they scale. */
  readonly gateUp: Tensor;
  /** [experts, hidden, inner] */
  readonly down: Tensor;
}

/** Requires weights of so many experts (null: of the one that takes all rows); returns `inner`. */
export function requireWeights(
  weights: MlpWeights,
  experts: number | null,
  hidden: number,
): { readonly inner: number } {
  requireObject('weights', weights, '{ gateUp, down }');
  const { gateUp, down } = weights;
  const lead = experts === null ? [] : [experts];
  requireTensor('gateUp', gateUp);
  const inner = Math.floor((gateUp.shape.at(-2) ?? 0) / 2);
  requireWeightTensor('gateUp', gateUp, ['bf16'], [...lead, 2 * inner, hidden]);
  // Where the two differ in `inner`, either may be wrong.
  const why = `because of ${2 * inner} rows of gateUp`;
  requireWeightTensor('down', down, ['bf16'], [...lead, hidden, inner], why);
  for (const [name, length] of Object.entries({ hidden, inner }))
    if (length === 0 || length % unit !== 0)
      throw new ArgumentError(name, length, `a multiple of ${unit}, what a tile of the kernels takes`);
  return { inner };
}

/** Rows are cut into pieces of so many elements. */
const unit = 64;
