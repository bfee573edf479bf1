/** One rank's simulated GPU: the `Device` over the engine. */

import {
  ArgumentError,
  DisposedError,
  HeddleError,
  requireInteger,
  requireObject,
  requireText,
} from '../../base/errors.js';
import {
  byteSize,
  type IrModule,
  type IrType,
  type Layout,
  maxPeers,
  requireModule,
  type ValueName,
} from '../../lang/index.js';
import { type PtxKernel, type PtxParameter, type PtxVariable, ptxBytes } from '../../lang/ptx/index.js';
import {
  type Device,
  type Fill,
  fillAll,
  type Launcher,
  type LaunchShape,
  type MappedMemory,
  type PeerMemory,
  type Program,
  requireFills,
  requireGrid,
  requireRank,
  requireSameSize,
  requireScalar,
  requireTensor,
  requireWindow,
  requireWire,
  type Stream,
  type Tensor,
  type Window,
  type WindowMemory,
  type WireMemory,
  type WireShape,
} from '../index.js';
import type { SimTensor } from './boxes.js';
import { compile } from './codegen/compile.js';
import { type Compiled, isPtx, type KernelModule } from './compiled.js';
import type { Engine } from './engine.js';
import { SimHostView } from './mapped.js';
import { type AddressSpace, type ByteAt, maxBufferBytes, SimBuffer, stride } from './memory.js';
import type { HostSubstitute } from './network.js';
import { compilePtx, fillVariable, globalsOf } from './ptx/compile.js';
import { SimEvent, SimStream } from './stream.js';
import { mapOf, tensorMapBytes } from './tensor-maps.js';
import { SimLaunch } from './thread.js';

/** The parts that the devices of one machine share. */
export interface Shared {
  readonly machine: number;
  readonly engine: Engine;
  readonly addresses: AddressSpace;
  /** The variables that all devices have in common. */
  readonly managed: Map<PtxVariable, SimMemory>;
  /** The module to run where another is loaded. */
  substitute(module: KernelModule): KernelModule;
  /** The changes that mutants make to programs on hosts, such as proxies. */
  readonly host: HostSubstitute;
}

/** Blocks or threads: so many along x, or along x, y and z. */
export type PtxExtent = number | readonly number[];

export interface PtxLaunchShape extends Omit<LaunchShape, 'grid' | 'block'> {
  readonly grid: PtxExtent;
  readonly block: PtxExtent;
  /** A cooperative launch, whose blocks may all wait for each other (`this_grid().sync()`). Default false. */
  readonly cooperative?: boolean;
}

/** A launch of a kernel in PTX, whose parameters may be structs. */
export interface PtxLauncher extends Launcher {
  setGrid(grid: PtxExtent): void;
  /** Sets a parameter's bytes; those that are not given are zeros. */
  setBytes(name: string, bytes: Uint8Array): void;
}

export interface PtxProgram {
  readonly module: PtxKernel;
  launcher(shape: PtxLaunchShape): PtxLauncher;
}

/** On a GPU a launch may have at most this many blocks and threads. */
const maxGrid = 2 ** 31 - 1;

export class SimDevice implements Device {
  readonly kind = 'sim';
  readonly description: string;
  readonly memoryBytes = maxBufferBytes;
  readonly model = 'simulated GPU';
  readonly cacheBytes = 0;
  readonly multiprocessors: number;
  readonly capability = [9, 0] as const;
  readonly #live = new Set<SimMemory>();
  #disposed = false;
  readonly #streams = new Set<SimStream>();
  readonly #globals = new Map<PtxVariable, SimMemory>();
  readonly #shared: Shared;

  constructor(
    readonly rank: number,
    shared: Shared,
  ) {
    this.#shared = shared;
    this.multiprocessors = shared.engine.residentBlocks;
    this.description = `simulated GPU #${rank} (${shared.engine.mode})`;
  }

  #requireLive(): void {
    if (this.#disposed) throw new DisposedError(`the ${this.description}`);
  }

  #place(bytes: number, purpose: string): SimMemory {
    this.#requireLive();
    requireInteger('bytes', bytes, 1, maxBufferBytes);
    requireText('purpose', purpose);
    const memory = new SimMemory(this.#shared, this.#shared.engine.newBuffer(this.rank, bytes, purpose), () =>
      this.#live.delete(memory),
    );
    this.#live.add(memory);
    return memory;
  }

  allocate(bytes: number, purpose: string): WindowMemory {
    const memory = this.#place(bytes, purpose);
    if (this.#shared.engine.mode === 'checked') memory.buffer.poison(0, bytes);
    return memory;
  }

  allocateWindow(bytes: number, purpose: string, fills: readonly Fill[] = []): WindowMemory {
    requireFills(fills, requireInteger('bytes', bytes, 1, maxBufferBytes));
    const window = this.#place(bytes, purpose);
    fillAll(window.buffer.u8, fills);
    return window;
  }

  allocateMapped(bytes: number, purpose: string): MappedMemory {
    const { buffer, address, free } = this.#place(bytes, purpose);
    return { address, bytes, ...this.#hostsOf(buffer, bytes), free };
  }

  /** The first bytes of a buffer, as the host sees them. */
  #hostsOf(buffer: SimBuffer, bytes: number): Pick<MappedMemory, 'host' | 'raw'> {
    const { engine, host } = this.#shared;
    const view = new SimHostView({ engine, buffer, bytes });
    return { host: host.memory(view), raw: buffer.u8.subarray(0, bytes) };
  }

  /** Memory of a simulated GPU is the process's too: real NICs reach it as they reach the host's. */
  allocateWire(shape: WireShape, purpose: string, fills: readonly Fill[] = []): WireMemory {
    requireWire(shape, maxBufferBytes);
    const { bytes, front, side } = shape;
    requireFills(fills, bytes);
    const { buffer, address, free } = this.#place(bytes, purpose);
    buffer.front = front;
    buffer.side = side;
    fillAll(buffer.u8, fills);
    const nics = { kind: 'host', raw: buffer.u8.subarray(front, bytes) } as const;
    return {
      ...{ address, bytes, front, side, nics, free },
      ...this.#hostsOf(buffer, side === 'host' ? bytes : front),
    };
  }

  async openWindow(handle: Uint8Array): Promise<PeerMemory> {
    return this.#peerAt(this.#windowOf(handle).address, () => {});
  }

  reserveWindow(bytes: number, purpose: string): PeerMemory & { unmap(): void } {
    this.#requireLive();
    requireInteger('bytes', bytes, 1, maxBufferBytes);
    requireText('purpose', purpose);
    const { engine, addresses } = this.#shared;
    const nothing = engine.newBuffer(this.rank, bytes, purpose);
    nothing.free();
    nothing.reserved = true;
    const address = addresses.place(nothing);
    const unmap = (): void => addresses.put(address, nothing);
    const close = (): void => {
      unmap();
      addresses.release(address);
    };
    return { ...this.#peerAt(address, close), unmap };
  }

  /** A window that was opened has the same address on all ranks, so the first that maps another there does so for all. */
  #peerAt(address: number, close: () => void): PeerMemory {
    const { addresses } = this.#shared;
    const map = async (handle: Uint8Array): Promise<void> => {
      const { buffer } = this.#windowOf(handle).place;
      requireSameSize(
        `the ${buffer.purpose} of rank ${buffer.rank}`,
        buffer.bytes,
        addresses.find('address', address, 0).buffer.bytes,
      );
      addresses.put(address, buffer);
    };
    return { address, map, close };
  }

  #windowOf(handle: Uint8Array): { readonly address: number; readonly place: ByteAt } {
    this.#requireLive();
    if (!(handle instanceof Uint8Array)) throw new ArgumentError('handle', handle, 'the handle of a window');
    const [kind, machine, text] = new TextDecoder().decode(handle).split(' ');
    if (kind !== 'sim' || Number(machine) !== this.#shared.machine) {
      throw new ArgumentError('handle', handle, 'the handle of a window of the same simulated machine');
    }
    const address = Number(text);
    return { address, place: this.#shared.addresses.find('handle', address, 0) };
  }

  /** An address that stands for the places of all ranks at once, for `multimem` in PTX. */
  multicast(name: string, places: readonly number[]): number {
    this.#requireLive();
    const { addresses } = this.#shared;
    // Nothing but multimem may use it, so nothing lies there.
    const buffer = new SimBuffer(-1, `${name}, a multicast address for multimem alone`, this.rank, 0);
    buffer.everywhere = places.map((place, rank) => addresses.find(`places[${rank}]`, place, 0));
    return addresses.place(buffer);
  }

  load(module: IrModule): Promise<Program>;
  load(module: PtxKernel): Promise<PtxProgram>;
  async load<M extends KernelModule>(module: M) {
    return this.program(module);
  }

  /** The result of `load`, at once. */
  program<M extends KernelModule>(module: M): { module: M; launcher(shape: PtxLaunchShape): SimLauncher } {
    this.#requireLive();
    requireObject('module', module);
    if (!isPtx(module)) requireModule('module', module);
    const runs = this.#shared.substitute(module);
    const { mode } = this.#shared.engine;
    const compiled = isPtx(runs) ? compilePtx(runs, mode) : compile(runs, mode);
    return {
      module,
      launcher: (shape) => {
        requireObject('shape', shape);
        return isPtx(runs)
          ? new PtxKernelLauncher(runs, this.#globalsOf(runs), this.rank, this.#shared, compiled, shape)
          : new IrLauncher(runs, this.rank, this.#shared, compiled, shape);
      },
    };
  }

  /** Makes the variables of a module that lie in memory of the device, once for all its kernels. */
  #globalsOf(kernel: PtxKernel): number[] {
    const variables = globalsOf(kernel);
    const allOf = ({ managed }: PtxVariable) => (managed ? this.#shared.managed : this.#globals);
    const memoryOf = (variable: PtxVariable) => allOf(variable).get(variable);
    const addressOf = (name: string): number => {
      const found = memoryOf(variables.find((one) => one.name === name)!);
      if (found === undefined)
        throw new HeddleError('HEDDLE_PTX', `'${name}' is no variable of ${kernel.name}’s files`);
      return found.address;
    };
    const fresh = variables.filter((variable) => memoryOf(variable) === undefined);
    for (const variable of fresh) {
      const memory = this.#place(Math.max(1, variable.bytes ?? 1), variable.name);
      memory.buffer.name(
        variable.name,
        0,
        ptxBytes[variable.type],
        (variable.bytes ?? 0) / ptxBytes[variable.type],
      );
      allOf(variable).set(variable, memory);
    }
    for (const variable of fresh) fillVariable(memoryOf(variable)!.buffer.u8, variable, addressOf);
    return variables.map((variable) => memoryOf(variable)!.address / stride);
  }

  /** The address, on this device, of a variable of a kernel's files; null where they have none of this name. */
  addressOf(kernel: PtxKernel, name: string): number | null {
    const at = globalsOf(kernel).findIndex((one) => one.name === name);
    return at < 0 ? null : this.#globalsOf(kernel)[at]! * stride;
  }

  createStream(): SimStream {
    this.#requireLive();
    const stream = new SimStream(this.rank, this.#shared.engine, this.#shared.addresses);
    this.#streams.add(stream);
    return stream;
  }

  createEvent(): SimEvent {
    this.#requireLive();
    return new SimEvent();
  }

  /** At once: memory that is gone makes a simulated kernel fail, not the process. */
  async settle(): Promise<void> {
    // Work that a killed rank had enqueued never runs.
    await Promise.all([...this.#streams].map((stream) => stream.synchronize().catch(() => {})));
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
    for (const memory of [...this.#live]) memory.free();
  }
}

class SimMemory implements WindowMemory {
  readonly address: number;
  readonly bytes: number;
  readonly handle: Uint8Array;
  readonly #shared: Shared;
  readonly #onFree: () => void;

  constructor(
    shared: Shared,
    readonly buffer: SimBuffer,
    onFree: () => void,
  ) {
    this.#shared = shared;
    this.#onFree = onFree;
    this.address = shared.addresses.place(buffer);
    this.bytes = buffer.bytes;
    this.handle = new TextEncoder().encode(`sim ${shared.machine} ${this.address}`);
  }

  poison(offset: number, bytes: number): void {
    requireInteger('offset', offset, 0, this.bytes);
    requireInteger('bytes', bytes, 0, this.bytes - offset);
    if (this.#shared.engine.mode === 'checked') this.buffer.poison(offset, bytes);
  }

  readonly free = (): void => {
    if (this.buffer.freed) return;
    this.buffer.free();
    this.#shared.engine.detector?.bufferGone(this.buffer);
    this.#shared.addresses.release(this.address);
    this.#onFree();
  };
}

abstract class SimLauncher implements PtxLauncher {
  protected readonly missing = new Set<string>();
  readonly #block: readonly number[];
  readonly #firstSite: number;
  readonly #programmatic: boolean;
  #grid: readonly number[];
  readonly #compiled: Compiled;
  protected readonly shape: PtxLaunchShape;

  constructor(
    protected readonly home: number,
    protected readonly shared: Shared,
    compiled: Compiled,
    shape: PtxLaunchShape,
  ) {
    this.#compiled = compiled;
    this.shape = shape;
    this.#grid = this.#gridOf(shape.grid);
    this.#block = this.#extentOf('block', shape.block, compiled.module.maxThreads);
    this.#programmatic = shape.programmatic ?? false;
    requireRank(shape.rank);
    this.#firstSite = shared.engine.sites.register(compiled);
  }

  abstract set(name: string, value: number | bigint): void;
  abstract setWindow(name: string, window: Window): void;
  abstract setBytes(name: string, bytes: Uint8Array): void;
  abstract setTensor(name: string, tensor: Tensor): void;

  /** The arguments as they are now; when the launch begins, the array in which generated code finds them. */
  protected abstract take(rank: number): () => unknown[];

  setGrid(grid: PtxExtent): void {
    this.#grid = this.#gridOf(grid);
  }

  protected unknown(name: string, names: readonly string[]): never {
    const known = names.join(', ') || 'it has none';
    throw new ArgumentError('name', name, `a parameter of kernel ${this.#compiled.module.name}: ${known}`);
  }

  #gridOf(grid: PtxExtent): readonly number[] {
    const { module } = this.#compiled;
    const extent = this.#extentOf('grid', grid, maxGrid);
    const along = isPtx(module) ? module.clusterExtents : [module.cluster];
    for (const [axis, cluster] of along.entries()) requireGrid(extent[axis]!, maxGrid, cluster);
    if (this.shape.cooperative) requireInteger('grid', sizeOf(extent), 1, this.shared.engine.residentBlocks);
    return extent;
  }

  /** Along x, y and z; kernels in TypeScript know x alone. */
  #extentOf(name: string, given: PtxExtent, most: number): readonly number[] {
    if (typeof given === 'number' || !isPtx(this.#compiled.module))
      return [requireInteger(name, given, 1, most), 1, 1];
    if (!Array.isArray(given) || given.length < 1 || given.length > 3)
      throw new ArgumentError(name, given, 'a number, or one for each of x, y and z');
    const all = given.map((one, i) => requireInteger(`${name}[${i}]`, one, 1, most));
    requireInteger(name, sizeOf(all), 1, most);
    return [...all, 1, 1].slice(0, 3);
  }

  launch(stream: Stream): void {
    const { missing } = this;
    if (missing.size > 0) {
      throw new HeddleError(
        'HEDDLE_LAUNCH',
        `kernel ${this.#compiled.module.name} needs ${[...missing].join(', ')}: set every parameter before the launch`,
      );
    }
    const { engine } = this.shared;
    if (!(stream instanceof SimStream) || !stream.belongsTo(engine) || stream.rank !== this.home) {
      throw new ArgumentError('stream', stream, `a stream of the simulated GPU #${this.home}`);
    }
    const grid = sizeOf(this.#grid);
    const block = sizeOf(this.#block);
    const extents = [...this.#block, ...this.#grid];
    const { rank } = this.shape;
    const args = this.take(rank);
    stream.launch({
      programmatic: this.#programmatic,
      make: (previous, on) =>
        new SimLaunch(
          engine.newNumber(),
          on,
          this.#compiled,
          rank,
          grid,
          block,
          extents,
          args(),
          this.#firstSite,
          previous,
        ),
    });
  }
}

type Launching = ConstructorParameters<typeof SimLauncher>;

/** Where a parameter's value stands among the arguments of generated code. */
interface Parameter {
  readonly type: IrType;
  readonly at: number;
}

class IrLauncher extends SimLauncher {
  readonly #places = new Map<string, Parameter>();
  readonly #args: unknown[] = [];
  /** By where they stand: windows, which may be mapped anew between launches. */
  readonly #windows = new Map<number, readonly ByteAt[]>();

  constructor(module: IrModule, ...[home, shared, compiled, shape]: Launching) {
    super(home, shared, compiled, shape);
    for (const { name, type } of module.entry.params) {
      this.#places.set(name, { type, at: this.#args.length });
      this.missing.add(name);
      const { kind } = type;
      this.#args.push(...(kind === 'pointer' || kind === 'peers' ? [null, null] : [null]));
    }
  }

  #placeOf(name: string): Parameter {
    const place = this.#places.get(name);
    return place ?? this.unknown(name, [...this.#places.keys()]);
  }

  set(name: string, value: number | bigint): void {
    const { type, at } = this.#placeOf(name);
    if (type.kind === 'pointer') {
      if (typeof value !== 'bigint') requireInteger(name, value, 0, Number.MAX_SAFE_INTEGER);
      const { buffer, offset } = this.shared.addresses.find(name, Number(value), 0);
      if (offset % byteSize[type.to] !== 0) {
        throw new ArgumentError(name, value, `a multiple of ${byteSize[type.to]}, the size of ${type.to}`);
      }
      this.#args[at] = buffer;
      this.#args[at + 1] = offset;
    } else if (type.kind === 'value') {
      this.#args[at] = scalar(name, type.name, value);
    } else {
      throw new ArgumentError(
        name,
        value,
        `set with ${type.kind === 'peers' ? 'setWindow, as it is a window' : 'setTensor, as it is a tensorMap'}`,
      );
    }
    this.missing.delete(name);
  }

  setWindow(name: string, window: Window): void {
    const { type, at } = this.#placeOf(name);
    if (type.kind !== 'peers') throw new ArgumentError(name, window, 'set with set, as it is not a window');
    requireWindow(name, window, maxPeers);
    const places = windowPlaces(this.shared, name, window, type.layout);
    this.#windows.set(at, places);
    this.#args[at + 1] = places.map(({ offset }) => offset);
    this.missing.delete(name);
  }

  setTensor(name: string, tensor: Tensor): void {
    const { type, at } = this.#placeOf(name);
    if (type.kind !== 'tensorMap')
      throw new ArgumentError(name, tensor, 'set with set, as it is no tensorMap');
    const { address, bytes, ...form } = requireTensor(name, tensor, type);
    const place = this.shared.addresses.find(`${name}.address`, address, bytes);
    this.#args[at] = { ...form, ...place, tile: type.tile } satisfies SimTensor;
    this.missing.delete(name);
  }

  setBytes(name: string, bytes: Uint8Array): void {
    throw new ArgumentError(name, bytes, 'set with set or setWindow: only kernels in PTX take bytes');
  }

  protected take(): () => unknown[] {
    const [args, windows] = [this.#args.slice(), [...this.#windows]];
    return () => {
      for (const [at, places] of windows) args[at] = places.map(({ buffer }) => buffer);
      return args;
    };
  }
}

/** Where a window lies on each rank. With a layout, findings speak of its fields. */
function windowPlaces(
  { addresses, engine }: Shared,
  name: string,
  window: Window,
  layout: Layout | null,
): ByteAt[] {
  return window.bases.map((base, rank) => {
    const place = addresses.find(`${name}.bases[${rank}]`, base, layout?.bytes ?? 0);
    if (layout !== null && engine.mode === 'checked') place.buffer.nameFields(layout, place.offset);
    return place;
  });
}

/** Launches kernels in PTX, whose arguments are bytes, as a GPU has them. */
class PtxKernelLauncher extends SimLauncher {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  /** By the offset of the parameter that is a tensor's map. */
  readonly #tensors = new Map<number, SimTensor>();
  readonly #kernel: PtxKernel;
  /** Upper words of the addresses of its variables. */
  readonly #globals: readonly number[];

  constructor(kernel: PtxKernel, globals: readonly number[], ...[home, shared, compiled, shape]: Launching) {
    super(home, shared, compiled, shape);
    this.#kernel = kernel;
    this.#globals = globals;
    this.#bytes = new Uint8Array(Math.max(8, kernel.parameterBytes));
    this.#view = new DataView(this.#bytes.buffer);
    for (const { name } of kernel.params) if (name !== kernel.rankParameter) this.missing.add(name);
  }

  #find(name: string): PtxParameter {
    const { params } = this.#kernel;
    const names = params.map((param) => param.name);
    return params[names.indexOf(name)] ?? this.unknown(name, names);
  }

  set(name: string, value: number | bigint): void {
    const { type, offset, bytes } = this.#find(name);
    if (type === null)
      throw new ArgumentError(name, value, 'set with setBytes or setWindow, as it is a struct or an array');
    if (typeof value === 'number' && type === 'f32') this.#view.setFloat32(offset, value, true);
    else if (typeof value === 'number' && type === 'f64') this.#view.setFloat64(offset, value, true);
    else {
      if (typeof value !== 'bigint')
        requireInteger(name, value, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
      const bits = BigInt(value);
      const most = 1n << BigInt(8 * bytes);
      if (bits < -most / 2n || bits >= most)
        throw new ArgumentError(name, value, `an integer of ${8 * bytes} bits`);
      for (let i = 0; i < bytes; i++) this.#bytes[offset + i] = Number((bits >> BigInt(8 * i)) & 255n);
    }
    this.missing.delete(name);
  }

  setBytes(name: string, from: Uint8Array): void {
    const { offset, bytes } = this.#find(name);
    if (!(from instanceof Uint8Array) || from.length > bytes)
      throw new ArgumentError(name, from, `at most ${bytes} bytes`);
    this.#bytes.fill(0, offset, offset + bytes);
    this.#bytes.set(from, offset);
    this.missing.delete(name);
  }

  setTensor(name: string, tensor: Tensor): void {
    const { offset, bytes: all } = this.#find(name);
    const boxes = this.#kernel.tensors.get(name);
    if (boxes === undefined || all !== tensorMapBytes)
      throw new ArgumentError(name, tensor, 'set with set or setBytes: `tensors` does not name it');
    const { address, bytes, ...form } = requireTensor(name, tensor, boxes);
    const place = this.shared.addresses.find(`${name}.address`, address, bytes);
    const map = { ...form, ...place, tile: boxes.tile };
    this.#tensors.set(offset, map);
    this.#bytes.set(mapOf(map, address), offset);
    this.missing.delete(name);
  }

  /** The addresses of all ranks' windows, one after the other. */
  setWindow(name: string, window: Window): void {
    const { offset, bytes } = this.#find(name);
    requireWindow(name, window, Math.floor(bytes / 8));
    windowPlaces(this.shared, name, window, this.#kernel.layouts.get(name) ?? null);
    window.bases.forEach((base, rank) => {
      this.#view.setBigUint64(offset + 8 * rank, BigInt(base), true);
    });
    this.missing.delete(name);
  }

  protected take(rank: number): () => unknown[] {
    const { rankParameter } = this.#kernel;
    if (rankParameter !== null) this.set(rankParameter, rank);
    const { addresses, engine } = this.shared;
    const params = engine.newBuffer(this.home, this.#bytes.length, 'parameters');
    params.u8.set(this.#bytes);
    const { table, tableBase } = addresses;
    const grid = this.shape.cooperative ? engine.newBuffer(this.home, 16, 'the barrier of the grid') : null;
    const args = [params, table, tableBase, ...this.#globals, grid, new Map(this.#tensors), addresses];
    return () => args;
  }
}

const sizeOf = (extent: readonly number[]): number => extent.reduce((product, one) => product * one, 1);

/** A value as generated code has it. */
function scalar(name: string, type: ValueName, value: number | bigint): unknown {
  switch (type) {
    case 'i32':
    case 'u32':
      return requireScalar(name, type, value) | 0;
    case 'u64':
      return BigInt(requireScalar(name, type, value));
    case 'f32':
      return Math.fround(requireScalar(name, type, value));
    case 'bool':
      return requireScalar(name, type, value) === 1;
    default:
      throw new ArgumentError(name, value, `of a type that can be a parameter, not ${type}`);
  }
}
