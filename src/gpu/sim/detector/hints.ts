/**
 * The edge that would have ordered two racing accesses, in plain words. A hint says only what the detector knows: an
 * observation (a thread read another's atomic write) that did not synchronise is blamed only if, had it
 * synchronised, the two accesses would be ordered. Where nothing is known, the hint names the kind of edge that
 * leads from one such thread to the other.
 */

import { getOrMake } from '../../../base/maps.js';
import type { Space } from '../../../lang/index.js';
import {
  bytesOf,
  isAtomic,
  isIncoherent,
  isRead,
  kindOf,
  type Made,
  sameSize,
  scopeOf,
  siteOf,
} from './access.js';
import {
  type Actor,
  type AtomicWrite,
  covers,
  cta,
  distance,
  gpu,
  happenedBefore,
  hasAsyncProxy,
  type Observation,
  type Reach,
  type ReleaseHead,
  scopeNames,
  theNetwork,
} from './actors.js';
import type { Mend, SiteId } from './detector.js';

interface Side extends Made {
  /** Where it stands, for people: 'dispatch.ts:41:7'. */
  readonly where: string;
}

interface Circumstances {
  /** The events before the second access. */
  readonly known: ReleaseHead;
  /** The second access is a store, and its statement has written this place before. */
  readonly writtenBefore: boolean;
  /** The atomic writes of others that threads read lately; it grows. */
  readonly observations: readonly Observation[];
  where(site: SiteId): string;
}

interface RaceCircumstances extends Circumstances {
  readonly space: Space;
}

/** The words, and a change that would do what they say; null where none is to be tried. */
export interface Hint {
  readonly text: string;
  readonly mend: Mend | null;
}

/** Looks at the state of things now, and returns what completes the hint later. */
export function explain(first: Side, second: Side, around: RaceCircumstances): () => Hint {
  const now =
    sameStatement(first, second) ??
    betweenAtomics(first, second) ??
    incoherent(first, second) ??
    initialisedForCluster(first, second, around.space) ??
    missingTensorFence(first, second, around) ??
    copy(first, second) ??
    missingProxyFence(first, second, around) ??
    olderInL1(first, second);
  if (now !== null) return () => hintOf(now);
  return () => {
    const hint = hintOf(
      brokenSynchronisation(first, around) ??
        toldTooEarly(first, second) ??
        earlyStart(first, second) ??
        publishedTooEarly(first, around) ??
        waitedElsewhere(first, second, around, true) ??
        waitedElsewhere(second, first, around, false) ??
        missingEdge(first, second, around.writtenBefore),
    );
    return { ...hint, mend: hint.mend ?? waitFor(first, second) };
  };
}

/** A wait for the other threads of a launch; or for who still reads on another rank, before that is overwritten. For what other ranks write there are flags. */
function waitFor(first: Side, second: Side): Mend | null {
  const [a, b] = [first.by.block, second.by.block];
  if (a.launch === null || b.launch === null || first.by.copies !== null || second.by.copies !== null)
    return null;
  const late = a.rank !== b.rank && isRead(second.meta) ? first : second;
  return a.launch === b.launch || a.rank !== b.rank
    ? mend('quiet', 'before', late.where, late.meta, distance(first.by, second.by))
    : null;
}

type Said = string | Hint;
const hintOf = (said: Said): Hint => (typeof said === 'string' ? { text: said, mend: null } : said);

function mend(kind: Mend['kind'], side: Mend['side'], where: string, meta: number, scope: Reach): Mend {
  return { kind, side, where, access: kindOf(meta), scope: scopeNames[scope]! };
}

/** The edge that would have put an atomic store before the atomic load that missed it. */
export function explainStale(store: Side, load: Side, around: Circumstances): Hint {
  const known = brokenSynchronisation(store, around) ?? publishedTooEarly(store, around);
  if (known !== null) return hintOf(known);
  const edge = hintOf(waitedElsewhere(store, load, around, true) ?? missingEdge(store, load, false));
  const text =
    `${edge.text} Where each of two threads stores ` +
    "first and then loads what the other stored, g.fence(scope, { order: 'seq_cst' }) between the two, in both, lets " +
    'one of them see it.';
  return { ...edge, text };
}

/** Several threads of one launch store to the same place by one statement, which is mostly not what was meant. */
function sameStatement(first: Side, second: Side): string | null {
  const [a, b] = [first.by, second.by];
  if (siteOf(first.meta) !== siteOf(second.meta) || kindOf(first.meta) !== 'write' || isAtomic(first.meta))
    return null;
  if (a.copies !== null || b.copies !== null || a.block.launch === null || a.block.launch !== b.block.launch)
    return null;
  const who = a.block === b.block ? 'threads of a block' : 'blocks';
  return `Several ${who} write the same bytes by one statement: is the launch right, its grid and its block?`;
}

function betweenAtomics(first: Side, second: Side): Said | null {
  if (!isAtomic(first.meta) || !isAtomic(second.meta)) return null;
  if (!sameSize(first.meta, second.meta)) {
    return (
      `Both are atomic, but of ${bytesOf(first.meta)} and ${bytesOf(second.meta)} bytes: atomics exclude each other ` +
      'only on exactly the same bytes. Use one size.'
    );
  }
  const apart = distance(first.by, second.by);
  const narrow = [first, second].filter((side) => scopeOf(side.meta) < apart);
  const whose = narrow
    .map((side) => `the ${verb(side.meta)} at ${side.where} has ${scopeNames[scopeOf(side.meta)]} scope`)
    .join(' and ');
  return {
    text: `Both are atomic, but ${whose} while the other thread is ${placed(first.by, second.by)}: use ${scopeNames[apart]}.`,
    mend: mend('scope', 'after', narrow[0]!.where, narrow[0]!.meta, apart),
  };
}

function incoherent(...sides: readonly Side[]): string | null {
  const load = sides.find(({ meta }) => isIncoherent(meta));
  if (load === undefined) return null;
  return (
    `The load at ${load.where} goes by a cache that no store of its launch's time reaches (.nc, as of __ldg), whatever ` +
    'orders the two: load without .nc what is written while the kernel runs.'
  );
}

/** Threads store to the shared memory of their own block only: what another reaches atomically there is an mbarrier. */
function initialisedForCluster(first: Side, second: Side, space: Space): string | null {
  if (space !== 'shared' || first.by.block === second.by.block || first.by.copies !== null) return null;
  if (kindOf(first.meta) !== 'write' || isAtomic(first.meta) || !isAtomic(second.meta)) return null;
  return (
    `Another block of the cluster reaches the mbarrier that ${first.where} initialises: put g.cluster.barrier() behind ` +
    'g.mbarrier.init, before any block uses it.'
  );
}

/** Loads, stores and products of tensor memory: threads tell each other of them between two fences of its own. */
function missingTensorFence(first: Side, second: Side, { known }: RaceCircumstances): string | null {
  const isOfTensor = ({ by: { copies } }: Side): boolean =>
    copies?.engine === 'tcgen05' || copies?.engine === 'tmem';
  if (!isOfTensor(first) || !isOfTensor(second)) return null;
  const issuer = first.by.block.threads[first.by.lane]!;
  if (known.includes(first.by, first.epoch))
    return (
      `What ${first.where} does in tensor memory comes before ${second.where}, but nothing says so to tensor memory: put ` +
      'tcgen05.fence::after_thread_sync between the wait or barrier behind the first and the second.'
    );
  if (!covers(issuer.moved, first.by, first.epoch)) return null;
  return (
    `What ${first.where} does in tensor memory was awaited, but nothing tells other threads: put tcgen05.fence::before_thread_sync ` +
    'between that wait and the barrier or arrival behind it.'
  );
}

function copy(first: Side, second: Side): Said | null {
  const agent = first.by;
  if (agent.copies === null) return null;
  const { engine, does } = agent.copies;
  const issuer = agent.block.threads[agent.lane]!;
  if (happenedBefore(agent, first.epoch, issuer)) return null;
  if (engine === 'async')
    return (
      `The asynchronous copy at ${first.where} may still be under way: commit its group and await that (g.async.wait) ` +
      `before its ${does === 'write' ? 'target is used' : 'source is overwritten'}.`
    );
  if (engine === 'wgmma')
    return (
      `The product at ${first.where} may still read its tiles: commit its group and await that (g.wgmma.wait) before they are ` +
      'overwritten, in each warp that takes part, and let each tell whoever overwrites them.'
    );
  if (engine === 'tcgen05')
    return (
      `The product at ${first.where} may still be under way: let tcgen05.commit arrive at an mbarrier behind it, and wait there ` +
      'before its sums are used or its factors overwritten.'
    );
  if (engine === 'tmem')
    return `What ${first.where} does in tensor memory may still be under way: await it (tcgen05.wait::${does === 'read' ? 'ld' : 'st'}).`;
  const reads = issuer.agents.bulk?.reads;
  if (does === 'write' && reads !== undefined && happenedBefore(reads, first.epoch, issuer)) {
    return (
      `The bulk copy at ${first.where} was awaited only for its reads (waitReads), so its writes may still be under ` +
      'way: use g.bulk.wait before publishing or reading what it writes.'
    );
  }
  const what =
    does === 'write'
      ? 'await it (g.bulk.wait, or its mbarrier) before its target is used'
      : 'await it (g.bulk.waitReads, g.bulk.wait, or its mbarrier) before its source is overwritten';
  const text = `The bulk copy at ${first.where} may still be under way: ${what}.`;
  const refills = does === 'write' && agent.block === second.by.block;
  return refills ? { text, mend: mend('quiet', 'before', first.where, first.meta, cta) } : text;
}

/** Its thread has awaited a product, but whoever overwrites the tiles knows of a time before that. */
function toldTooEarly(first: Side, second: Side): string | null {
  if (first.by.copies?.engine !== 'wgmma') return null;
  return (
    `The product at ${first.where} has been awaited, but nothing orders the ${verb(second.meta)} at ${second.where} behind that ` +
    'wait: tell whoever overwrites its tiles after g.wgmma.wait, not before.'
  );
}

/** All is in order but for the paths to memory. */
function missingProxyFence(first: Side, second: Side, { known, space }: RaceCircumstances): Said | null {
  const agent = second.by;
  if (agent.copies === null || !hasAsyncProxy(agent.copies.engine)) return null;
  if (!known.includes(first.by, first.epoch)) return null;
  const access = `the ${verb(first.meta)} at ${first.where}`;
  const { engine } = agent.copies;
  const operation = engine === 'wgmma' ? 'product' : 'copy';
  const start = `the ${operation === 'copy' ? 'bulk copy' : operation} at ${second.where}`;
  const where =
    first.by.block !== agent.block
      ? `in the thread that starts the ${operation}, between what it learns of ${access} by and the ${operation}`
      : first.by.lane === agent.lane
        ? 'between the two'
        : `in the thread that starts the ${operation}, between the barrier or acquire behind ${access} and the ${operation}`;
  if (engine === 'map')
    return (
      `${capital(access)} comes before ${start}, but the copy reads its tensor map by a path to memory of its own, which no barrier, ` +
      `release or acquire orders with ordinary accesses: put fence.proxy.tensormap::generic.acquire ${where}.`
    );
  const text =
    `${capital(access)} comes before ${start}, but the ${operation} goes by a path to memory of its own (the asynchronous ` +
    `proxy), which no barrier, release or acquire orders with ordinary accesses: put g.proxyFence('${space}') ${where}.`;
  return { text, mend: mend('proxy', 'before', second.where, second.meta, space === 'shared' ? cta : gpu) };
}

/** The hint about a load that saw a store but did not synchronise with it, though that would have ordered the two accesses. */
function brokenSynchronisation(first: Side, { known, observations, where }: Circumstances): Said | null {
  const originOf = originsOf(first, observations);
  const failed = latest(
    observations,
    (seen) =>
      known.includes(seen.reader, seen.epoch) &&
      !synchronisedBefore(seen, known) &&
      (carriesOn(seen, first) || originOf(seen) !== undefined),
  );
  if (failed === undefined) return null;
  const { reader, meta } = failed;
  const write = originOf(failed) ?? failed.write;
  const outcome = write === failed.write ? failed.outcome : 'no-release';
  const writer = write.moment.by;
  const wrote = `the ${verb(write.meta)} at ${where(siteOf(write.meta))}`;
  const read = `the ${verb(meta)} at ${where(siteOf(meta))}`;
  const apart = distance(writer, reader);
  const wanted = scopeNames[apart]!;
  const ofWrite = (kind: Mend['kind']): Mend =>
    mend(kind, 'before', where(siteOf(write.meta)), write.meta, apart);
  const ofRead = (kind: Mend['kind']): Mend => mend(kind, 'after', where(siteOf(meta)), meta, apart);
  const other = placed(writer, reader);
  switch (outcome) {
    case 'write-scope':
      return {
        text:
          `${capital(wrote)} has ${scopeNames[scopeOf(write.meta)]} scope, but ${read} that saw it ran ` +
          `${other}: use ${wanted}.`,
        mend: ofWrite('scope'),
      };
    case 'read-scope':
      return {
        text:
          `${capital(read)} has ${scopeNames[scopeOf(meta)]} scope, but ${wrote} that it saw came from ` +
          `a thread ${other}: use ${wanted}.`,
        mend: ofRead('scope'),
      };
    case 'sizes':
      return (
        `${capital(read)} reads ${bytesOf(meta)} bytes of what ${wrote} wrote as ${bytesOf(write.meta)}: atomics ` +
        'synchronise only through exactly the same bytes.'
      );
    case 'no-release':
      return {
        text:
          `${capital(wrote)} was seen by ${read}, but releases nothing: make it a release, or put ` +
          `g.fence('${wanted}') before it.`,
        mend: ofWrite('fence'),
      };
    case 'release-fence-scope':
      return {
        text:
          `${capital(wrote)} was seen by ${read} ${other}, but the fence before it is narrower: ` +
          `use g.fence('${wanted}').`,
        mend: ofWrite('fence'),
      };
    case 'acquire-fence-scope':
      return {
        text:
          `${capital(read)} saw ${wrote} ${other}, but the fence after it is narrower: ` +
          `use g.fence('${wanted}').`,
        mend: ofRead('fence'),
      };
    case 'no-acquire':
    case 'synchronised':
      return {
        text:
          `${capital(read)} saw ${wrote}, but no acquire comes between it and the later access: make it ` +
          `acquire, or put g.fence('${wanted}') after it.`,
        mend: ofRead('fence'),
      };
  }
}

/** A chain of updates has brought it that far, and only an acquire is missing. */
const carriesOn = ({ write, outcome }: Observation, { by, epoch }: Side): boolean =>
  outcome === 'no-acquire' && write.inherited.some((head) => head.includes(by, epoch));

/**
 * Where what was seen began: the write, if it comes behind `first`; or the one at the start of its chain of updates, if that does and
 * releases nothing. One pass in the order of time, as threads that update in a loop make chains of thousands.
 */
function originsOf(first: Side, observations: readonly Observation[]) {
  /** By location, thread and epoch: where the value began that an update of them carries on. */
  const carried = new Map<object, Map<Actor, Map<number, AtomicWrite>>>();
  const beginOf = ({ write, location }: Observation): AtomicWrite | undefined => {
    const { moment } = write;
    if (moment.includes(first.by, first.epoch)) return write;
    return carried.get(location)?.get(moment.by)?.get(moment.epoch);
  };
  for (const seen of [...observations].sort((a, b) => a.order - b.order)) {
    if (kindOf(seen.meta) !== 'update') continue;
    const origin = beginOf(seen);
    if (origin === undefined) continue;
    const byThread = getOrMake(carried, seen.location, () => new Map());
    getOrMake(
      getOrMake(byThread, seen.reader, () => new Map()),
      seen.epoch,
      () => origin,
    );
  }
  return (seen: Observation): AtomicWrite | undefined => {
    const origin = beginOf(seen);
    return origin === seen.write || origin?.heads.length === 0 ? origin : undefined;
  };
}

function synchronisedBefore({ outcome, fencedIn, reader }: Observation, known: ReleaseHead): boolean {
  return outcome === 'synchronised' && (fencedIn === null || known.includes(reader, fencedIn));
}

/** A programmatic launch knows that the write has happened, but reads by way of a cache that may not. */
function olderInL1(first: Side, second: Side): string | null {
  if (!happenedBefore(first.by, first.epoch, second.by)) return null;
  return (
    `${second.by.block.launch!.kernel} was launched programmatically, and the ${verb(second.meta)} at ${second.where} ` +
    'is not behind its g.awaitPrevious(): L1 may still answer with what was there before. ' +
    "Make it { order: 'relaxed', scope: 'gpu' }."
  );
}

/** Programmatic launches: the only way for two launches of one stream to be unordered. */
function earlyStart(first: Side, second: Side): string | null {
  const [a, b] = [first.by.block, second.by.block];
  if (a.owner !== b.owner || a.step === b.step || a.owner.ofHost) return null;
  const [later, earlier] = a.step > b.step ? [first, second] : [second, first];
  const { kernel } = later.by.block.launch!;
  const access = `the ${verb(later.meta)} at ${later.where}`;
  const started =
    `${kernel} was launched programmatically, before ${earlier.by.block.launch?.kernel ?? 'the copy'} on the same ` +
    'stream had finished, and';
  // A launch awaits the one before it, and nothing of those before that.
  return Math.abs(a.step - b.step) === 1
    ? `${started} ${access} is not behind its g.awaitPrevious().`
    : `${started} not every launch from there on awaits the one before it: all must call g.awaitPrevious(), and in ` +
        `${kernel} ${access} must come behind it.`;
}

/** The second thread did acquire from the first one's block, but what was published there did not cover `first`. */
function publishedTooEarly(first: Side, around: Circumstances): Said | null {
  const { known, observations, where } = around;
  const acquired = (seen: Observation): boolean =>
    seen.outcome === 'synchronised' &&
    seen.write.moment.by.block === first.by.block &&
    !seen.write.moment.includes(first.by, first.epoch) &&
    known.includes(seen.reader, seen.epoch);
  const published = ({ write }: Observation): string =>
    `the ${verb(write.meta)} at ${where(siteOf(write.meta))}`;
  const access = verb(first.meta);

  const unordered = latest(
    observations,
    (seen) => acquired(seen) && !mayFollow(first, seen.write.moment, observations),
  );
  if (unordered !== undefined) {
    const { moment, heads } = unordered.write;
    const publication = heads.includes(moment) ? 'publication' : 'fence of the publication';
    const text =
      `Thread ${moment.by.lane} of the block published (${published(unordered)}), but nothing orders the ${access} of ` +
      `thread ${first.by.lane} at ${first.where} before that: a barrier must come after the ${access} and before ` +
      `the ${publication}.`;
    const store = unordered.write.meta;
    return { text, mend: mend('barrier', 'before', where(siteOf(store)), store, cta) };
  }
  // A load behind a publication is as it should be: what is missing is word that its place is free again.
  if (isRead(first.meta)) return null;
  const seen = latest(observations, acquired);
  if (seen === undefined) return null;
  return (
    `${capital(published(seen))} reached the other side, but does not cover the ${access} at ${first.where}: publish ` +
    'after that, and await it.'
  );
}

/** Whether the access may have come after what was published in its block; if not, the two are unordered. */
function mayFollow(
  { by, epoch }: Side,
  published: ReleaseHead,
  observations: readonly Observation[],
): boolean {
  const { block, lane, copies } = by;
  // Host threads and networks are actors without threads.
  const thread = block.threads[lane] ?? by;
  if (thread.is(published.by)) return true;
  if (!happenedBefore(published.by, published.epoch, thread)) return false;
  // It knows by now, and what it knew then is not kept. But who learns at a barrier goes on in a later epoch …
  if (copies !== null || epoch > published.epoch) return true;
  // … and else it learned from what a thread of the block acquired.
  return observations.some(
    (seen) =>
      seen.outcome === 'synchronised' &&
      seen.reader.block === block &&
      !seen.reader.is(published.by) &&
      seen.epoch <= epoch &&
      seen.write.moment.includes(published.by, published.epoch),
  );
}

/**
 * A thread of `waiter`'s block acquires what would order `other` before it, but the waiter's access does not come
 * after that. With `inOrder` false the waiter went first, and so before what it should have waited for.
 */
function waitedElsewhere(
  other: Side,
  waiter: Side,
  { known, observations, where }: Circumstances,
  inOrder: boolean,
): Said | null {
  const seen = earliest(
    observations,
    (seen) =>
      seen.outcome === 'synchronised' &&
      seen.reader.block === waiter.by.block &&
      handsOn(seen, other) &&
      !(inOrder && known.includes(seen.reader, seen.epoch)) &&
      !observations.some((earlier) => isEarlierRound(earlier, seen)),
  );
  if (seen === undefined) return null;
  const wait = `the ${verb(seen.meta)} at ${where(siteOf(seen.meta))}`;
  const access = `the ${verb(waiter.meta)} at ${waiter.where}`;
  if (isBehind(seen, waiter))
    return `${capital(wait)} acquires what orders them, but ${access} comes before it.`;
  const text =
    `Thread ${seen.reader.lane} of the block acquires what would order them (${wait}), but nothing orders ` +
    `thread ${waiter.by.lane} after that: a barrier must come after it and before ${access}.`;
  return { text, mend: mend('barrier', 'before', waiter.where, waiter.meta, cta) };
}

/**
 * Whether the same thread of the grid had acquired from the same place before. Then the access may belong to that round,
 * and the later wait to the next one, of which it knows nothing.
 */
const isEarlierRound = (earlier: Observation, { order, location, reader }: Observation): boolean =>
  earlier.order < order &&
  earlier.location === location &&
  earlier.outcome === 'synchronised' &&
  earlier.reader.lane === reader.lane &&
  earlier.reader.block.index === reader.block.index &&
  earlier.reader.block.rank === reader.block.rank;

/** Whether the reader acquired what happened up to `side`. */
const handsOn = ({ write: { heads, inherited }, needs }: Observation, { by, epoch }: Side): boolean =>
  [...heads, ...inherited].some((head) => head.scope >= needs && head.includes(by, epoch));

/** Whether an access of the reader's block, one that does not come after the observation, comes before it. */
const isBehind = ({ reader, knew }: Observation, { by, epoch }: Side): boolean =>
  by.lane === reader.lane || covers(knew, by, epoch);

function missingEdge(first: Side, second: Side, writtenBefore: boolean): Said {
  const [a, b] = [first.by, second.by];
  if (a.block === b.block) {
    const same = a.lane >> 5 === b.lane >> 5 ? 'a warp barrier or a block barrier' : 'a block barrier';
    const text = `Both threads are in one block, and nothing orders them: ${same} between the two accesses would.`;
    return { text, mend: mend('barrier', 'before', second.where, second.meta, cta) };
  }
  const edge = edgeBetween(a, b);
  if (isAtomic(first.meta) !== isAtomic(second.meta)) {
    const [weak, atomic] = isAtomic(first.meta) ? [second, first] : [first, second];
    return (
      `The ${verb(weak.meta)} at ${weak.where} is weak, the ${verb(atomic.meta)} at ${atomic.where} atomic: make both ` +
      `atomic with scopes that reach the other, or order them; ${edge}`
    );
  }
  if (isRead(second.meta))
    return `Either the load comes too early, or the ${verb(first.meta)} overwrites what it should read: ${edge}`;
  if (!isRead(first.meta)) return capital(edge);
  const near = a.block.rank === b.block.rank;
  const reader = isNetwork(a) ? theNetwork : near ? `block ${a.block.index}` : `rank ${a.block.rank}`;
  return writtenBefore
    ? `The ${verb(second.meta)} overwrites what ${reader} read before, and nothing orders the reuse: ${edge}`
    : `Either the load comes too early, or the ${verb(second.meta)} overwrites what ${reader} still needs: ${edge}`;
}

/** A copy or fill that a host has enqueued. */
const isOfStream = ({ block: { launch, owner } }: Actor): boolean => launch === null && !owner.ofHost;
const isNetwork = ({ block }: Actor): boolean => block.launch?.kernel === theNetwork;

function edgeBetween(a: Actor, b: Actor): string {
  const [from, to] = [a.block, b.block];
  if (isNetwork(a))
    return 'the network is done there only for who acquires a signal behind it, or hears its tag, and nothing leads on from that.';
  if (isNetwork(b))
    return 'the network may read and write there from when it was asked to, and nothing orders the first access before that.';
  if (from.rank !== to.rank && (isOfStream(a) || isOfStream(b))) {
    return (
      `nothing leads from stream ${from.owner.id} of rank ${from.rank} to stream ${to.owner.id} of rank ${to.rank}: record an ` +
      'event after the first and let the other stream wait for it, or let a host wait in between.'
    );
  }
  if (from.rank !== to.rank) {
    return (
      `no release → acquire at sys scope leads from rank ${from.rank}, after the first access, ` +
      `to rank ${to.rank}, before the second.`
    );
  }
  if (from.owner.ofHost || to.owner.ofHost) {
    return (
      `hosts run beside the streams of their GPU, and no release → acquire at sys scope leads from ${programOf(a)}, after ` +
      `the first access, to ${programOf(b)}, before the second.`
    );
  }
  if (from.owner !== to.owner) {
    return (
      `streams ${from.owner.id} and ${to.owner.id} of rank ${from.rank} run side by side; record an ` +
      'event after the first and let the other stream wait for it.'
    );
  }
  return (
    'blocks of one launch run in any order, and no release → acquire at gpu scope leads from the ' +
    `first access (block ${from.index}) to the second (block ${to.index}).`
  );
}

const programOf = ({ block: { launch, owner } }: Actor): string => launch?.kernel ?? `stream ${owner.id}`;

type Test = (seen: Observation) => boolean;

const earliest = (observations: readonly Observation[], test: Test): Observation | undefined =>
  observations.filter(test).sort((a, b) => a.order - b.order)[0];
const latest = (observations: readonly Observation[], test: Test): Observation | undefined =>
  observations.filter(test).sort((a, b) => b.order - a.order)[0];

const verb = (meta: number): string => ({ read: 'load', write: 'store', update: 'atomic' })[kindOf(meta)];

const placed = (a: Actor, b: Actor): string => {
  const apart = distance(a, b);
  if (apart > gpu) return a.block.rank === b.block.rank ? 'on another processor' : 'on another rank';
  return apart === gpu ? 'in another block' : 'in the same block';
};

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
