/**
 * The description of an operation. An operation is a function of `g` that is an effect, and one object: how authors
 * call it, what it takes, the CUDA that it becomes, what the simulated machine does for it, and how mutants weaken it.
 * Its name is its path on `g`, in the IR as well.
 */
import type { Expr } from '../expression.js';
import type { ComputeName, MemoryName, Space, ValueName } from '../types.js';
import type { SimRequests, Together } from './machine.js';
import { calls, type Helpers, type Signature } from './parts.js';

export const value = (...types: readonly [ValueName, ...ValueName[]]) =>
  ({ kind: 'value', types, otherwise: undefined as number | undefined }) as const;
/** An operand that may be left out, and its value then. */
export const optional = (type: ComputeName, otherwise: number) => ({ ...value(type), otherwise });
/** A value of the type that another operand has; of what it points to, if that is a pointer. */
export const like = (operand: string) => ({ kind: 'like', operand }) as const;
/** A pointer to one of these types; to any, where none is named. */
export const pointer = (...to: readonly MemoryName[]) => pointerIn(undefined, ...to);
export const pointerIn = (space: Space | undefined, ...to: readonly MemoryName[]) =>
  ({ kind: 'pointer', to, space }) as const;
export const count = (what: string, most: number) => ({ kind: 'count', what, most }) as const;
export const choice = <const Word extends string>(of: readonly Word[], otherwise?: Word) =>
  ({ kind: 'choice', of, otherwise }) as const;
export const tiles = { kind: 'tiles' } as const;
/** A tensor that the host has described to the copy engine. */
export const map = { kind: 'map' } as const;
/** The first element of a box in the tensor that is the operand `map`. */
export const coordinates = { kind: 'coordinates' } as const;
/** All further arguments: texts, and values of any type that a thread computes with. */
export const words = { kind: 'words' } as const;
/** A whole register array, which the operation reads and changes. */
export const array = (of: ComputeName) => ({ kind: 'array', of }) as const;

export type Operand =
  | ReturnType<typeof value | typeof like | typeof pointerIn | typeof count | typeof choice | typeof array>
  | typeof tiles
  | typeof map
  | typeof coordinates
  | typeof words;
export type Operands = Readonly<Record<string, Operand>>;

/** The part of an operand that an effect keeps. */
type Kept<O extends Operand> = O extends { readonly kind: 'count' }
  ? number
  : O extends { readonly kind: 'coordinates' }
    ? readonly Expr[]
    : O extends { readonly kind: 'words' }
      ? readonly (string | Expr)[]
      : O extends { readonly kind: 'choice'; readonly of: readonly (infer Word)[] }
        ? Word
        : Expr;

/** The part of all of them that an effect keeps. */
export type Fields<Takes extends Operands, Options extends Operands> = {
  readonly [K in keyof Takes | keyof Options]: K extends keyof Takes
    ? Kept<Takes[K]>
    : K extends keyof Options
      ? Kept<Options[K]>
      : never;
};

/** The means by which an operation makes C++ of its operands. */
export interface Text {
  readonly prelude: Helpers;
  /** A call of a helper, given as its text, with the operands of an effect in their order; counts are arguments of its template. */
  call(helper: string, effect: object): string;
  args(...operands: readonly Expr[]): string;
  /** Memory that a pointer names, as an lvalue. */
  place(pointer: Expr): string;
  /** The kernel's blocks are in clusters: what others of them do to an mbarrier is to be seen. */
  readonly inCluster: boolean;
  /** The sums of products that this effect, a fence or a wait, hands over. */
  heldAt(effect: object): readonly string[];
}

export interface Operation<
  Takes extends Operands = Operands,
  Options extends Operands = Operands,
  Call = unknown,
> {
  /** The type for authors; without one it takes nothing and returns nothing. */
  readonly signature: Signature<Call>;
  readonly takes: Takes;
  /** The members of the object that is the last argument. */
  readonly options?: Options;
  readonly returns: 'void' | ValueName | ReturnType<typeof like>;
  /** The name of a result to which the author gives none. */
  readonly named?: string;
  /** A helper that is called with the operands in their order; or what makes the text. `used`: somebody reads the result. */
  readonly cuda: string | Print<Fields<Takes, Options>>;
  simulate(effect: Fields<Takes, Options>, machine: SimRequests): void;
  /** Makes of what the lanes of a warp bring what they get, once all have come. */
  readonly together?: Together;
  /** The mistake in operands that are each as they must be, in words. */
  refuses?(effect: Fields<Takes, Options>): string | undefined;
  /** The only GPUs that have it; all, where nothing is said. */
  readonly only?: Hardware;
  /** Whether nobody notices it unless the result is read. */
  unnoticed?(effect: Fields<Takes, Options>): boolean;
  /** Nothing but its thread and memory takes part: the twin of a foreign function may have it. The value is the access through each pointer. */
  readonly alone?: { readonly [Name in keyof Takes]?: readonly Access[] };
  /** CUDA has nothing of the kind: it stands in twins, whose functions are called instead. */
  readonly twinOnly?: true;
  /** Other threads rely on it: a mutant leaves it out. (Weaker orders and scopes are mutants wherever it has them.) */
  readonly removable?: true;
  /** An operation with the same operands that promises less: one more mutant. */
  readonly weaker?: { readonly op: string; readonly description: string };
  /** Operands that others rely on, given wrongly: a mutant each. */
  readonly misgiven?: readonly Misgiven[];
}

export type Print<Effect> = { of(effect: Effect, text: Text, used: boolean): string }['of'];

/** GPUs of some compute capabilities, fewest first: 9.0 alone, 9.0 and later, 8.9 and later. */
export const hardware = ['hopper', 'hopper and later', 'ada and later'] as const;
export type Hardware = (typeof hardware)[number];

export type Access = 'reads' | 'writes';

type Misgiven = {
  readonly operand: string;
  readonly description: string;
} & (
  | { readonly value: (was: Expr) => Expr }
  /** The mutant changes a number that the compiler knows. */
  | { readonly count: (was: number) => number }
);

const u32 = { kind: 'value', name: 'u32' } as const;
const constant = (value: number): Expr => ({ kind: 'const', type: u32, value });

/** A wait that does not wait. */
export const looksOnce: Misgiven = {
  operand: 'limit',
  description: 'looks once',
  value: () => constant(0),
};

/** A u32 that is too large, or too small. */
export const misgivenBy = (operand: string, by: number): Misgiven => ({
  operand,
  description: `${operand} ${by < 0 ? '-' : '+'} ${Math.abs(by)}`,
  value: (was) => ({
    kind: 'binary',
    type: u32,
    op: by < 0 ? '-' : '+',
    left: was,
    right: constant(Math.abs(by)),
  }),
});

type Defaults = 'signature' | 'takes' | 'returns';
type Given<O extends Operation> = Omit<O, Defaults> & Partial<Pick<O, Defaults>>;

/** An operation with its types kept. One that says nothing else takes nothing, and returns nothing. */
export function operation<
  const Takes extends Operands = Record<never, Operand>,
  Call = () => void,
  const Options extends Operands = Record<never, Operand>,
>(entry: Given<Operation<Takes, Options, Call>>): Operation<Takes, Options, Call> {
  return { signature: calls<Call>(), takes: {} as Takes, returns: 'void', ...entry };
}
