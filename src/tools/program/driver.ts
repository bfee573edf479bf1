/** Calls of CUDA's driver alone: modules, and memory that processes share. */
import type { SimDevice, SimMachine } from '../../gpu/sim/index.js';
import type { PtxKernel } from '../../lang/index.js';
import { CallError, cuda, type Handler, known, type Memories, upper } from './calls.js';
import type { Process } from './process.js';

/** The kinds of calls. */
export const driverKinds = [
  ...(['base', 'alias', 'create', 'hold', 'release', 'reserve', 'map', 'unmap', 'unreserve'] as const),
  ...(['ptx', 'parameters', 'length', 'eventAgain', 'occupancy'] as const),
] as const;

type Alias = ReturnType<SimDevice['reserveWindow']>;

/** Memory that lives as long as a handle, or an address at which it is mapped, holds it. */
interface Held {
  readonly memory: ReturnType<SimDevice['allocate']>;
  holders: number;
}

interface Owner {
  kernelOf(process: Process, stub: number): PtxKernel;
  /** Another number of the same event. */
  eventAgain(number: number): number;
}

/** Handles are addresses: where the memory lies first of all. */
export class DriverCalls {
  readonly #machine: SimMachine;
  readonly #memories: Memories;
  readonly #held = new Map<number, Held>();
  /** Further addresses of memory, and whose it is that is mapped there. */
  readonly #aliases = new Map<number, { readonly alias: Alias; readonly bytes: number; of: number | null }>();
  #made = 0;
  readonly #owner: Owner;

  constructor(machine: SimMachine, memories: Memories, owner: Owner) {
    this.#machine = machine;
    this.#memories = memories;
    this.#owner = owner;
  }

  #memoryAt(address: number) {
    const found = this.#memories.get(upper(address));
    if (found?.handle === undefined)
      throw new CallError(cuda.invalid, 'the address is not one of memory that processes can share');
    return { ...found, handle: found.handle };
  }

  #reserve(rank: number, bytes: number): number {
    const alias = this.#machine.device(rank).reserveWindow(bytes, `mapping ${++this.#made}`);
    this.#aliases.set(alias.address, { alias, bytes, of: null });
    return alias.address;
  }

  /** A mapping is at once: what is enqueued later finds it. */
  async #map(address: number, origin: number): Promise<void> {
    const { rank, bytes, handle } = this.#memoryAt(origin);
    const found = known(this.#aliases, 'mapping that begins at', address);
    if (found.of !== null) throw new CallError(cuda.invalid, 'memory is mapped there already');
    await found.alias.map(handle);
    found.of = origin;
    this.#memories.set(upper(address), { rank, bytes, handle });
  }

  #unmap(address: number): number {
    const found = known(this.#aliases, 'mapping that begins at', address);
    if (found.of === null) throw new CallError(cuda.invalid, 'no memory is mapped there');
    const { of } = found;
    found.alias.unmap();
    found.of = null;
    this.#memories.delete(upper(address));
    return of;
  }

  #let(origin: number): void {
    const held = known(this.#held, 'handle', origin);
    if (--held.holders > 0) return;
    this.#held.delete(origin);
    this.#memories.delete(upper(origin));
    held.memory.free();
  }

  readonly calls: Readonly<Record<(typeof driverKinds)[number], Handler>> = {
    // Where memory begins, its length, and whose it is.
    base: (_, address) => {
      const { bytes, rank } = this.#memoryAt(address);
      return [Math.floor(address / 2 ** 32) * 2 ** 32, bytes, rank];
    },
    alias: async ({ device }, origin) => {
      const address = this.#reserve(device, this.#memoryAt(origin).bytes);
      await this.#map(address, origin);
      return address;
    },
    create: (_, bytes, rank) => {
      const memory = this.#machine.device(rank).allocate(bytes, `cuMemCreate ${++this.#made}`);
      this.#held.set(memory.address, { memory, holders: 1 });
      this.#memories.set(upper(memory.address), { rank, bytes, handle: memory.handle });
      return memory.address;
    },
    hold: (_, origin) => {
      const held = known(this.#held, 'handle', origin);
      held.holders++;
      return held.memory.bytes;
    },
    release: (_, origin) => this.#let(origin),
    reserve: ({ device }, bytes) => this.#reserve(device, bytes),
    map: async (_, address, origin) => {
      const held = known(this.#held, 'handle', origin);
      await this.#map(address, origin);
      held.holders++;
    },
    unmap: (_, address) => this.#let(this.#unmap(address)),
    unreserve: (_, address) => {
      const found = known(this.#aliases, 'mapping that begins at', address);
      if (found.of !== null) this.#unmap(address);
      this.#aliases.delete(address);
      found.alias.close();
    },
    ptx: ({ process, tail }, module) => void process.textsOf(module).push(tail.toString()),
    parameters: ({ process }, stub, most) => {
      const { params } = this.#owner.kernelOf(process, stub);
      if (params.length > most) throw new CallError(cuda.invalid, `more than ${most} parameters`);
      return [params.length, ...params.flatMap(({ offset, bytes }) => [offset, bytes])];
    },
    length: (_, address) => this.#memories.get(upper(address))?.bytes,
    eventAgain: (_, number) => this.#owner.eventAgain(number),
    // Registers limit nothing: compilers of PTX choose none.
    occupancy: ({ process }, stub, threads, dynamic) => {
      const { module, entry, maxThreads } = this.#owner.kernelOf(process, stub);
      const all = [...module.variables, ...entry.variables].filter(({ space }) => space === 'shared');
      const shared = all.reduce((sum, { bytes }) => sum + (bytes ?? 0), dynamic);
      const most = Math.min(32, 64 / Math.ceil(threads / 32), 233_472 / (shared + 1024));
      return threads > maxThreads ? 0 : Math.floor(most);
    },
  };
}
