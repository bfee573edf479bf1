/** Linear algebra of fits: Cholesky's factors, and least squares by Levenberg and Marquardt's method. */

export const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0);

/** The lower factor of a symmetric positive definite matrix. */
export function factor(matrix: readonly (readonly number[])[]): number[][] {
  const lower = matrix.map(() => new Array<number>(matrix.length).fill(0));
  for (let i = 0; i < matrix.length; i++) {
    for (let j = 0; j <= i; j++) {
      let value = matrix[i]![j]!;
      for (let k = 0; k < j; k++) value -= lower[i]![k]! * lower[j]![k]!;
      lower[i]![j] = i === j ? Math.sqrt(Math.max(value, 1e-300)) : value / lower[j]![j]!;
    }
  }
  return lower;
}

/** Solves lower · x = right. */
export function forward(lower: readonly (readonly number[])[], right: readonly number[]): number[] {
  const x = [...right];
  for (let i = 0; i < x.length; i++) {
    for (let k = 0; k < i; k++) x[i]! -= lower[i]![k]! * x[k]!;
    x[i]! /= lower[i]![i]!;
  }
  return x;
}

/** Solves lower · lowerᵀ · x = right. */
export function solve(lower: readonly (readonly number[])[], right: readonly number[]): number[] {
  const x = forward(lower, right);
  for (let i = x.length - 1; i >= 0; i--) {
    for (let k = i + 1; k < x.length; k++) x[i]! -= lower[k]![i]! * x[k]!;
    x[i]! /= lower[i]![i]!;
  }
  return x;
}

export function inverse(matrix: readonly (readonly number[])[]): number[][] {
  const lower = factor(matrix);
  return matrix.map((_, i) =>
    solve(
      lower,
      matrix.map((_, j) => (i === j ? 1 : 0)),
    ),
  );
}

type Residuals = (at: readonly number[]) => number[];

/** Minimises the sum of squares; also the normal matrix there. */
export function leastSquares(residuals: Residuals, start: readonly number[]) {
  let at = [...start];
  let now = residuals(at);
  let cost = dot(now, now);
  let damping = 1e-2;
  let slopes = difference(residuals, at, now);
  for (let turn = 0; turn < 100 && damping < 1e9; turn++) {
    const normal = slopes.map((a) => slopes.map((b) => dot(a, b)));
    const downhill = slopes.map((a) => -dot(a, now));
    const damped = normal.map((row, i) => row.map((v, j) => (i === j ? v * (1 + damping) : v)));
    const step = solve(factor(damped), downhill);
    const next = at.map((value, i) => value + step[i]!);
    const there = residuals(next);
    const costThere = dot(there, there);
    if (!(costThere < cost)) {
      damping *= 4;
      continue;
    }
    const gained = cost - costThere;
    [at, now, cost] = [next, there, costThere];
    damping /= 3;
    slopes = difference(residuals, at, now);
    if (gained < 1e-9 * (1 + cost)) break;
  }
  return { at, normal: slopes.map((a) => slopes.map((b) => dot(a, b))) };
}

/** For each coordinate, how every residual answers. */
export function difference(residuals: Residuals, at: readonly number[], here = residuals(at)): number[][] {
  const h = 1e-6;
  return at.map((_, i) => {
    const moved = residuals(at.map((value, j) => (i === j ? value + h : value)));
    return moved.map((value, r) => (value - here[r]!) / h);
  });
}
