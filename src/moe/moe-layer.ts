/**
 * A whole Mixture-of-Experts layer: router, dispatch, experts, combine, shared expert. `forward` only enqueues, so that it
 * can be captured as a graph; what overlaps is said by streams and by the order of launches, never by a wait of the host.
 */

import { ArgumentError, DisposedError, HeddleError, RepeatRoundsError } from '../base/errors.js';
import { requireStream, type Stream } from '../gpu/index.js';
import { World } from '../net/world/index.js';
import { expertsShapeOf } from './experts/experts-options.js';
import { type Placement, requireSamePlaces } from './layer/index.js';
import { type Keep, MicroBatch } from './micro-batch.js';
import { layerMemory } from './moe-memory.js';
import {
  type LayerPlan,
  layerPlanOf,
  type MoeLayerOptions,
  type MoeLayerSizes,
  requireLayerWeights,
} from './moe-options.js';
import { type MoveOptions, MovingWeights } from './moving-weights.js';
import { alignRounds, ExpertParallel, roundsInside } from './rounds/expert-parallel.js';
import type { Statistics } from './rounds/layer-table.js';
import { type MemoryUse, memoryFor } from './rounds/memory.js';
import { layerOf } from './rounds/options.js';
import { requireVectors, type Tensor, wrap } from './rounds/tensor.js';
import { everywhere, type Undo, undoAll, undoing } from './rounds/undoing.js';
import { readWaits, type Waits } from './rounds/waits.js';
import { routerShapeOf } from './router/index.js';
import { SharedExpert } from './shared-expert.js';

/** The inside of a layer. */
interface Inside {
  readonly batches: readonly MicroBatch[];
  /** Null where the model has no shared expert. */
  readonly shared: SharedExpert | null;
  /** Null where there is one micro-batch. */
  readonly beside: ReturnType<typeof besideOf> | null;
}

let insideOf: (layer: MoeLayer) => Inside;

/** The inside of a layer, for measuring its parts. */
export const layerInside = (layer: MoeLayer): Inside => insideOf(layer);

export class MoeLayer {
  static {
    insideOf = (layer) => layer.#inside;
  }

  /** The family of kernels that carries rows, and why it was chosen. */
  readonly family: string;
  readonly why: string;
  /** The memory of this rank that the layer allocated; its weights are the caller's. */
  readonly memory: MemoryUse;
  readonly #hidden: number;
  readonly #maxTokens: number;
  readonly #inside: Inside;
  readonly #undo: Undo;
  /** Null where experts were not placed. */
  readonly #moving: MovingWeights | null;
  #disposed = false;

  private constructor(
    world: World,
    plan: LayerPlan,
    { maxTokens, experts }: MoeLayerOptions,
    inside: Inside,
    undo: Undo,
  ) {
    const { ep } = inside.batches[0]!.parts;
    this.family = ep.family;
    this.why = ep.why;
    this.memory = layerMemory(plan, world, ep.memory);
    this.#hidden = plan.model.hidden;
    this.#maxTokens = maxTokens;
    this.#inside = inside;
    this.#undo = undo;
    const { gateUp, down, gateUpScales, downScales, gateUpBias, downBias } = experts;
    const all = [gateUp, down, gateUpScales, downScales, gateUpBias, downBias].filter(
      (tensor) => tensor !== undefined,
    );
    this.#moving = ep.placement && new MovingWeights(world, all, ep.placement);
  }

  /**
   * Creates windows, compiles kernels, checks the weights. Every rank of the world calls it with the same options. Where one rank cannot
   * have what it needs, all throw, and nothing is left.
   */
  static async create(world: World, options: MoeLayerOptions): Promise<MoeLayer> {
    if (!(world instanceof World))
      throw new ArgumentError('world', world, 'what World.local or World.join gives');
    const plan = layerPlanOf(options);
    requireLayerWeights(plan, options, world);
    // Refused now, and not when there are windows.
    routerShapeOf(plan.model, options.router);
    expertsShapeOf(layerOf(world.ranks, plan.carrier), world.rank, plan.planned(world.ranks));
    return undoing(async (undo) => {
      const keep: Keep = (part) => {
        undo.push(() => part.dispose());
        return part;
      };
      const eps: ExpertParallel[] = [];
      for (let n = 0; n < plan.microBatches; n++)
        eps.push(keep(await ExpertParallel.create(world, plan.carrier)));
      const make = () => insideFor(world, eps, plan, options, keep);
      return new MoeLayer(world, plan, options, await everywhere(world, 'creating an MoeLayer', make), undo);
    });
  }

  /** The memory of each rank that `create` would take, whether or not there is a GPU here. */
  static memory(options: MoeLayerSizes & { readonly ranks: number }): MemoryUse {
    const plan = layerPlanOf(options);
    const { ranks } = options;
    return layerMemory(plan, { ranks, rank: 0 }, memoryFor({ ...plan.carrier, ranks }));
  }

  /**
   * out = Σ weight · expert(x) over each token's experts, and what the shared expert makes of it. Both are bf16
   * [tokens, hidden], and do not overlap. Every rank calls it, with as many tokens as it likes.
   */
  forward(x: Tensor, out: Tensor, stream: Stream): void {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this MoeLayer');
    requireVectors('x', x, ['bf16'], [[0, this.#maxTokens], this.#hidden]);
    requireVectors('out', out, ['bf16'], [x.shape[0]!, this.#hidden]);
    // Some rows of `out` are written while others of `x` are still to be read.
    if (x.data < out.data + out.bytes && out.data < x.data + x.bytes)
      throw new ArgumentError('out.data', out.data, 'memory that does not overlap x');
    const { batches, shared } = this.#inside;
    const [first, second] = batches;
    shared?.begin(x, out, stream);
    if (second === undefined) this.#one(first!, x, out, stream);
    else this.#two(first!, second, x, out, stream);
  }

  /**
   * Brings the weights that a placement wants, into places where no expert lives now. Forwards run on meanwhile. Every rank
   * calls it; when it resolves, all have their weights, and `place` may follow. `stream`: that of the forwards.
   */
  async move(placement: Placement, stream: Stream, options?: MoveOptions): Promise<void> {
    requireStream('stream', stream);
    const { moving, now } = this.#requirePlaced('move');
    await moving.move(now, placement, stream, options);
  }

  /**
   * Changes where experts live, for forwards that are enqueued behind this: as that of ExpertParallel. Refused where the weights of an
   * expert are not in its new place.
   */
  place(placement: Placement, stream: Stream): void {
    requireStream('stream', stream);
    const { moving, now } = this.#requirePlaced('place');
    requireSamePlaces(placement, now);
    moving.requireHeld(placement);
    for (const ep of this.#eps) ep.place(placement, stream);
  }

  /**
   * Goes over to a placement while forwards run on, by `place` and `move`, in as many steps as it takes. Every rank calls
   * it, wherever it is in its forwards: each goes by a step from its next forward on, and until then all that it needs is where it was.
   */
  async relocate(placement: Placement, stream: Stream, options?: MoveOptions): Promise<void> {
    requireStream('stream', stream);
    const { moving, now } = this.#requirePlaced('relocate');
    await moving.relocate(now, placement, (next) => this.place(next, stream), stream, options);
  }

  /** Routes by expert: as that of ExpertParallel. */
  async statistics(stream: Stream): Promise<Statistics> {
    requireStream('stream', stream);
    this.#requirePlaced('statistics');
    const all: Statistics[] = [];
    for (const ep of this.#eps) all.push(await ep.statistics(stream));
    const sum = (of: keyof Statistics): number[] =>
      all[0]![of].map((_, expert) => all.reduce((total, one) => total + one[of][expert]!, 0));
    return { routed: sum('routed'), dropped: sum('dropped') };
  }

  /** How long the ranks' kernels waited for each other (`waits: true`): as that of ExpertParallel, of all micro-batches together. */
  async waits(stream: Stream): Promise<Waits> {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this MoeLayer');
    const rounds = this.#eps.flatMap((ep) => roundsInside(ep).map(({ loaded }) => loaded));
    return readWaits(this.#eps[0]!.world, rounds, stream);
  }

  /**
   * As that of ExpertParallel: throws RankLostError where a kernel gave up waiting for a rank. With `onLoss: 'mask'` it throws
   * RepeatRoundsError instead, once, whose `round` is the first forward that does not count.
   */
  async synchronize(stream: Stream): Promise<void> {
    let repeated = false;
    // Until none of them says so: while one is asked, another rank may be lost, of which those before it have still to tell.
    while (await this.#mustRepeat(stream)) repeated = true;
    if (repeated) throw new RepeatRoundsError(this.#eps[0]!.world.masked, alignRounds(this.#eps) + 1);
  }

  /** Waits for all micro-batches; whether rounds of one are to be repeated, since ranks were left out. */
  async #mustRepeat(stream: Stream): Promise<boolean> {
    let repeats = false;
    for (const ep of this.#eps) {
      try {
        await ep.synchronize(stream);
      } catch (error) {
        if (!(error instanceof RepeatRoundsError)) throw error;
        repeats = true;
      }
    }
    return repeats;
  }

  /** Frees what the layer allocated, when every rank has come here. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#moving?.end();
    await undoAll(this.#undo);
  }

  get #eps(): ExpertParallel[] {
    return this.#inside.batches.map(({ parts }) => parts.ep);
  }

  #requirePlaced(call: string): { readonly moving: MovingWeights; readonly now: Placement } {
    if (this.#disposed) throw new DisposedError('this MoeLayer');
    const now = this.#eps[0]!.placement;
    if (this.#moving !== null && now !== null) return { moving: this.#moving, now };
    throw new HeddleError(
      'HEDDLE_NOT_PLACED',
      `${call} needs experts that are placed; create the MoeLayer with a placement`,
    );
  }

  #one(batch: MicroBatch, x: Tensor, out: Tensor, stream: Stream): void {
    batch.begin(x, stream);
    batch.receive(stream);
    batch.experts(stream);
    this.#inside.shared?.end(stream);
    batch.finish(out, stream);
  }

  /**
   * The second half of the tokens on a stream of its own. Kernels that wait for peers may fill a GPU, and two of them, in
   * different orders on two ranks, would wait for each other's sends. So they come one after another, everywhere in the
   * same order: first's dispatch, second's dispatch, first's combine, second's combine.
   */
  #two(first: MicroBatch, second: MicroBatch, x: Tensor, out: Tensor, stream: Stream): void {
    const { stream: own, event } = this.#inside.beside!;
    const half = Math.ceil(x.shape[0]! / 2);
    const then = (before: Stream, name: keyof typeof event, behind: Stream): void => {
      before.record(event[name]);
      behind.wait(event[name]);
    };
    then(stream, 'start', own);
    first.begin(rowsOf(x, 0, half), stream);
    second.begin(rowsOf(x, half), own);
    first.receive(stream);
    then(stream, 'firstReceived', own);
    second.receive(own);
    first.experts(stream);
    then(own, 'secondReceived', stream);
    this.#inside.shared?.end(stream);
    first.finish(rowsOf(out, 0, half), stream);
    second.experts(own);
    then(stream, 'firstFinished', own);
    second.finish(rowsOf(out, half), own);
    then(own, 'end', stream);
  }
}

/** Makes what a rank has for itself, beside what carries its rows. */
async function insideFor(
  world: World,
  eps: readonly ExpertParallel[],
  plan: LayerPlan,
  options: MoeLayerOptions,
  keep: Keep,
): Promise<Inside> {
  const batches: MicroBatch[] = [];
  for (const ep of eps) batches.push(await MicroBatch.create(ep, plan, options, keep));
  const { sharedExperts } = options;
  const shared =
    sharedExperts === undefined ? null : await SharedExpert.create(world, plan, sharedExperts, keep);
  return { batches, shared, beside: eps.length === 1 ? null : besideOf(world, keep) };
}

/** Makes what two micro-batches need beside the caller's stream. */
function besideOf({ device }: World, keep: Keep) {
  const event = () => keep(device.createEvent());
  return {
    stream: keep(device.createStream()),
    event: {
      ...{ start: event(), firstReceived: event(), secondReceived: event() },
      ...{ firstFinished: event(), end: event() },
    },
  };
}

/** Rows from `start` on. */
function rowsOf({ data, dtype, shape: [rows = 0, columns = 0] }: Tensor, start: number, end = rows): Tensor {
  return wrap(data + start * columns * 2, dtype, [end - start, columns]);
}
