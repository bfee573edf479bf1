/** A public function and arguments that it takes. */
export interface Call {
  readonly of: (...args: never[]) => unknown;
  readonly good: readonly unknown[];
}

export const call = (of: (...args: never[]) => unknown, ...good: unknown[]): Call => ({ of, good });
