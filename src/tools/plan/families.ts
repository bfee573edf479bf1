/** Heddle's own ways of carrying rows, those to come too: docs/design.md says what each is. */
import type { Way } from './traffic.js';

export interface Family {
  readonly name: 'one-sided' | 'portable' | 'hybrid';
  readonly way: Way;
  /** Ranks beyond NVLink. */
  readonly crossesNetwork: boolean;
  /** Whether figures of it exist; where not, whatever is said about it is a prediction only. */
  readonly measured: boolean;
}

export const families: readonly Family[] = [
  {
    name: 'one-sided',
    way: { rows: 'rank', message: 'row', metadata: 'every rank' },
    crossesNetwork: false,
    measured: true,
  },
  {
    name: 'portable',
    way: { rows: 'rank', message: 'row', metadata: 'every rank', chunk: () => 32 },
    crossesNetwork: true,
    measured: false,
  },
  {
    name: 'hybrid',
    way: {
      rows: 'rails',
      message: 'chunk',
      metadata: 'every rank',
      chunk: (tokens) => Math.max(1, Math.min(32, Math.floor(tokens / 16))),
    },
    crossesNetwork: true,
    measured: false,
  },
];
