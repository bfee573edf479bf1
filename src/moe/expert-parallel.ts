/**
 * Dispatch and combine as a runtime calls them: create an ExpertParallel once for a layer's shape, then, for each
 * round, dispatch, run the experts, combine. Both calls only enqueue: they do not wait, allocate or copy.
 */
import { type Program, requireStream, type Stream } from '../device/index.js';
import { ArgumentError, DisposedError, HeddleError, RankLostError } from '../errors/index.js';
import type { Operation, Phase, Round, Tuning } from '../kernels/index.js';
import { type Layer, outputRowBytes } from '../layer/index.js';
import { World } from '../world/index.js';
import { requireSameEverywhere } from './agreement.js';
import { Carried } from './carried.js';
import { type Choice, choose } from './choice.js';
import { Inputs } from './inputs.js';
import { type MemoryOptions, type MemoryUse, memoryFor, memoryOf, requireRoom } from './memory.js';
import { type ExpertParallelOptions, layerOf, limitOf, placeOf, type Row } from './options.js';
import { type Combining, type Dispatched, Stages } from './stages.js';
import type { Tensor } from './tensor.js';
import { type DispatchInputs, requireCombineOutput } from './validate.js';

/**
 * What arrived for this rank's experts: views of its window, valid from dispatch until the round's combine. Slot
 * (source, token) holds that rank's token, with `replicas` that group's; slots without a local expert are not written.
 */
export interface Received {
  /** i32 [sources, maxTokens, topK]: expert ids, -1 where another rank (or nobody) owns the route. */
  readonly experts: Tensor;
  /** f32 [sources, maxTokens, topK]; 0 where the id is -1. */
  readonly weights: Tensor | null;
  /** u32 [local experts]: routes to each, from its first expert on. */
  readonly counts: Tensor | null;
  /** By name: [sources, maxTokens, row]. */
  readonly payloads: Readonly<Record<string, Tensor>>;
  /**
   * Where the experts leave their rows. [sources, maxTokens, hidden]: the sum of a slot's local experts, already
   * weighted. With weighting 'combine' [sources, maxTokens, topK, hidden]: a row for each route in `experts`, unweighted.
   */
  readonly output: Tensor;
}

/** What a benchmark needs and nobody else does; see `benchHandles`. */
export interface BenchHandles {
  /** The launches of dispatch and of combine: what was compiled, and how it is spread. */
  readonly launches: Readonly<Record<Operation, readonly BenchLaunch[]>>;
  /**
   * Ends a round without its combine, so that dispatches can be timed back to back. Every rank must do the same, and
   * nobody may read what they bring. Only where combine pulls: before a pushing one dispatch waits for slots that a
   * combine releases. (There is no such thing for combine: rows of a pushing combine say themselves that they have
   * come, so two in a row would mistake each other's.)
   */
  endRound(): void;
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
 * also comes as a send and a receive.
 */
export class ExpertParallel {
  static {
    handlesOf = (ep) => ({
      launches: {
        dispatch: ep.#launches('dispatchSend', 'dispatchRecv'),
        combine: ep.#launches('combineSend', 'combineRecv'),
      },
      endRound: () => {
        ep.#stages.reach('combined');
      },
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
  /** The views that every dispatch fills. */
  readonly received: Received;
  readonly #carried: Carried;
  readonly #inputs: Inputs;
  readonly #round: Round = { tokens: 0, topkIds: 0, topkWeights: 0, rows: [], out: 0 };
  /** What `out` of combine must be a multiple of. */
  readonly #outUnit: number;
  readonly #stages = new Stages();
  #disposed = false;
  /** Why no further round can run: what `synchronize` threw. */
  #loss: unknown = null;

  private constructor({ world, layer, split, choice, carried, rows }: Parts) {
    this.world = world;
    this.shape = layer;
    this.split = split;
    this.family = choice.family.name;
    this.why = choice.why;
    this.tuning = choice.tuning;
    this.memory = memoryOf(carried.plan);
    this.received = receivedOf(carried, rows);
    this.#carried = carried;
    this.#inputs = new Inputs(world.device, layer);
    this.#outUnit = outputRowBytes(layer) % 16 === 0 ? 16 : 1;
  }

  /**
   * Creates the windows and compiles the kernels of a shape. Every rank of the world calls it with the same options.
   */
  static async create(world: World, options: ExpertParallelOptions): Promise<ExpertParallel> {
    if (!(world instanceof World)) {
      throw new ArgumentError('world', world, 'what World.local or World.join gives');
    }
    const layer = layerOf(world.ranks, options);
    const limit = limitOf(options);
    const { device, rank, topology } = world;
    const place = placeOf({ kind: device.kind, rank, topology }, options);
    const choice = choose(layer, place, device, options);
    const { family, tuning } = choice;
    const { split, transport } = place;
    await requireSameEverywhere(world, { ...layer, family: family.name, split, transport, ...tuning });
    const plan = family.plan(layer, place, tuning);
    requireRoom(memoryOf(plan), layer, device);
    const carried = await Carried.out(world, plan, limit);
    return new ExpertParallel({ world, layer, split, choice, carried, rows: options.payloads });
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
   * written again behind this on the stream. Host arrays may be reused at once.
   */
  dispatch(inputs: DispatchInputs, stream: Stream): Received {
    this.#requireReady('dispatch', stream);
    this.#stages.require('dispatch', 'combined');
    this.#inputs.take(inputs, this.#round, stream);
    this.#stages.reach('dispatched');
    this.#carried.run('dispatchSend', this.#round, stream);
    this.#carried.run('dispatchRecv', this.#round, stream);
    return this.#stages.hand(this.received);
  }

  /**
   * Brings back, for every token of this rank, the (weighted) sum of the rows that its experts left in `output`.
   * `out` is [tokens, hidden], with as many tokens as the round's dispatch.
   */
  combine(out: Tensor, stream: Stream): void {
    this.#requireReady('combine', stream);
    this.#stages.require('combine', 'dispatched');
    this.#requireOut(out);
    this.#stages.reach('combined');
    this.#carried.run('combineSend', this.#round, stream);
    this.#carried.run('combineRecv', this.#round, stream);
  }

  /**
   * The first half of `dispatch`, where `split` was asked for: sends and waits for nobody. Other work may follow on the
   * stream while bytes are on their way, before `dispatchRecv`. What `dispatch` says of inputs holds behind this.
   */
  dispatchSend(inputs: DispatchInputs, stream: Stream): Dispatched {
    this.#requireSplit('dispatchSend');
    this.#requireReady('dispatch', stream);
    this.#stages.require('dispatchSend', 'combined');
    this.#inputs.take(inputs, this.#round, stream);
    this.#stages.reach('dispatch sent');
    this.#carried.run('dispatchSend', this.#round, stream);
    return this.#stages.hand({ phase: 'dispatched', tokens: this.#round.tokens });
  }

  /** The second half: when the stream has passed this, everything that other ranks sent here is in the result. */
  dispatchRecv(sent: Dispatched, stream: Stream): Received {
    this.#requireReady('dispatch', stream);
    this.#stages.requireWith('dispatchRecv', sent, 'dispatch sent');
    this.#stages.reach('dispatched');
    this.#carried.run('dispatchRecv', this.#round, stream);
    return this.#stages.hand(this.received);
  }

  /** The first half of `combine`: sends what the experts left in `received.output`, and waits for nobody. */
  combineSend(received: Received, stream: Stream): Combining {
    this.#requireSplit('combineSend');
    this.#requireReady('combine', stream);
    this.#stages.requireWith('combineSend', received, 'dispatched');
    this.#stages.reach('combine sent');
    this.#carried.run('combineSend', this.#round, stream);
    return this.#stages.hand({ phase: 'combining', tokens: this.#round.tokens });
  }

  /** The second half: when the stream has passed this, `out`, [tokens, hidden], holds the sums. */
  combineRecv(sent: Combining, out: Tensor, stream: Stream): void {
    this.#requireReady('combine', stream);
    this.#stages.requireWith('combineRecv', sent, 'combine sent');
    this.#requireOut(out);
    this.#stages.reach('combined');
    this.#carried.run('combineRecv', this.#round, stream);
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

  /** Frees the windows, when every rank has come here. After a loss they stay until the world's devices are freed. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    // A peer may still be writing into this window: nobody unmaps before all are here.
    if (!(await this.#allAreHere())) return;
    this.#inputs.free();
    await this.#carried.close();
  }

  async #allAreHere(): Promise<boolean> {
    if (this.#loss !== null || this.world.group.signal.aborted) return false;
    return this.world.barrier('dispose').then(
      () => true,
      () => false,
    );
  }

  #requireOut(out: Tensor): void {
    requireCombineOutput(this.shape, this.#round.tokens, out);
    if (out.data % this.#outUnit !== 0)
      throw new ArgumentError('out.data', out.data, `a multiple of ${this.#outUnit}`);
    this.#round.out = out.data;
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

  /** What the group knows, or else the rank's own proxy. */
  get #heard(): unknown {
    const { signal } = this.world.group;
    return signal.aborted ? signal.reason : this.#carried.stopped;
  }

  /** What the kernels recorded, or else what the group has heard; null where all is well. */
  async #findLoss(stream: Stream): Promise<unknown> {
    const failure = await this.#carried.failure(stream);
    const heard = this.#heard;
    if (failure === null) return heard;
    // Whom the group lost is certain. Whom a kernel missed may itself have waited for the lost one.
    const ranks = heard instanceof RankLostError ? heard.ranks : [failure.peer];
    const { operation, epoch } = failure;
    return new RankLostError(ranks, operation, epoch, heard === null ? undefined : { cause: heard });
  }

  #launches(...phases: readonly Phase[]): BenchLaunch[] {
    const { plan, steps } = this.#carried;
    return phases.flatMap((phase) =>
      plan.phases[phase].map(({ blocks, threads }, i) => ({
        ...{ blocks, threads },
        program: steps[phase][i]!.program,
      })),
    );
  }
}

interface Parts {
  readonly world: World;
  readonly layer: Layer;
  readonly split: boolean;
  readonly choice: Choice;
  readonly carried: Carried;
  /** The payloads as the caller named their types. */
  readonly rows: Readonly<Record<string, Row>>;
}

function receivedOf(carried: Carried, rows: Readonly<Record<string, Row>>): Received {
  const { experts, weights, counts, payloads, output } = carried.plan.received;
  return {
    experts: carried.tensor(experts),
    weights: weights && carried.tensor(weights),
    counts: counts && carried.tensor(counts),
    payloads: Object.fromEntries(
      Object.entries(payloads).map(([name, view]) => {
        const { dtype, length } = rows[name]!;
        const [sources, tokens] = view.shape as readonly [number, number];
        return [name, carried.tensor({ ...view, dtype, shape: [sources, tokens, length] })];
      }),
    ),
    output: carried.tensor(output),
  };
}
