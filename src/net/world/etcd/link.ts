import { messageOf, RendezvousError } from '../../../base/errors.js';
import type { Membership } from '../environment.js';
import { type Call, Exchange, type Seat } from '../exchange.js';
import type { Hearer, Link } from '../link.js';
import { passing, toError } from '../participant.js';
import type { EtcdAddress } from './address.js';
import { EtcdWorld } from './world.js';

/** A call of this rank that lies in etcd. */
interface Written {
  readonly n: number;
  readonly revision: number;
}

/** How long leaving may take. */
const LEAVE_MS = 2_000;

/**
 * The rendezvous in etcd. Every rank has an exchange of its own, and tells it what all ranks did in the order in which etcd took
 * it. The copies hear the same, so they come to the same; what a clock says (a rank that is late, a lease that ended) becomes
 * such a record first. So there is no process that must not fall, and nobody is elected.
 */
export class EtcdLink implements Link {
  readonly #world: EtcdWorld;
  readonly #lossTimeoutMs: number;
  readonly #timeoutMs: number;
  /** This rank's number when the world began, as etcd's keys and `#reads` have it. */
  readonly #origin: number;
  #exchange: Exchange;
  #hearer!: Hearer;
  /** Written one after the other: the order of a rank's calls counts. */
  #writing: Promise<void> = Promise.resolve();
  #calls = 0;
  #written: Written[] = [];
  /** Up to which revision each rank that is here has read. */
  readonly #reads = new Map<number, number>();
  #waitingSince: number | null = null;
  /** Or is of no use any more. */
  #left = false;
  readonly #patience: ReturnType<typeof setInterval>;

  private constructor(place: Membership, world: EtcdWorld, lossTimeoutMs: number, timeoutMs: number) {
    this.#world = world;
    this.#origin = place.rank;
    this.#lossTimeoutMs = lossTimeoutMs;
    this.#timeoutMs = timeoutMs;
    this.#exchange = new Exchange(place.ranks);
    this.#exchange.onLate = (ranks, why) => this.#late(ranks, why);
    for (let rank = 0; rank < place.ranks; rank++) this.#reads.set(rank, 0);
    this.#exchange.sit(place.rank, this.#seat());
    this.#patience = setInterval(() => this.#lookAtClock(), Math.min(lossTimeoutMs, timeoutMs) / 4).unref();
  }

  static async join<T>(
    place: Membership & { readonly etcd: EtcdAddress },
    { timeoutMs, lossTimeoutMs }: { readonly timeoutMs: number; readonly lossTimeoutMs: number },
    welcomed: (link: EtcdLink) => T,
  ): Promise<T> {
    const world = await EtcdWorld.open({ ...place, lossTimeoutMs }, timeoutMs);
    passing('join', 'ready');
    try {
      await world.join(place.rank, timeoutMs);
    } catch (error) {
      world.close();
      throw error;
    }
    const link = new EtcdLink(place, world, lossTimeoutMs, timeoutMs);
    const joined = welcomed(link);
    link.#read();
    return joined;
  }

  hear(hearer: Hearer): void {
    this.#hearer = hearer;
  }

  arrive({ id, kind, operation, timeoutMs, bytes }: Call): void {
    const own = bytes.slice(); // the caller may reuse them as soon as the call returns
    this.#write(async () => {
      // Every rank deletes what all have read: a newcomer to etcd's history needs only the rest.
      const readByAll = Math.min(...this.#reads.values());
      this.#written = this.#written.filter(({ revision }) => revision > readByAll);
      const n = this.#calls++;
      const message = { type: 'arrive', id, kind, operation, timeoutMs } as const;
      const kept = this.#written[0]?.n ?? n;
      const revision = await this.#world.say(this.#origin, n, kept, message, own, this.#world.applied);
      this.#written.push({ n, revision });
    });
  }

  giveUp(ranks: readonly number[], reason: string): void {
    const lost = ranks.map((rank) => this.#exchange.origins[rank]!);
    this.#write(() => this.#world.judge(lost, reason, { by: this.#origin }));
  }

  async leave(): Promise<void> {
    this.#exchange.close();
    clearInterval(this.#patience);
    if (this.#left) return;
    this.#left = true;
    this.#write(() => this.#world.leave(this.#origin));
    this.#world.keepAlive(true);
    const timer = setTimeout(() => this.#world.close(), LEAVE_MS);
    await this.#writing;
    clearTimeout(timer);
    this.#world.close();
  }

  keepAlive(yes: boolean): void {
    this.#waitingSince = yes ? (this.#waitingSince ?? performance.now()) : null;
    this.#world.keepAlive(yes);
  }

  #read(): void {
    const at = (origin: number) => this.#exchange.origins.indexOf(origin);
    const gone = (origin: number) => this.#reads.delete(origin);
    this.#world.start({
      came: (origin) => this.#seatOther(at(origin)),
      said: (origin, message, bytes, read) => {
        if (at(origin) < 0 || message.type !== 'arrive') return;
        this.#seatOther(at(origin));
        if (this.#reads.has(origin)) this.#reads.set(origin, read);
        this.#exchange.arrive(at(origin), { ...message, bytes });
      },
      left: (origin) => {
        gone(origin);
        if (at(origin) >= 0) this.#exchange.leave(at(origin));
      },
      lost: (origins, why) => {
        for (const origin of origins) gone(origin);
        this.#exchange.lose(
          origins.map(at).filter((rank) => rank >= 0),
          why,
        );
      },
      over: (error) => this.#isOver(error),
    });
  }

  /** This rank's: what it hears goes to its circle. */
  #seat(): Seat {
    return {
      completed: (id, parts) => this.#hearer.completed(id, [...parts]),
      failed: (id, loss) => this.#hearer.failed(id, loss),
      lost: (loss) => this.#hearer.lost(toError(loss)),
      renewed: (next, members) => {
        this.#exchange = next;
        this.#hearer.renewed(members);
        next.sit(next.origins.indexOf(this.#origin), this.#seat());
      },
    };
  }

  /** Another rank has a seat in its own copy, and only a name in this. */
  #seatOther(rank: number): void {
    if (rank < 0 || this.#exchange.has(rank)) return;
    const nothing = () => {};
    const renewed: Seat['renewed'] = (next, members) => next.sit(members.indexOf(rank), other);
    const other: Seat = { completed: nothing, failed: nothing, lost: nothing, renewed };
    this.#exchange.sit(rank, other);
  }

  /** This clock says so. Where etcd was away, others may not have been able to say what they did: it counts anew. */
  #late(ranks: readonly number[], why: string): void {
    if (performance.now() - this.#world.failedAt < this.#lossTimeoutMs) return;
    const { applied } = this.#world;
    const given = (rank: number) => [this.#world.silentSince(rank, applied)];
    this.#world.judge(ranks, why, { by: this.#origin, given, once: true }).catch(() => {});
  }

  /** Only a call that waits needs etcd: a world that works on does without it, for as long as it is away. */
  #lookAtClock(): void {
    if (this.#waitingSince === null) return;
    const silentMs = performance.now() - Math.max(this.#waitingSince, this.#world.answeredAt);
    if (silentMs < Math.max(this.#timeoutMs, this.#lossTimeoutMs)) return;
    const silent = `${this.#world.where} has not answered for ${Math.round(silentMs)} ms; this world cannot go on`;
    this.#isOver(new RendezvousError(silent));
  }

  #isOver(error: RendezvousError): void {
    if (this.#left) return;
    this.#left = true;
    clearInterval(this.#patience);
    this.#world.close();
    this.#hearer.ended(error);
    this.#hearer.lost(error);
  }

  #write(what: () => Promise<void>): void {
    this.#writing = this.#writing.then(what).catch((error: unknown) => {
      this.#isOver(error instanceof RendezvousError ? error : new RendezvousError(messageOf(error)));
    });
  }
}
