/**
 * Who takes part in a world, and how its ranks agree on that: a function of state and message, without sockets, clocks or devices.
 *
 * All ranks that take part change their membership together, in these phases:
 *
 *   regroup  those that are left form a circle, with the outsiders that they admit
 *   meet     where somebody is new, all say who they are and what they have; who does not fit is lost, with the reason
 *   fit      windows of new processes are mapped, and who is new takes over what all know
 *   prepare  memory is as it was at first, masks are written, proxies begin
 *   agree    all say how many rounds of each layer went well on them: the smallest number counts
 *
 * No kernel runs meanwhile, so masks take effect between the same rounds everywhere. Where a rank falls before all have agreed, all
 * begin again without it.
 *
 * A rank's **origin** is its number when the world began, or the higher one that it got when it was admitted: no two processes that
 * ever waited have the same. Its **number** is its place in the present circle.
 */

export interface Membership {
  readonly rank: number;
  /** By rank: the origin of who was last in that place; −1 where nobody was yet. */
  readonly origins: readonly number[];
  /** By number: the origins of the ranks that take part. */
  readonly circle: readonly number[];
  readonly number: number;
  /** Whether the others go on without this rank. */
  readonly out: boolean;
  readonly change: Change | null;
}

interface Change extends Brought {
  readonly phase: 'regroup' | 'meet' | 'fit' | 'prepare' | 'agree';
  /** Whether somebody is new in the circle: then all meet, also where they begin again. */
  readonly meets: boolean;
  /** The origins when it began. */
  readonly before: readonly number[];
}

/** What a rank brings to a change. */
export interface Brought {
  /** By layer: its rounds that went well on this rank. */
  readonly counted: readonly number[];
  /** Its nodes and layers, which are the same on all ranks. */
  readonly world: string;
  /** The names and sizes of its windows, likewise. */
  readonly windows: string;
}

/** What a rank says of itself where somebody is new. */
export interface Standing extends Pick<Brought, 'world' | 'windows'> {
  readonly out: boolean;
  readonly rank: number;
  readonly origins: readonly number[];
}

/** What happens to a rank. */
export type Message =
  /** The program begins a change: to leave out these ranks, to admit outsiders, to go on without who is lost; or, of a rank that is out, to rejoin. */
  | {
      readonly kind: 'begin';
      readonly brings: Brought;
      readonly leave?: readonly number[];
      readonly admit?: boolean;
    }
  | { readonly kind: 'regrouped'; readonly circle: readonly number[]; readonly number: number }
  | { readonly kind: 'left out' }
  /** By number: what all have said of themselves. */
  | { readonly kind: 'met'; readonly all: readonly Standing[] }
  /** All windows fit, but for one of the rank of this number. */
  | { readonly kind: 'fitted'; readonly misfit: { readonly number: number; readonly why: string } | null }
  | { readonly kind: 'prepared' }
  /** By number: what all have counted; null of who is new. */
  | { readonly kind: 'agreed'; readonly all: readonly (readonly number[] | null)[] }
  /** A rank of the circle was lost, or left, before all had come so far. */
  | { readonly kind: 'lost' };

/** What the rank has to do next. Each but the last three brings a message. */
export type Action =
  | { readonly kind: 'wait outside' }
  /** First it accuses the ranks of these numbers. */
  | { readonly kind: 'regroup'; readonly admit: boolean; readonly accuse: Accusation | null }
  | { readonly kind: 'meet'; readonly standing: Standing }
  /** `stayed`: a rank that has taken part all along, where this one has not. */
  | { readonly kind: 'fit'; readonly stayed: number | null }
  | { readonly kind: 'prepare'; readonly masked: readonly number[] }
  | { readonly kind: 'agree'; readonly counted: readonly number[] | null }
  /** So many rounds of each layer count; these ranks take part again. */
  | { readonly kind: 'go on'; readonly done: readonly number[]; readonly joined: readonly number[] }
  | { readonly kind: 'sit out' }
  /** This rank abandons the circle, since it does not fit. */
  | { readonly kind: 'withdraw'; readonly why: string };

interface Accusation {
  readonly numbers: readonly number[];
  readonly why: string;
}

/** The membership of a rank when its world begins. Places behind the circle's ranks are empty. */
export const membershipOf = (
  circle: readonly number[],
  number: number,
  places: number,
  out: boolean,
): Membership => ({
  ...{ rank: number, number, circle, out, change: null },
  origins: Array.from({ length: places }, (_, rank) => circle[rank] ?? -1),
});

/** The ranks that are left out, in ascending order. */
export const maskedIn = ({ origins, circle }: Pick<Membership, 'origins' | 'circle'>): number[] =>
  [...origins.keys()].filter((rank) => !circle.includes(origins[rank]!));

/** The ranks that take part as other processes than when these were the origins, or again. */
export const joinedSince = (before: readonly number[], { origins, circle }: Membership): number[] =>
  [...origins.keys()].filter((rank) => origins[rank] !== before[rank] && circle.includes(origins[rank]!));

/** By rank: its number in the circle; −1 where it is left out. */
export const numbersIn = ({ origins, circle }: Membership): number[] =>
  origins.map((origin) => circle.indexOf(origin));

/** The rank of a number in the circle; undefined where who has it is new and has not met the others. */
export function rankOf({ rank, origins, circle, number }: Membership, of: number): number | undefined {
  if (of === number) return rank;
  const found = origins.indexOf(circle[of]!);
  return found === -1 ? undefined : found;
}

/** Takes a message: the state after it, and what to do. */
export function step(state: Membership, message: Message): readonly [Membership, Action] {
  if (message.kind === 'begin') {
    const { brings, leave = [], admit = false } = message;
    const change = { ...brings, phase: 'regroup', meets: false, before: state.origins } as const;
    if (state.out) return [{ ...state, change }, { kind: 'wait outside' }];
    const numbers = leave.map((rank) => numbersIn(state)[rank]!).filter((number) => number !== -1);
    const accuse = numbers.length === 0 ? null : { numbers, why: 'the program leaves it out' };
    return [
      { ...state, change },
      { kind: 'regroup', admit, accuse },
    ];
  }
  const { change } = state;
  if (change === null) throw new Error(`a rank that changes nothing is told '${message.kind}'`);
  switch (message.kind) {
    case 'regrouped': {
      const { circle, number } = message;
      const isNew = state.out || circle.some((origin) => !state.origins.includes(origin));
      const next = { ...state, circle, number, change: { ...change, meets: change.meets || isNew } };
      return next.change.meets ? meet(next) : prepare(next);
    }
    case 'left out':
      return [{ ...state, out: true, change: null }, { kind: 'sit out' }];
    case 'met':
      return judge(state, message.all);
    case 'fitted':
      if (message.misfit === null) return prepare(state);
      return refuse(state, message.misfit.number, message.misfit.why, state.out);
    case 'prepared': {
      const counted = state.out ? null : change.counted;
      return [inPhase(state, 'agree'), { kind: 'agree', counted }];
    }
    case 'agreed': {
      const all = message.all.filter((counted) => counted !== null);
      const done = change.counted.map((_, layer) => Math.min(...all.map((counted) => counted[layer]!)));
      const joined = state.out ? [state.rank] : joinedSince(change.before, state);
      return [
        { ...state, out: false, change: null },
        { kind: 'go on', done, joined },
      ];
    }
    case 'lost':
      return again(state);
  }
}

const inPhase = (state: Membership, phase: Change['phase']): Membership => ({
  ...state,
  change: { ...state.change!, phase },
});

const again = (state: Membership, accuse: Accusation | null = null): readonly [Membership, Action] => [
  inPhase(state, 'regroup'),
  { kind: 'regroup', admit: false, accuse },
];

function meet(state: Membership): readonly [Membership, Action] {
  const { out, rank, origins } = state;
  const { world, windows } = state.change!;
  return [inPhase(state, 'meet'), { kind: 'meet', standing: { out, rank, origins, world, windows } }];
}

const prepare = (state: Membership): readonly [Membership, Action] => [
  inPhase(state, 'prepare'),
  { kind: 'prepare', masked: maskedIn(state) },
];

/** Gives each rank that is new its place, or finds the first that does not fit. All ranks find the same. */
function judge(state: Membership, all: readonly Standing[]): readonly [Membership, Action] {
  const stayed = all.find(({ out }) => !out);
  if (stayed === undefined)
    return [
      { ...state, change: null },
      { kind: 'withdraw', why: 'all ranks that could have admitted it are lost' },
    ];
  const origins = [...stayed.origins];
  for (const [number, said] of all.entries()) {
    if (!said.out) continue;
    const why = whyUnfit(said, stayed, state.circle.indexOf(origins[said.rank]!), number);
    if (why !== null) return refuse(state, number, why, number === state.number);
    origins[said.rank] = state.circle[number]!;
  }
  return [inPhase({ ...state, origins }, 'fit'), { kind: 'fit', stayed: state.out ? stayed.rank : null }];
}

/** Why a rank cannot take its place, in which the rank of number `there` is by now; null where it can. */
function whyUnfit(said: Standing, stayed: Standing, there: number, number: number): string | null {
  if (there !== -1 && there !== number) return `rank ${said.rank} takes part already`;
  if (said.world !== stayed.world) return 'its nodes, or its layers, are not those of the others';
  if (said.windows !== stayed.windows) return 'its windows are not those of the others';
  return null;
}

/** Goes on without a rank that does not fit. `withdraws`: this rank gives up itself. */
function refuse(
  state: Membership,
  number: number,
  why: string,
  withdraws: boolean,
): readonly [Membership, Action] {
  if (withdraws)
    return [
      { ...state, change: null },
      { kind: 'withdraw', why },
    ];
  return again(state, { numbers: [number], why });
}
