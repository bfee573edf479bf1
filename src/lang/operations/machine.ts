/**
 * The requests of an operation to the simulated machine. src/gpu/sim makes JavaScript of it, and has what the methods of its
 * threads do.
 */
import type { Expr, FenceOrder, Order, Scope } from '../expression.js';
import type { Space } from '../types.js';

/** The reasons for which a simulated thread gives up control. */
export type Pause = 'barrier' | 'cluster' | 'group' | 'previous' | 'sleep' | 'wait';

/** The form of an access, wherever it goes: atomic when its order is not 'weak'. `update`: a read-modify-write. */
export interface AccessForm {
  readonly kind: 'read' | 'write' | 'update';
  readonly order: Order;
  readonly scope: Scope;
  readonly bytes: number;
}

/** The arguments of a method of the simulated thread: a pointer is two arguments, its buffer and its offset; a register array is one. */
export type Argument = Expr | readonly Expr[] | AccessForm | number | boolean;

export interface Await {
  readonly until: '>=' | '==' | '!=';
  readonly wanted: Expr;
  /** The bits that count; all, where nothing is said. */
  readonly mask?: Expr;
  readonly limit: Expr;
  readonly order: Order;
  readonly scope: Scope;
}

/** The requests that an operation can make to the simulated machine, for the thread that executes it. */
export interface SimRequests {
  /** The statement, as findings name it. */
  readonly site: number;
  call(method: string, ...args: readonly Argument[]): void;
  /** Calls a method in checked mode; in fast mode there is nothing to do. */
  check(method: string, ...args: readonly Argument[]): void;
  /** The result is what a method of the thread returns. */
  give(method: string, ...args: readonly Argument[]): void;
  stop(): void;
  /** Prints texts and values, in one line. */
  print(words: readonly (string | Expr)[]): void;
  /** Gives up control, having called a method of the thread. */
  pause(reason: Pause, method?: string, ...args: readonly Argument[]): void;
  /** Tells the machine that this operation may be in a loop that waits for other threads, so that they get their turn. */
  polls(): void;

  load(pointer: Expr, order: Order, scope: Scope): void;
  store(pointer: Expr, value: Expr, order: Order, scope: Scope): void;
  /**
   * Replaces a word by what JavaScript makes of it and of `value`, only where it is `expected`, if that is given; the result is the
   * word before.
   */
  update(
    pointer: Expr,
    value: Expr,
    order: Order,
    scope: Scope,
    change: (before: string, value: string) => string,
    expected?: Expr,
  ): void;
  /**
   * Does what `make` asks for in the places that a method of the thread gives for a pointer: `inBlock`, of another block of the cluster;
   * `everywhere`, of all ranks.
   */
  elsewhere(
    method: 'inBlock' | 'everywhere',
    pointer: Expr,
    args: readonly Argument[],
    make: () => void,
  ): void;
  /** Loads a vector from all ranks and adds up its numbers; the result is the vector of the sums. */
  sumEverywhere(pointer: Expr, of: 'f32' | 'bf16' | 'f16', order: Order, scope: Scope): void;
  fence(order: FenceOrder, scope: Scope): void;
  proxyFence(space: Space): void;
  /** Waits until a word, or the last of 16 bytes, compares as `until` says; the result is whether it does, or the 16 bytes. */
  await(pointer: Expr, how: Await): void;
  /** Waits until the phase of that parity of an mbarrier is over; the result is whether it is. */
  awaitPhase(barrier: Expr, parity: Expr, limit: Expr): void;

  /** Meets the other lanes of the warp, with values or words in JavaScript; what `together` makes of these is the result. */
  meet(...brought: readonly (Expr | string)[]): void;
  /** Brings the 16 bytes at an address to the next meeting. */
  bringRow(row: Expr): void;
  words(vector: Expr): readonly string[];
}

export interface Together {
  /** Orders the lanes' accesses. */
  readonly orders?: true;
  /** Set where the lanes have brought their parts of a product of tiles. */
  readonly multiplies?: true;
  /** Replaces what the lanes of `mask` have brought by what they get: `matrixWords` words each, from those of thread `first` on. */
  complete?(words: Int32Array, first: number, mask: number): void;
}
