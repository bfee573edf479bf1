import { allocate } from '../../../base/native/index.js';
import type { EngineAddress, RemoteKey } from '../libfabric/address.js';
import { errno, FI } from '../libfabric/bindings.js';
import {
  completionBatch,
  completionWords,
  type Endpoint,
  openRail,
  type Rail,
} from '../libfabric/endpoint.js';
import type { Chosen } from '../libfabric/provider.js';
import { PollingClock } from './clock.js';
import { ImmediateQueue, ImmediateTable } from './immediates.js';
import { Lane, type Target } from './lane.js';
import { createRegions } from './regions.js';
import { createReports } from './reports.js';
import { field, kept, phase, Requests, two32 } from './requests.js';
import { command, controlWord, ringMask, type Shared, transferHeader } from './shared.js';

/** The data with which the thread that drives libfabric starts. */
export interface CoreOptions {
  /** A device for each rail; the core takes over their descriptions. */
  readonly rails: readonly Chosen[];
  readonly shard: 'peer' | 'bytes';
  readonly timeoutMs: number;
  /** Requests under way to one peer on one rail. */
  readonly queue: number;
  /** Immediates are counted by tag, or listed as they land. */
  readonly arrivals: 'counted' | 'listed';
  readonly shared: Shared;
}

interface CorePeer {
  readonly id: number;
  readonly lanes: readonly Lane[];
  lost: boolean;
}

/** Errors of one request, such as a bad key: the peer itself still answers. All others end the peer. */
const requestErrors = new Set([1, 13, 14, 22, 90, 265, 266]);
const commandsPerRound = 64;
const looksBeforeClose = 64;
/** The region that writes of nothing read from and write to, and how much of it they do. */
const mailboxRegion = 0;
const mailboxBytes = 8;

export type Core = ReturnType<typeof createCore>;

/**
 * The part of an engine that calls libfabric. One thread owns it: it takes commands, posts them, reads
 * completions, and turns silence into errors. `progress()` is one round; nothing in it allocates in steady state.
 */
export function createCore(options: CoreOptions) {
  const { shared } = options;
  const control = new Int32Array(shared.control);
  const commands = new Float64Array(shared.commands);
  const listed = options.arrivals === 'listed';
  const immediates = listed ? null : new ImmediateTable(shared.immediates);
  const arrivals = listed ? new ImmediateQueue(shared.immediates) : null;
  const reports = createReports(shared);
  const requests = new Requests();
  const clock = new PollingClock(options.timeoutMs);

  const rails = options.rails.map((one) => openRail(one));
  const completions = rails.map((rail) => new Int32Array(rail.entries.buffer));
  /** How many pieces a write is cut into: one a rail with `shard: 'bytes'`. */
  const shards = options.shard === 'bytes' ? rails.length : 1;
  const writeFlags =
    FI.COMPLETION | (rails.every(({ device }) => device.delivery) ? FI.DELIVERY_COMPLETE : 0);
  const endpoints = new Set<Endpoint>(rails.map((rail) => rail.main));
  const regions = createRegions(rails);
  const mailbox = allocate(4096);
  const { address, bytes } = mailbox;
  const mailboxes = regions.open(mailboxRegion, { address, bytes, reach: { kind: 'host' } });
  /** Peers reach it by these, which the caller is told when it has opened. */
  const ends: EngineAddress['rails'] = rails.map(({ address }, rail) => {
    return { address, mailbox: mailboxes[rail]! };
  });

  const peers: (CorePeer | undefined)[] = [];
  /** By their index; empty where a peer was removed or needs no lane. */
  const lanes: (Lane | undefined)[] = [];
  /** Lanes with requests that the provider would not take yet. */
  const waiting: Lane[] = [];
  /** Where commands write to, by number: of a region of a peer a target a shard, of a group those of all its members. */
  const places: (readonly Target[])[] = [];
  let commandHead = 0;
  let rounds = 0;

  // ---- Set-up, called through the control channel --------------------------------------------------------------

  /** `place`: the number of its mailbox, among what commands write to. */
  function addPeer(id: number, theirs: EngineAddress, place: number): void {
    const own = id % rails.length;
    const ways: Lane[] = [];
    rails.forEach((rail, index) => {
      if (shards === 1 && index !== own) return;
      const endpoint = rail.endpointForPeer();
      endpoints.add(endpoint);
      const { address, mailbox } = theirs.rails[index]!;
      const number = id * rails.length + index;
      const lane = new Lane(number, id, index, endpoint, endpoint.insert(address));
      lane.mailbox = target(lane, mailbox);
      lanes[number] = lane;
      ways.push(lane);
    });
    places[place] = ways.map((lane) => lane.mailbox);
    requests.promise(ways.length * options.queue);
    peers[id] = { id, lanes: ways, lost: false };
  }

  /** Ends whatever is under way to the peer and forgets it. */
  function removePeer(id: number): void {
    const peer = peers[id];
    if (peer === undefined) return;
    losePeer(id, errno.CANCELED);
    peers[id] = undefined;
    for (const lane of peer.lanes) lanes[lane.index] = undefined;
    requests.promise(-peer.lanes.length * options.queue);
  }

  /** Ends whatever is under way to the peer, because somebody else knows that it is gone. */
  function losePeer(id: number, code: number): void {
    // Commands that name the peer may still be in the ring.
    while (takeCommands());
    lose(id, code);
  }

  function addRemote(index: number, peer: number, keys: readonly RemoteKey[]): void {
    const used = shards === 1 ? [peer % rails.length] : keys.keys();
    places[index] = Array.from(used, (rail) => target(lanes[peer * rails.length + rail]!, keys[rail]!));
  }

  function addGroup(index: number, members: readonly number[]): void {
    places[index] = members.flatMap((remote) => places[remote]!);
  }

  // ---- The hot path --------------------------------------------------------------------------------------------

  /** One round: take commands, read completions, post what could not be posted before. True when anything moved. */
  function progress(): boolean {
    let moved = takeCommands();
    for (let rail = 0; rail < rails.length; rail++) {
      if (readCompletions(rail)) moved = true;
    }
    if (waiting.length > 0 && retry()) moved = true;
    rounds = (rounds + 1) & 255;
    if (rounds === 0) tick();
    reports.ring();
    return moved;
  }

  function nothingToTake(): boolean {
    return Atomics.load(control, controlWord.commandTail) === commandHead;
  }

  /** Takes and posts what the caller has written. */
  function takeCommands(): boolean {
    const tail = Atomics.load(control, controlWord.commandTail);
    if (tail === commandHead) return false;
    for (let taken = 0; taken < commandsPerRound && commandHead !== tail; taken++) {
      const at = commandHead;
      const kind = commands[at & ringMask]! | 0;
      if (kind < command.toPeer || kind > command.barrier)
        throw new Error(`command ring out of step at ${at}`);
      const targets = places[commands[(at + 4) & ringMask]! | 0]!;
      const writes = commands[(at + 5) & ringMask]! | 0;
      const next = kind === command.toPeer ? 0 : shards;
      const further = kind === command.barrier ? 0 : 3;
      let triple = (at + transferHeader) | 0;
      for (let n = 0, first = 0; n < writes; n++, first += next) {
        write(targets, first, at, triple);
        triple = (triple + further) | 0;
      }
      commandHead = further === 0 ? (triple + 3) | 0 : triple;
    }
    Atomics.store(control, controlWord.commandHead, commandHead);
    return true;
  }

  /**
   * Posts one write of the command at `at` to the targets from `first` on: one target, or one for each rail. Its
   * (source, bytes, offset) lie at `triple`. Numbers that are not integers stay in typed arrays, because V8 would box
   * them as arguments.
   */
  function write(targets: readonly Target[], first: number, at: number, triple: number): void {
    const { words } = requests;
    const ticket = commands[(at + 1) & ringMask]! | 0;
    const immediate = commands[(at + 3) & ringMask]!;
    const source = commands[triple & ringMask]!;
    const total = commands[(triple + 1) & ringMask]!;
    const offset = commands[(triple + 2) & ringMask]!;
    const flags = immediate < 0 ? writeFlags : writeFlags | FI.REMOTE_CQ_DATA;
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
      const local = empty ? mailbox.address : source + begin;
      const remote = into.base + (empty ? 0 : offset + begin);
      const { descriptor } = regions.at(from).registrations[lane.rail]!;
      const slot = requests.take(lane, ticket, from, clock.deadline);
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
      submit(lane, slot, flags);
    }
  }

  /** Posts the request that the structure describes, or queues it behind those of its lane that wait already. */
  function submit(lane: Lane, slot: number, flags: number): void {
    if (lane.lost) {
      finish(slot, errno.TIMEDOUT);
      return;
    }
    if (lane.firstWaiting >= 0) {
      requests.park(slot, flags);
      requests.state[lane.lastWaiting * kept.words + kept.next] = slot;
      lane.lastWaiting = slot;
      return;
    }
    const status = post(lane, slot, flags);
    if (status === 0) return;
    if (status === -errno.AGAIN) {
      requests.park(slot, flags);
      lane.firstWaiting = slot;
      lane.lastWaiting = slot;
      waiting.push(lane);
    } else refused(lane, slot, -status);
  }

  /** Hands the request that the structure describes to libfabric; returns its answer, 0 or a negative error number. */
  function post(lane: Lane, slot: number, flags: number): number {
    const status = lane.writeMessage(lane.address, requests.structure, flags);
    if (status === 0) requests.state[slot * kept.words + kept.phase] = phase.posted;
    return status;
  }

  function refused(lane: Lane, slot: number, code: number): void {
    if (requestErrors.has(code)) finish(slot, code);
    else lose(lane.peer, code);
  }

  /** Tries again what the provider refused: per lane, so that one full or dead peer holds up nobody else. */
  function retry(): boolean {
    let moved = false;
    for (let i = waiting.length - 1; i >= 0; i--) {
      const lane = waiting[i]!;
      while (lane.firstWaiting >= 0) {
        const slot = lane.firstWaiting;
        const status = post(lane, slot, requests.unpark(slot));
        if (status === -errno.AGAIN) break;
        lane.firstWaiting = slot === lane.lastWaiting ? -1 : requests.state[slot * kept.words + kept.next]!;
        if (status !== 0) refused(lane, slot, -status);
        moved = true;
      }
      if (lane.firstWaiting < 0) {
        const last = waiting.pop()!;
        if (last !== lane) waiting[i] = last;
      }
    }
    return moved;
  }

  function readCompletions(index: number): boolean {
    const rail = rails[index]!;
    if (arrivals !== null && !arrivals.fits(completionBatch)) return false;
    const count = rail.readQueue(rail.queue, rail.entries.address, completionBatch);
    if (count <= 0) {
      if (count === -errno.AGAIN || count === 0) return false;
      return readFailures(rail);
    }
    const words = completions[index]!;
    for (let i = 0, at = 0; i < count; i++, at += completionWords) {
      const flags = words[at + 2]!;
      if (flags & FI.WRITE) {
        complete(words[at]!, words[at + 1]!);
      } else if (flags & FI.REMOTE_CQ_DATA) {
        landed(words[at + 8]!);
      }
    }
    return true;
  }

  function landed(immediate: number): void {
    if (immediates !== null && !immediates.add(immediate)) {
      reports.immediateLost();
      return;
    }
    arrivals?.add(immediate);
    reports.landed();
  }

  /** A request has ended well, unless it was given up before: then its context names an older use. */
  function complete(use: number, number: number): void {
    if (requests.holds(number - 1, use)) finish(number - 1, 0);
    else regions.letGo(useKey(number - 1, use));
  }

  /** Ends one request, well if `code` is 0. */
  function finish(slot: number, code: number): void {
    const { state } = requests;
    const ticket = state[slot * kept.words + kept.ticket]!;
    const { peer } = lanes[state[slot * kept.words + kept.lane]!]!;
    requests.put(slot);
    reports.requestEnded(ticket, peer, code);
  }

  // ---- Failure -------------------------------------------------------------------------------------------------

  function readFailures(rail: Rail): boolean {
    const failure = rail.readError();
    if (failure === null) return false;
    const { low, high } = failure.context;
    const [slot, use] = [high - 1, low | 0];
    if (!requests.holds(slot, use)) {
      regions.letGo(useKey(slot, use));
    } else if (requestErrors.has(failure.code)) {
      finish(slot, failure.code);
    } else {
      // The provider has let go of this one. It ends with the others, once the peer is marked as lost: the caller
      // reads that mark when it names the error.
      const { state } = requests;
      state[slot * kept.words + kept.phase] = phase.taken;
      lose(lanes[state[slot * kept.words + kept.lane]!]!.peer, failure.code);
    }
    return true;
  }

  /** Ends everything under way to a peer. Operations that the provider still holds are remembered until it lets go. */
  function lose(id: number, code: number): void {
    const peer = peers[id];
    if (peer === undefined || peer.lost) return;
    peer.lost = true;
    reports.peerLost(id);
    for (const lane of peer.lanes) abandon(lane, code);
  }

  function abandon(lane: Lane, code: number): void {
    const { state } = requests;
    lane.lost = true;
    lane.firstWaiting = -1;
    for (const slot of requests.underway(lane.index)) {
      const at = slot * kept.words;
      if (state[at + kept.phase] === phase.posted) {
        regions.abandon(useKey(slot, state[at + kept.use]!), state[at + kept.region]!);
      }
      finish(slot, code);
    }
    // An endpoint of its own stays until the engine closes: a peer that was only slow may still come to its
    // first message there, and shm ends the process of a peer that finds that endpoint gone.
    if (lane.endpoint === rails[lane.rail]!.main) lane.endpoint.remove(lane.handle);
  }

  /** Reads the clock and gives up on peers that kept a request longer than the timeout. */
  function tick(): void {
    if (!clock.tick()) return;
    const now = clock.ms | 0;
    for (let slot = requests.overdue(now); slot >= 0; slot = requests.overdue(now)) {
      const lane = requests.state[slot * kept.words + kept.lane]!;
      lose(lanes[lane]!.peer, errno.TIMEDOUT);
    }
  }

  // ---- The end -------------------------------------------------------------------------------------------------

  function close(): void {
    const { verbs } = rails[0]!;
    if (verbs) {
      // rxm falls where it ends a connection by which messages have come that nobody has looked at: so none can come any more, and both ends look.
      regions.closeAll();
      for (let n = 0; n < looksBeforeClose; n++) {
        for (const { readQueue, queue, entries, readError } of rails)
          if (readQueue(queue, entries.address, completionBatch) < 0) readError();
        Atomics.wait(control, controlWord.coreSleeps, 0, 1);
      }
    }
    for (const endpoint of endpoints) endpoint.close();
    if (!verbs) regions.closeAll();
    for (const rail of rails) rail.close();
    requests.free();
    mailbox.free();
  }

  return {
    ends,
    addPeer,
    removePeer,
    losePeer,
    register: regions.open,
    deregister: regions.close,
    stillLingering: regions.stillLingering,
    addRemote,
    addGroup,
    progress,
    nothingToTake,
    takeCommands,
    tick,
    close,
  };
}

function target(lane: Lane, { base, key }: RemoteKey): Target {
  return { lane, base, keyLow: key.low | 0, keyHigh: key.high | 0 };
}

function useKey(slot: number, use: number): string {
  return `${slot} ${use}`;
}
