/**
 * Vectors that say by themselves that they have come: the last word of every 16 bytes of `returned` is EMPTY until the
 * row's bytes replace it, all 16 at once by one relaxed store. A reader that sees that word sees them all, and nothing else has
 * to be ordered with them. The only thread that reads a vector makes it EMPTY again.
 */
import { device, pointer, registers, windowOf } from '../../../lang/index.js';
import type { RowDtype } from '../../layer/index.js';
import { numbers } from '../common/params.js';
import { recordFailure } from '../common/waits.js';
import type { oneSidedWindow } from './window.js';

/** All ones: NaN in every lane whatever the row's type, and a NaN that no sum of numbers has. */
export const emptyWord = 0xffffffff;

export const isEmpty = device(
  { params: { vector: 'v16' }, returns: 'bool', using: { EMPTY: emptyWord } },
  (g, { vector }, { EMPTY }) => g.lane(vector, 'u32', 3) === EMPTY,
);

/** An expert's own all-ones NaN becomes this on its way: NaN in every lane too, but not EMPTY. */
const otherNan: Readonly<Record<RowDtype, number>> = { bf16: 0x7fff7fff, f16: 0x7fff7fff, f32: 0x7fffffff };

/** A vector of a row as it may travel: never EMPTY. */
export const filled = (dtype: RowDtype) =>
  device(
    { params: { vector: 'v16' }, returns: 'v16', using: { EMPTY: emptyWord, OTHER_NAN: otherNan[dtype] } },
    (g, { vector }, { EMPTY, OTHER_NAN }) => {
      const last = g.lane(vector, 'u32', 3);
      return g.pack('u32', [
        g.lane(vector, 'u32', 0),
        g.lane(vector, 'u32', 1),
        g.lane(vector, 'u32', 2),
        last === EMPTY ? OTHER_NAN : last,
      ]);
    },
  );

export const lookAt = device({ params: { home: pointer('v16') }, returns: 'v16' }, (g, { home }) =>
  g.load(home, { order: 'relaxed', scope: 'sys' }),
);

export const makeEmpty = device(
  { params: { home: pointer('v16') }, using: { EMPTY: emptyWord } },
  (g, { home }, { EMPTY }) => {
    g.store(home, g.pack('u32', [EMPTY, EMPTY, EMPTY, EMPTY]), { order: 'relaxed', scope: 'sys' });
  },
);

/** Waits for a vector of `peer`, at most as long as patience is left; what then lacks is EMPTY still. */
export const awaitVector = (window: ReturnType<typeof oneSidedWindow>) =>
  device(
    {
      params: {
        ...{ mine: windowOf(window), home: pointer('v16'), patience: registers('u32', 1) },
        ...numbers('peer', 'epoch'),
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
