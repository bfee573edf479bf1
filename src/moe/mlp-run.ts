import type { Stream } from '../device/index.js';
import type { Received } from './expert-parallel.js';
import type { ExpertSizes } from './experts-plan.js';
import type { OwnedTensor, Tensor } from './tensor.js';

/** One way to make the experts' rows. */
export interface MlpRun {
  /** Its memory. */
  readonly owned: readonly { readonly tensor: OwnedTensor; readonly purpose: string }[];
  /** Enqueues it; returns where the rows will be, in the order of the plan. */
  run(received: Received, stream: Stream, sizes?: ExpertSizes): Tensor;
  /** Frees what it has besides. */
  dispose(): void;
}
