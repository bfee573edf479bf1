/** Minimises a sum of squares by Levenberg and Marquardt's method. */
export function leastSquares(
  residuals: (at: readonly number[]) => number[],
  start: readonly number[],
): readonly number[] {
  const squares = (all: readonly number[]): number => all.reduce((sum, one) => sum + one ** 2, 0);
  let [at, now, damping] = [start, residuals(start), 1e-2];
  for (let turn = 0; turn < 60 && damping < 1e6; turn++) {
    const slopes = at.map((_, i) => {
      const moved = residuals(at.map((value, j) => (i === j ? value + 1e-6 : value)));
      return moved.map((value, r) => (value - now[r]!) / 1e-6);
    });
    const dot = (a: readonly number[], b: readonly number[]): number =>
      a.reduce((sum, one, i) => sum + one * b[i]!, 0);
    const normal = slopes.map((a, i) => slopes.map((b, j) => dot(a, b) * (i === j ? 1 + damping : 1)));
    const step = solve(
      normal,
      slopes.map((a) => -dot(a, now)),
    );
    const next = at.map((value, i) => value + step[i]!);
    const there = residuals(next);
    const gained = squares(now) - squares(there);
    if (gained > 0) [at, now] = [next, there];
    damping *= gained > 0 ? 0.3 : 4;
    if (gained > 0 && gained < 1e-7 * squares(there)) break;
  }
  return at;
}

/** Solves matrix · x = right by Gauss's elimination. A positive definite matrix needs no pivots. */
function solve(matrix: readonly (readonly number[])[], right: readonly number[]): number[] {
  const rows = matrix.map((row, i) => [...row, right[i]!]);
  for (const [i, pivot] of rows.entries())
    for (const [j, row] of rows.entries()) {
      const factor = row[i]! / pivot[i]!;
      if (i !== j) for (let k = i; k < row.length; k++) row[k]! -= factor * pivot[k]!;
    }
  return rows.map((row, i) => row.at(-1)! / row[i]!);
}
