/** The common part of pure operations and effects: how authors call them, and the helpers that they become in CUDA. */

/** The type by which authors call an operation, for the editor alone. */
export interface Signature<Call> {
  readonly call?: Call;
}
export const calls = <Call>(): Signature<Call> => ({});

/** The definitions at the head of a program. `DEVICE` in their texts stands for the qualifiers of functions. */
export interface Helpers {
  /** Includes one that the printer knows, and returns its name. */
  use(name: string): string;
  /** Includes one, behind those that its text names, and returns its own name. A name alone is of a function that CUDA brings. */
  add(text: string): string;
}
