/**
 * Dispatch and combine as a runtime calls them: create an ExpertParallel once for a layer's shape, then, for each
 * round, dispatch, run the experts, combine. Both calls only enqueue: they do not wait, allocate or copy.
 */

import { ArgumentError, DisposedError, HeddleError, RankLostError, requireKnown } from '../../base/errors.js';
import { type Program, requireStream, type Stream, type WireMemory } from '../../gpu/index.js';
import { World } from '../../net/world/index.js';
import type { Operation, Phase, Tuning, WirePlan } from '../families/index.js';
import { type Layer, outputRowBytes } from '../layer/index.js';
import { likelyMistake } from '../likely.js';
import { requireSameEverywhere } from './agreement.js';
import { Carried } from './carried.js';
import { type Choice, choose } from './choice.js';
import {
  knownOptions,
  type MemoryOptions,
  type MemoryUse,
  memoryFor,
  memoryOf,
  requireItsWorld,
  requireRoom,
} from './memory.js';
import { type ExpertParallelOptions, layerOf, placeOf, roundsOf, waitMsOf } from './options.js';
import type { Combining, Dispatched, Stage } from './stages.js';
import type { Tensor } from './tensor.js';
import { type Received, Track } from './track.js';
import { type DispatchInputs, requireCombineOutput } from './validate.js';
import { verdictOf } from './verdict.js';

/** What a benchmark needs and nobody else does; see `benchHandles`. */
export interface BenchHandles {
  /** The launches of dispatch and of combine: what was compiled, and how it is spread. */
  readonly launches: Readonly<Record<Operation, readonly BenchLaunch[]>>;
  /**
   * Ends a round without its combine, so that dispatches can be timed back to back. Every rank must do the same, and
   * nobody may read what they bring. Only where combine pulls: a pushing one says when slots may be written again. (There is no such thing for combine: rows of a pushing combine say themselves that they have
   * come, so two in a row would mistake each other's.)
   */
  endRound(): void;
  /** What its proxy moves messages of; null where there is none. */
  readonly wire: LaidWire | null;
}

/** Memory that the network reaches, and the plan of it. */
export interface LaidWire {
  readonly plan: WirePlan;
  readonly memory: WireMemory;
}

export interface BenchLaunch {
  readonly program: Program;
  readonly blocks: number;
  readonly threads: number;
}

let handlesOf: (ep: ExpertParallel) => BenchHandles;

/** The inside of an ExpertParallel, for measuring its halves. */
export const benchHandles = (ep: ExpertParallel): BenchHandles => handlesOf(ep);

/**
 * Dispatch and combine of one layer, as one rank of it. Rounds follow each other on a stream: `dispatch`, the experts,
 * `combine`; any number may be enqueued before anything is waited for, or captured as a graph. With `split` each of the two
 * also comes as a send and a receive. With `rounds: 2` the next round may be dispatched before the last one is combined.
 * Of payloads the compiler knows the names: those that `create` was given.
 */
export class ExpertParallel<P extends string = string> {
  static {
    handlesOf = (ep) => ({
      launches: {
        dispatch: ep.#launches('dispatchSend', 'dispatchRecv'),
        combine: ep.#launches('combineSend', 'combineRecv'),
      },
      endRound: () => {
        ep.#oldest.stages.reach('combined');
      },
      wire: ep.#tracks[0]!.carried.wireMemory,
    });
  }

  /** The ranks that share the experts. */
  readonly world: World;
  /** The options in the words of the reference: all that results depend on. */
  readonly shape: Layer;
  /** The name of the family of kernels that carries the rows. */
  readonly family: string;
  /** Why that one: asked for, or the first that can carry the layer where its ranks are. */
  readonly why: string;
  /** How its kernels are spread over the device: what was asked for, measured, or a rule of thumb. */
  readonly tuning: Tuning;
  /** Whether sends and receives are launches of their own. */
  readonly split: boolean;
  /** What the windows and buffers take of this rank's memory, by purpose. */
  readonly memory: MemoryUse;
  /** The views that every dispatch fills; with `rounds: 2`, every other. */
  readonly received: Received<P>;
  /** The views of each round in flight: dispatches fill them in turn. */
  readonly views: readonly Received<P>[];
  readonly #tracks: readonly Track<P>[];
  /** Which of them the next round takes. */
  #next = 0;
  /** What `out` of combine must be a multiple of. */
  readonly #outUnit: number;
  #disposed = false;
  readonly #notAtRenewal: () => void;
  /** Why no further round can run: what `synchronize` threw. */
  #loss: unknown = null;

  private constructor({ world, layer, split, choice, memory, tracks }: Parts<P>) {
    this.world = world;
    this.shape = layer;
    this.split = split;
    this.family = choice.family.name;
    this.why = choice.why;
    this.tuning = choice.tuning;
    this.memory = memory;
    this.received = tracks[0].received;
    this.views = tracks.map(({ received }) => received);
    this.#tracks = tracks;
    this.#outUnit = outputRowBytes(layer) % 16 === 0 ? 16 : 1;
    this.#notAtRenewal = world.freeAtRenewal(() => this.#free());
  }

  /**
   * Creates the windows and compiles the kernels of a shape. Every rank of the world calls it with the same options.
   */
  static async create<P extends string>(
    world: World,
    options: ExpertParallelOptions<P>,
  ): Promise<ExpertParallel<P>> {
    if (!(world instanceof World)) {
      throw new ArgumentError('world', world, 'what World.local or World.join gives');
    }
    const layer = layerOf(world.ranks, options);
    requireKnown('options', options, knownOptions);
    requireItsWorld(options, world);
    const { device, rank, topology } = world;
    const { kind, multiprocessors } = device;
    const waitMs = waitMsOf(options, kind);
    const place = placeOf({ kind, multiprocessors, rank, topology }, options);
    const choice = choose(layer, place, device, options);
    const { family, tuning } = choice;
    const { split, transport } = place;
    const rounds = roundsOf(options);
    const { payloads } = options;
    const agreed = { ...layer, payloads, family: family.name, split, transport, rounds, ...tuning };
    await requireSameEverywhere(world, agreed);
    const plan = family.plan(layer, place, tuning);
    const { placement } = plan.wire === null ? { placement: 'host' as const } : await world.wires();
    const memory = memoryOf(plan, rounds, placement);
    requireRoom(memory, layer, device);
    const track = async () =>
      new Track(device, layer, await Carried.out(world, plan, waitMs), options.payloads);
    const tracks: [Track<P>, ...Track<P>[]] = [await track()];
    if (rounds === 2) tracks.push(await track());
    return new ExpertParallel({ world, layer, split, choice, memory, tracks });
  }

  /**
   * What `create` with these options would take of each rank's memory, whether or not there is a GPU here. Only
   * the few flags of a tuning that was measured may differ; give the tuning to count them too.
   */
  static memory(options: MemoryOptions): MemoryUse {
    return memoryFor(options);
  }

  /**
   * Sends this rank's tokens to the ranks that own their experts. When the stream has passed this, everything that
   * other ranks sent here is in `received`.
   *
   * On the device `topkIds` must stay as they are until the round's combine has run; `topkWeights` and the payloads may be
   * written again behind this on the stream, payloads that travel over NVSHMEM behind combine. Host arrays may be reused at once.
   */
  dispatch(inputs: DispatchInputs<P>, stream: Stream): Received<P> {
    const track = this.#begin('dispatch', inputs, stream);
    return track.stages.hand(track.received);
  }

  /**
   * Brings back, for every token of this rank, the (weighted) sum of the rows that its experts left in `output`.
   * `out` is [tokens, hidden], with as many tokens as the round's dispatch.
   */
  combine(out: Tensor, stream: Stream): void {
    this.#requireReady('combine', stream);
    const track = this.#oldest;
    track.stages.require('combine', 'dispatched');
    this.#requireOut(out, track);
    track.run('combine', stream);
  }

  /**
   * The first half of `dispatch`, where `split` was asked for: sends and waits for nobody. Other work may follow on the
   * stream while bytes are on their way, before `dispatchRecv`. What `dispatch` says of inputs holds behind this.
   */
  dispatchSend(inputs: DispatchInputs<P>, stream: Stream): Dispatched {
    this.#requireSplit('dispatchSend');
    const track = this.#begin('dispatchSend', inputs, stream);
    return track.stages.hand({ phase: 'dispatched', tokens: track.round.tokens });
  }

  /** The second half: when the stream has passed this, everything that other ranks sent here is in the result. */
  dispatchRecv(sent: Dispatched, stream: Stream): Received<P> {
    this.#requireReady('dispatch', stream);
    const track = this.#of('dispatchRecv', sent, 'dispatch sent');
    track.run('dispatchRecv', stream);
    return track.stages.hand(track.received);
  }

  /** The first half of `combine`: sends what the experts left in `received.output`, and waits for nobody. */
  combineSend(received: Received<P>, stream: Stream): Combining {
    this.#requireSplit('combineSend');
    this.#requireReady('combine', stream);
    const track = this.#of('combineSend', received, 'dispatched');
    track.run('combineSend', stream);
    return track.stages.hand({ phase: 'combining', tokens: track.round.tokens });
  }

  /** The second half: when the stream has passed this, `out`, [tokens, hidden], holds the sums. */
  combineRecv(sent: Combining, out: Tensor, stream: Stream): void {
    this.#requireReady('combine', stream);
    const track = this.#of('combineRecv', sent, 'combine sent');
    this.#requireOut(out, track);
    track.run('combineRecv', stream);
  }

  /**
   * Waits until everything on the stream is done. A rank that is lost ends no wait at once: kernels that wait for it
   * leave when their time (`waitMs`) is over, and what they computed from then on means nothing.
   * @throws RankLostError where a kernel gave up waiting, naming the rank, the operation and the epoch; and where the
   * world has lost a rank that no kernel waited for.
   */
  async synchronize(stream: Stream): Promise<void> {
    if (this.#disposed) throw new DisposedError('this ExpertParallel');
    requireStream('stream', stream);
    await stream.synchronize();
    if (this.#loss === null) this.#loss = await this.#findLoss(stream);
    if (this.#loss !== null) throw this.#loss;
  }

  /** Frees the windows, when every rank has come here. After a loss they stay until the world is renewed, or its devices freed. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    // A peer may still be writing into this window: nobody unmaps before all are here.
    if (!(await this.#allAreHere())) return;
    this.#notAtRenewal();
    await this.#free();
  }

  async #free(): Promise<void> {
    this.#disposed = true;
    for (const track of this.#tracks) await track.close();
  }

  async #allAreHere(): Promise<boolean> {
    if (this.#loss !== null || this.world.circle.signal.aborted) return false;
    return this.world.barrier('dispose').then(
      () => true,
      () => false,
    );
  }

  /** Begins a round on the next track, once nothing else is on it. */
  #begin(call: 'dispatch' | 'dispatchSend', inputs: DispatchInputs<P>, stream: Stream): Track<P> {
    this.#requireReady('dispatch', stream);
    const track = this.#tracks[this.#next]!;
    track.stages.require(call, 'combined');
    track.inputs.take(inputs, track.round, stream);
    track.run(call, stream);
    this.#next = (this.#next + 1) % this.#tracks.length;
    return track;
  }

  /** The track of the round that was dispatched first of those that are not combined. */
  get #oldest(): Track<P> {
    const { length } = this.#tracks;
    const turns = this.#tracks.map((_, n) => this.#tracks[(this.#next + n) % length]!);
    return turns.find(({ stages }) => !stages.at('combined')) ?? this.#tracks[0]!;
  }

  /** The track that a handle belongs to; what it must have reached. */
  #of(call: string, handle: unknown, from: Stage): Track<P> {
    const track =
      this.#tracks.find(({ stages }) => stages.gave(handle)) ??
      this.#tracks.find(({ stages }) => stages.at(from)) ??
      this.#oldest;
    track.stages.requireWith(call, handle, from);
    return track;
  }

  #requireOut(out: Tensor, { round }: Track): void {
    requireCombineOutput(this.shape, round.tokens, out);
    if (out.data % this.#outUnit !== 0)
      throw new ArgumentError('out.data', out.data, `a multiple of ${this.#outUnit}`);
    round.out = out.data;
  }

  #requireSplit(call: string): void {
    if (this.split) return;
    throw new HeddleError(
      'HEDDLE_NOT_SPLIT',
      `${call} needs phases that are split; create the ExpertParallel with split: true`,
    );
  }

  #requireReady(operation: Operation, stream: Stream): void {
    requireStream('stream', stream);
    if (this.#disposed) throw new DisposedError('this ExpertParallel');
    if (this.#loss !== null) throw this.#loss;
    const heard = this.#heard;
    if (heard === null) return;
    if (!(heard instanceof RankLostError)) throw heard;
    throw new RankLostError(heard.ranks, operation, undefined, { cause: heard });
  }

  /** What the circle knows, or else the rank's own proxy: one that fell by itself has made this rank the lost one. */
  get #heard(): unknown {
    const { circle, rank } = this.world;
    if (circle.signal.aborted) return circle.signal.reason;
    const stopped =
      this.#tracks.map(({ carried }) => carried.stopped).find((error) => error !== null) ?? null;
    if (stopped === null || stopped instanceof RankLostError) return stopped;
    return new RankLostError([rank], 'the work of its proxy', undefined, { cause: stopped });
  }

  /** What the kernels recorded, or else what the circle has heard; null where all is well. */
  async #findLoss(stream: Stream): Promise<unknown> {
    const failures = await Promise.all(this.#tracks.map(({ carried }) => carried.failure(stream)));
    const failure = failures.find((found) => found !== null) ?? null;
    if (this.#heard instanceof RankLostError) await verdictOf(this.world.circle);
    const heard = this.#heard;
    if (failure === null) return heard;
    // Whom the circle lost is certain. Whom a kernel missed may itself have waited for the lost one.
    const ranks = heard instanceof RankLostError ? heard.ranks : [failure.peer];
    const { operation, epoch } = failure;
    const why =
      heard === null ? likelyMistake(this.shape, this.world.rank, failure, this.#tracks) : { cause: heard };
    return new RankLostError(ranks, operation, epoch, why);
  }

  #launches(...phases: readonly Phase[]): BenchLaunch[] {
    const { plan, steps } = this.#tracks[0]!.carried;
    return phases.flatMap((phase) =>
      plan.phases[phase].map(({ blocks, threads }, i) => ({
        ...{ blocks, threads },
        program: steps[phase][i]!.program,
      })),
    );
  }
}

interface Parts<P extends string> {
  readonly world: World;
  readonly layer: Layer;
  readonly split: boolean;
  readonly choice: Choice;
  readonly memory: MemoryUse;
  readonly tracks: readonly [Track<P>, ...Track<P>[]];
}
