import type { Device, Stream } from '../../gpu/index.js';
import type { OwnedTensor, Tensor } from '../rounds/tensor.js';
import type { MlpWeights } from './mlp-weights.js';

/** What a dense MLP is made for. */
export interface DenseShape {
  readonly device: Device;
  readonly hidden: number;
  readonly inner: number;
  readonly maxTokens: number;
  /** Null for all multiprocessors. */
  readonly sms: number | null;
}

/** One way to make the rows of a dense MLP. */
export interface DenseRun {
  /** Its memory. */
  readonly owned: readonly { readonly tensor: OwnedTensor; readonly purpose: string }[];
  widen(x: Tensor, tokens: number, stream: Stream): void;
  narrow(out: Tensor, tokens: number, stream: Stream): void;
  /** Frees what it has besides. */
  dispose(): void;
}

export type CreateDenseRun = (shape: DenseShape, weights: MlpWeights) => Promise<DenseRun>;
