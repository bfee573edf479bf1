import {
  ArgumentError,
  DisposedError,
  HeddleError,
  requireInteger,
  requireText,
} from '../../errors/index.js';
import type { CoreOptions } from '../core/core.js';
import { ImmediateQueue, ImmediateTable, tableFull } from '../core/immediates.js';
import { command, commandWords, ringMask, transferHeader, word } from '../core/shared.js';
import { decodeAddress, decodeRegion, encodeAddress } from '../libfabric/address.js';
import { errno, libfabric, strerror } from '../libfabric/bindings.js';
import { FabricError } from '../libfabric/errors.js';
import type { FabricDevice } from '../libfabric/provider.js';
import { Counter, ImmediateCounter } from './counters.js';
import { CallerDriver, type Driver, WorkerDriver } from './driver.js';
import { PeerLostError } from './errors.js';
import { Peer, PeerGroup, Region, RemoteRegion } from './handles.js';
import { EngineMemory, type GpuMemory } from './memory.js';
import { engineIdBytes, Inbox, type Message, Outbox } from './messages.js';
import { type Callback, Operations } from './operations.js';
import { coreOptions, type EngineOptions, requireProvider } from './options.js';
import { CommandRing } from './ring.js';
import {
  type Barrier,
  type OperationOptions,
  type Paged,
  requireImmediate,
  requireOperation,
  requireSlice,
  type Scatter,
  type Write,
} from './transfers.js';
import { type Waitable, Waiting } from './waiting.js';

/** Pages of one command: long enough to be cheap, short enough to leave room in the ring. */
const longestPiece = 1024;

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

  readonly #options: CoreOptions;
  readonly #onError: (error: Error) => void;
  readonly #shards: number;
  readonly #capacity: number;
  /** The most that every device in use takes at once. */
  readonly #longestWrite: number;
  readonly #control: Int32Array;
  readonly #ring: CommandRing;
  readonly #peerWords: Int32Array;
  readonly #immediates: ImmediateTable | null;
  readonly #arrivals: ImmediateQueue | null;
  readonly #counters = new Map<number, ImmediateCounter>();
  readonly #waiting = new Waiting(this);
  readonly #operations: Operations;
  readonly #inbox: Inbox;
  readonly #outbox: Outbox;
  readonly #peers: Peer[] = [];
  readonly #peersByEngine = new Map<string, Peer>();
  readonly #memory: EngineMemory;
  #closed = false;
  #nextRemote = 0;
  #nextGroup = 0;

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
    this.#options = core;
    this.devices = driver.info.devices;
    this.address = encodeAddress(driver.info.address);
    this.timeoutMs = core.timeoutMs;
    this.#shards = core.shard === 'bytes' ? core.rails : 1;
    this.#capacity = core.queue * this.#shards;
    this.#longestWrite = Math.min(...this.devices.map((device) => device.maxWriteBytes));
    this.#control = new Int32Array(core.shared.control);
    this.#ring = new CommandRing(core.shared, driver);
    this.#memory = new EngineMemory(driver, core.id, core.gpuMemory, this);
    this.#peerWords = new Int32Array(core.shared.peers);
    const listed = core.arrivals === 'listed';
    this.#immediates = listed ? null : new ImmediateTable(core.shared.immediates);
    this.#arrivals = listed ? new ImmediateQueue(core.shared.immediates) : null;
    this.#onError = options.onError ?? ((error) => process.emitWarning(error));
    this.#operations = new Operations(
      core.shared,
      (code, peer, operation, group) => this.#failure(code, peer, operation, group),
      this.#onError,
    );
    this.#inbox = new Inbox(core.shared, driver.info.receiveBuffers, core.messageBytes);
    const id = Buffer.from(core.id, 'hex');
    this.#outbox = new Outbox(driver, id, core.messageBytes, () => this.#memory.number());
  }

  // ---- Set-up --------------------------------------------------------------------------------------------------

  /** Makes another engine known by its `address`. `name` is what errors will call it. */
  addPeer(address: Uint8Array, name?: string): Peer {
    this.#requireOpen();
    if (name !== undefined) requireText('name', name);
    const theirs = decodeAddress(address);
    const { address: ours } = this.driver.info;
    if (theirs.provider !== ours.provider) {
      throw new ArgumentError('address.provider', theirs.provider, `${ours.provider}, as this engine's`);
    }
    if (theirs.provider === 'shm' && theirs.machine !== ours.machine) {
      throw new ArgumentError(
        'address.machine',
        theirs.machine,
        `${ours.machine}: shm reaches no other machine`,
      );
    }
    if (theirs.shard !== ours.shard) {
      throw new ArgumentError('address.shard', theirs.shard, `${ours.shard}, as this engine's`);
    }
    requireInteger('address.rails.length', theirs.rails.length, ours.rails.length, ours.rails.length);
    const id = this.#peers.length;
    requireInteger('the number of peers', id + 1, 1, this.#peerWords.length / 2);
    this.driver.call('addPeer', id, theirs);
    const mailbox = this.#nextRemote++;
    this.driver.call(
      'addRemote',
      mailbox,
      id,
      theirs.rails.map((rail) => rail.mailbox),
    );
    const alone = this.#nextGroup++;
    this.driver.call('addGroup', alone, [mailbox]);
    const peer = new Peer(id, name ?? `${id} (${theirs.id})`, theirs.id, alone, this.#peerWords);
    this.#peers.push(peer);
    this.#peersByEngine.set(theirs.id, peer);
    return peer;
  }

  /** Forgets a peer; whatever is under way to it ends with an error. The same engine may be added anew. */
  removePeer(peer: Peer): void {
    this.#requireOpen();
    this.#requirePeer('peer', peer);
    peer.removed = true;
    if (this.#peersByEngine.get(peer.engineId) === peer) this.#peersByEngine.delete(peer.engineId);
    this.driver.call('removePeer', peer.id);
    this.#memory.freeSettled();
  }

  /**
   * Says that a peer is gone, for who knows it from elsewhere: whatever is under way to it, and every wait for it,
   * ends with PeerLostError now instead of after the timeout.
   */
  losePeer(peer: Peer): void {
    // Where nothing is under way any more, there is nothing to lose.
    if (this.#closed || this.broken) return;
    this.#requirePeer('peer', peer);
    this.driver.call('losePeer', peer.id, errno.HOSTDOWN);
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
    this.#requirePeer('peer', peer);
    const { engine, bytes, rails } = decodeRegion(descriptor);
    if (engine !== peer.engineId) {
      throw new ArgumentError(
        'descriptor',
        descriptor,
        `of a region of ${peer.name}, not of engine ${engine}`,
      );
    }
    const index = this.#nextRemote++;
    this.driver.call('addRemote', index, peer.id, rails);
    return new RemoteRegion(index, peer, bytes);
  }

  /** A group of regions, one a peer, for `scatter` and `barrier`. */
  group(members: readonly RemoteRegion[]): PeerGroup {
    this.#requireOpen();
    if (!Array.isArray(members)) throw new ArgumentError('members', members, 'an array of remote regions');
    requireInteger('members.length', members.length, 1, Math.floor((commandWords - transferHeader) / 6));
    const seen = new Set<Peer>();
    for (const member of members) {
      this.#requireTarget(member);
      const { peer } = member;
      if (seen.has(peer)) {
        throw new ArgumentError('members', members, `regions of different peers, but has ${peer.name} twice`);
      }
      seen.add(peer);
    }
    const index = this.#nextGroup++;
    this.driver.call(
      'addGroup',
      index,
      members.map((member) => member.index),
    );
    return new PeerGroup(index, [...members]);
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
    this.#requirePeer('peer', peer);
    return this.#fits(peer, 1);
  }

  // ---- Operations ----------------------------------------------------------------------------------------------

  /** Writes one slice. Returns when it is on its way; the source must stay unchanged until it has ended. */
  write(write: Write): void {
    requireOperation('write', write);
    const { source, target, sourceOffset, targetOffset, bytes } = write;
    this.#requireSource(source);
    this.#requireTarget(target);
    requireImmediate(write.immediate);
    requireSlice('sourceOffset', sourceOffset, bytes, source.bytes);
    requireSlice('targetOffset', targetOffset, bytes, target.bytes);
    if (bytes > this.#longestWrite) requireInteger('bytes', bytes, 0, this.#longestWrite);
    const { peer } = target;
    for (let idle = 0; !this.#fits(peer, 1); ) idle = this.#stall(idle, peer);
    const ticket = this.#operations.begin('write', bytes, write, source, peer, null, this.#shards);
    const to = this.#ring.begin(command.toPeer, ticket, source.index, write.immediate, target.index, 1);
    const { words } = this.#ring;
    words[to & ringMask] = source.address + sourceOffset;
    words[(to + 1) & ringMask] = bytes;
    words[(to + 2) & ringMask] = targetOffset;
    peer.posted = (peer.posted + this.#shards) | 0;
    this.#ring.publish(to + 3);
  }

  /** Writes many pages to one peer. */
  paged(paged: Paged): void {
    requireOperation('paged', paged);
    const { source, target, sourceOffsets, targetOffsets, bytes } = paged;
    this.#requireSource(source);
    this.#requireTarget(target);
    requireImmediate(paged.immediate);
    const pages = requireInteger('sourceOffsets.length', sourceOffsets?.length, 1, 2 ** 24);
    requireInteger('targetOffsets.length', targetOffsets?.length, pages, pages);
    for (let i = 0; i < pages; i++) {
      requireSlice('sourceOffsets', sourceOffsets[i]!, bytes, source.bytes);
      requireSlice('targetOffsets', targetOffsets[i]!, bytes, target.bytes);
    }
    if (bytes > this.#longestWrite) requireInteger('bytes', bytes, 0, this.#longestWrite);
    const { peer } = target;
    for (let idle = 0; !this.#fits(peer, 1); ) idle = this.#stall(idle, peer);
    const ticket = this.#operations.begin(
      'paged write',
      bytes * pages,
      paged,
      source,
      peer,
      null,
      pages * this.#shards,
    );
    const { words } = this.#ring;
    // More pages than fit the peer's queue go in pieces, each when there is room. A peer that is lost meanwhile
    // takes the rest, too: the core ends each page with the error.
    for (let first = 0; first < pages; ) {
      const n = Math.min(this.#options.queue, longestPiece, pages - first);
      for (let idle = 0; !this.#hasRoom(peer, n); ) idle = this.#stall(idle, peer, n);
      let to = this.#ring.begin(command.toPeer, ticket, source.index, paged.immediate, target.index, n);
      for (let i = first; i < first + n; i++, to += 3) {
        words[to & ringMask] = source.address + sourceOffsets[i]!;
        words[(to + 1) & ringMask] = bytes;
        words[(to + 2) & ringMask] = targetOffsets[i]!;
      }
      peer.posted = (peer.posted + n * this.#shards) | 0;
      this.#ring.publish(to);
      first += n;
    }
  }

  /** Writes a slice of one buffer to every member of a group. */
  scatter(scatter: Scatter): void {
    requireOperation('scatter', scatter);
    const { source, group, sourceOffsets, targetOffsets, bytes } = scatter;
    this.#requireSource(source);
    this.#requireGroup(group);
    requireImmediate(scatter.immediate);
    const { members } = group;
    const n = members.length;
    requireInteger('sourceOffsets.length', sourceOffsets?.length, n, n);
    requireInteger('targetOffsets.length', targetOffsets?.length, n, n);
    requireInteger('bytes.length', bytes?.length, n, n);
    let total = 0;
    for (let i = 0; i < n; i++) {
      requireSlice('sourceOffsets', sourceOffsets[i]!, bytes[i]!, source.bytes);
      requireSlice('targetOffsets', targetOffsets[i]!, bytes[i]!, members[i]!.bytes);
      total += bytes[i]!;
    }
    if (total > this.#longestWrite) {
      for (let i = 0; i < n; i++) requireInteger('bytes', bytes[i]!, 0, this.#longestWrite);
    }
    for (let idle = 0; !this.#fitsAll(group); ) idle = this.#stall(idle, this.#fullMember(group));
    const ticket = this.#operations.begin('scatter', total, scatter, source, null, group, n * this.#shards);
    let to = this.#ring.begin(command.toGroup, ticket, source.index, scatter.immediate, group.index, n);
    const { words } = this.#ring;
    const base = source.address;
    for (let i = 0; i < n; i++, to += 3) {
      words[to & ringMask] = base + sourceOffsets[i]!;
      words[(to + 1) & ringMask] = bytes[i]!;
      words[(to + 2) & ringMask] = targetOffsets[i]!;
      const { peer } = members[i]!;
      peer.posted = (peer.posted + this.#shards) | 0;
    }
    this.#ring.publish(to);
  }

  /** Sends an immediate to every member of a group. */
  barrier(barrier: Barrier): void {
    requireOperation('barrier', barrier);
    const { group, immediate } = barrier;
    this.#requireGroup(group);
    requireInteger('immediate', immediate, 0, 2 ** 32 - 1);
    const { members } = group;
    for (let idle = 0; !this.#fitsAll(group); ) idle = this.#stall(idle, this.#fullMember(group));
    const ticket = this.#operations.begin(
      'barrier',
      0,
      barrier,
      null,
      null,
      group,
      members.length * this.#shards,
    );
    for (let i = 0; i < members.length; i++) {
      const { peer } = members[i]!;
      peer.posted = (peer.posted + this.#shards) | 0;
    }
    this.#ring.barrier(ticket, group.index, immediate);
  }

  /** Sends a short message, which the peer gets from `receive`. The bytes are copied. */
  send(peer: Peer, bytes: Uint8Array, options: OperationOptions = {}): void {
    this.#requireOpen();
    this.#requirePeer('peer', peer);
    requireOperation('options', options);
    const most = this.#options.messageBytes - engineIdBytes;
    if (!(bytes instanceof Uint8Array) || bytes.length > most) {
      throw new ArgumentError('bytes', bytes, `a Uint8Array of at most ${most} bytes (see messageBytes)`);
    }
    for (let idle = 0; !this.#fits(peer, 1); ) idle = this.#stall(idle, peer);
    const { place, region, address, length } = this.#outbox.put(bytes);
    const { counter, callback } = options;
    // The outbox has to know how it ended; whoever else wants to is told after it.
    const ended: Callback = (error) => {
      if (error === null) this.#outbox.release(place);
      if (callback) callback(error);
      else if (error && !counter && !this.#closed) this.#onError(error);
    };
    const ticket = this.#operations.begin(
      'send',
      bytes.length,
      { counter, callback: ended },
      null,
      peer,
      null,
      1,
    );
    peer.posted = (peer.posted + 1) | 0;
    this.#ring.send(ticket, peer.id, region, address, length);
  }

  /** The oldest message that has come in, or null. */
  tryReceive(): Message | null {
    this.#requireOpen();
    if (this.#inbox.empty && (!this.poll() || this.#inbox.empty)) return null;
    for (let idle = 0; !this.#ring.fits(0); ) idle = this.#stall(idle);
    const { buffer, engine, bytes } = this.#inbox.take();
    this.#ring.consumed(buffer);
    return { from: this.#peersByEngine.get(engine) ?? null, engine, bytes };
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
    if (peer.lost || peer.removed || !this.#operations.available || !this.#hasRoom(peer, 1))
      return () => false;
    let landed = false;
    const callback: Callback = (error) => {
      landed = error === null;
    };
    const ticket = this.#operations.begin('probe', 0, { callback }, null, peer, null, this.#shards);
    peer.posted = (peer.posted + this.#shards) | 0;
    this.#ring.barrier(ticket, peer.alone, undefined);
    return () => landed;
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

  // ---- Back-pressure -------------------------------------------------------------------------------------------

  /** Whether an operation of `n` writes to a peer can begin now. */
  #fits(peer: Peer, n: number): boolean {
    this.#requireReachable(peer);
    return this.#operations.available && this.#hasRoom(peer, n);
  }

  #fitsAll(group: PeerGroup): boolean {
    const { members } = group;
    if (!this.#operations.available || !this.#ring.fits(members.length)) return false;
    let fits = true;
    for (let i = 0; i < members.length; i++) {
      const { peer } = members[i]!;
      this.#requireReachable(peer);
      if (peer.underway + this.#shards > this.#capacity) fits = false;
    }
    return fits;
  }

  #hasRoom(peer: Peer, n: number): boolean {
    return peer.underway + n * this.#shards <= this.#capacity && this.#ring.fits(n);
  }

  #fullMember(group: PeerGroup): Peer | undefined {
    return group.members.find(({ peer }) => peer.underway + this.#shards > this.#capacity)?.peer;
  }

  /**
   * Waits a moment for room for `n` writes to a peer; operations end within the timeout, so there will be some.
   * What is full is let run half empty, so that its user is not woken for each write.
   */
  #stall(idle: number, peer?: Peer, n = 1): number {
    const heard = this.driver.heard();
    if (this.poll()) return 0;
    if (this.broken) throw this.broken;
    let lacking = 0;
    if (!this.#operations.available) lacking = this.#operations.underway >> 1;
    else if (peer !== undefined && peer.underway + n * this.#shards > this.#capacity) {
      lacking = Math.max(peer.underway + n * this.#shards - this.#capacity, peer.underway >> 1);
    }
    this.driver.pause(idle, heard, lacking);
    return idle + 1;
  }

  // ---- Refusals ------------------------------------------------------------------------------------------------

  #requireOpen(): void {
    if (this.#closed) throw new DisposedError('this engine');
    if (this.broken) throw this.broken;
  }

  #requireSource(region: Region): void {
    this.#requireOpen();
    if (!(region instanceof Region)) throw new ArgumentError('source', region, 'a region of this engine');
    if (region.closed) throw new DisposedError('the source region');
    if (region.owner !== this)
      throw new ArgumentError('source', region, 'a region of this engine, not of another');
  }

  #requireTarget(region: RemoteRegion): void {
    if (!(region instanceof RemoteRegion)) {
      throw new ArgumentError('target', region, "a peer's region, from engine.remote()");
    }
    this.#requirePeer('target', region.peer);
  }

  #requireGroup(group: PeerGroup): void {
    this.#requireOpen();
    if (!(group instanceof PeerGroup) || this.#peers[group.members[0]!.peer.id] !== group.members[0]!.peer) {
      throw new ArgumentError('group', group, 'a group of this engine, from engine.group()');
    }
  }

  #requirePeer(argument: string, peer: Peer): void {
    if (!(peer instanceof Peer) || this.#peers[peer.id] !== peer) {
      throw new ArgumentError(argument, peer, 'of a peer of this engine, from engine.addPeer()');
    }
    if (peer.removed) {
      throw new ArgumentError(argument, peer, `of a peer that is still there, but ${peer.name} was removed`);
    }
  }

  #requireReachable(peer: Peer): void {
    if (peer.removed) this.#requirePeer('peer', peer);
    if (peer.lost)
      throw new PeerLostError([peer.name], 'the start of an operation', 'it was found lost before');
  }

  #failure(code: number, peer: number, operation: string, group: PeerGroup | null): Error {
    const about = this.#peers[peer]!;
    if (!about.lost) return new FabricError(operation, code, strerror(code), about.name);
    const lost = group ? group.peers.filter((member) => member.lost) : [about];
    const reasons: { readonly [code: number]: string } = {
      [errno.TIMEDOUT]: `no answer within ${this.timeoutMs} ms`,
      [errno.CANCELED]: 'it was removed',
      [errno.HOSTDOWN]: 'it was reported lost',
    };
    const reason = reasons[code] ?? strerror(code);
    return new PeerLostError(
      lost.map(({ name }) => name),
      operation,
      reason,
    );
  }
}
