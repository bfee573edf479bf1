import { randomBytes } from 'node:crypto';
import { DisposedError, HeddleError, requireInteger } from '../../../base/errors.js';
import type { CoreOptions } from '../core/core.js';
import { ImmediateQueue, ImmediateTable, tableFull } from '../core/immediates.js';
import { controlWord } from '../core/shared.js';
import { type EngineAddress, encodeAddress, machineId } from '../libfabric/address.js';
import { linkOf } from '../libfabric/nics.js';
import type { FabricDevice } from '../libfabric/provider.js';
import { Counter, ImmediateCounter } from './counters.js';
import { callerDriver, type Driver, startWorker } from './driver.js';
import type { Peer, PeerGroup, Region, RemoteRegion } from './handles.js';
import { createMemory, type GpuMemory } from './memory.js';
import { createOperations, type Operations } from './operations.js';
import { coreOptions, type EngineOptions } from './options.js';
import { createPeers, type Peers } from './peers.js';
import { createPosting } from './posting.js';
import type { Barrier, Paged, Scatter, Write } from './transfers.js';
import { createWaiting, type Waitable } from './waiting.js';

/**
 * Moves bytes between the memory of processes, one-sidedly, over libfabric. Obtain one with `open`, exchange
 * `address` with the peers, `addPeer` theirs, exchange the descriptors of regions likewise, and write.
 */
export class TransferEngine implements Waitable {
  /** The bytes that its peers pass to `addPeer`. */
  readonly address: Uint8Array;
  /** The devices in use, one a rail, and what the provider promises about them. */
  readonly devices: readonly FabricDevice[];
  readonly timeoutMs: number;
  /** @internal */
  broken: Error | null = null;
  /** @internal */
  driver!: Driver;

  /** Requests that one write becomes. */
  readonly #shards: number;
  readonly #control: Int32Array;
  readonly #peers: Peers;
  readonly #posting: ReturnType<typeof createPosting>;
  readonly #immediates: ImmediateTable | null;
  readonly #arrivals: ImmediateQueue | null;
  readonly #counters = new Map<number, ImmediateCounter>();
  readonly #waiting = createWaiting(this);
  readonly #operations: Operations;
  readonly #memory: ReturnType<typeof createMemory>;
  /** The devices of which the system knew a link when the engine was opened. */
  readonly #linked: readonly FabricDevice[];
  #closing: Promise<void> | null = null;

  /** Opens an engine. @throws UnavailableError when there is no libfabric or no usable provider. */
  static async open(options: EngineOptions = {}): Promise<TransferEngine> {
    const core = coreOptions(options);
    let engine: TransferEngine | undefined;
    const driver =
      (options.thread ?? 'worker') === 'caller'
        ? callerDriver(core)
        : await startWorker(core, (error) => {
            if (engine !== undefined) engine.#break(error);
          });
    engine = new TransferEngine(core, options, driver);
    return engine;
  }

  private constructor(core: CoreOptions, { gpuMemory = false }: EngineOptions, driver: Driver) {
    this.driver = driver;
    this.devices = core.rails.map(({ device }) => device);
    this.#linked = this.devices.filter(({ device }) => linkOf(device) !== null);
    const { provider } = this.devices[0]!;
    const id = randomBytes(8).toString('hex');
    const { shard } = core;
    const address: EngineAddress = { id, provider, machine: machineId(), shard, rails: driver.ends };
    this.address = encodeAddress(address);
    this.timeoutMs = core.timeoutMs;
    this.#shards = shard === 'bytes' ? core.rails.length : 1;
    this.#control = new Int32Array(core.shared.control);
    this.#memory = createMemory(driver, id, gpuMemory, this);
    const listed = core.arrivals === 'listed';
    this.#immediates = listed ? null : new ImmediateTable(core.shared.immediates);
    this.#arrivals = listed ? new ImmediateQueue(core.shared.immediates) : null;
    const peers = createPeers(driver, address, new Int32Array(core.shared.peers), core.timeoutMs);
    this.#peers = peers;
    this.#operations = createOperations(core.shared, peers.failure);
    const requireOpen = () => this.#requireOpen();
    this.#posting = createPosting(this, requireOpen, peers, this.#operations, core, this.#shards);
  }

  // ---- Set-up --------------------------------------------------------------------------------------------------

  /** Makes another engine known by its `address`. `name` is what errors will call it. */
  addPeer(address: Uint8Array, name?: string): Peer {
    this.#requireOpen();
    return this.#peers.add(address, name);
  }

  /** Forgets a peer; whatever is under way to it ends with an error. The same engine may be added anew. */
  removePeer(peer: Peer): void {
    this.#requireOpen();
    this.#peers.remove(peer);
    this.#memory.freeSettled();
  }

  /**
   * Says that a peer is gone, for who knows it from elsewhere: whatever is under way to it, and every wait for it,
   * ends with PeerLostError now instead of after the timeout.
   */
  losePeer(peer: Peer): void {
    // Where nothing is under way any more, there is nothing to lose.
    if (this.broken) return;
    this.#peers.lose(peer);
    this.#memory.freeSettled();
  }

  /** Allocates and registers zeroed host memory. */
  allocate(bytes: number): Region {
    this.#requireOpen();
    return this.#memory.allocate(bytes);
  }

  /** Registers memory of the caller's, which must stay until the engine is closed. */
  register(buffer: ArrayBufferView | ArrayBufferLike): Region {
    this.#requireOpen();
    return this.#memory.register(buffer);
  }

  /**
   * Registers GPU memory the best way there is: as a dmabuf, by the provider's own GPU support, or not at all;
   * then the region is host memory of the same size (`path` is `staging`) that the caller copies from and to.
   */
  registerGpu(memory: GpuMemory): Region {
    this.#requireOpen();
    return this.#memory.registerGpu(memory);
  }

  /** A peer's region, from its `descriptor`. */
  remote(peer: Peer, descriptor: Uint8Array): RemoteRegion {
    this.#requireOpen();
    return this.#peers.remote(peer, descriptor);
  }

  /** A group of regions, one a peer, for `scatter` and `barrier`. */
  group(members: readonly RemoteRegion[]): PeerGroup {
    this.#requireOpen();
    return this.#peers.group(members);
  }

  /** A counter of operations that end. */
  counter(): Counter {
    return new Counter(this.#waiting);
  }

  /** The counter of writes that land here with this immediate; one per tag. */
  immediate(tag: number): ImmediateCounter {
    requireInteger('tag', tag, 0, 2 ** 32 - 1);
    if (this.#immediates === null)
      throw new HeddleError(
        'HEDDLE_FABRIC',
        "this engine lists immediates (arrivals: 'listed'): call nextImmediate",
      );
    let counter = this.#counters.get(tag);
    if (counter === undefined) {
      counter = new ImmediateCounter(tag, this.#immediates, this.#shards, this.#waiting);
      this.#counters.set(tag, counter);
    }
    return counter;
  }

  /** Takes the oldest immediate that has landed, of an engine that lists them; -1 where there is none. */
  nextImmediate(): number {
    if (this.#arrivals === null)
      throw new HeddleError(
        'HEDDLE_FABRIC',
        "this engine counts immediates; open it with arrivals: 'listed'",
      );
    return this.#arrivals.take();
  }

  /** Whether a write to the peer can begin without waiting for room. */
  hasRoomFor(peer: Peer): boolean {
    this.#requireOpen();
    this.#peers.requirePeer('peer', peer);
    return this.#posting.fits(peer);
  }

  // ---- Operations ----------------------------------------------------------------------------------------------

  /** Writes one slice. Returns when it is on its way; the source must stay unchanged until it has ended. */
  write(write: Write): void {
    this.#posting.write(write);
  }

  /** Writes many pages to one peer. */
  paged(paged: Paged): void {
    this.#posting.paged(paged);
  }

  /** Writes a slice of one buffer to every member of a group. */
  scatter(scatter: Scatter): void {
    this.#posting.scatter(scatter);
  }

  /** Sends an immediate to every member of a group. */
  barrier(barrier: Barrier): void {
    this.#posting.barrier(barrier);
  }

  // ---- Progress and the end ------------------------------------------------------------------------------------

  /** Makes progress where the caller must, and counts what has ended; true when anything moved. */
  poll(): boolean {
    // A closed engine has nothing left that could make progress; waits learn it from `broken`.
    const moved = this.#closing === null && this.driver.progress();
    if (Atomics.load(this.#control, controlWord.immediatesLost) !== 0) this.broken ??= tableFull();
    return this.#operations.drain() || moved;
  }

  /** A device of its own that has no link, or is gone since it was opened: then it is no peer that fails. @internal */
  get fallenDevice(): FabricDevice | undefined {
    return this.#linked.find(({ device }) => linkOf(device) !== 'up');
  }

  /** Operations that have not ended. */
  get underway(): number {
    return this.#operations.underway();
  }

  /** @internal */
  probe(peer: Peer): () => boolean {
    return this.#posting.probe(peer);
  }

  /** Ends what is under way with an error, unregisters everything, and frees the provider's resources. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const error = new DisposedError('this engine');
    this.broken ??= error;
    await this.driver.close();
    // An operation that had ended before is told as it ended.
    this.#operations.drain();
    this.#operations.endAll(error);
    this.#waiting.rejectAll(error);
    this.#memory.close();
  }

  #break(error: Error): void {
    this.broken ??= error;
    this.#operations.endAll(error);
    this.#waiting.rejectAll(error);
  }

  #requireOpen(): void {
    if (this.#closing !== null) throw new DisposedError('this engine');
    if (this.broken) throw this.broken;
  }
}
