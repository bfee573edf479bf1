import { getHeapStatistics } from 'node:v8';
import { allocate, type NativeMemory } from '../../../base/native/index.js';
import { type EngineAddress, machineId, type RemoteKey } from '../libfabric/address.js';
import { errno, FI } from '../libfabric/bindings.js';
import {
  completionBatch,
  completionWords,
  type Endpoint,
  type LocalMemory,
  Rail,
} from '../libfabric/endpoint.js';
import { choose, type FabricDevice } from '../libfabric/provider.js';
import { PollingClock } from './clock.js';
import { ImmediateQueue, ImmediateTable } from './immediates.js';
import { Lane, type Target } from './lane.js';
import { Regions } from './regions.js';
import { Reports } from './reports.js';
import { field, kept, phase, Requests, two32 } from './requests.js';
import { command, ringMask, type Shared, transferHeader, word } from './shared.js';

/** The data with which the thread that drives libfabric starts. */
export interface CoreOptions {
  readonly id: string;
  readonly provider: string;
  readonly devices: readonly string[];
  readonly near: string | undefined;
  readonly rails: number;
  readonly shard: 'peer' | 'bytes';
  readonly gpuMemory: boolean;
  readonly timeoutMs: number;
  /** Requests under way to one peer on one rail. */
  readonly queue: number;
  /** Immediates are counted by tag, or listed as they land. */
  readonly arrivals: 'counted' | 'listed';
  readonly shared: Shared;
}

/** The facts that the core tells its caller when it has opened. */
export interface CoreInfo {
  readonly devices: readonly FabricDevice[];
  readonly address: EngineAddress;
}

/** A peer: its number and its lanes. */
interface CorePeer {
  readonly id: number;
  readonly lanes: readonly Lane[];
  lost: boolean;
}

/** Errors of one request, such as a bad key: the peer itself still answers. All others end the peer. */
const requestErrors = new Set([1, 13, 14, 22, 90, 265, 266]);
const commandsPerRound = 64;
/** The region that writes of nothing read from and write to, and how much of it they do. */
const mailboxRegion = 0;
const mailboxBytes = 8;

/**
 * The part of an engine that calls libfabric. One thread owns it: it takes commands, posts them, reads
 * completions, and turns silence into errors. `progress()` is one round; nothing in it allocates in steady state.
 */
export class Core {
  readonly info: CoreInfo;
  readonly #rails: Rail[];
  /** How many pieces a write is cut into: one a rail with `shard: 'bytes'`. */
  readonly #shards: number;
  readonly #endpoints = new Set<Endpoint>();
  readonly #peers: (CorePeer | undefined)[] = [];
  /** By their index; empty where a peer was removed or needs no lane. */
  readonly #lanes: (Lane | undefined)[] = [];
  /** Lanes with requests that the provider would not take yet. */
  readonly #waiting: Lane[] = [];
  readonly #requests = new Requests();
  readonly #regions: Regions;
  /** Of each region of a peer, a target a shard. */
  readonly #remotes: (readonly Target[])[] = [];
  /** Of each group, the targets of all its members. */
  readonly #groups: (readonly Target[])[] = [];

  readonly #control: Int32Array;
  readonly #commands: Float64Array;
  readonly #immediates: ImmediateTable | null;
  readonly #arrivals: ImmediateQueue | null;
  readonly #reports: Reports;
  readonly #clock: PollingClock;
  readonly #completions: Int32Array[];

  readonly #mailbox: NativeMemory;
  readonly #writeFlags: number;

  #commandHead = 0;
  #rounds = 0;
  readonly #options: CoreOptions;

  constructor(options: CoreOptions) {
    this.#options = options;
    const { shared } = options;
    this.#control = new Int32Array(shared.control);
    this.#commands = new Float64Array(shared.commands);
    const listed = options.arrivals === 'listed';
    this.#immediates = listed ? null : new ImmediateTable(shared.immediates);
    this.#arrivals = listed ? new ImmediateQueue(shared.immediates) : null;
    this.#reports = new Reports(shared);
    this.#clock = new PollingClock(options.timeoutMs);

    this.#rails = choose(options).map((one) => new Rail(one));
    this.#shards = options.shard === 'bytes' ? this.#rails.length : 1;
    for (const rail of this.#rails) this.#endpoints.add(rail.main);
    const devices = this.#rails.map((rail) => rail.device);
    this.#completions = this.#rails.map((rail) => new Int32Array(rail.entries.buffer));
    this.#writeFlags =
      FI.COMPLETION | (devices.every((device) => device.delivery) ? FI.DELIVERY_COMPLETE : 0);

    this.#regions = new Regions(this.#rails);
    this.#mailbox = allocate(4096);
    const { address, bytes } = this.#mailbox;
    this.#regions.open(mailboxRegion, { address, bytes, reach: { kind: 'host' } });
    const mailboxes = this.#regions.keys(mailboxRegion);
    this.info = {
      devices,
      address: {
        id: options.id,
        provider: devices[0]!.provider,
        machine: machineId(),
        shard: options.shard,
        rails: this.#rails.map(({ address }, rail) => ({ address, mailbox: mailboxes[rail]! })),
      },
    };
  }

  // ---- Set-up, called through the control channel --------------------------------------------------------------

  addPeer(id: number, { rails }: EngineAddress): void {
    const own = id % this.#rails.length;
    const lanes: Lane[] = [];
    this.#rails.forEach((rail, index) => {
      if (this.#shards === 1 && index !== own) return;
      const endpoint = rail.endpointForPeer();
      this.#endpoints.add(endpoint);
      const handle = endpoint.insert(rails[index]!.address);
      const number = id * this.#rails.length + index;
      const lane = new Lane(number, id, index, endpoint, handle);
      lane.mailbox = target(lane, rails[index]!.mailbox);
      this.#lanes[number] = lane;
      lanes.push(lane);
    });
    this.#requests.promise(lanes.length * this.#options.queue);
    this.#peers[id] = { id, lanes, lost: false };
  }

  /** Ends whatever is under way to the peer and forgets it. */
  removePeer(id: number): void {
    const peer = this.#peers[id];
    if (peer === undefined) return;
    this.losePeer(id, errno.CANCELED);
    this.#peers[id] = undefined;
    for (const lane of peer.lanes) this.#lanes[lane.index] = undefined;
    this.#requests.promise(-peer.lanes.length * this.#options.queue);
  }

  /** Ends whatever is under way to the peer, because somebody else knows that it is gone. */
  losePeer(id: number, code: number): void {
    // Commands that name the peer may still be in the ring.
    while (this.takeCommands());
    this.#lose(id, code);
  }

  register(index: number, memory: LocalMemory): RemoteKey[] {
    this.#regions.open(index, memory);
    return this.#regions.keys(index);
  }

  /** Closes a region. While the provider may still read its memory for a request that was given up, it lingers. */
  deregister(index: number): void {
    this.#regions.close(index);
  }

  /** Which closed regions still linger: their memory must stay. */
  stillLingering(): number[] {
    return this.#regions.stillLingering();
  }

  addRemote(index: number, peer: number, rails: readonly RemoteKey[]): void {
    const own = peer % this.#rails.length;
    const used = this.#shards === 1 ? [own] : rails.keys();
    this.#remotes[index] = Array.from(used, (rail) =>
      target(this.#lanes[peer * this.#rails.length + rail]!, rails[rail]!),
    );
  }

  addGroup(index: number, remotes: readonly number[]): void {
    this.#groups[index] = remotes.flatMap((remote) => this.#remotes[remote]!);
  }

  /** Bytes of the JavaScript heap that the core's thread uses. */
  heapBytes(): number {
    return getHeapStatistics().used_heap_size;
  }

  // ---- The hot path --------------------------------------------------------------------------------------------

  /** One round: take commands, read completions, post what could not be posted before. True when anything moved. */
  progress(): boolean {
    let moved = this.takeCommands();
    for (let rail = 0; rail < this.#rails.length; rail++) {
      if (this.#readCompletions(rail)) moved = true;
    }
    if (this.#waiting.length > 0 && this.#retry()) moved = true;
    if ((++this.#rounds & 255) === 0) this.tick();
    this.#reports.ring();
    return moved;
  }

  /** Whether the caller has written nothing that was not taken. */
  nothingToTake(): boolean {
    return Atomics.load(this.#control, word.commandTail) === this.#commandHead;
  }

  /** Takes and posts what the caller has written. */
  takeCommands(): boolean {
    const commands = this.#commands;
    const tail = Atomics.load(this.#control, word.commandTail);
    if (tail === this.#commandHead) return false;
    for (let taken = 0; taken < commandsPerRound && this.#commandHead !== tail; taken++) {
      const at = this.#commandHead;
      switch (commands[at & ringMask]! | 0) {
        case command.toPeer: {
          const targets = this.#remotes[commands[(at + 4) & ringMask]! | 0]!;
          const end = (at + transferHeader + 3 * commands[(at + 5) & ringMask]!) | 0;
          for (let triple = (at + transferHeader) | 0; triple !== end; triple = (triple + 3) | 0) {
            this.#write(targets, 0, at, triple);
          }
          this.#commandHead = end;
          break;
        }
        case command.toGroup: {
          const targets = this.#groups[commands[(at + 4) & ringMask]! | 0]!;
          let triple = (at + transferHeader) | 0;
          for (let first = 0; first < targets.length; first += this.#shards) {
            this.#write(targets, first, at, triple);
            triple = (triple + 3) | 0;
          }
          this.#commandHead = triple;
          break;
        }
        case command.barrier: {
          const targets = this.#groups[commands[(at + 4) & ringMask]! | 0]!;
          for (let first = 0; first < targets.length; first += this.#shards) {
            this.#write(targets, first, at, (at + transferHeader) | 0);
          }
          this.#commandHead = (at + transferHeader + 3) | 0;
          break;
        }
        default:
          throw new Error(`command ring out of step at ${at}`);
      }
    }
    Atomics.store(this.#control, word.commandHead, this.#commandHead);
    return true;
  }

  /**
   * Posts one write of the command at `at` to the targets from `first` on: one target, or one for each rail. Its
   * (source, bytes, offset) lie at `triple`. Numbers that are not integers stay in typed arrays, because V8 would box
   * them as arguments.
   */
  #write(targets: readonly Target[], first: number, at: number, triple: number): void {
    const commands = this.#commands;
    const shards = this.#shards;
    const requests = this.#requests;
    const { words } = requests;
    const ticket = commands[(at + 1) & ringMask]! | 0;
    const immediate = commands[(at + 3) & ringMask]!;
    const source = commands[triple & ringMask]!;
    const total = commands[(triple + 1) & ringMask]!;
    const offset = commands[(triple + 2) & ringMask]!;
    const flags = immediate < 0 ? this.#writeFlags : this.#writeFlags | FI.REMOTE_CQ_DATA;
    // Shards begin at multiples of 64 bytes; every rail carries one, empty or not, because each carries the immediate.
    const share = shards === 1 ? total : Math.ceil(total / shards / 64) * 64;
    for (let shard = 0; shard < shards; shard++) {
      const given = targets[first + shard]!;
      const lane = given.lane;
      const begin = Math.min(share * shard, total);
      const length = Math.min(share, total - begin);
      // Not every provider carries a write of nothing (shm never completes one): it goes to the peer's mailbox.
      const empty = length === 0;
      const from = empty ? mailboxRegion : commands[(at + 2) & ringMask]! | 0;
      const into = empty ? lane.mailbox : given;
      const bytes = empty ? mailboxBytes : length;
      const local = empty ? this.#mailbox.address : source + begin;
      const remote = into.base + (empty ? 0 : offset + begin);
      const { descriptor } = this.#regions.at(from).registrations[lane.rail]!;
      const slot = requests.take(lane, ticket, from, this.#clock.deadline);
      words[field.addressLow] = lane.peerLow;
      words[field.addressHigh] = lane.peerHigh;
      words[field.contextLow] = requests.state[slot * kept.words + kept.use]!;
      words[field.contextHigh] = slot + 1;
      words[field.immediate] = immediate;
      words[field.localLow] = local;
      words[field.localHigh] = local / two32;
      words[field.localBytesLow] = bytes;
      words[field.localBytesHigh] = bytes / two32;
      words[field.remoteLow] = remote;
      words[field.remoteHigh] = remote / two32;
      words[field.remoteBytesLow] = bytes;
      words[field.remoteBytesHigh] = bytes / two32;
      words[field.keyLow] = into.keyLow;
      words[field.keyHigh] = into.keyHigh;
      words[field.descriptorLow] = descriptor;
      words[field.descriptorHigh] = descriptor / two32;
      this.#submit(lane, slot, flags);
    }
  }

  /** Posts the request that the structure describes, or queues it behind those of its lane that wait already. */
  #submit(lane: Lane, slot: number, flags: number): void {
    if (lane.lost) {
      this.#finish(slot, errno.TIMEDOUT);
      return;
    }
    if (lane.firstWaiting >= 0) {
      this.#requests.park(slot, flags);
      this.#requests.state[lane.lastWaiting * kept.words + kept.next] = slot;
      lane.lastWaiting = slot;
      return;
    }
    const status = this.#post(lane, slot, flags);
    if (status === 0) return;
    if (status === -errno.AGAIN) {
      this.#requests.park(slot, flags);
      lane.firstWaiting = slot;
      lane.lastWaiting = slot;
      this.#waiting.push(lane);
    } else this.#refused(lane, slot, -status);
  }

  /** Hands the request that the structure describes to libfabric; returns its answer, 0 or a negative error number. */
  #post(lane: Lane, slot: number, flags: number): number {
    const requests = this.#requests;
    const status = lane.writeMessage(lane.address, requests.structure, flags);
    if (status === 0) requests.state[slot * kept.words + kept.phase] = phase.posted;
    return status;
  }

  /** libfabric will never take this request, or nothing any more for this peer. */
  #refused(lane: Lane, slot: number, code: number): void {
    if (requestErrors.has(code)) this.#finish(slot, code);
    else this.#lose(lane.peer, code);
  }

  /** Tries again what the provider refused: per lane, so that one full or dead peer holds up nobody else. */
  #retry(): boolean {
    const requests = this.#requests;
    const waiting = this.#waiting;
    let moved = false;
    for (let i = waiting.length - 1; i >= 0; i--) {
      const lane = waiting[i]!;
      while (lane.firstWaiting >= 0) {
        const slot = lane.firstWaiting;
        const status = this.#post(lane, slot, requests.unpark(slot));
        if (status === -errno.AGAIN) break;
        lane.firstWaiting = slot === lane.lastWaiting ? -1 : requests.state[slot * kept.words + kept.next]!;
        if (status !== 0) this.#refused(lane, slot, -status);
        moved = true;
      }
      if (lane.firstWaiting < 0) {
        const last = waiting.pop()!;
        if (last !== lane) waiting[i] = last;
      }
    }
    return moved;
  }

  #readCompletions(index: number): boolean {
    const rail = this.#rails[index]!;
    if (this.#arrivals !== null && !this.#arrivals.fits(completionBatch)) return false;
    const count = rail.readQueue(rail.queue, rail.entries.address, completionBatch);
    if (count <= 0) {
      if (count === -errno.AGAIN || count === 0) return false;
      return this.#readFailures(rail);
    }
    const words = this.#completions[index]!;
    for (let i = 0, at = 0; i < count; i++, at += completionWords) {
      const flags = words[at + 2]!;
      if (flags & FI.WRITE) {
        this.#complete(words[at]!, words[at + 1]!);
      } else if (flags & FI.REMOTE_CQ_DATA) {
        this.#landed(words[at + 8]!);
      }
    }
    return true;
  }

  #landed(immediate: number): void {
    if (this.#immediates !== null && !this.#immediates.add(immediate)) {
      this.#reports.immediateLost();
      return;
    }
    this.#arrivals?.add(immediate);
    this.#reports.landed();
  }

  /** A request has ended well, unless it was given up before: then its context names an older use. */
  #complete(use: number, number: number): void {
    if (this.#requests.holds(number - 1, use)) this.#finish(number - 1, 0);
    else this.#regions.letGo(useKey(number - 1, use));
  }

  /** Ends one request, well if `code` is 0. */
  #finish(slot: number, code: number): void {
    const { state } = this.#requests;
    const ticket = state[slot * kept.words + kept.ticket]!;
    const { peer } = this.#lanes[state[slot * kept.words + kept.lane]!]!;
    this.#requests.put(slot);
    this.#reports.requestEnded(ticket, peer, code);
  }

  // ---- Failure -------------------------------------------------------------------------------------------------

  #readFailures(rail: Rail): boolean {
    const failure = rail.readError();
    if (failure === null) return false;
    const { low, high } = failure.context;
    const [slot, use] = [high - 1, low | 0];
    if (!this.#requests.holds(slot, use)) {
      this.#regions.letGo(useKey(slot, use));
    } else if (requestErrors.has(failure.code)) {
      this.#finish(slot, failure.code);
    } else {
      // The provider has let go of this one. It ends with the others, once the peer is marked as lost: the caller
      // reads that mark when it names the error.
      const { state } = this.#requests;
      state[slot * kept.words + kept.phase] = phase.taken;
      this.#lose(this.#lanes[state[slot * kept.words + kept.lane]!]!.peer, failure.code);
    }
    return true;
  }

  /** Ends everything under way to a peer. Operations that the provider still holds are remembered until it lets go. */
  #lose(id: number, code: number): void {
    const peer = this.#peers[id];
    if (peer === undefined || peer.lost) return;
    peer.lost = true;
    this.#reports.peerLost(id);
    for (const lane of peer.lanes) this.#abandon(lane, code);
  }

  #abandon(lane: Lane, code: number): void {
    const { state } = this.#requests;
    lane.lost = true;
    lane.firstWaiting = -1;
    for (const slot of this.#requests.underway(lane.index)) {
      const at = slot * kept.words;
      if (state[at + kept.phase] === phase.posted) {
        this.#regions.abandon(useKey(slot, state[at + kept.use]!), state[at + kept.region]!);
      }
      this.#finish(slot, code);
    }
    // An endpoint of its own stays until the engine closes: a peer that was only slow may still come to its
    // first message there, and shm ends the process of a peer that finds that endpoint gone.
    if (lane.endpoint === this.#rails[lane.rail]!.main) lane.endpoint.remove(lane.handle);
  }

  /** Reads the clock and gives up on peers that kept a request longer than the timeout. */
  tick(): void {
    if (!this.#clock.tick()) return;
    const now = this.#clock.ms | 0;
    for (let slot = this.#requests.overdue(now); slot >= 0; slot = this.#requests.overdue(now)) {
      const lane = this.#requests.state[slot * kept.words + kept.lane]!;
      this.#lose(this.#lanes[lane]!.peer, errno.TIMEDOUT);
    }
  }

  // ---- The end -------------------------------------------------------------------------------------------------

  close(): void {
    // Closing the endpoints first stops the provider from touching any memory.
    for (const endpoint of this.#endpoints) endpoint.close();
    this.#regions.closeAll();
    for (const rail of this.#rails) rail.close();
    this.#requests.free();
    this.#mailbox.free();
  }
}

function target(lane: Lane, { base, key }: RemoteKey): Target {
  return { lane, base, keyLow: key.low | 0, keyHigh: key.high | 0 };
}

/** Names one use of a request. */
function useKey(slot: number, use: number): string {
  return `${slot} ${use}`;
}
