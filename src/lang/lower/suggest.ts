import { editDistance } from '../../base/errors.js';

/** `; did you mean …?` for a name that resembles a known one, else ''. */
export function suggest(name: string, known: readonly string[]): string {
  const close = known
    .map((candidate) => ({
      candidate,
      // Swapped letters are the commonest slip.
      distance:
        letters(name) === letters(candidate) ? 1 : editDistance(name.toLowerCase(), candidate.toLowerCase()),
    }))
    .filter(
      ({ candidate, distance: away }) =>
        away <= (candidate.length < 4 ? 1 : Math.max(2, Math.floor(candidate.length / 3))),
    )
    .sort((a, b) => a.distance - b.distance)[0];
  return close === undefined ? '' : `; did you mean ${close.candidate}?`;
}

const letters = (name: string): string => [...name.toLowerCase()].sort().join('');

/** What who comes from CUDA or from plain TypeScript types first, and what it is here. */
const habits: Readonly<Record<string, string>> = {
  threadIdx: 'g.threadIdx.x',
  blockIdx: 'g.blockIdx.x',
  blockDim: 'g.blockDim.x',
  gridDim: 'g.gridDim.x',
  syncthreads: 'g.barrier()',
  syncwarp: 'g.warp.barrier()',
  threadfence_block: "g.fence('cta')",
  threadfence: "g.fence('gpu')",
  threadfence_system: "g.fence('sys')",
  nanosleep: 'g.sleep(nanoseconds)',
  Math: 'g.min, g.max and the like',
};

/** `; write …` for a name of CUDA, with or without its underscores, or of TypeScript, else ''. */
export function habit(name: string): string {
  const plain = name.replace(/^__/, '');
  return Object.hasOwn(habits, plain) ? `; write ${habits[plain]}` : '';
}
