/** Warp operations: what each lane gets once the lanes of a warp have met. */
import { operations } from '../../lang/index.js';
import { warpOps } from './compiled.js';
import { multiplyTiles } from './products.js';
import type { Block } from './thread.js';

/** Computes operation `warpOps[op]` for the lanes in `mask` of a warp. */
export function completeWarpOperation(block: Block, warp: number, op: number, mask: number): void {
  const { values, lanes, parts } = block;
  const first = warp * 32;
  // A kernel whose warps only meet has no operands.
  if (values === null || lanes === null) return;
  const end = Math.min(32, values.length - first);
  const multiply = () => multiplyOf(block, warp, mask);
  operations[warpOps[op]!].together?.({ values, lanes, parts, first, end, mask, multiply });
}

/** The product that the lanes of a warp have brought their parts of. Where some are missing there is none. */
export function multiplyOf({ threads }: Block, warp: number, mask: number): void {
  if (mask !== allLanes) return;
  const lanes = threads.slice(32 * warp, 32 * warp + 32);
  const factors = lanes.map((lane) => lane.factors!);
  if (lanes[0]!.isChecked) lanes[0]!.products.multiply(factors);
  else multiplyTiles(factors, warp);
}

const allLanes = -1;
