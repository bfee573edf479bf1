import { maxWorldRanks } from '../../gpu/index.js';

/** The most bytes that one rank may bring to one allGather. */
export const MAX_PAYLOAD = 1 << 20;
/** The most ranks in a circle: with MAX_PAYLOAD it bounds every message. */
export const MAX_RANKS = maxWorldRanks;
/** The longest name of an operation, in UTF-16 units. */
export const MAX_NAME = 200;
/** The longest delay that a timer of Node.js takes. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/** Those that wait and are taken in by a renewal: processes that are to be ranks of a new world, or ranks that were left out of this one. */
export const takesIn = ['newcomers', 'rejoining', 'nobody'] as const;
export type TakesIn = (typeof takesIn)[number];

/** The kinds of a call: wait for all, also gather everybody's bytes, gather those of whoever comes, or go on without those that are gone and with those that it takes in. */
export const kinds = ['barrier', 'allGather', 'survey', ...takesIn] as const;
export type CallKind = (typeof kinds)[number];

const takenInBy = (kind: CallKind): TakesIn | null => takesIn.find((who) => who === kind) ?? null;

/** One rank's arrival at a call. `id` is that rank's own number for it; answers carry it back. */
export interface Call {
  readonly id: number;
  readonly kind: CallKind;
  readonly operation: string;
  readonly bytes: Uint8Array;
  readonly timeoutMs: number;
}

/** Ranks that are gone, what the others were doing, and how it was noticed. */
export interface Loss {
  readonly ranks: readonly number[];
  readonly operation: string;
  readonly why: string;
}

/** How the exchange speaks to one rank. */
export interface Seat {
  /** A call is complete; the parts are everybody's bytes, by rank. */
  completed(id: number, parts: readonly Uint8Array[]): void;
  /** A call can never complete, because ranks that it needs left in good order. */
  failed(id: number, loss: Loss): void;
  /** Ranks were lost, so that every call but a renewal fails, pending or later. Said once for each loss. */
  lost(loss: Loss): void;
  /** A renewal is complete: the rank goes on in the next exchange, where it has this number. */
  renewed(next: Exchange, rank: number): void;
  /** So many newcomers wait to be taken in, and so many ranks that come back. */
  waiting(newcomers: number, rejoining: number): void;
}

/** A process that waits to be taken in. Those of a group, by its name, are taken in together, when all ranks of it are there. */
export interface Newcomer {
  readonly group: string;
  /** In its group, and how many that has. */
  readonly rank: number;
  readonly ranks: number;
  /** It was a rank of this world, or takes the place of one. */
  readonly rejoins: boolean;
  renewed: Seat['renewed'];
  /** Nobody can take it in any more. `why` completes 'the rendezvous says that …'. */
  over(why: string): void;
}

/** A call that some ranks have made and others have not yet. */
interface Round {
  readonly key: string;
  readonly operation: string;
  /** Of a renewal, which needs only those that are left. */
  readonly takesIn: TakesIn | null;
  readonly arrived: Map<number, Call>;
  deadline: number;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** The operation that errors name for survivors when none of them waited for anything. */
const BETWEEN_CALLS = 'work between calls';

/** A timer that comes so much later than it was set for shows that the process stood still. */
const stoodStillMs = 50;

/**
 * Where the ranks of one world meet: it matches their calls, bounds their waits and spreads the news of a
 * loss. It knows nothing of sockets, so ranks in one process and ranks across machines share every rule.
 *
 * A lost rank never comes back, and every call needs every rank; so after a loss each call fails at once. Only a renewal
 * needs no more than those that are left: they go on in an exchange of their own.
 */
export class Exchange {
  readonly #ranks: number;
  readonly #seats = new Map<number, Seat>();
  readonly #left = new Set<number>();
  readonly #lost = new Set<number>();
  #whyLost = '';
  #next: Exchange | null = null;
  /** A new world than that which began: ranks of the old one have no place in it to come back to. */
  #isNew = false;
  /** By origin, in the order in which they came. */
  readonly #newcomers = new Map<number, Newcomer>();
  /** What ranks have said in surveys since all last met, and those that wait for the others' words. */
  readonly #said = new Map<number, Uint8Array>();
  readonly #surveys = new Map<
    number,
    { readonly id: number; readonly timer: ReturnType<typeof setTimeout> }
  >();
  /** Oldest first. Equal keys keep the order of the calls, because every rank joins the first it lacks. */
  readonly #rounds = new Set<Round>();

  /** Hears of every loss, for whoever keeps the ranks. */
  onLost: (ranks: readonly number[], why: string) => void = () => {};

  /**
   * Hears of ranks that did not come in time, instead of their being lost at once: for an exchange of which each rank has a copy,
   * whose copies agree first. The process need not stay for that. As `onLost` it counts as when the world began.
   */
  onLate: ((ranks: readonly number[], why: string) => void) | undefined;

  /** `origins`: what its ranks were numbered when the world began, where that is another number. */
  constructor(
    ranks: number,
    readonly origins: readonly number[] = Array.from({ length: ranks }, (_, rank) => rank),
  ) {
    this.#ranks = ranks;
  }

  /** Whether the rank sits, or sat, here. */
  has(rank: number): boolean {
    return this.#seats.has(rank);
  }

  /** This one, or that of those who went on last. */
  get latest(): Exchange {
    return this.#next?.latest ?? this;
  }

  get complete(): boolean {
    return this.#seats.size === this.#ranks;
  }

  get lost(): readonly number[] {
    return [...this.#lost].sort((a, b) => a - b);
  }

  /** The rank comes; it hears at once of what was lost before. */
  sit(rank: number, seat: Seat): void {
    this.#seats.set(rank, seat);
    if (this.#lost.size > 0) seat.lost({ ranks: this.lost, operation: BETWEEN_CALLS, why: this.#whyLost });
    if (this.#newcomers.size > 0) seat.waiting(...this.#waiting);
  }

  /** A newcomer is ready. It is called `origin` from then on, as nobody else was before. */
  wait(origin: number, newcomer: Newcomer): void {
    this.#newcomers.set(origin, newcomer);
    this.#refuseOldRanks();
    this.#tellOfNewcomers();
    this.#endIfAllAreGone();
  }

  /** A newcomer waits no more. Of no effect on others. */
  withdraw(origin: number): void {
    if (this.#newcomers.delete(origin)) this.#tellOfNewcomers();
  }

  arrive(rank: number, call: Call): void {
    const renewal = takenInBy(call.kind) !== null;
    // The rank has been told, or is about to hear it.
    if (renewal ? this.#lost.has(rank) : this.#lost.size > 0) return;
    if (call.kind === 'survey') {
      this.#survey(rank, call);
      return;
    }
    const round = this.#roundFor(rank, call);
    round.arrived.set(rank, call);
    if (renewal) {
      this.#bound(round, call.timeoutMs);
      this.#renewIfAllAreHere();
      return;
    }
    if (round.arrived.size === this.#ranks) {
      this.#close(round);
      this.#said.clear();
      const parts = Array.from({ length: this.#ranks }, (_, r) => round.arrived.get(r)!.bytes);
      // Rank 0 last: it may host this exchange, and may end as soon as it has its own answer.
      for (let r = this.#ranks - 1; r >= 0; r--) {
        this.#seats.get(r)?.completed(round.arrived.get(r)!.id, parts);
      }
      return;
    }
    if (!this.#failIfSomeoneLeft(round)) this.#bound(round, call.timeoutMs);
  }

  /** The rank went in good order: only calls that still need it fail. */
  leave(rank: number): void {
    if (this.#lost.has(rank) || this.#left.has(rank)) return;
    this.#left.add(rank);
    for (const round of [...this.#rounds]) if (round.takesIn === null) this.#failIfSomeoneLeft(round);
    this.#renewIfAllAreHere();
    this.#endIfAllAreGone();
  }

  /** A rank says that these are lost. One that is lost itself is not believed: who speaks first is right. */
  giveUp(by: number, ranks: readonly number[], why: string): void {
    if (!this.#lost.has(by)) this.lose(ranks, why);
  }

  /** The ranks are gone for ever, noticed in the way that `why` says. */
  lose(ranks: readonly number[], why: string): void {
    const fresh = ranks.filter(
      (rank) => rank < this.#ranks && !this.#lost.has(rank) && !this.#left.has(rank),
    );
    if (fresh.length === 0) return;
    for (const rank of fresh) this.#lost.add(rank);
    this.#whyLost ||= why;
    const doing = new Map<number, string>();
    for (const { operation, arrived } of this.#rounds) {
      for (const rank of arrived.keys()) if (!doing.has(rank)) doing.set(rank, operation);
    }
    for (const round of [...this.#rounds]) if (round.takesIn === null) this.#close(round);
    this.#endSurveys();
    for (const [rank, seat] of this.#seats) {
      if (this.#left.has(rank)) continue;
      seat.lost({ ranks: fresh, operation: doing.get(rank) ?? BETWEEN_CALLS, why });
    }
    this.onLost(
      fresh.map((rank) => this.origins[rank]!),
      why,
    );
    this.#renewIfAllAreHere();
    this.#endIfAllAreGone();
  }

  /**
   * Those go on, as all have agreed, and some of them may be newcomers. A newcomer's copy of an exchange hears it so, as it does not
   * know of the calls before.
   */
  become(
    origins: readonly number[],
    isNew = !origins.some((origin) => this.#newcomers.get(origin)?.rejoins),
  ): Exchange {
    this.close();
    const next = new Exchange(origins.length, origins);
    this.#next = next;
    next.#isNew = this.#isNew || isNew;
    next.onLost = this.onLost;
    next.onLate = this.onLate;
    for (const [origin, newcomer] of this.#newcomers)
      if (!origins.includes(origin)) next.#newcomers.set(origin, newcomer);
    for (const [rank, origin] of origins.entries())
      (this.#newcomers.get(origin) ?? this.#seats.get(this.origins.indexOf(origin)))?.renewed(next, rank);
    this.#newcomers.clear();
    next.#refuseOldRanks();
    return next;
  }

  /** Forgets every call. Nobody is told anything. */
  close(): void {
    for (const round of [...this.#rounds]) this.#close(round);
    this.#endSurveys();
  }

  #survey(rank: number, { id, bytes, timeoutMs }: Call): void {
    this.#said.set(rank, bytes);
    clearTimeout(this.#surveys.get(rank)?.timer);
    const timer = setTimeout(() => this.#answer(rank), timeoutMs);
    if (this.onLate !== undefined) timer.unref();
    this.#surveys.set(rank, { id, timer });
    // The last one's word would not tell of anybody who has said nothing.
    if (this.#said.size >= this.#ranks - 1)
      for (const asked of [...this.#surveys.keys()]) this.#answer(asked);
  }

  #answer(rank: number): void {
    const { id, timer } = this.#surveys.get(rank)!;
    clearTimeout(timer);
    this.#surveys.delete(rank);
    const nothing = new Uint8Array(0);
    this.#seats.get(rank)?.completed(
      id,
      this.#numbers.map((other) => this.#said.get(other) ?? nothing),
    );
  }

  #endSurveys(): void {
    for (const { timer } of this.#surveys.values()) clearTimeout(timer);
    this.#surveys.clear();
  }

  #roundFor(rank: number, call: Call): Round {
    const key = `${call.kind} ${call.operation}`;
    for (const round of this.#rounds) {
      if (round.key === key && !round.arrived.has(rank)) return round;
    }
    const round: Round = {
      key,
      operation: call.operation,
      takesIn: takenInBy(call.kind),
      arrived: new Map(),
      deadline: Number.POSITIVE_INFINITY,
      timer: undefined,
    };
    this.#rounds.add(round);
    return round;
  }

  /** The shortest patience among those who wait counts. */
  #bound(round: Round, timeoutMs: number): void {
    const deadline = performance.now() + timeoutMs;
    if (deadline >= round.deadline) return;
    clearTimeout(round.timer);
    round.deadline = deadline;
    const expire = () => {
      if (!this.#rounds.has(round)) return;
      const [late, why] = [this.#toBlame(round), `the others waited ${timeoutMs} ms${this.#whereabouts()}`];
      if (this.onLate === undefined) return this.lose(late, why);
      start(timeoutMs, true);
      this.onLate(
        late.map((rank) => this.origins[rank]!),
        why,
      );
    };
    // Perhaps it is this process that stood still: it first hears what the others have sent meanwhile. Where others judge, what
    // ranks of this process have sent may still be on its way to them: then it waits once more, twice as long as it stood.
    const start = (ms: number, mayWait: boolean) => {
      const due = performance.now() + ms;
      const looked = () => {
        const stood = performance.now() - due;
        if (this.onLate !== undefined && mayWait && stood > stoodStillMs) start(2 * stood, false);
        else expire();
      };
      round.timer = setTimeout(() => setImmediate(looked), ms);
      if (this.onLate !== undefined) round.timer.unref();
    };
    start(timeoutMs, true);
  }

  #missingFrom(round: Round): number[] {
    return this.#numbers.filter(
      (rank) => !round.arrived.has(rank) && !(round.takesIn !== null && this.#isGone(rank)),
    );
  }

  get #numbers(): number[] {
    return Array.from({ length: this.#ranks }, (_, rank) => rank);
  }

  #isGone(rank: number): boolean {
    return this.#lost.has(rank) || this.#left.has(rank);
  }

  #renewIfAllAreHere(): void {
    const round = [...this.#rounds].find((r) => r.takesIn !== null && this.#missingFrom(r).length === 0);
    if (round === undefined) return;
    const members = this.#numbers.filter((rank) => !this.#isGone(rank));
    // The last one fell while it waited.
    if (members.length === 0) return;
    const ready = this.#ready(round.takesIn!);
    this.become([...members.map((rank) => this.origins[rank]!), ...ready], round.takesIn === 'newcomers');
  }

  /** The newcomers whose groups are here, in the order in which they were, as far as there is room. */
  #ready(who: TakesIn): number[] {
    if (who === 'nobody') return [];
    const room = MAX_RANKS - this.#numbers.filter((rank) => !this.#isGone(rank)).length;
    const groups = new Map<string, number[]>();
    const ready: number[] = [];
    for (const [origin, { group, rank, ranks, rejoins }] of this.#newcomers) {
      if (rejoins !== (who === 'rejoining')) continue;
      const key = `${ranks} ${group}`;
      const here = groups.get(key) ?? [];
      here[rank] ??= origin;
      groups.set(key, here);
      if (Object.keys(here).length < ranks) continue;
      if (ready.length + ranks <= room) ready.push(...here);
      groups.delete(key);
    }
    return ready;
  }

  #tellOfNewcomers(): void {
    for (const [rank, seat] of this.#seats) if (!this.#isGone(rank)) seat.waiting(...this.#waiting);
  }

  get #waiting(): [newcomers: number, rejoining: number] {
    return [this.#ready('newcomers').length, this.#ready('rejoining').length];
  }

  #endIfAllAreGone(): void {
    if (!this.#numbers.every((rank) => this.#isGone(rank))) return;
    for (const newcomer of this.#newcomers.values())
      newcomer.over('its world is over: all of its ranks have left or are lost');
    this.#newcomers.clear();
  }

  #refuseOldRanks(): void {
    if (!this.#isNew) return;
    for (const [origin, newcomer] of this.#newcomers) {
      if (!newcomer.rejoins) continue;
      this.#newcomers.delete(origin);
      newcomer.over('the others have renewed their world; come as a newcomer (HEDDLE_NEWCOMER)');
    }
  }

  /**
   * The ranks that are lost when a round's time is over: the missing ranks, but not those that wait elsewhere, for they
   * are alive. When all wait, some made a call that the others did not; then the fullest round is right.
   */
  #toBlame(round: Round): number[] {
    const rounds = [...this.#rounds];
    const silent = this.#missingFrom(round).filter((rank) => !rounds.some((r) => r.arrived.has(rank)));
    if (silent.length > 0) return silent;
    return this.#missingFrom(rounds.reduce((best, r) => (r.arrived.size > best.arrived.size ? r : best)));
  }

  /** Tells a rank that never came from ranks in calls of different names, the usual mistake. */
  #whereabouts(): string {
    const absent = this.#numbers.filter((rank) => !this.has(rank));
    const notes = absent.length > 0 ? [`never joined: rank ${absent.join(', ')}`] : [];
    if (this.#rounds.size > 1) {
      for (const { key, arrived } of this.#rounds)
        notes.push(`in ${key}: rank ${[...arrived.keys()].join(', ')}`);
    }
    return notes
      .map((note) => `; ${note}`)
      .join('')
      .slice(0, 1500);
  }

  #failIfSomeoneLeft(round: Round): boolean {
    const ranks = this.#missingFrom(round).filter((rank) => this.#left.has(rank));
    if (ranks.length === 0) return false;
    this.#close(round);
    for (const [rank, call] of round.arrived) {
      if (this.#left.has(rank)) continue;
      this.#seats.get(rank)?.failed(call.id, { ranks, operation: round.operation, why: 'it left the world' });
    }
    return true;
  }

  #close(round: Round): void {
    clearTimeout(round.timer);
    this.#rounds.delete(round);
  }
}
