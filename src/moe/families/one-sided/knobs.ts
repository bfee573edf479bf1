/** Options of the one-sided kernels. The same on all ranks: block b of one meets block b of the others. */
import { blocksTried, choice, count, type KnobValues } from '../knobs.js';

/** More in flight would not fit in a thread's registers. */
const mostInFlight = 8;

const partsTried = [1, 2, 4, 7, 14];

const spread = {
  // Small rounds also try a block for each token or piece of one.
  blocks: count('thread blocks', [1, 65_536], (tokens, _, multiprocessors) => {
    const pieces = partsTried.map((parts) => tokens * parts).filter((n) => n < 3 * multiprocessors);
    return [...new Set([...pieces, 16, 32, 96, ...blocksTried(multiprocessors), 3 * multiprocessors])];
  }),
  // The odd ones divide a row of 7168 bf16, 896 vectors. A thread for each peer, so at least as many as ranks.
  threads: count('threads a block', [32, 1024], () => [128, 224, 256, 448, 512, 896, 1024], 32),
  parts: count(
    'pieces that a row is cut into, each a block’s: more spread one token’s bytes over more of the GPU',
    [1, 1024],
    () => partsTried,
  ),
  teams: count(
    'pieces that a block works on at a time, each by an equal share of its threads: for few, big blocks',
    [1, 32],
    () => [1, 2, 4],
  ),
};

const inFlight = count(
  'vectors of a row that each thread loads before it stores the first',
  [1, mostInFlight],
  (_, { way }) => (way === 'pull' ? [] : [1, 2, 4, mostInFlight]),
);

/** In the order in which a search tries them: the largest effects first. */
export const oneSidedKnobs = {
  combine: {
    way: choice('the experts’ rank pushes rows, or the source pulls them', ['push', 'pull']),
    ...spread,
    inFlight,
    ahead: count(
      'pushing: pieces that a block pushes before it adds up its first',
      [0, 1024],
      (_, { way }) => (way !== 'pull' ? [0, 1, 2, 4, 8] : []),
    ),
  },
  dispatch: { ...spread, inFlight },
};

export type OneSidedTuning = KnobValues<typeof oneSidedKnobs>;
export type DispatchTuning = OneSidedTuning['dispatch'];
export type CombineTuning = OneSidedTuning['combine'];
