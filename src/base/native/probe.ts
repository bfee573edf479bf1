import { getOrMake } from '../maps.js';
import { runApart } from './thread.js';

/** The facts about a library that a child process found. */
export type Probe =
  | { readonly ok: true; readonly name: string; readonly path: string; readonly version: number | null }
  | { readonly ok: false; readonly reason: string };

/** How to ask a library for its version: a function that returns it, or one that stores an int at its argument. */
export interface VersionCall {
  readonly symbol: string;
  readonly how: 'returns' | 'stores';
  /** A function such as `cuInit` that is called first, with a zero: the library is of no use where it returns anything else. */
  readonly initialise?: string;
}

/** On a busy machine a process may take half a minute to start. */
const timeoutMs = 60_000;
const known = new Map<string, Probe>();

/**
 * Opens a library in a child process before this process trusts it: a broken driver that crashes or hangs in
 * its initialisers then costs one child, not the program. The answer is kept for the life of the process.
 */
export function probe(candidates: readonly string[], version?: VersionCall): Probe {
  const asked = JSON.stringify([candidates, version ?? null]);
  return getOrMake(known, asked, () => {
    const tried = runApart(new URL('./probing.js', import.meta.url), timeoutMs, asked);
    return tried.ok ? (JSON.parse(tried.line) as Probe) : tried;
  });
}
