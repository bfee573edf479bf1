/** The expert that every token goes to. Of few tokens it runs beside the routed ones: on a stream of its own and some of the multiprocessors. */
import { type Event, inRange, type Stream } from '../gpu/index.js';
import type { World } from '../net/world/index.js';
import { mostBeside, multiprocessorsBeside } from './experts/index.js';
import { DenseMlp } from './experts/mlp.js';
import type { MlpWeights } from './experts/products.js';
import type { Keep } from './micro-batch.js';
import type { LayerPlan } from './moe-options.js';
import type { Tensor } from './rounds/tensor.js';

/** The stream of its own, and the events by which it and the caller's wait for each other. */
interface Beside {
  readonly stream: Stream;
  readonly begun: Event;
  readonly done: Event;
}

export class SharedExpert {
  private constructor(
    readonly mlp: DenseMlp,
    /** Null where it runs on the caller's stream. */
    readonly beside: Beside | null,
  ) {}

  static async create(
    { device }: World,
    plan: LayerPlan,
    weights: MlpWeights,
    keep: Keep,
  ): Promise<SharedExpert> {
    const maxTokens = plan.maxTokens * plan.microBatches;
    const besideOthers = plan.overlap && maxTokens <= mostBeside;
    const sms = besideOthers ? { sms: multiprocessorsBeside(maxTokens, device.multiprocessors) } : {};
    const mlp = keep(await DenseMlp.create(device, { ...weights, maxTokens, ...sms }));
    const event = () => keep(device.createEvent());
    const beside = besideOthers
      ? { stream: keep(device.createStream()), begun: event(), done: event() }
      : null;
    return new SharedExpert(mlp, beside);
  }

  /** Enqueues all of it, into `out`. The caller's stream goes on. */
  begin(x: Tensor, out: Tensor, stream: Stream): void {
    const { beside } = this;
    const own = beside?.stream ?? stream;
    if (beside !== null) {
      stream.record(beside.begun);
      own.wait(beside.begun);
    }
    inRange('shared', own, () => this.mlp.run(x, out, x.shape[0]!, own));
    if (beside !== null) own.record(beside.done);
  }

  /** What is enqueued behind this finds `out`. */
  end(stream: Stream): void {
    if (this.beside !== null) stream.wait(this.beside.done);
  }
}
