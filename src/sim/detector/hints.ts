/**
 * What would have ordered two racing accesses, in plain words. A hint says only what the detector knows: an
 * observation (a thread read another's atomic write) that did not synchronise is blamed only if, had it
 * synchronised, the two accesses would be ordered. Where nothing is known, the hint names the kind of edge that
 * leads from one such thread to the other.
 */
import type { SiteId } from '../detector.js';
import { bytesOf, isAtomic, isRead, kindOf, sameSize, scopeOf, siteOf } from './access.js';
import { type Actor, distance, gpu, happenedBefore, type Observation, scopeNames } from './actors.js';

/** One side of a race. */
export interface Side {
  readonly by: Actor;
  readonly epoch: number;
  readonly meta: number;
  /** Where it stands, for people: 'dispatch.ts:41:7'. */
  readonly where: string;
}

type Where = (site: SiteId) => string;

export function explain(
  first: Side,
  second: Side,
  observations: readonly Observation[],
  where: Where,
): string {
  return (
    betweenAtomics(first, second) ??
    bulkCopy(first) ??
    brokenSynchronisation(first, second, observations, where) ??
    earlyStart(first, second) ??
    nearMiss(first, second, observations, where) ??
    missingEdge(first, second)
  );
}

function betweenAtomics(first: Side, second: Side): string | null {
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
  return `Both are atomic, but ${whose} while the threads are ${placed(first.by, second.by)}: use ${scopeNames[apart]}.`;
}

function bulkCopy(first: Side): string | null {
  const agent = first.by;
  if (agent.copies === null) return null;
  const issuer = issuerOf(agent);
  if (happenedBefore(agent, first.epoch, issuer)) return null;
  const reads = issuer.agents?.reads;
  if (agent.copies === 'write' && reads !== undefined && happenedBefore(reads, first.epoch, issuer)) {
    return (
      `The bulk copy at ${first.where} was awaited only for its reads (waitReads), so its writes may still be under ` +
      'way: use g.bulk.wait before publishing or reading what it writes.'
    );
  }
  const what = agent.copies === 'write' ? 'g.bulk.wait' : 'g.bulk.waitReads (or wait)';
  return (
    `The bulk copy at ${first.where} is still under way: its thread has not awaited it. Use ${what} before its ` +
    `${agent.copies === 'write' ? 'target is used' : 'source is overwritten'}.`
  );
}

/** An observation from after `first` to before `second` that failed: with it, they would be ordered. */
function brokenSynchronisation(
  first: Side,
  second: Side,
  observations: readonly Observation[],
  where: Where,
): string | null {
  const failed = newest(
    observations,
    (seen) =>
      seen.outcome !== 'synchronised' &&
      seen.write.moment.includes(first.by, first.epoch) &&
      happenedBefore(seen.reader, seen.epoch, issuerOf(second.by)),
  );
  if (failed === null) return null;
  const { write, meta } = failed;
  const writer = write.moment.by;
  const wrote = `the ${verb(write.meta)} at ${where(siteOf(write.meta))}`;
  const read = `the ${verb(meta)} at ${where(siteOf(meta))}`;
  const apart = distance(writer, failed.reader);
  const other = placed(writer, failed.reader);
  switch (failed.outcome) {
    case 'write-scope':
      return (
        `${capital(wrote)} has ${scopeNames[scopeOf(write.meta)]} scope, but ${read} that saw it ran ` +
        `${other}: use ${scopeNames[apart]}.`
      );
    case 'read-scope':
      return (
        `${capital(read)} has ${scopeNames[scopeOf(meta)]} scope, but ${wrote} that it saw came from ` +
        `a thread ${other}: use ${scopeNames[apart]}.`
      );
    case 'sizes':
      return (
        `${capital(read)} reads ${bytesOf(meta)} bytes of what ${wrote} wrote as ${bytesOf(write.meta)}: atomics ` +
        'synchronise only through exactly the same bytes.'
      );
    case 'no-release':
      return (
        `${capital(wrote)} was seen by ${read}, but releases nothing: make it a release, or put ` +
        `g.fence('${scopeNames[apart]}') before it.`
      );
    case 'release-fence-scope':
      return (
        `${capital(wrote)} was seen by ${read} ${other}, but the fence before it is narrower: ` +
        `use g.fence('${scopeNames[apart]}').`
      );
    case 'acquire-fence-scope':
      return (
        `${capital(read)} saw ${wrote} ${other}, but the fence after it is narrower: ` +
        `use g.fence('${scopeNames[apart]}').`
      );
    case 'no-acquire':
      return (
        `${capital(read)} saw ${wrote}, but no acquire comes between it and the later access: make it ` +
        `acquire, or put g.fence('${scopeNames[apart]}') after it.`
      );
  }
  return null;
}

/** Programmatic launches: the only way for two launches of one stream to be unordered. */
function earlyStart(first: Side, second: Side): string | null {
  const [a, b] = [first.by.block, second.by.block];
  if (a.owner !== b.owner || a.step === b.step) return null;
  const [later, earlier] = a.step > b.step ? [first, second] : [second, first];
  const kernel = later.by.block.launch!.kernel;
  return (
    `${kernel} was launched programmatically, before ${earlier.by.block.launch?.kernel ?? 'the copy'} on the same ` +
    `stream had finished, and the ${verb(later.meta)} at ${later.where} is not behind its g.awaitPrevious().`
  );
}

/** A synchronisation that did work, but from too early or to too late. */
function nearMiss(
  first: Side,
  second: Side,
  observations: readonly Observation[],
  where: Where,
): string | null {
  const seen = newest(observations, ({ write, reader, epoch, outcome }) => {
    if (outcome !== 'synchronised') return false;
    const included = write.moment.includes(first.by, first.epoch);
    const reached = happenedBefore(reader, epoch, issuerOf(second.by));
    return (
      (!included && reached && write.moment.by.block === first.by.block) ||
      (included && !reached && reader.block === second.by.block)
    );
  });
  if (seen === null) return null;
  const { write, reader, meta } = seen;
  const writer = write.moment.by;
  const published = `the ${verb(write.meta)} at ${where(siteOf(write.meta))}`;
  if (!happenedBefore(reader, seen.epoch, issuerOf(second.by))) {
    return (
      `Thread ${reader.lane} of the block acquired what would order them (the ${verb(meta)} at ` +
      `${where(siteOf(meta))}), but nothing orders thread ${second.by.lane} after that: a barrier is missing between.`
    );
  }
  if (first.by === writer) {
    return (
      `${capital(published)} reached the other thread, but was made before the ${verb(first.meta)} at ` +
      `${first.where}: publish after it.`
    );
  }
  return (
    `Thread ${writer.lane} of the block published (${published}), but nothing orders the ${verb(first.meta)} of ` +
    `thread ${first.by.lane} at ${first.where} before that: a barrier is missing between.`
  );
}

function missingEdge(first: Side, second: Side): string {
  const [a, b] = [first.by, second.by];
  if (a.block === b.block) {
    const same = a.lane >> 5 === b.lane >> 5 ? 'a warp barrier or a block barrier' : 'a block barrier';
    return `Both threads are in one block, and nothing orders them: ${same} between the two accesses would.`;
  }
  const reuse =
    isRead(first.meta) && !isRead(second.meta)
      ? `The ${verb(second.meta)} overwrites what rank ${a.block.rank} read before, and nothing orders the reuse: `
      : '';
  if (a.block.rank !== b.block.rank) {
    const edge =
      `no release → acquire at sys scope leads from rank ${a.block.rank}, after the first access, ` +
      `to rank ${b.block.rank}, before the second.`;
    return reuse + (reuse === '' ? capital(edge) : edge);
  }
  if (a.block.owner !== b.block.owner) {
    const edge =
      `streams ${a.block.owner.id} and ${b.block.owner.id} of rank ${a.block.rank} run side by side; record an ` +
      'event after the first and let the other stream wait for it.';
    return reuse + (reuse === '' ? capital(edge) : edge);
  }
  const edge =
    'blocks of one launch run in any order, and no release → acquire at gpu scope leads from the ' +
    `first access (block ${a.block.index}) to the second (block ${b.block.index}).`;
  return reuse + (reuse === '' ? capital(edge) : edge);
}

function newest(
  observations: readonly Observation[],
  test: (seen: Observation) => boolean,
): Observation | null {
  let found: Observation | null = null;
  for (const seen of observations) {
    if ((found === null || seen.order > found.order) && test(seen)) found = seen;
  }
  return found;
}

/** Bulk copies know what their thread knows. */
const issuerOf = (actor: Actor): Actor => (actor.copies === null ? actor : actor.block.threads[actor.lane]!);

const verb = (meta: number): string =>
  ({ read: 'load', write: 'store', update: 'atomic', wait: 'wait' })[kindOf(meta)];

const placed = (a: Actor, b: Actor): string =>
  distance(a, b) === gpu
    ? 'in another block'
    : distance(a, b) > gpu
      ? 'on another rank'
      : 'in the same block';

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
