import { messageOf, RendezvousError } from '../../../base/errors.js';
import { type Hearer, type Link, passing, toError } from '../circle.js';
import type { Membership } from '../environment.js';
import { type Call, Exchange, type Newcomer, type Seat } from '../exchange.js';
import type { Message } from '../messages.js';
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
  /** This rank's number when the world began, or a newcomer's own, as etcd's keys and `#reads` have it. */
  readonly #origin: number;
  /** What a newcomer says of itself; null once it is taken in. Until then it does not know of the others' calls. */
  #newcomer: Extract<Message, { type: 'wait' }> | null;
  /** Ranks that were lost, with the reason, or have left. */
  readonly #gone = new Map<number, string | null>();
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

  private constructor(
    { rank, ranks, newcomer: group, rejoin }: Membership,
    origin: number,
    world: EtcdWorld,
    lossTimeoutMs: number,
    timeoutMs: number,
  ) {
    this.#world = world;
    this.#origin = origin;
    const rejoins = rejoin !== undefined;
    this.#newcomer = group === undefined ? null : { type: 'wait', group, rank, ranks, rejoins };
    this.#lossTimeoutMs = lossTimeoutMs;
    this.#timeoutMs = timeoutMs;
    this.#exchange = new Exchange(world.ranks);
    this.#exchange.onLate = (ranks, why) => this.#late(ranks, why);
    if (this.#newcomer === null) {
      for (const rank of this.#exchange.origins) this.#reads.set(rank, 0);
      this.#exchange.sit(rank, this.#seat());
    }
    this.#patience = setInterval(() => this.#lookAtClock(), Math.min(lossTimeoutMs, timeoutMs) / 4).unref();
  }

  static async join<T>(
    place: Membership & { readonly etcd: EtcdAddress },
    { timeoutMs, lossTimeoutMs }: { readonly timeoutMs: number; readonly lossTimeoutMs: number },
    welcomed: (link: EtcdLink) => T,
  ): Promise<T> {
    const world = await EtcdWorld.open({ ...place, lossTimeoutMs }, timeoutMs);
    passing('join', 'ready');
    let origin = place.rank;
    try {
      if (place.newcomer === undefined) await world.join(origin, timeoutMs);
      else origin = await world.joinAnew(timeoutMs);
    } catch (error) {
      world.close();
      throw error;
    }
    const link = new EtcdLink(place, origin, world, lossTimeoutMs, timeoutMs);
    const joined = welcomed(link);
    link.#read();
    return joined;
  }

  /** Sets who hears what comes, from now on. */
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
      const message = this.#newcomer ?? ({ type: 'arrive', id, kind, operation, timeoutMs } as const);
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
    const gone = (origin: number, why: string | null) => {
      this.#reads.delete(origin);
      this.#gone.set(origin, why);
      this.#exchange.withdraw(origin);
      if (this.#newcomer !== null && origin === this.#origin)
        this.#isOver(this.#refusal(`it is lost: ${why}`));
    };
    this.#world.start({
      came: (origin) => this.#seatOther(at(origin)),
      said: (origin, message, bytes, read) => {
        if (message.type === 'wait') this.#exchange.wait(origin, this.#newcomerOf(origin, message));
        if (this.#newcomer !== null || at(origin) < 0 || message.type !== 'arrive') return;
        this.#seatOther(at(origin));
        if (this.#reads.has(origin)) this.#reads.set(origin, read);
        this.#exchange.arrive(at(origin), { ...message, bytes });
      },
      renewed: (origins) => {
        // All others have counted that they come to it.
        if (this.#newcomer === null) return;
        this.#exchange = this.#exchange.become(origins);
        for (const [rank, origin] of origins.entries()) {
          const why = this.#gone.get(origin);
          if (why === null) this.#exchange.leave(rank);
          else if (why !== undefined) this.#exchange.lose([rank], why);
        }
      },
      left: (origin) => {
        gone(origin, null);
        if (at(origin) >= 0) this.#exchange.leave(at(origin));
      },
      lost: (origins, why) => {
        for (const origin of origins) gone(origin, why);
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
      renewed: (next, rank) => this.#goOn(next, rank),
      waiting: (newcomers, rejoining) => this.#hearer.waiting(newcomers, rejoining),
    };
  }

  #goOn(next: Exchange, rank: number): void {
    const { origins } = next;
    const fresh = origins.filter((origin) => !this.#exchange.origins.includes(origin));
    this.#exchange = next;
    for (const origin of origins)
      if (!this.#reads.has(origin) && !this.#gone.has(origin)) this.#reads.set(origin, 0);
    // Before this rank says anything in the next circle: so a newcomer that reads it has missed nothing of that.
    if (this.#newcomer === null && fresh.length > 0)
      this.#write(() => this.#world.renewed(origins, fresh[0]!));
    this.#newcomer = null;
    this.#hearer.renewed(origins, rank);
    next.sit(rank, this.#seat());
  }

  #newcomerOf(origin: number, { group, rank, ranks, rejoins }: Extract<Message, { type: 'wait' }>): Newcomer {
    const place = { group, rank, ranks, rejoins };
    if (origin === this.#origin)
      return {
        ...place,
        renewed: (next, number) => this.#goOn(next, number),
        over: (why) => this.#isOver(this.#refusal(why)),
      };
    // It does not know of the calls before, so all that do tell it.
    const over = (why: string) => {
      if (this.#newcomer === null && !this.#left) this.#write(() => this.#world.judge([origin], why));
    };
    return { ...place, ...this.#other(), over };
  }

  #refusal(why: string): RendezvousError {
    const { group } = this.#newcomer!;
    return new RendezvousError(`newcomer ${group} cannot join at ${this.#world.where}: ${why}`);
  }

  /** Another rank has a seat in its own copy, and only a name in this. */
  #seatOther(rank: number): void {
    if (rank >= 0 && !this.#exchange.has(rank)) this.#exchange.sit(rank, this.#other());
  }

  #other(): Seat {
    const nothing = () => {};
    const renewed: Seat['renewed'] = (next, rank) => next.sit(rank, other);
    const other = { completed: nothing, failed: nothing, lost: nothing, waiting: nothing, renewed };
    return other;
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
