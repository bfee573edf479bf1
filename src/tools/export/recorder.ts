/**
 * A device that carries nothing out and notes what it is told. Heddle's own classes run on it once, and what they allocate and
 * launch is what hosts without Heddle allocate and launch. An address on it is a name and an offset: see `Recorder.name`.
 */
import { UnavailableError } from '../../base/errors.js';
import type { Device, Launcher, LaunchShape, Program, Stream, Tensor, Window } from '../../gpu/index.js';
import type { IrModule, IrType, Tile, TileName } from '../../lang/index.js';
import type { WindowPlan, WirePlan } from '../../moe/families/index.js';

/** Where a host finds the value of a parameter. */
export type Source =
  | { readonly from: 'window'; readonly window: string }
  /** The memory that networks reach, as one window. */
  | { readonly from: 'wire' }
  /** Memory of the rank alone, `offset` bytes behind its begin. */
  | { readonly from: 'buffer'; readonly buffer: string; readonly offset?: number }
  /** The rank's own window, from `offset` on. */
  | { readonly from: 'own'; readonly window: string; readonly offset?: number }
  | { readonly from: 'rows'; readonly payload: string }
  | { readonly from: 'weights'; readonly weights: string }
  | { readonly from: 'tokens' | 'topkIds' | 'topkWeights' | 'out' | 'limit' | 'rank' }
  /** What a layer whose experts are placed brings: the place of each route, and where routes are counted. */
  | { readonly from: 'places' | 'routed' }
  | { readonly from: 'constant'; readonly value: number }
  /** A constant that is another on each rank. */
  | { readonly from: 'constants'; readonly values: readonly number[] }
  /** What cuTensorMapEncodeTiled makes. Extents and the box are elements, strides are bytes, the outermost first. */
  | {
      readonly from: 'tensor';
      readonly address: Source;
      readonly element: TileName;
      readonly swizzle: Tile['swizzle'];
      readonly box: readonly number[];
      readonly extents: readonly number[];
      readonly strides: readonly number[];
    };

/** A launch, with where each of its parameters comes from. */
export interface Recorded {
  readonly module: IrModule;
  readonly shape: LaunchShape;
  readonly sources: ReadonlyMap<string, Source>;
}

/** Memory of a rank alone. */
export interface RecordedBuffer {
  readonly name: string;
  readonly bytes: number;
}

/** Names are this far apart; offsets are smaller. Addresses of devices end at 2^48, so there are 255 names. */
const apart = 2 ** 40;

/** The GPU that a host will have. */
export interface RecordedGpu {
  readonly multiprocessors: number;
  readonly capability: readonly [major: number, minor: number];
}

export class Recorder {
  readonly device: Device;
  readonly stream: Stream;
  /** Everything that was allocated, in its order. */
  readonly buffers: RecordedBuffer[] = [];
  readonly #sources: Source[] = [];
  #launches: Recorded[] = [];
  readonly #windows = new Map<Window, Source>();

  constructor(gpu: RecordedGpu) {
    const refuse = (call: string) => (): never => {
      throw new UnavailableError(`${call} cannot be exported`, 'Export what only allocates and launches');
    };
    this.device = {
      ...{ ...gpu, kind: 'cuda', description: 'GPU of an export', model: 'any', memoryBytes: 2 ** 40 },
      // Of an H200.
      cacheBytes: 50 * 2 ** 20,
      allocate: (bytes, purpose) => this.#allocate(bytes, purpose),
      load: async (module) => this.#program(module),
      createStream: () => this.stream,
      ...{ allocateWindow: refuse('a window'), allocateMapped: refuse('mapped memory') },
      ...{
        allocateWire: refuse('a wire'),
        openWindow: refuse('a window'),
        reserveWindow: refuse('a window'),
      },
      ...{ createEvent: refuse('an event'), settle: async () => {}, dispose: async () => {} },
    };
    this.stream = {
      ...{ copyIn: refuse('copyIn'), copyOut: refuse('copyOut'), copy: refuse('copy'), fill: refuse('fill') },
      ...{ record: refuse('record'), wait: refuse('wait'), synchronize: async () => {}, capturing: false },
      ...{ beginCapture: refuse('a graph'), endCapture: refuse('a graph'), dispose: () => {} },
    };
  }

  /** A number that stands for a source: for an address, to which offsets may be added, or for what the host counts. */
  name(source: Source): number {
    return apart * this.#sources.push(source);
  }

  /** The window of a plan, as kernels take it; the address of this rank's own; and its name. */
  window({ purpose, layout: { bytes } }: WindowPlan): { readonly window: Window; readonly own: number } {
    const window: Window = { rank: 0, bases: [], bytes };
    this.#windows.set(window, { from: 'window', window: purpose });
    return { window, own: this.name({ from: 'own', window: purpose }) };
  }

  wire({ layout: { bytes } }: WirePlan): Window {
    const window: Window = { rank: 0, bases: [], bytes };
    this.#windows.set(window, { from: 'wire' });
    return window;
  }

  launched(run: () => void): Recorded[] {
    this.#launches = [];
    run();
    return this.#launches;
  }

  #allocate(bytes: number, purpose: string) {
    const alike = this.buffers.filter(({ name }) => name.replace(/ \d+$/, '') === purpose).length;
    const name = alike === 0 ? purpose : `${purpose} ${alike + 1}`;
    this.buffers.push({ name, bytes });
    return { address: this.name({ from: 'buffer', buffer: name }), bytes, free: () => {} };
  }

  #program(module: IrModule): Program {
    const launcher = (shape: LaunchShape): Launcher => {
      const sources = new Map<string, Source>([['rank', { from: 'rank' }]]);
      let grid = shape.grid;
      return {
        set: (name, value) => void sources.set(name, this.sourceOf(Number(value))),
        setWindow: (name, window) => void sources.set(name, this.#windows.get(window)!),
        setTensor: (name, tensor) => void sources.set(name, this.#tensor(module, name, tensor)),
        setGrid: (blocks) => {
          grid = blocks;
        },
        launch: () =>
          void this.#launches.push({ module, shape: { ...shape, grid }, sources: new Map(sources) }),
      };
    };
    return { module, launcher };
  }

  sourceOf(value: number): Source {
    if (value < apart) return { from: 'constant', value };
    const source = this.#sources[Math.floor(value / apart) - 1]!;
    const offset = value % apart;
    if (offset === 0) return source;
    if (source.from === 'buffer' || source.from === 'own') return { ...source, offset };
    throw new UnavailableError(
      `a number that is made of ${source.from} cannot be exported`,
      'Export what hands it on as it is',
    );
  }

  #tensor(module: IrModule, name: string, { address, extents, strides }: Tensor): Source {
    const { type } = module.entry.params.find((parameter) => parameter.name === name)!;
    const { tile } = type as Extract<IrType, { kind: 'tensorMap' }>;
    const { type: element, swizzle, rows, columns } = tile;
    const rowBytes = (extents.at(-1)! * tile.bytes) / (rows * columns);
    const dense = extents.length === 2 ? [rowBytes] : [extents[1]! * rowBytes, rowBytes];
    const box = extents.length === 2 ? [rows, columns] : [1, rows, columns];
    return {
      ...{ from: 'tensor', address: this.sourceOf(address), element, swizzle, box },
      ...{ extents, strides: strides ?? dense },
    };
  }
}
