/**
 * Vectors that say by themselves that they have come: the last word of every 16 bytes of `returned` is EMPTY until the
 * row's bytes replace it, all 16 at once by one relaxed store. Whoever sees that word sees them all, and nothing else has
 * to be ordered with them. The only thread that reads a vector makes it EMPTY again.
 */
import { device, pointer, registers, windowOf } from '../../lang/index.js';
import { recordFailure } from '../common/waits.js';
import type { OneSidedWindow } from './window.js';

/** All ones: NaN in every lane whatever the row's type, and a NaN that no sum of numbers has. */
export const emptyWord = 0xffffffff;

export const isEmpty = device(
  { name: 'is_empty', params: { vector: 'v16' }, returns: 'bool', using: { EMPTY: emptyWord } },
  (g, { vector }, { EMPTY }) => g.lane(vector, 'u32', 3) === EMPTY,
);

export const lookAt = device(
  { name: 'look_at', params: { home: pointer('v16') }, returns: 'v16' },
  (g, { home }) => g.load(home, { order: 'relaxed', scope: 'sys' }),
);

export const makeEmpty = device(
  { name: 'make_empty', params: { home: pointer('v16') }, using: { EMPTY: emptyWord } },
  (g, { home }, { EMPTY }) => {
    g.store(home, g.pack('u32', [EMPTY, EMPTY, EMPTY, EMPTY]), { order: 'relaxed', scope: 'sys' });
  },
);

/** Waits for a vector of `peer`, at most as long as patience is left; what then lacks is EMPTY still. */
export const awaitVector = (window: OneSidedWindow) =>
  device(
    {
      name: 'await_vector',
      params: {
        mine: windowOf(window),
        home: pointer('v16'),
        peer: 'u32',
        epoch: 'u32',
        patience: registers('u32', 1),
      },
      returns: 'v16',
      using: { EMPTY: emptyWord, isEmpty, failed: recordFailure('combine') },
    },
    (g, { mine, home, peer, epoch, patience }, { EMPTY, isEmpty, failed }) => {
      const vector = g.awaitFilled(home, EMPTY, { scope: 'sys', limit: patience[0]! });
      if (isEmpty({ vector })) {
        if (patience[0]! > 0) failed({ failure: mine.failure, peer, epoch });
        patience[0] = g.u32(0);
      }
      return vector;
    },
  );
