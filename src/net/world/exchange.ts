import { maxWorldRanks } from '../../gpu/index.js';

/** The most bytes that one rank may bring to one allGather. */
export const MAX_PAYLOAD = 1 << 20;
/** The most ranks in a circle: with MAX_PAYLOAD it bounds every message. */
export const MAX_RANKS = maxWorldRanks;
/** The longest name of an operation, in UTF-16 units. */
export const MAX_NAME = 200;
/** The longest delay that a timer of Node.js takes. */
export const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/**
 * The kinds of a call: wait for all; also gather everybody's bytes; gather those of whoever comes; go on without the ranks that are
 * gone; and the same with the outsiders that wait.
 */
export const kinds = ['barrier', 'allGather', 'survey', 'regroup', 'admit'] as const;
export type CallKind = (typeof kinds)[number];

const regroups = (kind: CallKind): boolean => kind === 'regroup' || kind === 'admit';

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
  /** Ranks were lost, so that every call but a regrouping fails, pending or later. Said once for each loss. */
  lost(loss: Loss): void;
  /** The rank goes on in the next exchange, where it has this number. */
  regrouped(next: Exchange, rank: number): void;
  /** So many outsiders wait to be admitted. */
  waiting(outsiders: number): void;
}

/** A rank that waits to be admitted: it was lost, or takes a place that is empty. */
export interface Outsider {
  regrouped: Seat['regrouped'];
  /** Nobody can admit it any more. `why` completes 'the rendezvous says that …'. */
  over(why: string): void;
}

/** A call that some ranks have made and others have not yet. */
interface Round {
  readonly key: string;
  readonly operation: string;
  readonly kind: CallKind;
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
 * A lost rank never comes back, and every call needs every rank; so after a loss each call fails at once. Only regrouping
 * needs no more than those that are left: they go on in an exchange of their own.
 */
export class Exchange {
  readonly #ranks: number;
  readonly #seats = new Map<number, Seat>();
  readonly #left = new Set<number>();
  readonly #lost = new Set<number>();
  #whyLost = '';
  #next: Exchange | null = null;
  /** By origin, in the order in which they came. */
  readonly #outsiders = new Map<number, Outsider>();
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
    if (this.#outsiders.size > 0) seat.waiting(this.#outsiders.size);
  }

  /** Whether every rank has left or is lost. */
  get over(): boolean {
    return this.#numbers.every((rank) => this.#isGone(rank));
  }

  /** An outsider waits. It is called `origin` from then on, as nobody else was before. */
  wait(origin: number, outsider: Outsider): void {
    this.#outsiders.set(origin, outsider);
    this.#tellWaiting();
    this.#endIfOver();
  }

  /** An outsider waits no more. Of no effect on others. */
  withdraw(origin: number): void {
    if (this.#outsiders.delete(origin)) this.#tellWaiting();
  }

  arrive(rank: number, call: Call): void {
    const regrouping = regroups(call.kind);
    // The rank has been told, or is about to hear it.
    if (regrouping ? this.#lost.has(rank) : this.#lost.size > 0) return;
    if (call.kind === 'survey') {
      this.#survey(rank, call);
      return;
    }
    const round = this.#roundFor(rank, call);
    round.arrived.set(rank, call);
    if (regrouping) {
      this.#bound(round, call.timeoutMs);
      this.#regroupIfAllAreHere();
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
    for (const round of [...this.#rounds]) if (!regroups(round.kind)) this.#failIfSomeoneLeft(round);
    this.#regroupIfAllAreHere();
    this.#endIfOver();
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
    for (const round of [...this.#rounds]) if (!regroups(round.kind)) this.#close(round);
    this.#endSurveys();
    for (const [rank, seat] of this.#seats) {
      if (this.#left.has(rank)) continue;
      seat.lost({ ranks: fresh, operation: doing.get(rank) ?? BETWEEN_CALLS, why });
    }
    this.onLost(
      fresh.map((rank) => this.origins[rank]!),
      why,
    );
    this.#regroupIfAllAreHere();
    this.#endIfOver();
  }

  /**
   * Goes on with the ranks and outsiders of these origins, as all have agreed. An outsider's copy of an exchange, which does not know
   * of the calls before, is told so.
   */
  become(origins: readonly number[]): Exchange {
    this.close();
    const next = new Exchange(origins.length, origins);
    this.#next = next;
    next.onLost = this.onLost;
    next.onLate = this.onLate;
    for (const [origin, outsider] of this.#outsiders)
      if (!origins.includes(origin)) next.#outsiders.set(origin, outsider);
    for (const [rank, origin] of origins.entries())
      (this.#outsiders.get(origin) ?? this.#seats.get(this.origins.indexOf(origin)))?.regrouped(next, rank);
    this.#outsiders.clear();
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
      kind: call.kind,
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
      (rank) => !round.arrived.has(rank) && !(regroups(round.kind) && this.#isGone(rank)),
    );
  }

  get #numbers(): number[] {
    return Array.from({ length: this.#ranks }, (_, rank) => rank);
  }

  #isGone(rank: number): boolean {
    return this.#lost.has(rank) || this.#left.has(rank);
  }

  #regroupIfAllAreHere(): void {
    const round = [...this.#rounds].find((r) => regroups(r.kind) && this.#missingFrom(r).length === 0);
    if (round === undefined) return;
    const members = this.#numbers.filter((rank) => !this.#isGone(rank));
    // The last one fell while it waited.
    if (members.length === 0) return;
    const room = round.kind === 'admit' ? MAX_RANKS - members.length : 0;
    const admitted = [...this.#outsiders.keys()].slice(0, room);
    this.become([...members.map((rank) => this.origins[rank]!), ...admitted]);
  }

  #tellWaiting(): void {
    for (const [rank, seat] of this.#seats) if (!this.#isGone(rank)) seat.waiting(this.#outsiders.size);
  }

  #endIfOver(): void {
    if (!this.over) return;
    for (const outsider of this.#outsiders.values())
      outsider.over('its world is over: all of its ranks have left or are lost');
    this.#outsiders.clear();
  }

  /**
   * The ranks that are lost when a round's time is over: the missing ranks, but not those that wait elsewhere, for they
   * are alive. When all wait, some made a call that the others did not; then the fullest round is right, and of two the one in which
   * ranks go on.
   */
  #toBlame(round: Round): number[] {
    const rounds = [...this.#rounds];
    const silent = this.#missingFrom(round).filter((rank) => !rounds.some((r) => r.arrived.has(rank)));
    if (silent.length > 0) return silent;
    const weight = ({ arrived, kind }: Round) => 2 * arrived.size + Number(regroups(kind));
    return this.#missingFrom(rounds.reduce((best, r) => (weight(r) > weight(best) ? r : best)));
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
