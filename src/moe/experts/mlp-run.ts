import type { Stream } from '../../gpu/index.js';
import type { OwnedTensor, Tensor } from '../rounds/tensor.js';
import type { Received } from '../rounds/track.js';
import type { ExpertSizes } from './experts-plan.js';

/** One way to make the experts' rows. */
export interface MlpRun {
  /** Its memory. */
  readonly owned: readonly { readonly tensor: OwnedTensor; readonly purpose: string }[];
  /** Enqueues it; returns where the rows will be, in the order of the plan. */
  run(received: Received, stream: Stream, sizes?: ExpertSizes): Tensor;
  /** Frees what it has besides. */
  dispose(): void;
}
