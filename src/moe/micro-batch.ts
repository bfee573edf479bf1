/** One micro-batch of an MoE layer: what it has to itself, and its stages in the order of the layer. */
import { type CallSite, callSite, inRange, type Stream } from '../gpu/index.js';
import type { World } from '../net/world/index.js';
import { ExpertsPlan } from './experts/experts-plan.js';
import { addRows } from './experts/index.js';
import { DenseMlp, ExpertsMlp, type ScaledRows } from './experts/mlp.js';
import type { LayerPlan, MoeLayerOptions } from './moe-options.js';
import { ExpertParallel, roundsInside } from './rounds/expert-parallel.js';
import type { Fp8Rows } from './rounds/fp8-rows.js';
import type { Combining, Dispatched } from './rounds/in-flight.js';
import { emptyTensor, type OwnedTensor, type Tensor } from './rounds/tensor.js';
import { Router } from './router/index.js';

/** The parts of a layer. Each enqueues by itself, which benchmarks make use of. */
export interface LayerParts {
  readonly router: Router;
  /** The rows as dispatch carries them; null where they travel as they are. */
  readonly fp8: Fp8Rows | null;
  readonly ep: ExpertParallel;
  readonly plan: ExpertsPlan;
  readonly experts: ExpertsMlp;
  /** Null where the model has no shared expert. */
  readonly shared: Shared | null;
}

export interface Shared {
  readonly mlp: DenseMlp;
  /** The result for the tokens. */
  readonly made: OwnedTensor;
}

type Add = CallSite<(typeof addRows)['cuda']['kernel']['params']>;

export class MicroBatch {
  /** The input of the shared expert: tokens, or their rows as dispatch carries them. */
  #x: { readonly rows: Tensor | ScaledRows; readonly tokens: number } | null = null;
  #sent: Dispatched | null = null;

  /** Adds the shared expert's rows to those that came back. Its launch is not programmatic. */
  readonly #adds: Add;

  private constructor(
    readonly parts: LayerParts,
    adds: Add,
  ) {
    this.#adds = adds;
  }

  /** Every rank of the world calls it. */
  static async create(world: World, plan: LayerPlan, options: MoeLayerOptions): Promise<MicroBatch> {
    const { model, maxTokens, carrier, planned, gemm } = plan;
    const { router: weights, experts: mlp, sharedExperts } = options;
    const router = await Router.create(world, model, weights, maxTokens);
    const ep = await ExpertParallel.create(world, carrier);
    const fp8 = roundsInside(ep)[0]!.inputs.rounded('x');
    const expertsPlan = await ExpertsPlan.create(ep, planned);
    const experts = await ExpertsMlp.create(ep, expertsPlan, { ...mlp, gemm });
    const shared = sharedExperts === undefined ? null : await createShared(world, plan, sharedExperts);
    const { kernel, blocks, threads } = addRows[world.device.kind];
    const add = await callSite(world.device, kernel, { grid: blocks, block: threads, rank: world.rank });
    return new MicroBatch({ router, fp8, ep, plan: expertsPlan, experts, shared }, add);
  }

  /** Routes the tokens and sends their rows; where phases are split, half of the shared expert while they travel. */
  begin(x: Tensor, stream: Stream): void {
    const { router, fp8, ep, shared } = this.parts;
    const routed = router.route(x, stream);
    const inputs = { ...routed, payloads: { x } };
    const rows = fp8 !== null && shared?.mlp.takesScaled ? fp8 : x;
    this.#x = { rows, tokens: x.shape[0]! };
    if (ep.split) this.#sent = ep.dispatchSend(inputs, stream);
    else ep.dispatch(inputs, stream);
    if (ep.split) this.#widen(stream);
  }

  /** When the stream has passed this, the rows of this rank's experts are here. */
  receive(stream: Stream): void {
    const { ep } = this.parts;
    if (!ep.split) return;
    ep.dispatchRecv(this.#sent!, stream);
  }

  experts(stream: Stream): void {
    const { ep, plan, experts } = this.parts;
    plan.plan(ep.received, stream);
    experts.run(ep.received, stream);
  }

  /** Brings the sums home, with the other half of the shared expert meanwhile, and adds what that made. */
  finish(out: Tensor, stream: Stream): void {
    const { ep, shared } = this.parts;
    let sent: Combining | null = null;
    if (ep.split) sent = ep.combineSend(ep.received, stream);
    else ep.combine(out, stream);
    if (shared !== null) {
      if (!ep.split) this.#widen(stream);
      inRange('shared', stream, () => shared.mlp.narrow(shared.made, out.shape[0]!, stream));
    } else if (ep.split) {
      // A receive begins early, and finds what came before a launch that is not programmatic: here one that adds nothing.
      this.#add(out, out, 0, stream);
    }
    if (sent !== null) ep.combineRecv(sent, out, stream);
    if (shared !== null) this.addShared(out, stream);
  }

  /** Adds what the shared expert made to what came back. */
  addShared(out: Tensor, stream: Stream): void {
    const { made } = this.parts.shared!;
    inRange('shared', stream, () => this.#add(out, made, out.shape[0]!, stream));
  }

  async dispose(): Promise<void> {
    const { router, ep, plan, experts, shared } = this.parts;
    for (const part of [router, experts, plan, shared?.mlp]) part?.dispose();
    shared?.made.free();
    await ep.dispose();
  }

  #add(to: Tensor, from: Tensor, rows: number, stream: Stream): void {
    const { set, launch } = this.#adds;
    set.to(to.data);
    set.from(from.data);
    set.vectors((rows * to.shape[1]!) / 8);
    launch(stream);
  }

  #widen(stream: Stream): void {
    const { shared } = this.parts;
    if (shared === null) return;
    const { rows, tokens } = this.#x!;
    inRange('shared', stream, () => shared.mlp.widen(rows, tokens, stream));
  }
}

async function createShared(
  { device }: World,
  { model, maxTokens }: LayerPlan,
  weights: NonNullable<MoeLayerOptions['sharedExperts']>,
): Promise<Shared> {
  const mlp = await DenseMlp.create(device, { ...weights, maxTokens });
  return { mlp, made: emptyTensor(device, 'bf16', [maxTokens, model.hidden], 'what the shared expert made') };
}
