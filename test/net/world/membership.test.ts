/**
 * Membership without sockets, clocks and devices. Ranks run `step` against the exchange where circles meet, and all that they say, hear and
 * do takes its own time. They fall, fall silent, are left out, do not fit, come back and take empty places.
 */
import { expect, it } from 'vitest';
import { type Call, Exchange, LONGEST_TIMEOUT_MS, type Seat } from '../../../src/net/world/exchange.js';
import {
  type Action,
  type Membership,
  type Message,
  maskedIn,
  membershipOf,
  numbersIn,
  type Standing,
  step,
} from '../../../src/net/world/membership.js';
import { random } from '../../../src/verify/testing/index.js';

/** What a rank says where somebody is new: also how many rounds counted before. */
interface Said extends Standing {
  readonly base: number;
}

/** What it says between rounds: whether it knows of somebody who waits, and whom its program wants to leave out. */
interface Turn {
  readonly waiting: boolean;
  readonly leave: number | null;
  readonly calm: boolean;
}

/** A circle as one of its ranks knows it. */
interface Circle {
  readonly exchange: Exchange;
  readonly number: number;
  /** Whether the rank has heard of a loss here, of its own, and of somebody who waits. */
  lost: boolean;
  own: boolean;
  waiting: boolean;
}

/** What the ranks of a circle went on with. */
interface Outcome {
  readonly masked: readonly number[];
  readonly origins: readonly number[];
  /** The number of rounds that count. */
  readonly base: number;
}

/** The actions in which ranks heard of a loss. */
const lostIn = new Set<string>();

class World {
  readonly ranks: Rank[] = [];
  /** The origins of processes that fell, fell silent, do not fit, or that programs left out. */
  readonly gone = new Set<number>();
  readonly first: Exchange;
  origins: number;
  /** Nothing happens to anybody any more. */
  calm = false;
  readonly #random: ReturnType<typeof random>;
  readonly #counted = new Map<Exchange, number[]>();
  readonly #joined = new Map<Exchange, number[]>();
  readonly outcomes = new Map<Exchange, Outcome[]>();

  constructor(
    seed: number,
    present: number,
    readonly places: number,
  ) {
    this.#random = random(seed);
    this.first = new Exchange(present);
    this.origins = present;
    for (let rank = 0; rank < present; rank++) {
      const membership = membershipOf(this.first.origins, rank, places, false);
      const one = new Rank(this, rank, membership, true);
      one.sit(this.first, rank);
      one.does(() => one.turn());
    }
  }

  below(n: number): number {
    return this.#random.below(n);
  }

  /** The next of somebody's queues moves on. False where there is nothing left to do. */
  moves(): boolean {
    const queues = this.ranks.flatMap(({ queues }) => queues).filter(({ length }) => length > 0);
    if (queues.length === 0) return false;
    queues[this.below(queues.length)]!.shift()!();
    return true;
  }

  /** A process dies, falls silent for the others, or comes. Two may have come for one place, and one may not fit. */
  trouble(): void {
    const one = this.ranks[this.below(this.ranks.length)]!;
    const kind = this.below(3);
    if (kind === 0) one.die();
    else if (kind === 1) this.lose(one);
    else if (this.ranks.filter(({ dead }) => !dead).length <= this.places) {
      const rank = this.below(this.places);
      const outside = membershipOf([...Array(this.places).keys()], rank, this.places, true);
      const came = new Rank(this, rank, outside, this.below(4) > 0);
      came.does(() => came.begin());
    }
  }

  /** The exchange hears twice that it is lost, for example by silence and by what another says. */
  lose({ seat, origin, dead }: Rank): void {
    // One that waits can only end.
    if (seat === null) {
      if (dead) this.first.latest.withdraw(origin);
      return;
    }
    this.gone.add(origin);
    for (const why of ['it is silent', 'it does not answer']) seat.exchange.lose([seat.number], why);
  }

  /** A rank says what it counted: nothing where it is new. */
  agrees({ exchange }: Circle, rank: number, counted: readonly number[] | null): void {
    if (counted === null) this.#joined.set(exchange, [...(this.#joined.get(exchange) ?? []), rank].sort());
    else this.#counted.set(exchange, [...(this.#counted.get(exchange) ?? []), counted[0]!]);
  }

  /** A rank goes on. */
  goesOn(one: Rank, isNew: boolean, done: number, joined: readonly number[]): void {
    const { exchange } = one.circle!;
    const masked = maskedIn(one.state);
    expect(one.fits).toBe(true);
    if (one.leaves !== null) expect(masked).toContain(one.leaves);
    // From the first round on that did not go well somewhere, rounds are repeated.
    expect(done).toBe(Math.min(...this.#counted.get(exchange)!));
    // Who stayed knows of all that came.
    const came = this.#joined.get(exchange) ?? [];
    expect(joined).toEqual(isNew ? [one.rank] : came);
    // Nobody is masked who answers.
    for (const rank of masked) {
      const origin = one.state.origins[rank]!;
      if (origin !== -1) expect(this.gone, `origin ${origin} in the place of rank ${rank}`).toContain(origin);
    }
    // All agree on who takes part, where, and from which round on.
    const outcomes = this.outcomes.get(exchange) ?? [];
    this.outcomes.set(exchange, outcomes);
    outcomes.push({ masked, origins: one.state.origins, base: one.base });
    expect(outcomes.at(-1)).toEqual(outcomes[0]);
    expect(one.state.circle).toEqual(exchange.origins);
    expect(numbersIn(one.state)[one.rank]).toBe(one.circle!.number);
    expect(numbersIn(one.state).filter((number) => number !== -1)).toHaveLength(exchange.origins.length);
  }
}

/** A process, as one rank. */
class Rank {
  dead = false;
  /** The rank that its program leaves out in this change. */
  leaves: number | null = null;
  /** Where the exchange has it, and where it knows that it is. */
  seat: Circle | null = null;
  circle: Circle | null = null;
  origin = -1;
  /** Rounds that count; and rounds that went well here since. */
  base = 0;
  readonly #says: (() => void)[] = [];
  readonly #hears: (() => void)[] = [];
  readonly #does: (() => void)[] = [];
  readonly queues = [this.#says, this.#hears, this.#does];
  #counted = 0;
  /** What it waits for: all ranks' words, or a circle; neither where it works, or has nothing to do. */
  #gathers: ((all: readonly string[]) => void) | null = null;
  #regroups = false;
  rests = false;
  #met: readonly Said[] = [];
  phase = 'rounds';

  constructor(
    readonly world: World,
    readonly rank: number,
    public state: Membership,
    readonly fits: boolean,
  ) {
    world.ranks.push(this);
  }

  does(what: () => void): void {
    if (!this.dead) this.#does.push(what);
  }

  #hear(what: () => void): void {
    if (!this.dead) this.#hears.push(what);
  }

  sit(exchange: Exchange, number: number): Circle {
    const circle = { exchange, number, lost: false, own: false, waiting: false };
    this.seat = circle;
    this.circle ??= circle;
    this.origin = exchange.origins[number]!;
    exchange.sit(number, {
      completed: (_, parts) => this.#hear(() => this.#gathered(parts)),
      failed: () => expect.unreachable('nobody leaves'),
      lost: ({ ranks }) => this.#hear(() => this.#lost(circle, ranks.includes(number))),
      waiting: (outsiders) =>
        this.#hear(() => {
          circle.waiting = outsiders > 0;
          if (circle.waiting) this.#wake();
        }),
      regrouped: this.#regrouped,
    });
    return circle;
  }

  readonly #regrouped: Seat['regrouped'] = (next, number) => {
    const circle = this.sit(next, number);
    this.#hear(() => {
      this.#regroups = false;
      this.circle = circle;
      this.#take({ kind: 'regrouped', circle: next.origins, number });
    });
  };

  #gathered(parts: readonly Uint8Array[]): void {
    const gathers = this.#gathers!;
    this.#gathers = null;
    gathers(parts.map((part) => Buffer.from(part).toString()));
  }

  #lost(circle: Circle, own: boolean): void {
    circle.lost = true;
    circle.own ||= own;
    lostIn.add(this.phase);
    if (this.#gathers !== null) {
      this.#gathers = null;
      if (this.phase === 'rounds') this.begin();
      else this.#take({ kind: 'lost' });
    } else if (this.#regroups && own) {
      this.#regroups = false;
      this.#take({ kind: 'left out' });
    } else this.#wake();
  }

  #wake(): void {
    if (this.rests) this.turn();
  }

  /** Rounds; then all leave out whom the first of them proposes, or admit those that wait. */
  turn(): void {
    this.rests = false;
    this.phase = 'rounds';
    this.leaves = null;
    this.#counted += this.world.below(3);
    const { lost, waiting } = this.circle!;
    if (lost) {
      this.begin();
      return;
    }
    const leave = this.world.calm || this.world.below(9) > 0 ? null : this.world.below(this.world.places);
    this.#gather({ waiting, leave, calm: this.world.calm } satisfies Turn, (all) => {
      const turns = all.map((said) => JSON.parse(said) as Turn);
      const leave = turns.find(({ leave }) => leave !== null)?.leave ?? null;
      if (leave !== null && !maskedIn(this.state).includes(leave)) {
        this.world.gone.add(this.state.origins[leave]!);
        this.leaves = leave;
        this.begin({ leave: [leave] });
      } else if (turns.some(({ waiting }) => waiting)) this.begin({ admit: true });
      else if (turns.every(({ calm }) => calm) && !this.circle!.waiting) this.rests = true;
      else this.does(() => this.turn());
    });
  }

  begin(what: { readonly leave?: readonly number[]; readonly admit?: boolean } = {}): void {
    const brings = { counted: [this.#counted], world: 'nodes', windows: this.fits ? 'all' : 'others' };
    this.#take({ kind: 'begin', brings, ...what });
  }

  /** Some of what it has said is still on its way. */
  die(): void {
    if (this.dead) return;
    this.dead = true;
    this.#hears.length = this.#does.length = 0;
    this.#says.splice(this.world.below(this.#says.length + 1));
    this.#says.push(() => this.world.lose(this));
  }

  #take(message: Message): void {
    const isNew = this.state.out;
    const [state, action] = step(this.state, message);
    this.state = state;
    this.phase = action.kind;
    this.#carryOut(action, isNew);
  }

  #carryOut(action: Action, isNew: boolean): void {
    const { world, circle } = this;
    switch (action.kind) {
      case 'wait outside':
        this.#says.push(() => {
          this.seat = null;
          this.origin = world.origins++;
          const over = () => this.die();
          world.first.latest.wait(this.origin, { regrouped: this.#regrouped, over });
        });
        break;
      case 'regroup': {
        const { exchange, number, own } = circle!;
        const { accuse, admit } = action;
        if (accuse !== null) this.#giveUp(accuse.numbers, accuse.why);
        this.#regroups = !own;
        const call = callOf(admit ? 'admit' : 'regroup');
        if (own) this.#take({ kind: 'left out' });
        else this.#says.push(() => exchange.arrive(number, call));
        break;
      }
      case 'meet':
        this.#gather({ ...action.standing, base: this.base } satisfies Said, (all) => {
          this.#met = all.map((said) => JSON.parse(said) as Said);
          this.#take({ kind: 'met', all: this.#met });
        });
        break;
      case 'fit':
        // Only who is new takes over what the others know.
        expect(action.stayed !== null).toBe(isNew);
        this.does(() => {
          // This rank alone cannot map a window of one that came.
          const number = world.calm || world.below(6) > 0 ? -1 : this.#met.findIndex(({ out }) => out);
          const misfit = number === -1 ? null : { number, why: 'no mapping' };
          if (misfit === null && action.stayed !== null)
            this.base = this.#met[numbersIn(this.state)[action.stayed]!]!.base;
          this.#take({ kind: 'fitted', misfit });
        });
        break;
      case 'prepare':
        expect(action.masked).toEqual(maskedIn(this.state));
        this.does(() => this.#take({ kind: 'prepared' }));
        break;
      case 'agree':
        this.#gather(action.counted, (all) =>
          this.#take({ kind: 'agreed', all: all.map((said) => JSON.parse(said)) }),
        );
        break;
      case 'go on':
        this.base += action.done[0]!;
        this.#counted = 0;
        world.goesOn(this, isNew, action.done[0]!, action.joined);
        this.does(() => this.turn());
        break;
      case 'withdraw':
        world.gone.add(this.origin);
        this.#giveUp([circle!.number], action.why);
        this.#comeBack(this.fits && !action.why.endsWith('already'));
        break;
      case 'sit out':
        this.#comeBack(this.fits);
        break;
    }
  }

  #giveUp(numbers: readonly number[], why: string): void {
    const { exchange, number } = this.circle!;
    for (const of of numbers) this.world.gone.add(exchange.origins[of]!);
    this.#says.push(() => exchange.giveUp(number, numbers, why));
  }

  #comeBack(can: boolean): void {
    expect(this.state.out).toBe(true);
    this.leaves = null;
    this.does(() => (can ? this.begin() : this.die()));
  }

  #gather(said: unknown, gathered: (all: readonly string[]) => void): void {
    const { exchange, number, lost } = this.circle!;
    if (lost) {
      this.#take({ kind: 'lost' });
      return;
    }
    this.#gathers = gathered;
    const call = callOf('allGather', Buffer.from(JSON.stringify(said)));
    this.#says.push(() => {
      if (this.phase === 'agree') this.world.agrees(this.circle!, this.rank, said as readonly number[]);
      exchange.arrive(number, call);
    });
  }
}

/** Every rank makes the same calls one after the other, so that they need no names. */
const callOf = (kind: Call['kind'], bytes = new Uint8Array(0)): Call => ({
  ...{ id: 0, kind, operation: 'the next', bytes, timeoutMs: LONGEST_TIMEOUT_MS },
});

it('ranks agree on who takes part and from which round on, whoever falls, comes or does not fit', () => {
  let changes = 0;
  for (let seed = 0; seed < 150; seed++) {
    const present = 2 + (seed % 5);
    const world = new World(seed, present, present + (seed % 3));
    for (let steps = 0; steps < 600; steps++) {
      if (world.below(40) === 0) world.trouble();
      world.moves();
    }
    world.calm = true;
    for (let steps = 0; world.moves(); steps++) expect(steps).toBeLessThan(10_000);
    // All that live take part in the end.
    const { latest } = world.first;
    const idle = world.ranks.filter(
      ({ dead, rests, seat }) => !dead && !(rests && seat?.exchange === latest),
    );
    expect(
      idle.map(({ rank, phase }) => `${rank}: ${phase}`),
      `seed ${seed}`,
    ).toEqual([]);
    latest.close();
    changes += world.outcomes.size;
  }
  expect(changes).toBeGreaterThan(900);
  expect([...lostIn]).toEqual(
    expect.arrayContaining(['regroup', 'meet', 'fit', 'prepare', 'agree', 'rounds']),
  );
});
