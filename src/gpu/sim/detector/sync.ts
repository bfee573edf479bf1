/**
 * Release and acquire through the value of a location, as PTX defines them.
 *
 * A write hands on its writer's knowledge if it is a release, or if a fence of the writer comes before it, or an earlier
 * release of the same location. A read-modify-write carries on what the write before it handed on. A reader that sees the
 * value learns it if it acquires, or at its next fence, or when it next acquires the same location. All of this needs
 * scopes that include the other side: of the write and the read (each pair along a chain of read-modify-writes), and of
 * the release (or fence) and the acquire (or fence).
 */
import { getOrMake } from '../../../base/maps.js';
import { isAtomic, sameSize, scopeOf } from './access.js';
import {
  Actor,
  AtomicWrite,
  type BlockState,
  type CopyAgents,
  cta,
  distance,
  gpu,
  happenedBefore,
  type Observation,
  type Outcome,
  type Reach,
  ReleaseHead,
  sys,
} from './actors.js';
import { Clock, joinBlocks, nothing, nothingOfBlock } from './clock.js';
import type { Location } from './location.js';

const reaches: readonly Reach[] = [cta, gpu, sys];
/** Clocks to be acquired later that are kept before they are joined. */
const mostPending = 16;
const noHeads: readonly ReleaseHead[] = [];
/** Relaxed loads that a thread remembers until its next fence, to explain races with. */
const observationsAwaitingFence = 64;

/** Two atomic accesses of which each one's scope includes the other, and that touch the same bytes. */
export function mutual(a: number, b: number, apart: Reach): boolean {
  return isAtomic(a) && isAtomic(b) && sameSize(a, b) && scopeOf(a) >= apart && scopeOf(b) >= apart;
}

/** `me` read `write` by an atomic access: it learns, now or at its next fence, what the write hands on. */
export function observe(
  me: Actor,
  location: Location,
  write: AtomicWrite,
  meta: number,
  acquires: boolean,
  order: number,
): Observation {
  const needs = distance(write.moment.by, me);
  let outcome = brokenLink(write, meta, needs);
  if (outcome === null) {
    // Inherited knowledge comes from others; whether the write itself released is what an explanation wants to know.
    inherit(me, location, write, meta, acquires);
    outcome = write.heads.length === 0 ? 'no-release' : 'release-fence-scope';
    for (const head of write.heads) outcome = learnFrom(me, location, head, meta, acquires) ?? outcome;
    if (me.entry !== null) {
      me.seenByExit ??= new Map();
      me.seenByExit.set(location, write.moment);
    }
  }
  const observation: Observation = {
    order,
    location,
    write,
    reader: me,
    epoch: me.epoch,
    meta,
    needs,
    outcome,
    knew: me.own,
    fencedIn: null,
  };
  if (outcome === 'no-acquire') {
    const { observations } = me.ensureSync();
    if (observations.length === observationsAwaitingFence) observations.shift();
    observations.push(observation);
  }
  return observation;
}

/** `me` learns what the write carries on: at once, where all of it is as far away. */
function inherit(
  me: Actor,
  location: Location,
  { inherited, inheritedClock }: AtomicWrite,
  meta: number,
  acquires: boolean,
): void {
  const needs = inheritedClock === null ? 0 : distance(inherited[0]!.by, me);
  if (
    inheritedClock !== null &&
    inherited.every(({ by, scope }) => scope >= needs && distance(by, me) === needs)
  ) {
    if (acquires && scopeOf(meta) >= needs) me.learn(inheritedClock);
    else learnLater(me, location, needs, inheritedClock);
    return;
  }
  for (const head of inherited) learnFrom(me, location, head, meta, acquires);
}

/** The knowledge that `me` gets at its next fence that reaches as far as `needs`, or when it acquires the location. */
function learnLater(me: Actor, location: Location, needs: Reach, clock: Clock): void {
  const { pending } = me.ensureSync();
  const clocks = getOrMake(pending, location, () => [[], [], []]);
  const there = clocks[needs]!;
  // Joined when there are many, or when somebody acquires them, which of most nobody does.
  if (there.length === mostPending) there.splice(0, mostPending, Clock.joinAll(there));
  there.push(clock);
}

/** Null where the release does not reach the reader. */
function learnFrom(
  me: Actor,
  location: Location,
  head: ReleaseHead,
  meta: number,
  acquires: boolean,
): Outcome | null {
  const needs = distance(head.by, me);
  if (head.scope < needs) return null;
  const learnt = happenedBefore(head.by, head.epoch, me);
  if (head.atEntry || (acquires && scopeOf(meta) >= needs)) {
    if (!learnt) me.acquire(head);
    return 'synchronised';
  }
  if (!learnt) learnLater(me, location, needs, head.clock);
  return 'no-acquire';
}

/** `me` acquires `location`: what its relaxed loads of it have seen before counts too. */
export function acquireEarlier(me: Actor, location: Location, scope: Reach): void {
  const { sync } = me;
  const clocks = sync?.pending.get(location);
  if (sync === null || clocks === undefined) return;
  learnPending(me, clocks, scope);
  settle(me, scope, (observation) => observation.location === location);
}

function learnPending(me: Actor, clocks: Clock[][], scope: Reach): void {
  for (const reach of reaches) {
    if (reach > scope) break;
    const there = clocks[reach]!;
    if (there.length > 0) me.learn(Clock.joinAll(there));
    there.length = 0;
  }
}

/** The thread now acquires what it has read relaxed, as far as `scope` reaches. */
function settle(me: Actor, scope: Reach, concerns: (observation: Observation) => boolean): void {
  const sync = me.ensureSync();
  sync.observations = sync.observations.filter((observation) => {
    if (!concerns(observation)) return true;
    const reached = observation.needs <= scope;
    observation.outcome = reached ? 'synchronised' : 'acquire-fence-scope';
    if (reached) {
      observation.fencedIn = me.epoch;
      observation.knew = me.own;
    }
    return !reached;
  });
}

function brokenLink(write: AtomicWrite, meta: number, apart: Reach): Outcome | null {
  if (!sameSize(write.meta, meta)) return 'sizes';
  if (scopeOf(write.meta) < apart) return 'write-scope';
  return scopeOf(meta) < apart ? 'read-scope' : null;
}

/** The atomic write that `me` makes now. `before`: the write it read, if it is a read-modify-write. */
export function publish(
  me: Actor,
  location: Location,
  meta: number,
  releases: boolean,
  before: AtomicWrite | null,
): AtomicWrite {
  const scope = scopeOf(meta);
  const moment = new ReleaseHead(me, scope);
  const fences = me.sync?.fences.filter((fence) => fence !== null) ?? noHeads;
  const earlier = [...(me.entry === null ? noHeads : [me.entry]), ...fences, ...location.releasesOf(me)];
  const heads = releases ? [moment, ...earlier.filter((head) => head.scope > scope)] : earlier;
  if (releases) location.released(moment);
  let inherited = noHeads;
  if (before !== null && brokenLink(before, meta, distance(before.moment.by, me)) === null) {
    inherited = [...before.inherited, ...before.heads].filter(
      (head) => !heads.some((h) => replaces(h, head)),
    );
  }
  me.endEpoch();
  return new AtomicWrite(moment, meta, heads, inherited, before);
}

/** A thread's copies up to `group` arrive at an mbarrier: they publish themselves, and what they came `behind`, if that is given. */
export function arrive(
  { writes }: CopyAgents,
  keys: readonly number[],
  group: number,
  meta: number,
  before: AtomicWrite | null,
  behind: ReleaseHead | null,
): AtomicWrite {
  const arrived = new Actor(writes.index, writes.block, writes.lane, writes.copies, behind?.known ?? nothing);
  arrived.epoch = group;
  arrived.own = (behind?.own ?? nothingOfBlock).withAgents(keys, group);
  const moment = new ReleaseHead(arrived, scopeOf(meta));
  const inherited = before === null ? [] : [...before.inherited, ...before.heads];
  const others = inherited.filter((head) => !replaces(moment, head));
  return new AtomicWrite(moment, meta, [moment], others, before);
}

/** A thread that can acquire `older` can acquire `newer`, and learns as much: only sure within one block. */
function replaces(newer: ReleaseHead, older: ReleaseHead): boolean {
  if (older.atEntry) return newer.atEntry && newer.by.block.launch === older.by.block.launch;
  return (
    newer.by.block === older.by.block && newer.scope >= older.scope && newer.includes(older.by, older.epoch)
  );
}

/** Threads meet where barriers carry fences: from now on the stores of each hand on what any of them has fenced. */
export function shareFences(threads: readonly Actor[]): void {
  for (const scope of [gpu, sys] as const) {
    const heads = [...new Set(threads.flatMap(({ sync }) => sync?.fences[scope] ?? []))];
    const [first] = heads;
    if (first === undefined) continue;
    const shared = heads.length === 1 ? first : joined(heads);
    for (const thread of threads) thread.ensureSync().fences[scope] = shared;
  }
}

/** The place of what was read before a barrier. */
const beforeBarrier = {};

/** Threads meet where volatile loads come behind what their block has seen: what any has read relaxed, each has. */
export function shareReads(threads: readonly Actor[]): void {
  const pending = threads.flatMap(({ sync }) => [...(sync?.pending.values() ?? [])]);
  const shared = reaches.map((reach) => pending.flatMap((clocks) => clocks[reach]!));
  if (shared.every((clocks) => clocks.length === 0)) return;
  const joined = shared.map((clocks) => (clocks.length === 0 ? [] : [Clock.joinAll(clocks)]));
  for (const thread of threads)
    thread.ensureSync().pending.set(
      beforeBarrier,
      joined.map((clocks) => [...clocks]),
    );
}

/** The moment of nobody in particular, at which all that was released that these have. */
function joined(heads: readonly ReleaseHead[]): ReleaseHead {
  const [{ by, scope }] = heads as [ReleaseHead];
  const nobody = new Actor(
    by.index,
    by.block,
    by.lane,
    ofNobody,
    Clock.joinAll(heads.map(({ known }) => known)),
  );
  nobody.epoch = Number.POSITIVE_INFINITY;
  nobody.own = heads.map(({ own }) => own).reduce(joinBlocks);
  return new ReleaseHead(nobody, scope);
}

const ofNobody = { engine: 'bulk', does: 'write' } as const;

/** A launch begins with a fence: the thread's writes hand on what came before it. */
export function enter(me: Actor): void {
  me.entry = new ReleaseHead(me, sys, true);
  me.endEpoch();
}

/** A launch ends with a fence: gives what came before the writes that this thread has seen. Loads among that are over. */
export function leave(me: Actor): readonly Clock[] {
  learnAll(me, sys);
  return [...(me.seenByExit?.values() ?? [])].map(({ clock }) => clock);
}

export function fence(me: Actor, scope: Reach): ReleaseHead {
  learnAll(me, scope);
  const head = releaseFence(me, scope);
  settle(me, scope, () => true);
  return head;
}

/** Its reads so far count as acquired. */
export function acquireFence(me: Actor, scope: Reach): void {
  learnAll(me, scope);
  settle(me, scope, () => true);
}

function learnAll(me: Actor, scope: Reach): void {
  const sync = me.ensureSync();
  for (const [location, clocks] of sync.pending) {
    learnPending(me, clocks, scope);
    if (scope === sys) sync.pending.delete(location);
  }
}

/** Its stores from now on count as a release of what it knows now. */
export function releaseFence(me: Actor, scope: Reach): ReleaseHead {
  const sync = me.ensureSync();
  for (const reach of reaches) if (reach <= scope) sync.fences[reach] = null;
  const head = new ReleaseHead(me, scope);
  sync.fences[scope] = head;
  me.endEpoch();
  return head;
}

/**
 * The order of sequentially consistent fences, which is that of the run. A thread that passes one learns what came before all
 * those that include it and that it includes.
 */
export class FenceOrder {
  #all = nothing;
  readonly #ranks = new Map<number, Clock>();
  readonly #blocks = new WeakMap<BlockState, Clock>();

  pass(me: Actor, scope: Reach): void {
    const { block } = me;
    const ofBlock = this.#blocks.get(block) ?? nothing;
    const ofRank = this.#ranks.get(block.rank) ?? nothing;
    me.learn(ofBlock);
    if (scope >= gpu) me.learn(ofRank);
    if (scope === sys) me.learn(this.#all);
    const { clock } = fence(me, scope);
    this.#blocks.set(block, ofBlock.join(clock));
    if (scope >= gpu) this.#ranks.set(block.rank, ofRank.join(clock));
    if (scope === sys) this.#all = this.#all.join(clock);
  }
}
