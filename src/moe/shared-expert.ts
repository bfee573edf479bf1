/** The expert that every token goes to. Of few tokens it runs beside the routed ones: on a stream of its own and some of the multiprocessors. */
import { type CallSite, callSite, type Event, inRange, type Stream } from '../gpu/index.js';
import type { World } from '../net/world/index.js';
import { addRows, mostBeside, multiprocessorsBeside } from './experts/index.js';
import { DenseMlp } from './experts/mlp.js';
import type { MlpWeights } from './experts/products.js';
import type { LayerPlan } from './moe-options.js';
import { emptyTensor, type OwnedTensor, type Tensor } from './rounds/tensor.js';

/** The stream of its own, and the events by which it and the caller's wait for each other. */
interface Beside {
  readonly stream: Stream;
  readonly begun: Event;
  readonly done: Event;
}

export class SharedExpert {
  private constructor(
    readonly mlp: DenseMlp,
    /** The result for the tokens. */
    readonly made: OwnedTensor,
    readonly adds: CallSite<(typeof addRows)['cuda']['kernel']['params']>,
    /** Null where it runs on the caller's stream. */
    readonly beside: Beside | null,
  ) {}

  static async create(world: World, plan: LayerPlan, weights: MlpWeights): Promise<SharedExpert> {
    const { device, rank } = world;
    const { model, overlap } = plan;
    const maxTokens = plan.maxTokens * plan.microBatches;
    const besideOthers = overlap && maxTokens <= mostBeside;
    const sms = besideOthers ? { sms: multiprocessorsBeside(maxTokens, device.multiprocessors) } : {};
    const mlp = await DenseMlp.create(device, { ...weights, maxTokens, ...sms });
    const made = emptyTensor(device, 'bf16', [maxTokens, model.hidden], 'what the shared expert made');
    const { kernel, blocks, threads } = addRows[device.kind];
    const adds = await callSite(device, kernel, { grid: blocks, block: threads, programmatic: true, rank });
    const event = () => device.createEvent();
    const beside = besideOthers ? { stream: device.createStream(), begun: event(), done: event() } : null;
    return new SharedExpert(mlp, made, adds, beside);
  }

  /** Enqueues all of it. The caller's stream goes on; `add` waits for it. */
  begin(x: Tensor, stream: Stream): void {
    const { beside } = this;
    const own = beside?.stream ?? stream;
    if (beside !== null) {
      stream.record(beside.begun);
      own.wait(beside.begun);
    }
    inRange('shared', own, () => this.mlp.run(x, this.made, x.shape[0]!, own));
    if (beside !== null) own.record(beside.done);
  }

  /** Adds what it made to what came back. */
  add(out: Tensor, stream: Stream): void {
    if (this.beside !== null) stream.wait(this.beside.done);
    const { set, launch } = this.adds;
    set.to(out.data);
    set.from(this.made.data);
    set.vectors((out.shape[0]! * out.shape[1]!) / 8);
    inRange('shared', stream, () => launch(stream));
  }

  dispose(): void {
    this.mlp.dispose();
    this.made.free();
    for (const own of Object.values(this.beside ?? {})) own.dispose();
  }
}
