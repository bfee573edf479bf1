import { getHeapStatistics } from 'node:v8';
import { type Address, allocate, type NativeMemory } from '../native/index.js';
import { type EngineAddress, machineId, type RemoteKey } from './address.js';
import { errno, FI } from './bindings.js';
import { monotonicClock } from './clock.js';
import {
  completionBatch,
  completionWords,
  type Endpoint,
  Rail,
  type Reach,
  type Registration,
  type U64,
} from './endpoint.js';
import { ImmediateTable } from './immediates.js';
import { choose, type Device } from './provider.js';
import { RequestQueue, request, requestWords, slotMask, two32 } from './requests.js';
import { command, commandWords, eventWords, peerLost, type Shared, transferHeader, word } from './shared.js';

/** What the thread that drives libfabric is told when it starts. */
export interface CoreOptions {
  readonly id: string;
  readonly provider: string;
  readonly devices: readonly string[];
  readonly rails: number;
  readonly shard: 'peer' | 'bytes';
  readonly gpuMemory: boolean;
  readonly timeoutMs: number;
  /** Requests under way to one peer on one rail. */
  readonly queue: number;
  readonly messageBytes: number;
  readonly receives: number;
  readonly shared: Shared;
}

/** What the front learns of it in return. */
export interface CoreInfo {
  readonly devices: readonly Device[];
  readonly address: EngineAddress;
  /** The receive buffers, `messageBytes` each, in this process's memory. */
  readonly receiveBuffers: Address;
}

interface LocalRegion {
  readonly registrations: readonly Registration[];
  /** Requests that were given up while the provider may still read this memory. */
  abandoned: number;
}

/** A region of a peer, ready for use: no object is looked into further than this on the hot path. */
interface RemoteRegion {
  readonly peer: CorePeer;
  /** A base a rail. */
  readonly bases: Float64Array;
  /** Two halves of a key a rail. */
  readonly keys: Uint32Array;
}

class CorePeer {
  lost = false;
  constructor(
    readonly id: number,
    /** An endpoint a rail, and libfabric's handle of the peer in it. */
    readonly endpoints: readonly Endpoint[],
    readonly handles: readonly U64[],
    readonly queue: RequestQueue,
  ) {}
  /** Where an immediate without data lands: eight bytes that nobody reads. */
  mailbox!: RemoteRegion;
}

const ringMask = commandWords - 1;
/** Marks a request in its flags as a message; libfabric has no flag there. */
const sendRequest = 1;

/** Completion contexts carry the peer's id + 1 in their upper half; receives carry this. */
const receiveContext = 0x4000_0000;
/** Errors of one request, such as a bad key: the peer itself still answers. All others end the peer. */
const requestErrors = new Set([1, 13, 14, 22, 90, 265, 266]);
const commandsPerRound = 64;
/** What is written where there is nothing to write. */
const mailboxBytes = 8;

/**
 * The part of an engine that calls libfabric. One thread owns it: it takes commands, posts them, reads
 * completions, and turns silence into errors. `progress()` is one round; nothing in it allocates in steady state.
 */
export class Core {
  readonly info: CoreInfo;
  private readonly rails: Rail[] = [];
  private readonly endpoints = new Set<Endpoint>();
  private readonly peers: (CorePeer | undefined)[] = [];
  private readonly regions: (LocalRegion | undefined)[] = [];
  private readonly remotes: (RemoteRegion | undefined)[] = [];
  private readonly groups: (readonly RemoteRegion[])[] = [];
  /** Peers that were removed; what remains of them is freed with the engine. */
  private readonly retired: CorePeer[] = [];
  /** Peers with requests that the provider would not take yet. */
  private readonly waiting: CorePeer[] = [];
  /** Given-up requests that the provider has not reported yet → the region they read from. */
  private readonly abandoned = new Map<number, LocalRegion>();
  /** Closed regions with such requests → their index. */
  private readonly lingering = new Map<LocalRegion, number>();

  private readonly control: Int32Array;
  private readonly commands: Float64Array;
  private readonly events: Int32Array;
  private readonly inbox: Int32Array;
  private readonly remaining: Int32Array;
  private readonly peerWords: Int32Array;
  private readonly immediates: ImmediateTable;
  private readonly failures: Int32Array;
  private readonly eventMask: number;
  private readonly inboxMask: number;
  private readonly completions: Int32Array[];

  private readonly mailbox: NativeMemory;
  private readonly receiveBuffers: NativeMemory;
  private readonly receiveRegistration: Registration;
  private readonly writeFlags: number;

  private commandHead = 0;
  private eventTail = 0;
  private inboxTail = 0;
  private readonly unposted: number[] = [];
  /** What happened since the bell was last rung, and how often it was rung for one thing. */
  private happened = 0;
  private bell = 0;
  /** Something that ends waits, however much they still lack. */
  private urgent = false;
  private rounds = 0;
  /**
   * Milliseconds that this thread has been polling. A long pause of its own (a stopped process, a caller that
   * was busy elsewhere) counts only in part: it says nothing about the peers.
   */
  private clock = 0;
  /** When a request that is taken now is overdue, in whole milliseconds of `clock`, modulo 2^32. */
  private deadline: number;
  private readonly longestPauseMs: number;
  private readonly time = monotonicClock();
  private lastTick: number;
  private nextScan = 0;

  constructor(private readonly options: CoreOptions) {
    const { shared } = options;
    this.deadline = options.timeoutMs;
    this.time.read();
    this.lastTick = this.time.ms;
    this.longestPauseMs = Math.min(1000, options.timeoutMs / 4);
    this.control = new Int32Array(shared.control);
    this.commands = new Float64Array(shared.commands);
    this.events = new Int32Array(shared.events);
    this.inbox = new Int32Array(shared.inbox);
    this.remaining = new Int32Array(shared.remaining);
    this.peerWords = new Int32Array(shared.peers);
    this.immediates = new ImmediateTable(shared.immediates);
    this.failures = new Int32Array(this.remaining.length * 2);
    this.eventMask = this.remaining.length - 1;
    this.inboxMask = this.inbox.length / 2 - 1;

    const chosen = choose(options.provider, options.devices, options.rails, options.gpuMemory);
    for (const one of chosen) this.rails.push(new Rail(one));
    for (const rail of this.rails) this.endpoints.add(rail.main);
    const devices = this.rails.map((rail) => rail.device);
    this.completions = this.rails.map((rail) => new Int32Array(rail.entries.buffer));
    this.writeFlags = FI.COMPLETION | (devices.every((device) => device.delivery) ? FI.DELIVERY_COMPLETE : 0);

    this.mailbox = allocate(4096);
    this.regions[0] = this.open(this.mailbox.address, 4096, { kind: 'host' });
    this.receiveBuffers = allocate(options.receives * options.messageBytes);
    const { address, bytes } = this.receiveBuffers;
    this.receiveRegistration = this.rails[0]!.register(address, bytes, { kind: 'host' });
    for (let index = 0; index < options.receives; index++) this.unposted.push(index);
    this.postReceives();
    this.info = {
      devices,
      receiveBuffers: address,
      address: {
        id: options.id,
        provider: devices[0]!.provider,
        machine: machineId(),
        shard: options.shard,
        rails: this.rails.map((rail, index) => ({ address: rail.address, mailbox: this.keyOf(0, index) })),
      },
    };
  }

  // ---- Set-up, called through the control channel --------------------------------------------------------------

  addPeer(id: number, address: EngineAddress): void {
    const endpoints = this.rails.map((rail) => rail.endpointForPeer());
    for (const endpoint of endpoints) this.endpoints.add(endpoint);
    const handles = endpoints.map((endpoint, index) => endpoint.insert(address.rails[index]!.address));
    const requests = this.options.queue * (this.options.shard === 'bytes' ? this.rails.length : 1);
    const peer = new CorePeer(id, endpoints, handles, new RequestQueue(id + 1, requests));
    peer.mailbox = remoteRegion(
      peer,
      address.rails.map((rail) => rail.mailbox),
    );
    this.peers[id] = peer;
  }

  /** Ends whatever is under way to the peer and forgets it. */
  removePeer(id: number): void {
    const peer = this.peers[id];
    if (peer === undefined) return;
    this.losePeer(id, errno.CANCELED);
    this.retired.push(peer);
    this.peers[id] = undefined;
  }

  /** Ends whatever is under way to the peer, because somebody else knows that it is gone. */
  losePeer(id: number, code: number): void {
    const peer = this.peers[id];
    // Commands that name the peer may still be in the ring.
    while (this.takeCommands());
    if (peer !== undefined && !peer.lost) this.lose(peer, code);
  }

  register(index: number, address: Address, bytes: number, reach: Reach): RemoteKey[] {
    this.regions[index] = this.open(address, bytes, reach);
    return this.rails.map((_, rail) => this.keyOf(index, rail));
  }

  /** Closes a region. While the provider may still read its memory for a request that was given up, it lingers. */
  deregister(index: number): void {
    const region = this.regions[index]!;
    this.regions[index] = undefined;
    if (region.abandoned > 0) this.lingering.set(region, index);
    else this.release(region);
  }

  /** Which closed regions still linger: their memory must stay. */
  stillLingering(): number[] {
    return [...this.lingering.values()];
  }

  addRemote(index: number, peer: number, rails: readonly RemoteKey[]): void {
    this.remotes[index] = remoteRegion(this.peers[peer]!, rails);
  }

  addGroup(index: number, remotes: readonly number[]): void {
    this.groups[index] = remotes.map((remote) => this.remotes[remote]!);
  }

  /** JavaScript heap of the thread that this runs in. */
  heapBytes(): number {
    return getHeapStatistics().used_heap_size;
  }

  // ---- The hot path --------------------------------------------------------------------------------------------

  /** One round: take commands, read completions, post what could not be posted before. True when anything moved. */
  progress(): boolean {
    let moved = this.takeCommands();
    for (let rail = 0; rail < this.rails.length; rail++) {
      if (this.readCompletions(rail)) moved = true;
    }
    if (this.waiting.length > 0 && this.retry()) moved = true;
    if ((++this.rounds & 255) === 0) this.tick();
    if (this.happened > 0) this.ring();
    return moved;
  }

  /** Says how much has happened, and wakes a front that waits for no more than that. */
  private ring(): void {
    const { control } = this;
    this.bell = (this.bell + this.happened) | 0;
    this.happened = 0;
    Atomics.store(control, word.bell, this.bell);
    if (Atomics.load(control, word.frontSleeps) === 0) return;
    if (!this.urgent && ((this.bell - Atomics.load(control, word.wakeAt)) | 0) < 0) return;
    this.urgent = false;
    Atomics.store(control, word.frontSleeps, 0);
    Atomics.notify(control, word.frontSleeps);
  }

  /** Whether the front has written nothing that was not taken. */
  nothingToTake(): boolean {
    return Atomics.load(this.control, word.commandTail) === this.commandHead;
  }

  /** Takes and posts what the front has written. */
  takeCommands(): boolean {
    const { commands } = this;
    const tail = Atomics.load(this.control, word.commandTail);
    if (tail === this.commandHead) return false;
    for (let taken = 0; taken < commandsPerRound && this.commandHead !== tail; taken++) {
      const at = this.commandHead;
      switch (commands[at & ringMask]! | 0) {
        case command.toPeer: {
          const remote = this.remotes[commands[(at + 4) & ringMask]! | 0]!;
          const n = commands[(at + 5) & ringMask]! | 0;
          const region = this.regions[commands[(at + 2) & ringMask]! | 0]!;
          for (let i = 0; i < n; i++) this.write(remote, region, at, (at + transferHeader + 3 * i) | 0);
          this.commandHead = (at + transferHeader + 3 * n) | 0;
          break;
        }
        case command.toGroup: {
          const members = this.groups[commands[(at + 4) & ringMask]! | 0]!;
          const region = this.regions[commands[(at + 2) & ringMask]! | 0]!;
          const n = members.length;
          for (let i = 0; i < n; i++) this.write(members[i]!, region, at, (at + transferHeader + 3 * i) | 0);
          this.commandHead = (at + transferHeader + 3 * n) | 0;
          break;
        }
        case command.barrier: {
          const members = this.groups[commands[(at + 4) & ringMask]! | 0]!;
          const region = this.regions[0]!;
          for (let i = 0; i < members.length; i++) {
            this.write(members[i]!.peer.mailbox, region, at, (at + transferHeader) | 0);
          }
          this.commandHead = (at + transferHeader + 3) | 0;
          break;
        }
        case command.send:
          this.send(at);
          this.commandHead = (at + 6) | 0;
          break;
        case command.consumed:
          this.unposted.push(commands[(at + 1) & ringMask]! | 0);
          this.postReceives();
          this.commandHead = (at + 2) | 0;
          break;
        default:
          throw new Error(`command ring out of step at ${at}`);
      }
    }
    Atomics.store(this.control, word.commandHead, this.commandHead);
    return true;
  }

  /**
   * One write of the command at `at`, whose (source, bytes, offset) lie at `triple`. Everything that is not an
   * integer stays in typed arrays: a number handed from function to function would be boxed.
   */
  private write(remote: RemoteRegion, region: LocalRegion, at: number, triple: number): void {
    const { commands } = this;
    const peer = remote.peer;
    const ticket = commands[(at + 1) & ringMask]! | 0;
    const immediate = commands[(at + 3) & ringMask]!;
    const source = commands[triple & ringMask]!;
    const total = commands[(triple + 1) & ringMask]!;
    const offset = commands[(triple + 2) & ringMask]!;
    const mailbox = this.regions[0]!;
    const mailboxAddress = this.mailbox.address;
    const whole = this.options.shard === 'peer';
    const shards = whole ? 1 : this.rails.length;
    // Shards begin at multiples of 64 bytes; every rail carries one, empty or not, because each carries the immediate.
    const share = whole ? total : Math.ceil(total / shards / 64) * 64;
    for (let shard = 0; shard < shards; shard++) {
      const rail = whole ? peer.id % this.rails.length : shard;
      const begin = Math.min(share * shard, total);
      const length = Math.min(share, total - begin);
      // Not every provider carries a write of nothing (shm never completes one): it goes to the peer's mailbox.
      const empty = length === 0;
      const bytes = empty ? mailboxBytes : length;
      const from = empty ? mailbox : region;
      const into = empty ? peer.mailbox : remote;
      const slot = peer.queue.take(ticket, rail, this.deadline);
      if (peer.lost) {
        this.finish(peer, slot, errno.TIMEDOUT);
        continue;
      }
      peer.queue.region[slot] = from;
      const registration = from.registrations[rail]!;
      const handle = peer.handles[rail]!;
      const words = peer.queue.words;
      const to = slot * requestWords;
      const local = empty ? mailboxAddress : source + begin;
      const target = into.bases[rail]! + (empty ? 0 : offset + begin);
      const descriptor = registration.descriptor;
      words[to + request.addressLow] = handle.low;
      words[to + request.addressHigh] = handle.high;
      words[to + request.immediate] = Math.max(immediate, 0);
      words[to + request.localLow] = local;
      words[to + request.localHigh] = local / two32;
      words[to + request.localBytesLow] = bytes;
      words[to + request.localBytesHigh] = bytes / two32;
      words[to + request.remoteLow] = target;
      words[to + request.remoteHigh] = target / two32;
      words[to + request.remoteBytesLow] = bytes;
      words[to + request.remoteBytesHigh] = bytes / two32;
      words[to + request.keyLow] = into.keys[2 * rail]!;
      words[to + request.keyHigh] = into.keys[2 * rail + 1]!;
      words[to + request.descriptorLow] = descriptor;
      words[to + request.descriptorHigh] = descriptor / two32;
      peer.queue.state[to + request.flags] =
        immediate < 0 ? this.writeFlags : this.writeFlags | FI.REMOTE_CQ_DATA;
      this.submit(peer, slot);
    }
  }

  private send(at: number): void {
    const { commands } = this;
    const peer = this.peers[commands[(at + 2) & ringMask]! | 0]!;
    const slot = peer.queue.take(commands[(at + 1) & ringMask]! | 0, 0, this.deadline);
    if (peer.lost) {
      this.finish(peer, slot, errno.TIMEDOUT);
      return;
    }
    const region = this.regions[commands[(at + 3) & ringMask]! | 0]!;
    peer.queue.region[slot] = region;
    const { words } = peer.queue;
    const to = slot * requestWords;
    const local = commands[(at + 4) & ringMask]!;
    const descriptor = region.registrations[0]!.descriptor;
    words[to + request.sendAddressLow] = peer.handles[0]!.low;
    words[to + request.sendAddressHigh] = peer.handles[0]!.high;
    words[to + request.localLow] = local;
    words[to + request.localHigh] = local / two32;
    words[to + request.localBytesLow] = commands[(at + 5) & ringMask]!;
    words[to + request.localBytesHigh] = 0;
    words[to + request.descriptorLow] = descriptor;
    words[to + request.descriptorHigh] = descriptor / two32;
    peer.queue.state[to + request.flags] = this.writeFlags | sendRequest;
    this.submit(peer, slot);
  }

  /** Posts a request, or queues it behind those of its peer that wait already. */
  private submit(peer: CorePeer, slot: number): void {
    if (peer.queue.waiting > 0) {
      peer.queue.defer(slot);
    } else if (!this.post(peer, slot)) {
      peer.queue.defer(slot);
      this.waiting.push(peer);
    }
  }

  /** Hands a request to libfabric; false when it has no room for it now. */
  private post(peer: CorePeer, slot: number): boolean {
    const { state } = peer.queue;
    const at = slot * requestWords;
    const to = peer.endpoints[state[at + request.rail]!]!;
    const flags = state[at + request.flags]!;
    const status =
      flags & sendRequest
        ? to.sendMessage(to.endpoint, peer.queue.sends[slot]!, flags & ~sendRequest)
        : to.writeMessage(to.endpoint, peer.queue.writes[slot]!, flags);
    if (status === 0) {
      state[at + request.posted] = 1;
      return true;
    }
    if (status === -errno.AGAIN) return false;
    if (requestErrors.has(-status)) this.finish(peer, slot, -status);
    else this.lose(peer, -status);
    return true;
  }

  /** Tries again what the provider refused: per peer, so that one full or dead peer holds up nobody else. */
  private retry(): boolean {
    let moved = false;
    for (let i = this.waiting.length - 1; i >= 0; i--) {
      const peer = this.waiting[i]!;
      while (peer.queue.waiting > 0) {
        if (!this.post(peer, peer.queue.firstWaiting())) break;
        // Losing the peer empties its queue.
        if (peer.queue.waiting > 0) peer.queue.shift();
        moved = true;
      }
      if (peer.queue.waiting === 0) {
        const last = this.waiting.pop()!;
        if (last !== peer) this.waiting[i] = last;
      }
    }
    return moved;
  }

  private readCompletions(index: number): boolean {
    const rail = this.rails[index]!;
    const count = rail.readQueue(rail.queue, rail.entries.address, completionBatch);
    if (count <= 0) {
      if (count === -errno.AGAIN || count === 0) return false;
      return this.readFailures(rail);
    }
    const words = this.completions[index]!;
    for (let i = 0, at = 0; i < count; i++, at += completionWords) {
      const flags = words[at + 2]!;
      if (flags & (FI.WRITE | FI.SEND)) {
        this.complete(words[at]!, words[at + 1]!);
      } else if (flags & FI.REMOTE_CQ_DATA) {
        if (!this.immediates.add(words[at + 8]!)) this.overflow();
        this.happened++;
      } else if (flags & FI.RECV) {
        this.deliver(words[at]!, words[at + 4]!);
      }
    }
    return true;
  }

  /** A request has ended well, unless it was given up before: then its context names an older generation. */
  private complete(low: number, high: number): void {
    const peer = this.peers[high - 1];
    const slot = low & slotMask;
    if (peer !== undefined && peer.queue.context(slot) === low && peer.queue.isPosted(slot)) {
      this.finish(peer, slot, 0);
    } else {
      this.forget(low, high);
    }
  }

  /** Ends one request; the last of an operation ends the operation. */
  private finish(peer: CorePeer, slot: number, code: number): void {
    const ticket = peer.queue.state[slot * requestWords + request.ticket]!;
    peer.queue.put(slot);
    const done = 2 * peer.id + 1;
    Atomics.store(this.peerWords, done, (this.peerWords[done]! + 1) | 0);
    if (code !== 0 && this.failures[2 * ticket] === 0) {
      this.failures[2 * ticket] = code;
      this.failures[2 * ticket + 1] = peer.id;
    }
    const left = this.remaining[ticket]! - 1;
    this.remaining[ticket] = left;
    if (left === 0) {
      const at = (this.eventTail & this.eventMask) * eventWords;
      this.events[at] = ticket;
      this.events[at + 1] = this.failures[2 * ticket]!;
      this.events[at + 2] = this.failures[2 * ticket + 1]!;
      this.failures[2 * ticket] = 0;
      this.eventTail = (this.eventTail + 1) | 0;
      Atomics.store(this.control, word.eventTail, this.eventTail);
    }
    this.happened++;
  }

  private deliver(index: number, bytes: number): void {
    const at = 2 * (this.inboxTail & this.inboxMask);
    this.inbox[at] = index;
    this.inbox[at + 1] = bytes;
    this.inboxTail = (this.inboxTail + 1) | 0;
    Atomics.store(this.control, word.inboxTail, this.inboxTail);
    this.happened++;
  }

  /** An immediate for which there is no counter left has landed: the engine is of no use any more. */
  private overflow(): void {
    Atomics.store(this.control, word.immediatesLost, 1);
    this.urgent = true;
  }

  // ---- Failure -------------------------------------------------------------------------------------------------

  private readFailures(rail: Rail): boolean {
    const failure = rail.readError();
    if (failure === null) return false;
    const { low, high } = failure.context;
    if (high >= receiveContext) {
      // A message that did not fit or a receive that a closing connection cancelled: the buffer serves again.
      this.unposted.push(low);
      this.postReceives();
      return true;
    }
    const peer = this.peers[high - 1];
    const slot = low & slotMask;
    if (peer === undefined || peer.queue.context(slot) !== (low | 0) || !peer.queue.isPosted(slot)) {
      this.forget(low | 0, high);
    } else if (requestErrors.has(failure.code)) {
      this.finish(peer, slot, failure.code);
    } else {
      // The provider has let go of this one. It ends with the others, once the peer is marked as lost: the front
      // reads that mark when it names the error.
      peer.queue.state[slot * requestWords + request.posted] = 0;
      this.lose(peer, failure.code);
    }
    return true;
  }

  /** Ends everything under way to a peer. What the provider still holds is remembered until it lets go. */
  private lose(peer: CorePeer, code: number): void {
    peer.lost = true;
    Atomics.store(this.peerWords, 2 * peer.id, peerLost);
    this.urgent = true;
    this.happened++;
    const { queue } = peer;
    queue.clearWaiting();
    for (let slot = 0; slot < queue.capacity; slot++) {
      if (!queue.isBusy(slot)) continue;
      const region = queue.region[slot] as LocalRegion | undefined;
      if (queue.isPosted(slot) && region) {
        region.abandoned++;
        this.abandoned.set(contextKey(queue.context(slot), peer.id + 1), region);
      }
      this.finish(peer, slot, code);
    }
    for (let rail = 0; rail < this.rails.length; rail++) {
      const endpoint = peer.endpoints[rail]!;
      // An endpoint of its own stays until the engine closes: a peer that was only slow may still come to its
      // first message there, and shm ends the process of a peer that finds that endpoint gone.
      if (endpoint === this.rails[rail]!.main) endpoint.remove(peer.handles[rail]!);
    }
  }

  /** A late completion: the provider has let go of the memory of a request that was given up. */
  private forget(low: number, high: number): void {
    const key = contextKey(low, high);
    const region = this.abandoned.get(key);
    if (region === undefined) return;
    this.abandoned.delete(key);
    region.abandoned--;
    if (region.abandoned === 0 && this.lingering.delete(region)) this.release(region);
  }

  /** Reads the clock and gives up on peers that kept a request longer than the timeout. */
  tick(): void {
    this.time.read();
    this.clock += Math.min(this.time.ms - this.lastTick, this.longestPauseMs);
    this.lastTick = this.time.ms;
    this.deadline = (this.clock + this.options.timeoutMs) | 0;
    if (this.clock < this.nextScan) return;
    this.nextScan = this.clock + Math.max(5, Math.min(100, this.options.timeoutMs / 16));
    for (const peer of this.peers) {
      if (peer && !peer.lost && peer.queue.overdue(this.clock | 0)) this.lose(peer, errno.TIMEDOUT);
    }
  }

  // ---- The rest ------------------------------------------------------------------------------------------------

  close(): void {
    // Closing the endpoints first stops the provider from touching any memory.
    for (const endpoint of this.endpoints) endpoint.close();
    for (const region of [...this.regions, ...this.lingering.keys()]) {
      if (region) this.release(region);
    }
    this.rails[0]!.deregister(this.receiveRegistration);
    for (const rail of this.rails) rail.close();
    for (const peer of [...this.peers, ...this.retired]) peer?.queue.free();
    this.mailbox.free();
    this.receiveBuffers.free();
  }

  private open(address: Address, bytes: number, reach: Reach): LocalRegion {
    const registrations: Registration[] = [];
    try {
      for (const rail of this.rails) registrations.push(rail.register(address, bytes, reach));
    } catch (error) {
      registrations.forEach((registration, rail) => {
        this.rails[rail]!.deregister(registration);
      });
      throw error;
    }
    return { registrations, abandoned: 0 };
  }

  private release(region: LocalRegion): void {
    region.registrations.forEach((registration, rail) => {
      this.rails[rail]!.deregister(registration);
    });
  }

  private keyOf(region: number, rail: number): RemoteKey {
    const { key, base } = this.regions[region]!.registrations[rail]!;
    return { key, base };
  }

  private postReceives(): void {
    const { messageBytes } = this.options;
    while (this.unposted.length > 0) {
      const index = this.unposted[this.unposted.length - 1]!;
      const status = this.rails[0]!.postReceive(
        this.receiveBuffers.address + index * messageBytes,
        messageBytes,
        this.receiveRegistration,
        (BigInt(receiveContext) << 32n) | BigInt(index),
      );
      // No room: the next consumed message tries again.
      if (status !== 0) return;
      this.unposted.pop();
    }
  }
}

function remoteRegion(peer: CorePeer, rails: readonly RemoteKey[]): RemoteRegion {
  return {
    peer,
    bases: Float64Array.from(rails, ({ base }) => base),
    keys: Uint32Array.from(rails.flatMap(({ key }) => [key.low, key.high])),
  };
}

/** One number for a context: its upper half is small, so 53 bits hold it. */
function contextKey(low: number, high: number): number {
  return high * two32 + (low >>> 0);
}
