/** One micro-batch of an MoE layer: what it has to itself, and its stages in the order of the layer. */
import type { Stream } from '../gpu/index.js';
import type { World } from '../net/world/index.js';
import { expertsShapeOf } from './experts/experts-options.js';
import { ExpertsPlan } from './experts/experts-plan.js';
import { ExpertsMlp } from './experts/mlp.js';
import type { LayerPlan, MoeLayerOptions } from './moe-options.js';
import { ExpertParallel } from './rounds/expert-parallel.js';
import type { Dispatched } from './rounds/in-flight.js';
import { layerOf } from './rounds/options.js';
import type { Tensor } from './rounds/tensor.js';
import { Router } from './router/index.js';

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

  /** Every rank of the world calls it. */
  static async create(world: World, plan: LayerPlan, options: MoeLayerOptions): Promise<MicroBatch> {
    const { model, maxTokens, carrier, gemm } = plan;
    const planned = plan.planned(world.ranks);
    const { router: weights, experts: mlp } = options;
    const router = await Router.create(world, model, weights, maxTokens);
    // Refused now, and not when there are windows.
    expertsShapeOf(layerOf(world.ranks, carrier), world.rank, planned);
    const ep = await ExpertParallel.create(world, carrier);
    const expertsPlan = await ExpertsPlan.create(ep, planned);
    const { activation = 'swiglu' } = model;
    const experts = await ExpertsMlp.create(ep, expertsPlan, { ...mlp, activation, gemm });
    return new MicroBatch({ router, ep, plan: expertsPlan, experts });
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

  async dispose(): Promise<void> {
    const { router, ep, plan, experts } = this.parts;
    for (const part of [router, experts, plan]) part.dispose();
    await ep.dispose();
  }
}
