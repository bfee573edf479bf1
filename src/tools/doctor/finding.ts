/** The report of doctor on one thing that it looked for. */
import { messageOf } from '../../base/errors.js';
import type { Probe } from '../../base/native/index.js';

export interface DoctorFinding {
  readonly name: string;
  /** `broken`: it is there and does not work. */
  readonly state: 'found' | 'missing' | 'broken';
  readonly detail: string;
  readonly enables: string;
  /** The command or step that would provide it; null where nothing is missing. */
  readonly remedy: string | null;
}

export function about(name: string, enables: string) {
  const say = (state: DoctorFinding['state'], detail: string, remedy: string | null): DoctorFinding => ({
    ...{ name, state, detail, enables, remedy },
  });
  return {
    found: (detail: string, remedy: string | null = null) => say('found', detail, remedy),
    missing: (detail: string, remedy: string) => say('missing', detail, remedy),
    broken: (error: unknown, remedy: string) => say('broken', messageOf(error), remedy),
    /** Judges a library that a child process tried: one that is not there is missing, one that does not work is broken. */
    absent({ reason }: { readonly reason: string }, remedy: string): DoctorFinding {
      const parts = reason.split('; ');
      const missing = parts.every((part) => /cannot open shared object file: No such file/.test(part));
      if (!missing) return say('broken', reason, remedy);
      const names = parts.map((part) => part.slice(0, part.indexOf(':')));
      return say('missing', `not found: ${[...new Set(names)].join(', ')}`, remedy);
    },
    /** Judges such a library, and names its version. */
    library(probed: Probe, version: (number: number) => string, remedy: string): DoctorFinding {
      if (!probed.ok) return this.absent(probed, remedy);
      const number = probed.version === null ? '' : version(probed.version);
      return say('found', [number, `(${probed.path})`].filter(Boolean).join(' '), null);
    },
    /** A finding in the words that `look` returns; broken if `look` throws. */
    async tried(look: () => Promise<string>, remedy: string): Promise<DoctorFinding> {
      try {
        return say('found', await look(), null);
      } catch (error) {
        return say('broken', messageOf(error), remedy);
      }
    },
  };
}
