/**
 * Dispatch and combine as a runtime calls them: create an ExpertParallel once for a layer's shape, then, for each
 * round, dispatch, run the experts, combine. Both calls only enqueue: they do not wait, allocate or copy.
 */
import {
  type Device,
  type Fill,
  type Launcher,
  type Program,
  requireStream,
  type Stream,
} from '../device/index.js';
import {
  ArgumentError,
  DisposedError,
  HeddleError,
  RankLostError,
  requireFlag,
  requireInteger,
  requireObject,
  requireOneOf,
} from '../errors/index.js';
import {
  type CombineTuning,
  combineGrid,
  type LaunchTuning,
  type OneSidedShape,
  type OneSidedWindow,
  oneSidedKernels,
  oneSidedWindow,
  operations,
  outputRowBytes,
  returnedRowBytes,
  unitBytes,
  widestUnit,
} from '../kernels/index.js';
import { byteSize } from '../lang/index.js';
import { type SharedWindow, World } from '../world/index.js';
import { type Dtype, dtypes } from './dtype.js';
import { expertsOf, limits, type Output, type RowDtype, requireShape, type Shape } from './shape.js';
import { emptyTensor, type OwnedTensor, type Tensor, wrap } from './tensor.js';
import { tunedFor } from './tuned.js';
import { defaultTuning, type Tuning, weighTuning } from './tuning.js';
import { type Input, requireCombineOutput, requireDispatchInputs, requireTuning } from './validate.js';

/** One row of a payload: `length` elements of `dtype`. */
export interface Row {
  readonly dtype: Dtype;
  readonly length: number;
}

/** `row('bf16', 7168)`: a row of 7168 bf16. For formats Heddle has no name for, count bytes: `row('u8', bytes)`. */
export const row = <D extends Dtype>(dtype: D, length: number): Row & { readonly dtype: D } => ({
  dtype,
  length,
});

/** What is fixed when an ExpertParallel is created. The same on all ranks. */
export interface ExpertParallelOptions {
  /** Experts of all ranks together. */
  readonly experts: number;
  /** Routes of a token, 1 to 32. */
  readonly topK: number;
  /** The most tokens that this rank, or any other, brings to one round. */
  readonly maxTokens: number;
  /** What travels with a token to its experts, up to 8 rows: `{ x: row('bf16', 7168) }`. */
  readonly payloads: Readonly<Record<string, Row>>;
  /** What comes back: one row a token, `row('bf16', 7168)`. */
  readonly output: Row & { readonly dtype: RowDtype };
  /**
   * Who multiplies by the router weights. Default 'experts': they leave one finished row a slot. With 'combine' they
   * leave one unweighted row a route; combine weights and adds them up where they are, before anything travels.
   */
  readonly weighting?: 'experts' | 'combine';
  /**
   * How rows come back. Default 'rows': as they are. 'e4m3' sends 8-bit floats with a scale for every 128 elements,
   * about half the bytes of bf16; each rank's row then changes by at most 1/17 of the largest magnitude of those 128
   * (docs/semantics.md). Rows must be a multiple of 16 elements long.
   */
  readonly transport?: 'rows' | 'e4m3';
  /** Router weights travel to the experts, as `received.weights`. Default true. */
  readonly weights?: boolean;
  /** Routes are counted per local expert, as `received.counts`. Default false. */
  readonly counts?: boolean;
  /** How long a kernel waits for a peer before it gives up, in ms. Default 10,000. */
  readonly waitMs?: number;
  /** How kernels are spread over the device. Default: what suits the shape. All ranks must say the same. */
  readonly tuning?: Tuning;
}

/** The inputs of one rank's round. Tensors stay where they are; host arrays are checked and copied to the device. */
export interface DispatchArguments {
  /** i32 [tokens, topK]; -1: no expert. */
  readonly topkIds: Input;
  /** f32 [tokens, topK]. */
  readonly topkWeights?: Input;
  /** By name: [tokens, row]. */
  readonly payloads: Readonly<Record<string, Input>>;
}

/**
 * What arrived for this rank's experts: views of its window, valid from dispatch until the round's combine. Slot
 * (source, token) holds that rank's token; slots without a local expert are not written.
 */
export interface Received {
  /** i32 [ranks, maxTokens, topK]: expert ids, -1 where another rank (or nobody) owns the route. */
  readonly experts: Tensor;
  /** f32 [ranks, maxTokens, topK]; 0 where the id is -1. */
  readonly weights: Tensor | null;
  /** u32 [local experts]: routes to each, from its first expert on. */
  readonly counts: Tensor | null;
  /** By name: [ranks, maxTokens, row]. */
  readonly payloads: Readonly<Record<string, Tensor>>;
  /**
   * Where the experts leave their rows. [ranks, maxTokens, hidden]: the sum of a slot's local experts, already
   * weighted. With weighting 'combine' [ranks, maxTokens, topK, hidden]: a row for each route in `experts`, unweighted.
   */
  readonly output: Tensor;
}

/** What a benchmark needs and nobody else does; see `benchHandles`. */
export interface BenchHandles {
  /** The compiled kernels: registers, spills. */
  readonly programs: { readonly dispatch: Program; readonly combine: Program };
  /** How many blocks and threads each is launched with. */
  readonly launches: { readonly dispatch: LaunchTuning; readonly combine: LaunchTuning };
  /**
   * Ends a round without its combine, so that dispatches can be timed back to back. Every rank must do the same, and
   * nobody may read what they bring. Only where combine pulls: before a pushing one dispatch waits for slots that a
   * combine releases. (There is no such thing for combine: rows of a pushing combine say themselves that they have
   * come, so two in a row would mistake each other's.)
   */
  endRound(): void;
}

let handlesOf: (ep: ExpertParallel) => BenchHandles;

/** The inside of an ExpertParallel, for measuring its halves. */
export const benchHandles = (ep: ExpertParallel): BenchHandles => handlesOf(ep);

/**
 * Dispatch and combine of one layer, as one rank of it. Rounds follow each other on a stream: `dispatch`, the experts,
 * `combine`; any number may be enqueued before anything is waited for, or captured as a graph.
 */
export class ExpertParallel {
  static {
    handlesOf = (ep) => ({
      programs: ep.programs,
      launches: ep.launches,
      endRound: () => {
        ep.#open = false;
      },
    });
  }

  /** The views that every dispatch fills. */
  readonly received: Received;
  /** The payloads as dispatch takes them: the kernel's parameter for their rows, and what the rows' address divides by. */
  readonly #rows: readonly {
    readonly name: string;
    readonly rowBytes: number;
    readonly parameter: string;
    readonly unit: number;
  }[];
  readonly #staging = new Map<string, OwnedTensor>();
  #topkIds = 0;
  #tokens = 0;
  /** A round is open from its dispatch to its combine. */
  #open = false;
  #disposed = false;
  /** Why no further round can run: what `synchronize` threw. */
  #loss: unknown = null;

  private constructor(
    /** The ranks that share the experts. */
    readonly world: World,
    /** The options in the words of the reference: all that results depend on. */
    readonly shape: Shape,
    /** How the kernels are spread over the device: what was asked for, measured, or a rule of thumb. */
    readonly tuning: Tuning,
    private readonly features: { readonly weights: boolean; readonly counts: boolean },
    private readonly layout: OneSidedWindow,
    private readonly window: SharedWindow,
    private readonly dispatchLauncher: Launcher,
    private readonly weighing: Weighing | null,
    private readonly combineLauncher: Launcher,
    private readonly programs: BenchHandles['programs'],
    private readonly launches: BenchHandles['launches'],
    rows: Readonly<Record<string, Row>>,
  ) {
    this.received = this.#views(rows);
    this.#rows = shape.payloads.map(({ name, rowBytes }, i) => ({
      ...{ name, rowBytes, parameter: `rows_${i}` },
      unit: unitBytes[widestUnit(rowBytes)],
    }));
  }

  /**
   * Creates the windows and compiles the kernels of a shape. Every rank of the world calls it with the same options.
   */
  static async create(world: World, options: ExpertParallelOptions): Promise<ExpertParallel> {
    const shape = shapeOf(world, options);
    const features = {
      weights: requireFlag('weights', options.weights ?? true),
      counts: requireFlag('counts', options.counts ?? false),
    };
    const limit = requireInteger('waitMs', options.waitMs ?? 10_000, 1, 4_000_000) * 1000;
    const tuning = options.tuning ?? tunedFor(shape, world.device) ?? defaultTuning(shape, world.device.kind);
    requireTuning(tuning, shape.ranks);
    requirePushable(shape, options.tuning);
    await requireSameEverywhere(world, { ...shape, ...features, ...tuning });

    const oneSided = specialise(shape, features, tuning, world.device.kind);
    requireRoom(oneSided, world.device);
    const kernels = oneSidedKernels(oneSided);
    const layout = kernels.window;
    const [dispatch, weigh, combine] = await Promise.all([
      world.device.load(kernels.dispatch),
      kernels.weigh && world.device.load(kernels.weigh),
      world.device.load(kernels.combine),
    ]);
    const window = await world.createWindow(layout.bytes, 'receive window', startOf(layout));
    await poisonWindow(world, layout, window);

    const { rank } = world;
    const dispatchLauncher = dispatch.launcher({
      grid: oneSided.dispatch.blocks,
      block: oneSided.dispatch.threads,
      programmatic: true,
      rank,
    });
    const combineLauncher = combine.launcher({
      grid: combineGrid(oneSided),
      block: oneSided.combine.threads,
      programmatic: true,
      rank,
    });
    for (const launcher of [dispatchLauncher, combineLauncher]) {
      launcher.setWindow('win', window);
      launcher.set('limit', limit);
    }
    const weighing = weigh && prepareWeighing(world, shape, oneSided.weigh!, weigh, window);
    return new ExpertParallel(
      world,
      shape,
      tuning,
      features,
      layout,
      window,
      dispatchLauncher,
      weighing,
      combineLauncher,
      { dispatch, combine },
      oneSided,
      options.payloads,
    );
  }

  /**
   * Sends this rank's tokens to the ranks that own their experts. When the stream has passed this, everything that
   * other ranks sent here is in `received`.
   */
  dispatch(inputs: DispatchArguments, stream: Stream): Received {
    this.#requireReady('dispatch');
    if (this.#open) {
      throw new HeddleError(
        'HEDDLE_ROUND_OPEN',
        'dispatch was called twice; combine the round before the next dispatch',
      );
    }
    const tokens = requireDispatchInputs(this.shape, inputs);
    requireStream('stream', stream);
    if (this.features.weights && inputs.topkWeights === undefined) {
      throw new ArgumentError(
        'topkWeights',
        undefined,
        'given; create the ExpertParallel with weights: false to do without',
      );
    }
    const { dispatchLauncher: launcher } = this;
    this.#topkIds = this.#address('topkIds', inputs.topkIds, 'i32', this.shape.topK, stream);
    this.#tokens = tokens;
    launcher.set('tokens', tokens);
    launcher.set('topkIds', this.#topkIds);
    launcher.set(
      'topkWeights',
      this.features.weights
        ? this.#address('topkWeights', inputs.topkWeights!, 'f32', this.shape.topK, stream)
        : this.#topkIds,
    );
    for (const { name, rowBytes, parameter, unit } of this.#rows) {
      const input = inputs.payloads[name]!;
      // Rows are moved by the widest unit that divides their bytes; their address must allow it.
      if ('data' in input && input.data % unit !== 0) {
        throw new ArgumentError(`payloads.${name}.data`, input.data, `a multiple of ${unit}`);
      }
      launcher.set(parameter, this.#address(name, input, 'u8', rowBytes, stream));
    }
    launcher.launch(stream);
    this.#open = true;
    return this.received;
  }

  /**
   * Brings back, for every token of this rank, the (weighted) sum of the rows that its experts left in `output`.
   * `out` is [tokens, hidden], with as many tokens as the round's dispatch.
   */
  combine(out: Tensor, stream: Stream): void {
    this.#requireReady('combine');
    if (!this.#open) {
      throw new HeddleError(
        'HEDDLE_NO_ROUND',
        'combine was called without a dispatch before it; a round is dispatch, experts, combine',
      );
    }
    requireCombineOutput(this.shape, this.#tokens, out);
    requireStream('stream', stream);
    const unit = outputRowBytes(this.shape) % 16 === 0 ? 16 : 1;
    if (out.data % unit !== 0) throw new ArgumentError('out.data', out.data, `a multiple of ${unit}`);
    const { combineLauncher: launcher } = this;
    this.weighing?.launcher.launch(stream);
    launcher.set('topkIds', this.#topkIds);
    launcher.set('out', out.data);
    launcher.set('tokens', this.#tokens);
    launcher.launch(stream);
    this.#open = false;
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
    for (const tensor of this.#staging.values()) tensor.free();
    this.weighing?.rows.free();
    this.window.close();
  }

  async #allAreHere(): Promise<boolean> {
    if (this.#loss !== null || this.world.group.signal.aborted) return false;
    return this.world.barrier('dispose').then(
      () => true,
      () => false,
    );
  }

  #requireReady(operation: keyof typeof operations): void {
    if (this.#disposed) throw new DisposedError('this ExpertParallel');
    if (this.#loss !== null) throw this.#loss;
    const { signal } = this.world.group;
    if (!signal.aborted) return;
    if (!(signal.reason instanceof RankLostError)) throw signal.reason;
    throw new RankLostError(signal.reason.ranks, operation, undefined, { cause: signal.reason });
  }

  /** What the kernels recorded, or else what the group has heard; null where all is well. */
  async #findLoss(stream: Stream): Promise<unknown> {
    const field = this.#field('failure');
    const bytes = await stream.copyOut(this.window.own.address + field.offset, 16);
    const [operation, peer, epoch] = new Uint32Array(bytes.buffer, bytes.byteOffset, 4);
    const { signal } = this.world.group;
    const heard: unknown = signal.aborted ? signal.reason : null;
    if (operation === 0) return heard;
    // Whom the group lost is certain. Whom a kernel missed may itself have waited for the lost one.
    const ranks = heard instanceof RankLostError ? heard.ranks : [peer!];
    const name = operation === operations.dispatch ? 'dispatch' : 'combine';
    return new RankLostError(ranks, name, epoch, heard === null ? undefined : { cause: heard });
  }

  /** The device address of an input; what the host holds is copied to a buffer of its own first. */
  #address(name: string, input: Input, dtype: Dtype, rowLength: number, stream: Stream): number {
    if ('data' in input) return input.data;
    let staging = this.#staging.get(name);
    if (staging === undefined) {
      staging = emptyTensor(this.world.device, dtype, [this.shape.maxTokens, rowLength], `staged ${name}`);
      this.#staging.set(name, staging);
    }
    const bytes = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    if (bytes.length > 0) stream.copyIn(staging.data, bytes);
    return staging.data;
  }

  #field(name: string) {
    return this.layout.fields.find((field) => field.name === name)!;
  }

  #views(rows: Readonly<Record<string, Row>>): Received {
    const { shape, window } = this;
    const at = (name: string, dtype: Dtype, dimensions: readonly number[]): Tensor =>
      wrap(window.own.address + this.#field(name).offset, dtype, dimensions);
    const slots = [shape.ranks, shape.maxTokens];
    return {
      experts: at('experts', 'i32', [...slots, shape.topK]),
      weights: this.features.weights ? at('weights', 'f32', [...slots, shape.topK]) : null,
      counts: this.features.counts ? at('counts', 'u32', [expertsOf(shape, this.world.rank).count]) : null,
      payloads: Object.fromEntries(
        Object.entries(rows).map(([name, { dtype, length }], i) => [
          name,
          at(`payloads_${i}`, dtype, [...slots, length]),
        ]),
      ),
      output: this.weighing?.rows ?? at('output', shape.output.dtype, [...slots, shape.output.hidden]),
    };
  }
}

function shapeOf(world: World, options: ExpertParallelOptions): Shape {
  if (!(world instanceof World))
    throw new ArgumentError('world', world, 'what World.local or World.join gives');
  requireObject('options', options);
  requireObject('payloads', options.payloads, "rows by name: { x: row('bf16', 7168) }");
  const payloads = Object.entries(options.payloads).map(([name, row]) => ({
    name,
    rowBytes: requireRow(`payloads.${name}`, row, Object.keys(dtypes)),
  }));
  requireRow('output', options.output, ['f32', 'bf16', 'f16']);
  const { experts, topK, maxTokens, weighting, transport } = options;
  if (weighting !== undefined) requireOneOf('weighting', weighting, ['experts', 'combine']);
  if (weighting === 'combine' && options.weights === false)
    throw new ArgumentError('weights', false, "true or left out, because weighting is 'combine'");
  if (transport !== undefined) requireOneOf('transport', transport, ['rows', 'e4m3']);
  if (transport === 'e4m3') requireSendable(options);
  const output: Output = {
    dtype: options.output.dtype,
    hidden: options.output.length,
    ...(weighting === undefined ? {} : { weighting }),
    ...(transport === undefined ? {} : { transport }),
  };
  return requireShape({ ranks: world.ranks, experts, topK, maxTokens, payloads, output });
}

/** Requires a row as `row()` makes it, of one of these dtypes; returns its bytes. */
function requireRow(argument: string, row: Row, allowed: readonly string[]): number {
  requireObject(argument, row, "a row: row('bf16', 7168)");
  requireOneOf(`${argument}.dtype`, row.dtype, allowed);
  const { size } = dtypes[row.dtype];
  return size * requireInteger(`${argument}.length`, row.length, 1, limits.rowBytes / size);
}

/** Refuses a window that the device's memory cannot hold, or that a kernel's 32-bit indices do not reach. */
function requireRoom(shape: OneSidedShape, { memoryBytes, description }: Device): void {
  const { ranks, maxTokens, topK, payloads, output } = shape;
  const slots = ranks * maxTokens;
  const outputUnits = output.hidden / (outputRowBytes(shape) % 16 === 0 ? 16 / dtypes[output.dtype].size : 1);
  const units = payloads.map(({ rowBytes, unit }) => rowBytes / unitBytes[unit]);
  const scales = output.transport === 'e4m3' ? returnedRowBytes(shape) / 4 : 0;
  const most = Math.max(...units, outputUnits * (shape.weigh ? topK : 1), scales, topK);
  const reached = Math.floor(2 ** 32 / most / ranks);
  if (maxTokens > reached) {
    throw new ArgumentError('maxTokens', maxTokens, `at most ${reached} with such rows on ${ranks} ranks`);
  }
  const routes = shape.weigh ? slots * topK * outputRowBytes(shape) : 0;
  const bytes = oneSidedWindow(shape).bytes + routes;
  if (bytes > memoryBytes) {
    const fitting = Math.floor(maxTokens * (memoryBytes / bytes));
    const gibibytes = (n: number): string => `${(n / 2 ** 30).toFixed(1)} GiB`;
    const why = `its window of ${slots} slots would take ${gibibytes(bytes)} of ${gibibytes(memoryBytes)}`;
    throw new ArgumentError('maxTokens', maxTokens, `at most ${fitting} on the ${description}: ${why}`);
  }
}

/** Refuses what cannot travel as e4m3. */
function requireSendable({ output, tuning }: ExpertParallelOptions): void {
  if (output.length % 16 !== 0) {
    const possible = "a multiple of 16 for transport 'e4m3'; transport 'rows' takes any length";
    throw new ArgumentError('output.length', output.length, possible);
  }
  if (tuning?.combine?.way === 'pull')
    throw new ArgumentError('tuning.combine.way', 'pull', "'push' for transport 'e4m3'");
}

function specialise(
  shape: Shape,
  features: { readonly weights: boolean; readonly counts: boolean },
  tuning: Tuning,
  kind: 'sim' | 'cuda',
): OneSidedShape {
  const { ranks, experts, topK, maxTokens, output } = shape;
  // A block without a piece of work would only wait.
  const atMost = <T extends LaunchTuning>(launch: T): T => ({
    ...launch,
    blocks: Math.min(launch.blocks, maxTokens * launch.parts),
  });
  return {
    ranks,
    experts,
    topK,
    maxTokens,
    payloads: shape.payloads.map(({ rowBytes }) => ({ rowBytes, unit: widestUnit(rowBytes) })),
    output,
    ...features,
    dispatch: atMost(tuning.dispatch),
    combine: {
      ...atMost(tuning.combine),
      ...(output.transport === 'e4m3' ? forE4m3(tuning) : forRows(shape, tuning)),
    },
    ...(output.weighting === 'combine' ? { weigh: weighTuning(shape, tuning.combine, kind) } : {}),
  };
}

/** What stands between the experts and combine where that applies the weights: their rows, and the launch that does it. */
interface Weighing {
  readonly rows: OwnedTensor;
  readonly launcher: Launcher;
}

/** The experts' rows are nobody else's: memory of this rank, outside its window. */
function prepareWeighing(
  { device, rank }: World,
  { ranks, maxTokens, topK, output }: Shape,
  spread: LaunchTuning,
  program: Program,
  window: SharedWindow,
): Weighing {
  const rows = emptyTensor(
    device,
    output.dtype,
    [ranks, maxTokens, topK, output.hidden],
    'rows of the experts',
  );
  const launcher = program.launcher({ grid: spread.blocks, block: spread.threads, programmatic: true, rank });
  launcher.setWindow('win', window);
  launcher.set('rows', rows.data);
  return { rows, launcher };
}

/** A tuning may have been found for other rows; only whole vectors can be pushed. */
function forRows(shape: Shape, { combine }: Tuning): Partial<CombineTuning> {
  return { way: canPush(shape) ? combine.way : 'pull' };
}

const canPush = (shape: Shape): boolean => outputRowBytes(shape) % 16 === 0;

/** Who asks for a push by name is not given a pull instead. */
function requirePushable(shape: Shape, tuning: Tuning | undefined): void {
  if (tuning?.combine.way !== 'push' || canPush(shape)) return;
  const possible = `'pull' for rows of ${outputRowBytes(shape)} bytes; only multiples of 16 bytes can be pushed`;
  throw new ArgumentError('tuning.combine.way', 'push', possible);
}

/** A tuning may have been found for other rows. These are pushed, and with more threads sums would not fit in registers. */
function forE4m3({ combine }: Tuning): Partial<CombineTuning> {
  return { way: 'push', threads: Math.min(combine.threads, 512) };
}

/** Ranks that disagree would write over each other: they are refused before anything is mapped. */
async function requireSameEverywhere(world: World, mine: object): Promise<void> {
  const text = JSON.stringify(mine);
  const all = await world.allGather(new TextEncoder().encode(text), 'comparing shapes');
  for (const [rank, bytes] of all.entries()) {
    const theirs = new TextDecoder().decode(bytes);
    if (theirs === text) continue;
    const other = JSON.parse(theirs) as Record<string, unknown>;
    for (const [name, value] of Object.entries(mine)) {
      if (JSON.stringify(other[name]) !== JSON.stringify(value)) {
        throw new ArgumentError(
          name,
          JSON.stringify(value),
          `the same on all ranks; rank ${rank} has ${JSON.stringify(other[name])}`,
        );
      }
    }
  }
}

/**
 * What windows start as. Flags at zero, `returned` EMPTY, `experts` as -1: where a rank is lost before its first
 * dispatch, experts that run all the same find no route there, not routes to expert 0.
 */
function startOf(layout: OneSidedWindow): Fill[] {
  return layout.fields
    .filter(({ name, length }) => (name === 'returned' || name === 'experts') && length > 0)
    .map((field) => ({ offset: field.offset, bytes: bytesOf(field), value: 0xff }));
}

/** To the checker, what no kernel has written is uninitialised. */
async function poisonWindow(world: World, layout: OneSidedWindow, { own }: SharedWindow): Promise<void> {
  for (const field of layout.fields) {
    if (/^(experts|weights|payloads_\d+|output)$/.test(field.name))
      own.poison?.(field.offset, bytesOf(field));
  }
  await world.barrier('preparing windows');
}

const bytesOf = ({ type, length }: OneSidedWindow['fields'][number]): number => byteSize[type] * length;
