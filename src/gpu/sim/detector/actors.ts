/**
 * The actors: threads, the agents that copy for threads, and streams (host copies and fills). Every access in the
 * shadow memory names an actor and the actor's epoch at that time.
 */
import { getOrMake } from '../../../base/maps.js';
import type { Scope } from '../../../lang/index.js';
import {
  type BlockClock,
  Clock,
  type ClockedBlock,
  joinBlocks,
  nothing,
  nothingOfBlock,
  type Reliances,
  wholeBlock,
} from './clock.js';
import type { CopyEngine, Origin, ProxyPath } from './detector.js';

/** How far apart two actors are, and how far a scope reaches. A scope includes what is not further than it. */
export const cta = 0;
export const gpu = 1;
export const sys = 2;
export type Reach = 0 | 1 | 2;
export const scopeNames: readonly Scope[] = ['cta', 'gpu', 'sys'];
export const reachOf: Readonly<Record<Scope, Reach>> = { cta, gpu, sys };

/** The launch to which a network's writes belong. */
export const theNetwork = 'the network';

export class StreamState {
  /** Steps (launches and copies) begun so far. */
  step = 0;
  /** After everything the stream has completed. */
  now: Clock = nothing;
  /** The order on which a programmatic launch may rely before its awaitPrevious, even where L1 caches answer. */
  settled: Clock = nothing;
  /** … and where they do not: what the launches before it had awaited when they released the next. */
  handedOn: Clock = nothing;
  last: LaunchState | null = null;
  /** Launches begun and not yet folded into `now`, oldest first. */
  readonly running: LaunchState[] = [];

  constructor(
    readonly index: number,
    readonly id: number,
    readonly rank: number,
    /** A host does its accesses: no GPU of its rank is nearer to it than another. */
    readonly ofHost = false,
  ) {}
}

export class LaunchState {
  /** The knowledge of its ended blocks, and these. */
  end: Clock = nothing;
  readonly done: BlockState[] = [];
  ended = false;
  /** The writes that its threads awaited before their releaseNext: the launch after it starts behind that. */
  readonly released = new Set<Clock>();
  origin: Origin | null = null;
  #over: Clock | null = null;
  #awaited: Clock = nothing;
  #awaitedReliances: Reliances | null = null;

  constructor(
    readonly stream: StreamState,
    readonly step: number,
    readonly kernel: string,
    /** The knowledge with which its threads start. */
    readonly start: Clock,
    /** The knowledge on which their reads by way of L1 may rely until awaitPrevious; null: all that they know. */
    readonly settled: Clock | null,
  ) {}

  /** The knowledge and deeds of all its blocks, which have ended: cheaper together than one by one. */
  get over(): Clock {
    this.#over ??= this.end.withBlocks(
      this.done.sort((a, b) => a.sequence - b.sequence),
      wholeBlock,
    );
    return this.#over;
  }

  /** The knowledge that a thread gets from awaitPrevious: the end of a launch is in order for asynchronous operations too. */
  awaits(now: Clock): { readonly clock: Clock; readonly relied: Reliances } {
    if (this.#awaitedReliances === null || now !== this.#awaited) {
      const all = { others: this.start.join(now).withoutReliances(), own: nothingOfBlock };
      this.#awaited = now;
      this.#awaitedReliances = { shared: all, global: all, map: all };
    }
    return { clock: this.#awaited, relied: this.#awaitedReliances };
  }
}

/** A block of a launch, or one operation of a stream (whose `launch` is null). */
export class BlockState implements ClockedBlock {
  readonly stream: number;
  readonly rank: number;
  threads: readonly Actor[] = [];
  firstThread = 0;
  /** The blocks of its cluster; nobody, where there are no clusters. */
  cluster: readonly BlockState[] = [];
  /** The call that enqueued it, of an operation of a stream. */
  origin: Origin | null = null;

  constructor(
    readonly sequence: number,
    readonly step: number,
    readonly owner: StreamState,
    readonly launch: LaunchState | null,
    readonly index: number,
  ) {
    this.stream = owner.index;
    this.rank = owner.rank;
  }
}

/** A moment at which an actor released: what it hands on, and to how wide a circle. */
export class ReleaseHead {
  readonly epoch: number;
  /** What it hands on of other blocks. */
  readonly known: Clock;
  #own: BlockClock;
  #whole: Clock | null = null;

  constructor(
    readonly by: Actor,
    readonly scope: Reach,
    /** What came before the launch: whoever sees a write of its thread knows that, acquire or not. */
    readonly atEntry = false,
  ) {
    this.epoch = by.lastEpoch;
    this.known = by.known;
    this.#own = by.own;
  }

  /** What it hands on of its own block. Made when somebody acquires it: many releases (each thread's fence, say) never are. */
  get own(): BlockClock {
    const { by } = this;
    if (by.copies === null) this.#own = this.#own.withLane(by.lane, this.epoch);
    return this.#own;
  }

  get clock(): Clock {
    this.#whole ??= this.known.withBlocks([this.by.block], this.own);
    return this.#whole;
  }

  /** True if what `by` did in `epoch` is part of what is released here. */
  includes(by: Actor, epoch: number): boolean {
    if (by.is(this.by)) return epoch <= this.epoch;
    return by.block === this.by.block ? covers(this.#own, by, epoch) : isKnown(this.known, by, epoch);
  }
}

/** So many heads are worth a join of their own. */
const manyHeads = 8;

/** An atomic write as its readers see it. */
export class AtomicWrite {
  /**
   * The union of all that it carries on, where that is much: hundreds of threads arrive at an mbarrier, and hundreds
   * wait for them.
   */
  readonly inheritedClock: Clock | null;

  constructor(
    /** The moment of the write itself (released or not), for finding out what it could have ordered. */
    readonly moment: ReleaseHead,
    readonly meta: number,
    /** The knowledge that the write releases: itself as a release, and the writer's fences and releases of the location before it. */
    readonly heads: readonly ReleaseHead[],
    /** Heads of the writes before it that it carries on, being a read-modify-write of what `before` wrote. */
    readonly inherited: readonly ReleaseHead[],
    before: AtomicWrite | null,
  ) {
    if (inherited.length < manyHeads) {
      this.inheritedClock = null;
      return;
    }
    const known = before?.inheritedClock ?? null;
    const more = known === null ? inherited : before!.heads;
    this.inheritedClock = Clock.joinAll([
      ...(known === null ? [] : [known]),
      ...more.map(({ clock }) => clock),
    ]);
  }
}

/** Why a thread that read an atomic write did not learn what the writer knew. */
export type Outcome =
  | 'synchronised'
  | 'write-scope'
  | 'read-scope'
  | 'sizes'
  | 'no-release'
  | 'release-fence-scope'
  | 'no-acquire'
  | 'acquire-fence-scope';

/** A thread read an atomic write atomically: what came of it. Kept to explain races. */
export interface Observation {
  /** Its number: later ones are larger. */
  readonly order: number;
  /** The location that was read: a `Location`, which matters here by its identity alone. */
  readonly location: object;
  readonly write: AtomicWrite;
  readonly reader: Actor;
  readonly epoch: number;
  readonly meta: number;
  /** The reach that an acquire needs. */
  readonly needs: Reach;
  outcome: Outcome;
  /** The reader's knowledge of its own block once it had read, or once a later fence had acquired it. */
  knew: BlockClock;
  /** The reader's epoch from which on a fence made it synchronise, if one did. */
  fencedIn: number | null;
}

/** State that only threads that synchronise need. */
interface SyncState {
  /** The knowledge that this thread's last fence of each scope released; null where a wider, later fence says more. */
  readonly fences: (ReleaseHead | null)[];
  /**
   * Released to this thread's relaxed loads of a location by writers at each distance; a fence that reaches them
   * acquires it, or a later acquire of the same location.
   */
  readonly pending: Map<object, Clock[][]>;
  /** The relaxed loads behind `pending`. */
  observations: Observation[];
}

/** Acquired clocks that a thread keeps before it joins them. */
const mostAcquired = 8;

/** The accesses of an agent of copies: their reads, or their writes. */
export interface CopyPart {
  /** `map`: bulk copies, where they read a tensor map. */
  readonly engine: CopyEngine | 'map';
  readonly does: 'read' | 'write';
}

/** Both, of one thread and engine. */
export interface CopyAgents {
  readonly reads: Actor;
  readonly writes: Actor;
  /** Holds what copies of the asynchronous proxy may rely on, in place of the thread. Null for other copies. */
  readonly proxy: Actor | null;
}

/** Told apart in the key of an agent. */
const engines: Readonly<Record<CopyEngine | 'map', number>> = {
  ...{ bulk: 0, async: 2, wgmma: 4, map: 6, tcgen05: 8, tmem: 10 },
};
/** By the path of ordinary accesses: `async` loads. */
const genericBit = engines.async;
const isOfAsyncProxy = (agentKey: number): boolean => (agentKey & genericBit) === 0;
const isOfTensorMemory = (agentKey: number): boolean => (agentKey & engines.tcgen05) !== 0;
export const hasAsyncProxy = (engine: CopyEngine | 'map'): boolean => engine !== 'async';

type Agents = { readonly [E in CopyEngine | 'map']?: CopyAgents };
const noAgents: Agents = {};

export class Actor {
  epoch = 1;
  /** Whether something happened in this epoch; an epoch in which nothing happened need not end. */
  touched = true;
  /** The epoch that began when this thread last met all threads of its warp. */
  #metIn = 0;
  /** About other blocks and streams: what it knew when it last met others or released … */
  #base: Clock;
  /**
   * … and what it acquired since. Joined only when somebody needs the join: at a rendezvous every thread acquires
   * from one peer and then meets its block, so the joins of single threads (64 ranks: gigabytes) are never looked at.
   */
  #acquired: Clock[] = [];
  /** About its own block, itself aside. */
  own: BlockClock = nothingOfBlock;
  sync: SyncState | null = null;
  /** Where launches begin and end with fences: the first, and the writes of others that it has seen. */
  entry: ReleaseHead | null = null;
  seenByExit: Map<object, ReleaseHead> | null = null;
  retired = false;
  /** The knowledge that it got from awaitPrevious. */
  awaited: Clock | null = null;
  /** Its loads and stores of tensor memory that it has awaited: others learn of them behind its next fence. */
  moved: BlockClock = nothingOfBlock;
  /** On what it may rely in tensor memory, besides its own: what it knew at its last fence behind a meeting of threads. */
  #ofTensor: Clock | null = null;
  #ofOwnTensor: BlockClock = nothingOfBlock;
  /** The knowledge on which its reads by way of L1 may rely; null: all that it knows. */
  settled: Clock | null = null;
  /** The agents of its copies, once it has issued one. */
  agents: Agents = noAgents;
  /** The index of its warp's first lane, and its own place among them; an agent is alone. */
  warp: number;
  readonly bit: number;

  constructor(
    /** Its place among all actors; the threads of a block follow each other. */
    public index: number,
    readonly block: BlockState,
    /** Its thread in the block; agents: the thread that issued. */
    readonly lane: number,
    /** Agents of copies: what they do, or null for threads and streams. */
    readonly copies: CopyPart | null,
    known: Clock,
  ) {
    this.#base = known;
    const place = copies === null ? lane & 31 : 0;
    this.warp = index - place;
    this.bit = 1 << place;
  }

  /** All it knows about other blocks and streams. */
  get known(): Clock {
    if (this.#acquired.length > 0) {
      this.#base = Clock.joinAll([this.#base, ...this.#acquired]);
      this.#acquired = [];
    }
    return this.#base;
  }

  /** The parts of `known`, for a join with others' parts. */
  get knownParts(): readonly Clock[] {
    return [this.#base, ...this.#acquired];
  }

  /** True if it knows exactly `clock`, as far as can be told at a glance. */
  knowsJust(clock: Clock): boolean {
    return this.#acquired.length === 0 && this.#base === clock;
  }

  /** True if it knows the same about other blocks as `other`, as far as can be told at a glance. */
  knowsAs(other: Actor): boolean {
    const acquired = this.#acquired;
    if (this.#base !== other.#base || acquired.length !== other.#acquired.length) return false;
    for (let i = 0; i < acquired.length; i++) if (acquired[i] !== other.#acquired[i]) return false;
    return true;
  }

  /** True if it knows that all of another block is over, as far as can be told at a glance. */
  knowsEndOf({ stream, step }: BlockState): boolean {
    if (step <= this.#base.completed(stream)) return true;
    for (const clock of this.#acquired) if (step <= clock.completed(stream)) return true;
    return false;
  }

  /** True if what `by`, of another block, did in `epoch` is part of what it knows. */
  knowsOf(by: Actor, epoch: number): boolean {
    if (isKnown(this.#base, by, epoch)) return true;
    for (const clock of this.#acquired) if (isKnown(clock, by, epoch)) return true;
    return false;
  }

  get agentKey(): number {
    const { engine, does } = this.copies!;
    return 16 * this.lane + engines[engine] + (does === 'write' ? 1 : 0);
  }

  learn(clock: Clock): void {
    if (clock === this.#base || clock === nothing || this.#acquired.includes(clock)) return;
    if (this.#acquired.length === mostAcquired) this.#base = this.known;
    this.#acquired.push(clock);
    this.own = joinBlocks(this.own, clock.about(this.block));
    this.touched = true;
  }

  /** Learns what was released there. Between threads of one block its two parts are learned one by one, so no clock that joins them is made. */
  acquire(head: ReleaseHead): void {
    if (head.by.block !== this.block) {
      this.learn(head.clock);
      return;
    }
    this.learn(head.known);
    this.own = joinBlocks(this.own, head.own);
    this.touched = true;
  }

  /** A proxy fence: asynchronous operations behind it may rely on all that this thread knows and did in such memory. */
  fenceProxy(path: ProxyPath): void {
    this.touched = true;
    const own = this.own.withLane(this.lane, this.epoch).withoutReliance();
    const all = { others: this.known.withoutReliances(), own };
    this.own = this.own.relying({ shared: null, global: null, map: null, [path]: all });
    this.endEpoch();
  }

  /**
   * Knows what asynchronous operations that `thread` starts now may rely on: its latest proxy fences, and what it has awaited
   * of other asynchronous operations of the block.
   */
  standForProxyOf(thread: Actor, path: ProxyPath): this {
    const relied = thread.own.relied?.[path] ?? null;
    this.#base = thread.#withCluster(relied?.others ?? thread.block.launch!.start);
    this.own = (relied?.own ?? nothingOfBlock).withAgentsOf(thread.own, isOfAsyncProxy);
    return this;
  }

  /** A fence of tensor memory: what it awaited there is told from now on, or what it was told counts there. */
  fenceTensor(side: 'before' | 'after'): void {
    if (side === 'after') [this.#ofTensor, this.#ofOwnTensor] = [this.known, this.own];
    else this.own = joinBlocks(this.own, this.moved);
    this.touched = true;
  }

  /** Knows what `thread` may rely on in tensor memory, and what these agents of its own have been told to do. */
  standForTensorOf(thread: Actor, keys: readonly number[], group: number): this {
    const own = (agentKey: number): boolean => isOfTensorMemory(agentKey) && agentKey >> 4 === thread.lane;
    this.#base = thread.#ofTensor ?? thread.block.launch!.start;
    this.own = joinBlocks(thread.#ofOwnTensor, thread.moved)
      .withAgentsOf(thread.own, own)
      .withAgents(keys, group);
    return this;
  }

  /** With what asynchronous operations of the cluster's other blocks did, as far as this thread knows. */
  #withCluster(relied: Clock): Clock {
    let all = relied;
    for (const block of this.block.cluster) {
      if (block === this.block) continue;
      const theirs = nothingOfBlock.withAgentsOf(this.known.about(block), isOfAsyncProxy);
      if (theirs !== nothingOfBlock) all = all.join(nothing.withBlocks([block], theirs));
    }
    return all;
  }

  get lastEpoch(): number {
    return this.touched ? this.epoch : this.epoch - 1;
  }

  /** Events from here on are not part of snapshots taken so far. */
  endEpoch(): void {
    if (!this.touched) return;
    this.epoch++;
    this.touched = false;
  }

  /** It met others, all of its warp or some: they all know the same now, and `epoch` is over for all. */
  meet(known: Clock, own: BlockClock, epoch: number, all: boolean): void {
    this.#base = known;
    this.#acquired = [];
    this.own = own;
    this.epoch = epoch + 1;
    this.#metIn = all ? this.epoch : 0;
    this.touched = false;
  }

  get idleSinceMeeting(): boolean {
    return !this.touched && this.epoch === this.#metIn;
  }

  /** Its block has ended: it acts no more, and others only ask what it did. */
  retire(): void {
    this.retired = true;
    this.#base = nothing;
    this.#acquired = [];
    this.sync = null;
    this.entry = null;
    this.seenByExit = null;
  }

  /** It acts no more: its operation, or its block, is over. */
  get isOver(): boolean {
    return this.retired || this.block.launch === null || this.block.threads[this.lane]?.retired === true;
  }

  get hasCopied(): boolean {
    return this.agents !== noAgents;
  }

  /** True if `other` is the same, or stands for it since its block is over. */
  is(other: Actor): boolean {
    return this.block === other.block && this.lane === other.lane && this.copies === other.copies;
  }

  get count(): number {
    return 1;
  }

  moveTo(index: number): void {
    this.warp += index - this.index;
    this.index = index;
  }

  ensureSync(): SyncState {
    this.sync ??= { fences: [null, null, null], pending: new Map(), observations: [] };
    return this.sync;
  }
}

/** The threads of a block that has ended. Records of accesses name them by number; one that is asked after gets an actor again. */
export class PastThreads {
  readonly isOver = true;
  readonly count: number;
  /** The index of the first. */
  warp: number;
  /** What each thread knew of its block: one item where all knew the same. */
  readonly #knew: readonly BlockClock[];
  /** Actors of threads that were asked after, by lane. */
  readonly #asked = new Map<number, Actor>();

  constructor(readonly block: BlockState) {
    const { threads } = block;
    const { index, own } = threads[0]!;
    this.count = threads.length;
    this.warp = index;
    this.#knew = threads.every((thread) => thread.own === own) ? [own] : threads.map((thread) => thread.own);
    block.threads = [];
  }

  at(index: number): Actor {
    const lane = index - this.warp;
    return getOrMake(this.#asked, lane, () => {
      const thread = new Actor(index, this.block, lane, null, nothing);
      thread.own = this.#knew[lane] ?? this.#knew[0]!;
      thread.retired = true;
      return thread;
    });
  }

  moveTo(index: number): void {
    this.warp = index;
    for (const [lane, thread] of this.#asked) thread.moveTo(index + lane);
  }
}

/** True if what `by` did in `epoch` happened before what `me` does now. */
export function happenedBefore(by: Actor, epoch: number, me: Actor): boolean {
  if (by === me) return true;
  return by.block === me.block ? covers(me.own, by, epoch) : me.knowsOf(by, epoch);
}

/** True if no L1 that `me` reads by way of can hold what was there before `by` wrote in `epoch`. */
export function isSettled(by: Actor, epoch: number, me: Actor): boolean {
  return me.settled === null || by.block === me.block || isKnown(me.settled, by, epoch);
}

/** True if what `by` did in `epoch` was there when the launch of `me` began, or the one that it has awaited ended. */
export function isBeforeLaunch(by: Actor, epoch: number, me: Actor): boolean {
  if (isKnown(me.settled ?? me.block.launch!.start, by, epoch)) return true;
  return me.awaited !== null && isKnown(me.awaited, by, epoch);
}

export function isKnown(clock: Clock, by: Actor, epoch: number): boolean {
  if (by.block.step <= clock.completed(by.block.stream)) return true;
  return covers(clock.about(by.block), by, epoch);
}

/** True if `clock` covers what `by`, of its block, did in `epoch`. */
export function covers(clock: BlockClock, by: Actor, epoch: number): boolean {
  return by.copies === null ? clock.coversLane(by.lane, epoch) : clock.coversAgent(by.agentKey, epoch);
}

/** The narrowest scope that includes both. */
export function distance(a: Actor, b: Actor): Reach {
  if (a.block === b.block) return cta;
  if (a.block.owner.ofHost || b.block.owner.ofHost) return sys;
  return a.block.rank === b.block.rank ? gpu : sys;
}
