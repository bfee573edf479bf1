/**
 * The arithmetic of combine: one way to add rows. Kernels do exactly this, operation for operation, so their results are
 * compared bit by bit. Storing into a Float32Array rounds to nearest even, and the sum or product of two f32 is exact enough
 * in a double that this is f32 arithmetic (no step is fused or reordered).
 */

/**
 * The sum of rows as a pairwise tree: neighbours (0,1), (2,3) … are added, an odd last one is carried, until one row
 * is left. No rows give zeros.
 *
 * A kernel that adds a fixed number of registers gets the same bits by filling absent places with −0, which
 * changes nothing it is added to, and place 0 with +0.
 */
export function treeSum(rows: readonly Float32Array[], length: number): Float32Array {
  if (rows.length === 0) return new Float32Array(length);
  let level = rows;
  while (level.length > 1) {
    const next: Float32Array[] = [];
    for (let i = 0; i < level.length; i += 2) {
      const [left, right] = [level[i]!, level[i + 1]];
      next.push(right ? add(left, right) : left);
    }
    level = next;
  }
  return level[0]!;
}

/** Element by element, each sum rounded to f32. */
export function add(left: Float32Array, right: Float32Array): Float32Array {
  const sum = new Float32Array(left.length);
  for (let i = 0; i < sum.length; i++) sum[i] = left[i]! + right[i]!;
  return sum;
}

/** A row times a router weight, each product rounded to f32. */
export function scaleRow(row: Float32Array, weight: number): Float32Array {
  const product = new Float32Array(row.length);
  for (let i = 0; i < row.length; i++) product[i] = row[i]! * weight;
  return product;
}
