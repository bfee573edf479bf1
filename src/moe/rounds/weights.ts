/** Weights, as they must be given. */
import { ArgumentError } from '../../base/errors.js';
import type { Dtype } from '../layer/index.js';
import { describe, isContiguous, requireTensor, type Tensor } from './tensor.js';

/** Requires a tensor of one of these types, of this shape (`why`), without gaps, where vectors can read it. */
export function requireWeightTensor(
  argument: string,
  tensor: Tensor,
  dtypes: readonly Dtype[],
  shape: readonly number[],
  why = '',
): void {
  requireTensor(argument, tensor);
  const fits = tensor.shape.length === shape.length && shape.every((length, i) => tensor.shape[i] === length);
  if (!dtypes.includes(tensor.dtype) || !fits || !isContiguous(tensor)) {
    const possible = `${dtypes.join(' or ')} [${shape.join(', ')}]${why && `, ${why}`}, contiguous`;
    throw new ArgumentError(argument, describe(tensor), possible);
  }
  if (tensor.data === 0 || tensor.data % 16 !== 0)
    throw new ArgumentError(`${argument}.data`, tensor.data, 'a device address, a multiple of 16');
}
