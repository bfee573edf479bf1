import { ArgumentError, DisposedError, HeddleError, requireInteger } from '../../../base/errors.js';
import type { CoreOptions } from '../core/core.js';
import { ImmediateQueue, ImmediateTable, tableFull } from '../core/immediates.js';
import { word } from '../core/shared.js';
import { encodeAddress } from '../libfabric/address.js';
import { libfabric } from '../libfabric/bindings.js';
import type { FabricDevice } from '../libfabric/provider.js';
import { Counter, ImmediateCounter } from './counters.js';
import { CallerDriver, type Driver, WorkerDriver } from './driver.js';
import type { Peer, PeerGroup, Region, RemoteRegion } from './handles.js';
import { EngineMemory, type GpuMemory } from './memory.js';
import { engineIdBytes, Inbox, type Message, Outbox } from './messages.js';
import { type Callback, Operations } from './operations.js';
import { coreOptions, type EngineOptions, requireProvider } from './options.js';
import { Peers } from './peers.js';
import { Posting } from './posting.js';
import { CommandRing } from './ring.js';
import { Room } from './room.js';
import {
  type Barrier,
  type OperationOptions,
  type Paged,
  requireOperation,
  type Scatter,
  type Write,
} from './transfers.js';
import { type Waitable, Waiting } from './waiting.js';

/**
 * Moves bytes between the memory of processes, one-sidedly, over libfabric. Obtain one with `open`, exchange
 * `address` with the peers, `addPeer` theirs, exchange the descriptors of regions likewise, and write.
 */
export class TransferEngine implements Waitable {
  /** What its peers pass to `addPeer`. */
  readonly address: Uint8Array;
  /** The devices in use, one a rail, and what the provider promises about them. */
  readonly devices: readonly FabricDevice[];
  readonly timeoutMs: number;
  /** @internal */
  broken: Error | null = null;
  /** @internal */
  driver!: Driver;

  readonly #onError: (error: Error) => void;
  readonly #messageBytes: number;
  /** Requests that one write becomes. */
  readonly #shards: number;
  readonly #control: Int32Array;
  readonly #ring: CommandRing;
  readonly #peers: Peers;
  readonly #room: Room;
  readonly #posting: Posting;
  readonly #immediates: ImmediateTable | null;
  readonly #arrivals: ImmediateQueue | null;
  readonly #counters = new Map<number, ImmediateCounter>();
  readonly #waiting = new Waiting(this);
  readonly #operations: Operations;
  readonly #inbox: Inbox;
  readonly #outbox: Outbox;
  readonly #memory: EngineMemory;
  #closed = false;

  /** Opens an engine. @throws UnavailableError when there is no libfabric or no usable provider. */
  static async open(options: EngineOptions = {}): Promise<TransferEngine> {
    const core = coreOptions(options);
    libfabric();
    requireProvider(core);
    let engine: TransferEngine | undefined;
    const driver =
      (options.thread ?? 'worker') === 'caller'
        ? new CallerDriver(core)
        : await WorkerDriver.start(core, (error) => {
            if (engine !== undefined) engine.#break(error);
          });
    engine = new TransferEngine(core, driver, options);
    return engine;
  }

  private constructor(core: CoreOptions, driver: Driver, options: EngineOptions) {
    this.driver = driver;
    this.devices = driver.info.devices;
    this.address = encodeAddress(driver.info.address);
    this.timeoutMs = core.timeoutMs;
    this.#onError = options.onError ?? ((error) => process.emitWarning(error));
    this.#messageBytes = core.messageBytes;
    this.#shards = core.shard === 'bytes' ? core.rails : 1;
    this.#control = new Int32Array(core.shared.control);
    this.#memory = new EngineMemory(driver, core.id, core.gpuMemory, this);
    const listed = core.arrivals === 'listed';
    this.#immediates = listed ? null : new ImmediateTable(core.shared.immediates);
    this.#arrivals = listed ? new ImmediateQueue(core.shared.immediates) : null;
    const peers = new Peers(driver, new Int32Array(core.shared.peers), core.timeoutMs);
    this.#peers = peers;
    this.#operations = new Operations(core.shared, peers.failure.bind(peers), this.#onError);
    this.#ring = new CommandRing(core.shared, driver);
    const posted = {
      ...{ peers, operations: this.#operations, ring: this.#ring },
      ...{ shards: this.#shards, queue: core.queue },
    };
    this.#room = new Room(this, posted);
    this.#posting = new Posting({
      ...posted,
      owner: this,
      requireOpen: () => this.#requireOpen(),
      room: this.#room,
      longestWrite: Math.min(...this.devices.map((device) => device.maxWriteBytes)),
    });
    this.#inbox = new Inbox(core.shared, driver.info.receiveBuffers, core.messageBytes);
    const id = Buffer.from(core.id, 'hex');
    this.#outbox = new Outbox(driver, id, core.messageBytes, () => this.#memory.number());
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
    if (this.#closed || this.broken) return;
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

  /** Of an engine that lists them: the oldest immediate that has landed, which is taken by this; -1 where there is none. */
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
    this.#peers.require('peer', peer);
    return this.#room.fits(peer);
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

  /** Sends a short message, which the peer gets from `receive`. The bytes are copied. */
  send(peer: Peer, bytes: Uint8Array, options: OperationOptions = {}): void {
    this.#requireOpen();
    this.#peers.require('peer', peer);
    requireOperation('options', options);
    const most = this.#messageBytes - engineIdBytes;
    if (!(bytes instanceof Uint8Array) || bytes.length > most) {
      throw new ArgumentError('bytes', bytes, `a Uint8Array of at most ${most} bytes (see messageBytes)`);
    }
    this.#room.await(peer);
    const { place, region, address, length } = this.#outbox.put(bytes);
    const { counter, callback } = options;
    // The outbox has to know how it ended; whoever else wants to is told after it.
    const ended: Callback = (error) => {
      if (error === null) this.#outbox.release(place);
      if (callback) callback(error);
      else if (error && !counter && !this.#closed) this.#onError(error);
    };
    const told = { counter, callback: ended };
    const ticket = this.#operations.begin('send', bytes.length, told, null, peer, null, 1);
    peer.posted = (peer.posted + 1) | 0;
    this.#ring.send(ticket, peer.id, region, address, length);
  }

  /** The oldest message that has come in, or null. */
  tryReceive(): Message | null {
    this.#requireOpen();
    if (this.#inbox.empty && (!this.poll() || this.#inbox.empty)) return null;
    this.#room.awaitCommand();
    const { buffer, engine, bytes } = this.#inbox.take();
    this.#ring.consumed(buffer);
    return { from: this.#peers.ofEngine(engine), engine, bytes };
  }

  /** The next message. @throws WaitTimeoutError */
  async receive(options: { timeoutMs?: number } = {}): Promise<Message> {
    this.#requireOpen();
    const timeoutMs = this.#waiting.timeout(options);
    let message: Message | null = null;
    await this.#waiting.until(
      () => {
        message ??= this.tryReceive();
        return message === null ? 1 : 0;
      },
      timeoutMs,
      () => 'receive: no message',
    );
    return message!;
  }

  // ---- Progress and the end ------------------------------------------------------------------------------------

  /** Makes progress where the caller must, and runs the callbacks of what has ended; true when anything moved. */
  poll(): boolean {
    // What is closed has nothing left that could make progress; waits learn it from `broken`.
    const moved = !this.#closed && this.driver.progress();
    if (Atomics.load(this.#control, word.immediatesLost) !== 0) this.broken ??= tableFull();
    return this.#operations.drain() || moved;
  }

  /** Operations that have not ended. */
  get underway(): number {
    return this.#operations.underway;
  }

  /** JavaScript heap in use in the thread that drives libfabric: its own or, with `thread: 'caller'`, this one. */
  heapBytes(): number {
    this.#requireOpen();
    return this.driver.call('heapBytes');
  }

  /** @internal */
  probe(peer: Peer): () => boolean {
    return this.#posting.probe(peer);
  }

  /** Ends what is under way with an error, unregisters everything, and frees the provider's resources. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const error = new DisposedError('this engine');
    this.broken ??= error;
    await this.driver.close();
    // What had ended before is told as it ended.
    this.#operations.drain();
    this.#operations.endAll(error);
    this.#waiting.rejectAll(error);
    this.#outbox.close();
    this.#memory.close();
  }

  #break(error: Error): void {
    this.broken ??= error;
    this.#operations.endAll(error);
    this.#waiting.rejectAll(error);
  }

  #requireOpen(): void {
    if (this.#closed) throw new DisposedError('this engine');
    if (this.broken) throw this.broken;
  }
}
