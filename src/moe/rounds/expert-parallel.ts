/**
 * Dispatch and combine as a runtime calls them: create an ExpertParallel once for a layer's shape, then, for each
 * round, dispatch, run the experts, combine. Both calls only enqueue: they do not wait, allocate or copy.
 */

import {
  ArgumentError,
  DisposedError,
  HeddleError,
  type LayerForward,
  RankLostError,
  RankMaskedError,
  RepeatRoundsError,
  requireMembers,
} from '../../base/errors.js';
import { requireStream, type Stream } from '../../gpu/index.js';
import { type SurvivesLoss, World } from '../../net/world/index.js';
import type { Operation, Tuning } from '../families/index.js';
import { type Layer, type Placement, requireSamePlaces } from '../layer/index.js';
import { type Choice, choose } from './choice.js';
import { type Call, type Combining, type Dispatched, type Received, RoundInFlight } from './in-flight.js';
import {
  type DispatchInputs,
  Inputs,
  type MadeRows,
  requireCombineOutput,
  requireMadeRows,
} from './inputs.js';
import { LayerTable, type Statistics } from './layer-table.js';
import { LoadedPlan } from './loaded-plan.js';
import { layerHere, likelyMistake, missedInTheEnd, verdictOf } from './loss.js';
import {
  knownOptions,
  type MemoryOptions,
  type MemoryUse,
  memoryFor,
  memoryOf,
  requireItsWorld,
  requireRoom,
} from './memory.js';
import {
  type ExpertParallelOptions,
  layerOf,
  type Row,
  requireSameEverywhere,
  type ScalesOf,
  targetOf,
  waitMsOf,
} from './options.js';
import type { Tensor } from './tensor.js';
import { undoing } from './undoing.js';
import { readWaits, type Waits } from './waits.js';

let insideOf: (ep: ExpertParallel) => readonly RoundInFlight[];

/** The inside of an ExpertParallel, for measuring what its rounds consist of. */
export const roundsInside = (ep: ExpertParallel): readonly RoundInFlight[] => insideOf(ep);

/**
 * Dispatch and combine of one layer, as one rank of it. Rounds follow each other on a stream: `dispatch`, the experts,
 * `combine`; any number may be enqueued before anything is waited for, or captured as a graph. With `split` each of the two
 * also comes as a send and a receive. With `rounds: 2` the next round may be dispatched before the last one is combined.
 * The compiler knows the names of payloads: those that `create` was given, and those of the scales that come with payloads which dispatch rounds.
 */
export class ExpertParallel<P extends string = string, S extends string = never> {
  static {
    insideOf = (ep) => ep.#rounds;
  }

  /** The name of the family of kernels that carries the rows. */
  readonly family: string;
  /** Why that one: asked for, or the first that can carry the layer where its ranks are. */
  readonly why: string;
  /** How its kernels are spread over the device: what was asked for, measured, or a rule of thumb. */
  readonly tuning: Tuning;
  /** The views that every dispatch fills; with `rounds: 2`, every other. */
  readonly received: Received<P | S>;
  /** The views of each round in flight: dispatches fill them in turn. */
  readonly views: readonly Received<P | S>[];
  readonly #rounds: readonly RoundInFlight<P | S>[];
  /** Beside those of this process's other ranks. */
  readonly #layer: ReturnType<typeof layerHere>;
  readonly #layers: LayerTable[];
  /** The placement that `create` was given. */
  readonly #first: Placement | null;
  /** Which of them the next round takes. */
  #next = 0;
  #disposed = false;
  #detach = (): void => {};
  readonly #waitMs: number;
  /** Why no further round can run: what `synchronize` threw. */
  #loss: unknown = null;
  /** The error that `synchronize` is to throw once, since ranks were left out. */
  #repeat: RepeatRoundsError | null = null;
  /** The rounds that counted when ranks were last left out; and how often ranks have been left out. */
  #doneBefore = 0;
  #maskings = 0;
  /** The rounds that were dispatched since then, as far as they may still have to be repeated; null once graphs are captured, whose rounds the host does not see. */
  #begun: { readonly round: number; readonly of: LayerForward }[] | null = [];

  private constructor(
    /** The ranks that share the experts. */
    readonly world: World,
    /** The options in the words of the reference: all that results depend on. */
    readonly shape: Layer,
    /** Whether sends and receives are launches of their own. */
    readonly split: boolean,
    /** The memory of this rank that windows and buffers take, by purpose. */
    readonly memory: MemoryUse,
    choice: Choice,
    rounds: readonly [RoundInFlight<P | S>, ...RoundInFlight<P | S>[]],
    waitMs: number,
    table: LayerTable,
  ) {
    this.family = choice.family.name;
    this.why = choice.why;
    this.tuning = choice.tuning;
    this.received = rounds[0].received;
    this.views = rounds.map(({ received }) => received);
    this.#rounds = rounds;
    this.#layer = layerHere(world.circle, rounds);
    this.#layers = [table];
    this.#first = table.placement;
    this.#waitMs = waitMs;
  }

  /**
   * Creates the windows and compiles the kernels of a shape. Every rank of the world calls it with the same options. Where one rank
   * cannot have what it needs, all throw, and nothing is left.
   */
  static async create<R extends Readonly<Record<string, Row>>>(
    world: World,
    options: ExpertParallelOptions<keyof R & string> & { readonly payloads: R },
  ): Promise<ExpertParallel<keyof R & string, ScalesOf<R>>> {
    if (!(world instanceof World)) {
      throw new ArgumentError('world', world, 'what World.local or World.join gives');
    }
    requireMembers('options', options, knownOptions);
    const layer = layerOf(world.ranks, options);
    if (!layer.masks) world.requireWhole();
    requireItsWorld(options, world);
    const { device, rank, topology } = world;
    const { kind, multiprocessors, capability } = device;
    const waitMs = waitMsOf(options, kind);
    const target = targetOf({ kind, multiprocessors, capability, rank, topology }, options);
    const choice = choose(layer, target, device, options);
    const { family, tuning } = choice;
    const { split, transport } = target;
    const { rounds: inFlight = 1 } = options;
    const { payloads, placement } = options;
    const agreed = {
      ...layer,
      placement,
      payloads,
      family: family.name,
      split,
      transport,
      rounds: inFlight,
      ...tuning,
    };
    await requireSameEverywhere(world, agreed);
    const plan = family.plan(layer, target, tuning);
    const wires = plan.wire === null ? { side: 'host' as const } : await world.wires();
    const taken = (maxTokens: number) =>
      memoryOf(family.plan({ ...layer, maxTokens }, target, tuning), options, wires.side);
    const memory = memoryOf(plan, options, wires.side);
    requireRoom(memory, layer, device, taken);
    type Travels = (keyof R & string) | ScalesOf<R>;
    return undoing(async (undo) => {
      const round = async () => {
        const loaded = await LoadedPlan.load(world, plan, waitMs);
        undo.push(() => loaded.close());
        return new RoundInFlight<Travels>(loaded, new Inputs(device, layer, payloads), payloads);
      };
      const rounds: [RoundInFlight<Travels>, ...RoundInFlight<Travels>[]] = [await round()];
      if (inFlight === 2) rounds.push(await round());
      const loaded = rounds.map(({ loaded }) => loaded);
      const table = await LayerTable.create(world, layer, loaded, placement ?? null);
      const ep = new ExpertParallel(world, layer, split, memory, choice, rounds, waitMs, table);
      undo.splice(0, undo.length, () => ep.#free());
      ep.#detach = await world.attach(layer.masks ? ep.#survivesLoss(agreed) : null);
      return ep;
    });
  }

  /**
   * The memory of each rank that `create` with these options would take, whether or not there is a GPU here. Only
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
   * `layer`: whose round this is, where several layers take turns; default: the one whose placement `create` was given.
   */
  dispatch(inputs: DispatchInputs<P>, stream: Stream, layer?: LayerTable): Received<P | S> {
    const round = this.#begin('dispatch', inputs, stream, layer);
    return round.hand(round.received);
  }

  /**
   * Brings back, for every token of this rank, the (weighted) sum of the rows that its experts left in `output`.
   * `out` is [tokens, hidden], with as many tokens as the round's dispatch. `made`: where combine weighs, the rows that combine takes.
   */
  combine(out: Tensor, stream: Stream, made?: MadeRows): void {
    this.#requireReady('combine', stream);
    const round = this.#oldest;
    round.require('combine');
    requireMadeRows(this.shape, made);
    this.#requireOut(out, round);
    round.take(made);
    round.run('combine', stream);
  }

  /**
   * The first half of `dispatch`, where `split` was asked for: sends and waits for nobody. Other work may follow on the
   * stream while bytes are on their way, before `dispatchRecv`. The rules of `dispatch` for inputs hold behind this.
   */
  dispatchSend(inputs: DispatchInputs<P>, stream: Stream, layer?: LayerTable): Dispatched {
    this.#requireSplit('dispatchSend');
    const round = this.#begin('dispatchSend', inputs, stream, layer);
    return round.hand({ phase: 'dispatched', tokens: round.brings.tokens });
  }

  /** The second half: when the stream has passed this, everything that other ranks sent here is in the result. */
  dispatchRecv(sent: Dispatched, stream: Stream): Received<P | S> {
    this.#requireReady('dispatch', stream);
    const round = this.#of('dispatchRecv', sent);
    round.run('dispatchRecv', stream);
    return round.hand(round.received);
  }

  /** The first half of `combine`: sends what the experts left in `received.output`, or made, and waits for nobody. */
  combineSend(received: Received<P | S>, stream: Stream, made?: MadeRows): Combining {
    this.#requireSplit('combineSend');
    this.#requireReady('combine', stream);
    const round = this.#of('combineSend', received);
    requireMadeRows(this.shape, made);
    round.take(made);
    round.run('combineSend', stream);
    return round.hand({ phase: 'combining', tokens: round.brings.tokens });
  }

  /** The second half: when the stream has passed this, `out`, [tokens, hidden], holds the sums. */
  combineRecv(sent: Combining, out: Tensor, stream: Stream): void {
    this.#requireReady('combine', stream);
    const round = this.#of('combineRecv', sent);
    this.#requireOut(out, round);
    round.run('combineRecv', stream);
  }

  /**
   * Another layer of the same shape, whose rounds take turns with those of the others in the same windows: it has a placement and counts
   * of its own. Every rank adds the same layers in the same order. Default: the placement that `create` was given.
   */
  async addLayer(placement?: Placement): Promise<LayerTable> {
    if (this.#disposed) throw new DisposedError('this ExpertParallel');
    const first = this.#first;
    if (placement !== undefined && first === null)
      throw new ArgumentError('placement', 'given', 'left out: the ExpertParallel was created without one');
    if (placement !== undefined) requireSamePlaces(placement, first!);
    const loaded = this.#rounds.map(({ loaded }) => loaded);
    const table = await LayerTable.create(this.world, this.shape, loaded, placement ?? first);
    this.#layers.push(table);
    return table;
  }

  /** All layers whose rounds these are: that of `create` first, then those of `addLayer`. Rounds that name none are the first one's. */
  get layers(): readonly LayerTable[] {
    return this.#layers;
  }

  /** Frees what a layer has. None of its rounds may still run. */
  removeLayer(layer: LayerTable): void {
    const at = this.#layers.indexOf(layer);
    if (at < 0) throw new ArgumentError('layer', layer, 'what addLayer of this ExpertParallel gave');
    this.#layers.splice(at, 1);
    layer.free();
  }

  /** Which of `views` the next dispatch fills. */
  get turn(): number {
    return this.#next;
  }

  /** Where experts of the first layer live for rounds that are dispatched from now on; null where they were not placed. */
  get placement(): Placement | null {
    return this.#layers[0]?.placement ?? null;
  }

  /**
   * Changes where experts live, in order on the stream: rounds that are dispatched behind this go by it, those of captured graphs
   * too, and rounds before it end as they began. Every rank calls it; those that share tokens (`replicas`) between the same two rounds.
   * The weights are the caller's: they are in the new places before any rank calls it, and stay in the old ones until the last
   * round before it has ended everywhere.
   */
  place(placement: Placement, stream: Stream): void {
    this.#requireReady('dispatch', stream);
    this.#table.place(placement, stream);
  }

  /** Routes by expert, of all ranks and all rounds that are before this on their streams. Every rank of the world calls it. */
  async statistics(stream: Stream): Promise<Statistics> {
    this.#requireReady('dispatch', stream);
    return this.#table.statistics(stream);
  }

  /**
   * How long the ranks' kernels waited for each other, in the last rounds that are before this on their streams (`waits: true`); or in those
   * of `layer`, where several take turns. Every rank of the world calls it.
   */
  async waits(stream: Stream, layer?: LayerTable): Promise<Waits> {
    this.#requireReady('dispatch', stream);
    const loaded = this.#rounds.map(({ loaded }) => loaded);
    return readWaits(this.world, loaded, stream, layer?.number ?? null);
  }

  /**
   * Waits until everything on the stream is done. A rank that is lost ends no wait at once: kernels that wait for it
   * leave when their time (`waitMs`) is over, and what they computed from then on means nothing.
   * @throws RankLostError where a kernel gave up waiting, naming the rank, the operation and the epoch; and where the
   * world has lost a rank that no kernel waited for.
   * @throws RepeatRoundsError with `onLoss: 'mask'`, where ranks were left out instead, once; further rounds may run.
   */
  async synchronize(stream: Stream): Promise<void> {
    if (this.#disposed) throw new DisposedError('this ExpertParallel');
    requireStream('stream', stream);
    await stream.synchronize();
    if (this.#loss === null)
      this.#loss = await (this.shape.masks ? this.#mask(stream) : this.#findLoss(stream));
    if (this.#loss !== null) throw this.#loss;
    const repeat = this.#repeat;
    this.#repeat = null;
    if (repeat !== null) throw repeat;
  }

  /** Frees the windows, when every rank has come here. After a loss they stay until the devices of the world are freed. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    // A round that a loss cut off, nobody forgot.
    if (this.#loss === null && this.#heard === null && this.#rounds.some(({ underWay }) => underWay))
      process.emitWarning(
        new HeddleError(
          'HEDDLE_ROUND_OPEN',
          'a layer is disposed with a round that was dispatched and not combined',
        ),
      );
    // A peer may still be writing into this window: nobody unmaps before all are here.
    if (!(await this.#allAreHere())) return;
    this.#detach();
    await this.#free();
  }

  async #free(): Promise<void> {
    this.#disposed = true;
    this.#layer.forget();
    for (const round of this.#rounds) await round.close();
    for (const layer of this.#layers) await layer.free();
  }

  async #allAreHere(): Promise<boolean> {
    if (this.#loss !== null || this.world.circle.signal.aborted) return false;
    return this.world.barrier('dispose').then(
      () => true,
      () => false,
    );
  }

  /** Begins the next round, once the one before it in the same memory has ended. */
  #begin(
    call: 'dispatch' | 'dispatchSend',
    inputs: DispatchInputs<P>,
    stream: Stream,
    layer = this.#layers[0],
  ): RoundInFlight<P | S> {
    this.#requireReady('dispatch', stream);
    if (layer === undefined || !this.#layers.includes(layer))
      throw new ArgumentError('layer', layer, 'what addLayer of this ExpertParallel gave');
    const round = this.#rounds[this.#next]!;
    round.require(call);
    round.run(call, stream, { inputs, placing: layer.placing(this.#next), layer: layer.number });
    const forward = layer.count();
    if (this.shape.masks) this.#note({ layer: this.#layers.indexOf(layer), forward }, stream);
    this.#next = (this.#next + 1) % this.#rounds.length;
    return round;
  }

  get #table(): LayerTable {
    const [first] = this.#layers;
    if (first !== undefined) return first;
    throw new DisposedError('the last layer of this ExpertParallel');
  }

  /** The round that was dispatched first of those that are not combined. */
  get #oldest(): RoundInFlight<P | S> {
    const { length } = this.#rounds;
    const byAge = this.#rounds.map((_, n) => this.#rounds[(this.#next + n) % length]!);
    return byAge.find(({ underWay }) => underWay) ?? this.#rounds[0]!;
  }

  /** The round that a handle belongs to, which must stand where the call may come. */
  #of(call: Call, handle: unknown): RoundInFlight<P | S> {
    const round =
      this.#rounds.find((round) => round.gave(handle)) ??
      this.#rounds.find((round) => round.awaits(call)) ??
      this.#oldest;
    round.requireWith(call, handle);
    return round;
  }

  #requireOut(out: Tensor, { brings }: RoundInFlight): void {
    requireCombineOutput(this.shape, brings.tokens, out);
    brings.out = out.data;
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
    if (this.shape.masks && this.world.out) throw new RankMaskedError(this.world.rank, { cause: heard });
    if (heard === null) return;
    if (!(heard instanceof RankLostError)) throw heard;
    // Work that is enqueued does not count, and `synchronize` says so.
    if (this.shape.masks) return;
    throw new RankLostError(heard.ranks, operation, undefined, { cause: heard });
  }

  /** The loss that the circle has heard of, or else this rank's proxy. Where the proxy stopped by its own fault, this rank is the lost one. */
  get #heard(): unknown {
    const { circle } = this.world;
    if (circle.signal.aborted) return circle.signal.reason;
    const stopped = this.#rounds.map(({ loaded }) => loaded.stopped).find((error) => error !== null) ?? null;
    if (stopped === null || stopped instanceof RankLostError) return stopped;
    return new RankLostError([circle.rank], 'the work of its proxy', undefined, { cause: stopped });
  }

  /** Leaves out ranks that are lost; null where the layer goes on. */
  async #mask(stream: Stream): Promise<unknown> {
    const maskings = this.#maskings;
    const failures = await Promise.all(this.#rounds.map(({ loaded }) => loaded.failure(stream)));
    // Another layer may have found the loss meanwhile.
    if (maskings !== this.#maskings) return null;
    const { rank } = this.world;
    if (failures.some((failure) => failure?.peer === rank)) return new RankMaskedError(rank);
    if (this.#heard === null && failures.every((failure) => failure === null)) return null;
    return this.world.mask().then(
      () => null,
      (error: unknown) => error,
    );
  }

  #survivesLoss(agreed: object): SurvivesLoss {
    const { device } = this.world;
    const turns = this.#rounds.length;
    let begun = 0;
    return {
      waitMs: this.#waitMs,
      count: async () => {
        const stream = device.createStream();
        const counts = await Promise.all(this.#rounds.map(({ loaded }) => loaded.rounds(stream)));
        await stream.synchronize();
        stream.dispose();
        const open = this.#rounds.filter(({ underWay }) => underWay).length;
        begun = counts.reduce((sum, { run }) => sum + run, open);
        return Math.min(begun, ...counts.map(({ done }, turn) => turns * done + turn));
      },
      leaveOut: async (ranks) => {
        const stream = device.createStream();
        for (const { loaded } of this.#rounds) {
          if (!ranks.includes(this.world.rank)) loaded.beginAnew(stream);
          loaded.leaveOut(ranks, stream);
        }
        await stream.synchronize();
        stream.dispose();
      },
      goOn: (done) => {
        for (const round of this.#rounds) round.giveUp();
        this.#next = 0;
        this.#maskings += 1;
        this.#doneBefore += done;
        if (begun > done)
          this.#repeat = new RepeatRoundsError(this.world.masked, this.#doneBefore + 1, this.#goBack(done));
        if (this.#begun !== null) this.#begun = [];
      },
      // Where experts live now is told; how many places there are is part of the layer.
      shape: () => JSON.stringify({ ...agreed, placement: undefined, layers: this.#layers.length }),
      state: (): State => ({
        done: this.#doneBefore,
        places: this.#layers.map(({ placement }) => placement?.places ?? []),
        forwards: this.#layers.map(({ forwards }) => forwards),
      }),
      takeOver: async (states, stayed) => {
        if (stayed === null) return;
        const { done, places, forwards } = states[stayed] as State;
        this.#doneBefore = done;
        this.#loss = this.#repeat = null;
        begun = 0;
        for (const [i, layer] of this.#layers.entries()) layer.goBack(forwards[i]! + 1);
        if (this.#first === null) return;
        const stream = device.createStream();
        for (const [i, layer] of this.#layers.entries())
          layer.place({ ...layer.placement!, places: places[i]! }, stream);
        await stream.synchronize();
        stream.dispose();
      },
    };
  }

  /** Notes whose round begins, to say from where on to repeat. */
  #note(of: LayerForward, stream: Stream): void {
    if (stream.capturing) this.#begun = null;
    if (this.#begun === null) return;
    const round = (this.#begun.at(-1)?.round ?? 0) + 1;
    this.#begun.push({ round, of });
    if (this.#begun.length > 2 * mostNoted) this.#begun.splice(0, mostNoted);
  }

  /** Every layer goes on with its first forward of which a round does not count, the first `done` do. Returns whose the next one is. */
  #goBack(done: number): LayerForward | null {
    const again = (this.#begun ?? []).filter(({ round }) => round > done);
    for (const { of } of again.toReversed()) this.#layers[of.layer]!.goBack(of.forward);
    return again[0]?.round === done + 1 ? again[0].of : null;
  }

  /** The failure that kernels recorded, or else the loss that the circle has heard; null where all is well. */
  async #findLoss(stream: Stream): Promise<unknown> {
    const failures = await Promise.all(this.#rounds.map(({ loaded }) => loaded.failure(stream)));
    const failure = failures.find((found) => found !== null) ?? null;
    if (this.#heard instanceof RankLostError) await verdictOf(this.world.circle);
    if (failure === null) return this.#heard;
    const missed =
      this.#heard === null ? await missedInTheEnd(this.world, failure.peer, this.#waitMs) : failure.peer;
    // A loss that the circle reports is certain. A rank that a kernel missed may itself have waited for the lost one.
    const heard = this.#heard;
    const ranks = heard instanceof RankLostError ? heard.ranks : [missed];
    const { operation, epoch } = failure;
    const why =
      heard === null
        ? likelyMistake(this.shape, this.world.rank, failure, this.#layer.here)
        : { cause: heard };
    return new RankLostError(ranks, operation, epoch, why);
  }
}

/** Rounds that may have to be repeated are remembered, unless there are more between two waits of the host. */
const mostNoted = 2 ** 14;

/** What a rank that rejoins is told of a layer. */
interface State {
  readonly done: number;
  /** [layer]: its places. */
  readonly places: readonly (readonly number[])[];
  readonly forwards: readonly number[];
}
