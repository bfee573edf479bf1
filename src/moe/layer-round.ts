/** The rounds of one layer in one lane of its buffers: their stages, in order. Each enqueues by itself, which benchmarks make use of. */
import { inRange, type Stream } from '../gpu/index.js';
import type { ExpertsPlan } from './experts/experts-plan.js';
import { DenseMlp, ExpertsMlp } from './experts/mlp.js';
import type { BuffersInside, Keep, Lane } from './layer-buffers.js';
import type { LayerPlan, MoeLayerOptions } from './moe-options.js';
import type { ExpertParallel } from './rounds/expert-parallel.js';
import type { Dispatched } from './rounds/in-flight.js';
import type { LayerTable } from './rounds/layer-table.js';
import type { Tensor } from './rounds/tensor.js';
import { Router } from './router/index.js';

/** What the layer brings: its weights, bound to the lane's memory. */
interface Own {
  readonly router: Router;
  readonly experts: ExpertsMlp;
  /** Null where the model has no shared expert. */
  readonly shared: DenseMlp | null;
}

export class LayerRound {
  readonly ep: ExpertParallel;
  readonly plan: ExpertsPlan;
  readonly router: Router;
  readonly experts: ExpertsMlp;
  readonly shared: DenseMlp | null;
  readonly #lane: Lane;
  readonly #table: LayerTable;
  #sent: Dispatched | null = null;

  private constructor(ep: ExpertParallel, lane: Lane, table: LayerTable, { router, experts, shared }: Own) {
    this.ep = ep;
    this.plan = lane.plan;
    this.router = router;
    this.experts = experts;
    this.shared = shared;
    this.#lane = lane;
    this.#table = table;
  }

  /** Binds a layer's weights to a lane, for this rank alone. */
  static async create(
    { world, ep }: BuffersInside,
    lane: Lane,
    table: LayerTable,
    { model, maxTokens, gemm }: LayerPlan,
    weights: Pick<MoeLayerOptions, 'router' | 'experts' | 'sharedExperts'>,
    keep: Keep,
  ): Promise<LayerRound> {
    const { scratch, sharedScratch, plan, received, beside } = lane;
    const { activation = 'swiglu' } = model;
    const { sharedExperts } = weights;
    const router = keep(await Router.create(world, model, weights.router, maxTokens, scratch));
    const of = { world, shape: ep.shape, received };
    const how = { activation, gemm, scratch };
    const experts = keep(await ExpertsMlp.create(of, plan, { ...weights.experts, ...how }));
    const sms = beside === null ? {} : { sms: beside.sms };
    const shared =
      sharedExperts === undefined
        ? null
        : keep(
            await DenseMlp.create(world.device, {
              ...{ ...sharedExperts, ...sms, maxTokens, scratch: sharedScratch },
            }),
          );
    return new LayerRound(ep, lane, table, { router, experts, shared });
  }

  /** Enqueues the shared expert, into `out`. The caller's stream goes on. */
  beginShared(x: Tensor, out: Tensor, stream: Stream): void {
    const { shared } = this;
    if (shared === null) return;
    const { beside } = this.#lane;
    const own = beside?.stream ?? stream;
    if (beside !== null) {
      stream.record(beside.begun);
      own.wait(beside.begun);
    }
    inRange('shared', own, () => shared.run(x, out, x.shape[0]!, own));
    if (beside !== null) own.record(beside.done);
  }

  /** What is enqueued behind this finds what the shared expert made. */
  endShared(stream: Stream): void {
    const { beside } = this.#lane;
    if (this.shared !== null && beside !== null) stream.wait(beside.done);
  }

  /** Routes the tokens and sends their rows. */
  begin(x: Tensor, stream: Stream): void {
    const { router, ep } = this;
    const inputs = { ...router.route(x, stream), payloads: { x } };
    if (ep.split) this.#sent = ep.dispatchSend(inputs, stream, this.#table);
    else ep.dispatch(inputs, stream, this.#table);
  }

  /** When the stream has passed this, the rows of this rank's experts are here. */
  receive(stream: Stream): void {
    if (this.ep.split) this.ep.dispatchRecv(this.#sent!, stream);
  }

  runExperts(stream: Stream): void {
    const { received } = this.#lane;
    this.plan.plan(received, stream);
    this.experts.run(received, stream);
  }

  /** Brings the sums home: into `out`, or on top of what the shared expert left there. */
  finish(out: Tensor, stream: Stream): void {
    this.ep.combine(out, stream, this.experts.made ?? undefined);
  }
}
