/** `; did you mean …?` for a name that resembles a known one, else ''. */
export function suggest(name: string, known: readonly string[]): string {
  const close = known
    .map((candidate) => ({
      candidate,
      // Swapped letters are the commonest slip.
      distance:
        letters(name) === letters(candidate) ? 1 : distance(name.toLowerCase(), candidate.toLowerCase()),
    }))
    .filter(
      ({ candidate, distance: away }) =>
        away <= (candidate.length < 4 ? 1 : Math.max(2, Math.floor(candidate.length / 3))),
    )
    .sort((a, b) => a.distance - b.distance)[0];
  return close === undefined ? '' : `; did you mean ${close.candidate}?`;
}

const letters = (name: string): string => [...name.toLowerCase()].sort().join('');

/** Levenshtein's. */
function distance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(substitution, previous[j]! + 1, row[j - 1]! + 1));
    }
    previous = row;
  }
  return previous[b.length]!;
}
