/** The common part of pure operations and effects: how authors call them, and the helpers that they become in CUDA. */

/** How authors call an operation: a type, for the editor alone. */
export interface Signature<Call> {
  readonly call?: Call;
}
export const is = <Call>(): Signature<Call> => ({});

/** A definition at the head of a program. `DEVICE` in its text stands for the qualifiers of functions. */
export interface Helper {
  readonly text: string;
  /** Names of helpers that must stand before this one. */
  readonly needs?: readonly string[];
}

export type HelperTable = Readonly<Record<string, Helper>>;

/** A function among them. */
export interface NamedHelper extends Helper {
  readonly name: string;
}

/** The helpers that a program has. */
export interface Helpers {
  /** Includes one that the printer knows, and returns its name. */
  use(name: string): string;
  /** Includes one, and returns its name: `key` tells overloads of a name apart. */
  add(helper: NamedHelper, key?: string): string;
}
