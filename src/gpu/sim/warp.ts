/** Warp operations: what each lane gets once the lanes of a warp have met. */
import { operations } from '../../lang/index.js';
import { warpOps } from './compiled.js';
import { type Factors, multiplyTiles } from './products.js';
import type { Block } from './thread.js';

/** Computes operation `warpOps[op]` for the lanes in `mask` of a warp. */
export function completeWarpOperation(block: Block, warp: number, op: number, mask: number): void {
  const { values, lanes, parts } = block;
  const first = warp * 32;
  // A kernel whose warps only meet has no operands.
  if (values === null || lanes === null) return;
  const end = Math.min(32, values.length - first);
  const multiply = () => multiplyTiles(factorsOf(block, first, end), warp);
  operations[warpOps[op]!].together?.({ values, lanes, parts, first, end, mask, multiply });
}

/** What the lanes of a warp have brought. A product needs all 32. */
function factorsOf({ threads }: Block, first: number, end: number): readonly Factors[] {
  const lanes = threads.slice(first, first + end).flatMap(({ factors }) => factors ?? []);
  if (lanes.length !== 32) throw new Error(`a product of tiles needs whole warps, but ${lanes.length} lanes came`);
  return lanes;
}
