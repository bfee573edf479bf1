/** One micro-batch of an MoE layer: what it has to itself, and its stages in the order of the layer. */
import type { Stream } from '../gpu/index.js';
import { ExpertsPlan } from './experts/experts-plan.js';
import { ExpertsMlp } from './experts/mlp.js';
import type { LayerPlan, MoeLayerOptions } from './moe-options.js';
import type { ExpertParallel } from './rounds/expert-parallel.js';
import type { Dispatched } from './rounds/in-flight.js';
import type { Tensor } from './rounds/tensor.js';
import { Router } from './router/index.js';

/** Takes a part, so that it is disposed of with the layer; returns it. */
export type Keep = <T extends { dispose(): unknown }>(part: T) => T;

/** The parts of a layer that each of its micro-batches has. Each enqueues by itself, which benchmarks make use of. */
export interface LayerParts {
  readonly router: Router;
  readonly ep: ExpertParallel;
  readonly plan: ExpertsPlan;
  readonly experts: ExpertsMlp;
}

export class MicroBatch {
  #sent: Dispatched | null = null;

  private constructor(readonly parts: LayerParts) {}

  /** Makes what a rank has beside `ep`, for itself alone. */
  static async create(
    ep: ExpertParallel,
    { model, maxTokens, planned, gemm }: LayerPlan,
    options: MoeLayerOptions,
    keep: Keep,
  ): Promise<MicroBatch> {
    const { world } = ep;
    const { activation = 'swiglu' } = model;
    const router = keep(await Router.create(world, model, options.router, maxTokens));
    const plan = keep(await ExpertsPlan.create(ep, planned(world.ranks)));
    const experts = keep(await ExpertsMlp.create(ep, plan, { ...options.experts, activation, gemm }));
    return new MicroBatch({ router, ep, plan, experts });
  }

  /** Routes the tokens and sends their rows. */
  begin(x: Tensor, stream: Stream): void {
    const { router, ep } = this.parts;
    const inputs = { ...router.route(x, stream), payloads: { x } };
    if (ep.split) this.#sent = ep.dispatchSend(inputs, stream);
    else ep.dispatch(inputs, stream);
  }

  /** When the stream has passed this, the rows of this rank's experts are here. */
  receive(stream: Stream): void {
    const { ep } = this.parts;
    if (ep.split) ep.dispatchRecv(this.#sent!, stream);
  }

  experts(stream: Stream): void {
    const { ep, plan, experts } = this.parts;
    plan.plan(ep.received, stream);
    experts.run(ep.received, stream);
  }

  /** Brings the sums home: into `out`, or on top of what the shared expert left there. */
  finish(out: Tensor, stream: Stream): void {
    const { ep, experts } = this.parts;
    ep.combine(out, stream, experts.made ?? undefined);
  }
}
