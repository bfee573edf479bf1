import { editDistance } from '../../errors/index.js';

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
