import { messageOf, RendezvousError } from '../../../base/errors.js';
import { type CircleEvents, type FarLink, passing } from '../circle.js';
import type { Place } from '../environment.js';
import { type Call, Exchange, type Outsider, type Seat } from '../exchange.js';
import type { Message } from '../messages.js';
import type { EtcdAddress } from './address.js';
import { EtcdWorld } from './world.js';

/** A call of this rank: when it was made, and its revision once it lies in etcd. */
interface Written {
  readonly n: number;
  readonly at: number;
  revision: number;
}

/** How long leaving may take. */
const LEAVE_MS = 2_000;

/** The `welcomed` link reads what came from the beginning on. */
export async function joinEtcd<T>(
  place: Place & { readonly etcd: EtcdAddress },
  welcomed: (link: FarLink) => T,
): Promise<T> {
  const { timeoutMs } = place;
  const world = await EtcdWorld.open(place, timeoutMs);
  passing('join', 'ready');
  let me = place.rank;
  try {
    if (place.outside) me = await world.joinAnew(timeoutMs);
    else await world.join(me, timeoutMs);
  } catch (error) {
    world.close();
    throw error;
  }
  const { link, read } = linkOver(world, me, place);
  const joined = welcomed(link);
  read();
  return joined;
}

/**
 * The rendezvous in etcd. Every rank has an exchange of its own, and tells it what all ranks did in the order in which etcd took
 * it. The copies hear the same, so they come to the same; what a clock says (a rank that is late, a lease that ended) becomes
 * such a record first. So there is no process that must not fall, and nobody is elected.
 *
 * `me`: this rank's origin, as etcd's keys and `reads` have it.
 */
function linkOver(world: EtcdWorld, me: number, { name, outside, timeoutMs, lossTimeoutMs }: Place) {
  let events!: CircleEvents;
  /** Whether this rank is admitted. Until then it does not know of the others' calls. */
  let admitted = !outside;
  /** Ranks that were lost, with the reason, or have left. */
  const gone = new Map<number, string | null>();
  /** Where this rank sits or waits, or sat last: `exchange.latest` is that of those who went on without it. */
  let exchange = new Exchange(world.ranks);
  exchange.onLate = late;
  /** Written one after the other: the order of a rank's calls counts. */
  let writing: Promise<void> = Promise.resolve();
  let calls = 0;
  let written: Written[] = [];
  /** Up to which revision each rank that is here has read. */
  const reads = new Map<number, number>();
  let waitingSince: number | null = null;
  /** Or is of no use any more. */
  let left = false;
  if (admitted) for (const rank of exchange.origins) reads.set(rank, 0);
  const patience = setInterval(lookAtClock, Math.min(lossTimeoutMs, timeoutMs) / 4).unref();

  function read(): void {
    const at = (origin: number) => exchange.latest.origins.indexOf(origin);
    const go = (origin: number, why: string | null) => {
      reads.delete(origin);
      gone.set(origin, why);
      exchange.latest.withdraw(origin);
      if (!admitted && origin === me) isOver(refusal(`it is lost: ${why}`));
    };
    world.start({
      came: (origin) => seatOther(at(origin)),
      said: (origin, message, bytes, read) => {
        if (message.type === 'wait') exchange.latest.wait(origin, outsiderOf(origin));
        if (!admitted || at(origin) < 0 || message.type !== 'arrive') return;
        seatOther(at(origin));
        if (reads.has(origin)) reads.set(origin, read);
        exchange.latest.arrive(at(origin), { ...message, bytes });
      },
      regrouped: (origins) => {
        // All others have counted that they come to it.
        if (admitted) return;
        exchange = exchange.become(origins);
        for (const [rank, origin] of origins.entries()) {
          const why = gone.get(origin);
          if (why === null) exchange.leave(rank);
          else if (why !== undefined) exchange.lose([rank], why);
        }
      },
      left: (origin) => {
        go(origin, null);
        if (at(origin) >= 0) exchange.latest.leave(at(origin));
      },
      lost: (origins, why) => {
        for (const origin of origins) go(origin, why);
        exchange.latest.lose(
          origins.map(at).filter((rank) => rank >= 0),
          why,
        );
      },
      over: (error) => isOver(error),
    });
  }

  function goOn(next: Exchange, rank: number): void {
    const { origins } = next;
    const fresh = origins.filter((origin) => !exchange.origins.includes(origin));
    exchange = next;
    for (const origin of origins) if (!reads.has(origin) && !gone.has(origin)) reads.set(origin, 0);
    // Before this rank says anything in the next circle: so an outsider that reads it has missed nothing of that.
    if (admitted && fresh.length > 0) write(() => world.regrouped(origins, fresh[0]!));
    admitted = true;
    events.regrouped(origins, rank);
  }

  function outsiderOf(origin: number): Outsider {
    if (origin === me) return { regrouped: goOn, over: (why) => isOver(refusal(why)) };
    // It does not know of the calls before, so all that do tell it.
    const over = (why: string) => {
      if (admitted && !left) write(() => world.judge([origin], why));
    };
    return { ...other(), over };
  }

  function refusal(why: string): RendezvousError {
    return new RendezvousError(`${name} cannot join at ${world.where}: ${why}`);
  }

  /** Another rank has a seat in its own copy, and only a name in this. */
  function seatOther(rank: number): void {
    const { latest } = exchange;
    if (rank >= 0 && !latest.has(rank)) latest.sit(rank, other());
  }

  function other(): Seat {
    const nothing = () => {};
    const regrouped: Seat['regrouped'] = (next, rank) => next.sit(rank, other);
    const other = { completed: nothing, failed: nothing, lost: nothing, waiting: nothing, regrouped };
    return other;
  }

  /** This clock says so. Where etcd was away, others may not have been able to say what they did: it counts anew. */
  function late(ranks: readonly number[], why: string): void {
    if (performance.now() - world.failedAt < lossTimeoutMs) return;
    const { applied } = world;
    const given = (rank: number) => [world.silentSince(rank, applied)];
    world.judge(ranks, why, { by: me, given, once: true }).catch(() => {});
  }

  /** Only a call that waits needs etcd: a world that works on does without it, for as long as it is away. */
  function lookAtClock(): void {
    if (waitingSince === null) return;
    const unread = written.find(({ revision }) => revision > world.applied);
    const since = Math.max(waitingSince, unread?.at ?? world.answeredAt);
    const ms = Math.round(performance.now() - since);
    if (ms < Math.max(timeoutMs, lossTimeoutMs)) return;
    const silent = Number.isFinite(unread?.revision)
      ? "has not told of this rank's own call"
      : 'has not answered';
    isOver(new RendezvousError(`${world.where} ${silent} for ${ms} ms; this world cannot go on`));
  }

  function isOver(error: RendezvousError): void {
    if (left) return;
    left = true;
    clearInterval(patience);
    world.close();
    events.ended(error);
    events.lost(error);
  }

  function write(what: () => Promise<void>): void {
    writing = writing.then(what).catch((error: unknown) => {
      isOver(error instanceof RendezvousError ? error : new RendezvousError(messageOf(error)));
    });
  }

  const link: FarLink = {
    /** In each of its circles the rank has a seat. */
    hear(heard) {
      events = heard;
      if (admitted) exchange.sit(exchange.origins.indexOf(me), { ...heard, regrouped: goOn });
    },

    arrive({ id, kind, operation, timeoutMs, bytes }: Call): void {
      const own = bytes.slice(); // the caller may reuse them as soon as the call returns
      write(async () => {
        // Every rank deletes what all have read: who is new to etcd's history needs only the rest.
        const readByAll = Math.min(...reads.values());
        written = written.filter(({ revision }) => revision > readByAll);
        const n = calls++;
        const message: Message = admitted
          ? { type: 'arrive', id, kind, operation, timeoutMs }
          : { type: 'wait', name };
        const mine = { n, at: performance.now(), revision: Number.POSITIVE_INFINITY };
        written.push(mine);
        const kept = written[0]!.n;
        mine.revision = await world.say(me, n, kept, message, own, world.applied);
      });
    },

    giveUp(ranks: readonly number[], reason: string): void {
      const lost = ranks.map((rank) => exchange.origins[rank]!);
      write(() => world.judge(lost, reason, { by: me }));
    },

    async leave(): Promise<void> {
      exchange.close();
      clearInterval(patience);
      if (left) return;
      left = true;
      write(() => world.leave(me));
      await world.closeAfter(writing, LEAVE_MS);
    },

    keepAlive(yes: boolean): void {
      waitingSince = yes ? (waitingSince ?? performance.now()) : null;
      world.keepAlive(yes);
    },
  };
  return { link, read };
}
