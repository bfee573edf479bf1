/** The rounds of one layer in one lane of its buffers: their stages, in order. Each enqueues by itself, which benchmarks make use of. */
import type { Stream } from '../gpu/index.js';
import type { ExpertsPlan } from './experts/experts-plan.js';
import { ExpertsMlp } from './experts/mlp.js';
import type { BuffersInside, Keep, Lane } from './layer-buffers.js';
import type { LayerPlan, MoeLayerOptions } from './moe-options.js';
import type { ExpertParallel } from './rounds/expert-parallel.js';
import type { Dispatched } from './rounds/in-flight.js';
import type { LayerTable } from './rounds/layer-table.js';
import type { Tensor } from './rounds/tensor.js';
import { Router } from './router/index.js';
import { SharedExpert } from './shared-expert.js';

export class LayerRound {
  readonly plan: ExpertsPlan;
  #sent: Dispatched | null = null;
  #tokens = 0;

  private constructor(
    readonly ep: ExpertParallel,
    readonly lane: Lane,
    readonly table: LayerTable,
    readonly router: Router,
    readonly experts: ExpertsMlp,
    /** Null where the model has no shared expert. */
    readonly shared: SharedExpert | null,
  ) {
    this.plan = lane.plan;
  }

  /** Binds a layer's weights to a lane, for this rank alone. */
  static async create(
    { world, ep }: BuffersInside,
    lane: Lane,
    table: LayerTable,
    layer: LayerPlan,
    weights: Pick<MoeLayerOptions, 'router' | 'experts' | 'sharedExperts'>,
    keep: Keep,
  ): Promise<LayerRound> {
    const { model, maxTokens, gemm, invariant } = layer;
    const { scratch, plan, received } = lane;
    const { activation = 'swiglu' } = model;
    const router = keep(await Router.create(world, model, weights.router, maxTokens, scratch));
    const of = { world, shape: ep.shape, received };
    const how = { activation, gemm, scratch, invariant };
    const experts = keep(await ExpertsMlp.create(of, plan, { ...weights.experts, ...how }));
    const { sharedExperts } = weights;
    const shared = sharedExperts ? await SharedExpert.create(world, lane, layer, sharedExperts, keep) : null;
    return new LayerRound(ep, lane, table, router, experts, shared);
  }

  /** Routes the tokens and sends their rows. */
  begin(x: Tensor, stream: Stream): void {
    const { router, ep } = this;
    this.#tokens = x.shape[0]!;
    const inputs = { ...router.route(x, stream), payloads: { x } };
    if (ep.split) this.#sent = ep.dispatchSend(inputs, stream, this.table);
    else ep.dispatch(inputs, stream, this.table);
  }

  /** When the stream has passed this, the rows of this rank's experts are here. */
  receive(stream: Stream): void {
    if (this.ep.split) this.ep.dispatchRecv(this.#sent!, stream);
  }

  runExperts(stream: Stream): void {
    const { received } = this.lane;
    this.plan.plan(received, stream);
    this.experts.run(received, stream, this.#tokens);
  }

  /** Brings the sums home: into `out`, or on top of what the shared expert left there. */
  finish(out: Tensor, stream: Stream): void {
    this.ep.combine(out, stream, this.experts.made ?? undefined);
  }
}
