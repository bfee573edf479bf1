/** The calls of a program. */
import type { Process } from './process.js';

/** Results that a program sees. */
export const cuda = {
  invalid: 1,
  symbol: 13,
  function: 98,
  handle: 400,
  notReady: 600,
  failed: 719,
};

export class CallError extends Error {
  constructor(
    readonly result: number,
    message: string,
  ) {
    super(message);
  }
}

/** A call: who makes it, its arguments, and what follows them. */
export interface Call {
  readonly process: Process;
  readonly kind: number;
  readonly device: number;
  readonly words: readonly [number, number, number, number, number];
  /** The places in code from which it comes, of 8 bytes each. */
  readonly stack: Buffer;
  readonly tail: Buffer;
}

/** Gets a call and its words. Gives the word of an answer, a list of it and what follows it, or nothing of use. */
export type Handler = (call: Call, ...words: Call['words']) => unknown;

/** Memory that the program knows, by the upper words of its addresses. `free` is left out where its address is not what frees it. */
export type Memories = Map<number, MemoryOfProgram>;

interface MemoryOfProgram {
  readonly rank: number;
  readonly bytes: number;
  readonly handle?: Uint8Array;
  /** Memory of the host, or managed memory. Default: a device's. */
  readonly of?: 'host' | 'managed';
  /** Kernels may use it: until then memory of the host is a matter of the host, and of copies. */
  isReached?: boolean;
  /** A graph has it: one that is launched again has its memory again. */
  stays?: boolean;
  free?(): void;
}

/** Addresses of one allocation have their upper words in common. */
export const upper = (address: number): number => Math.floor(address / 2 ** 32);

/** What the map has by that number, or the error of a program that knows none such. */
export function known<T>(
  map: ReadonlyMap<number, T>,
  what: string,
  number: number,
  result = cuda.invalid,
): T {
  const found = map.get(number);
  if (found === undefined) throw new CallError(result, `there is no ${what} ${number}`);
  return found;
}
