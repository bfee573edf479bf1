/** Warp operations: what each lane gets once the lanes of a warp have met. */
import { type WarpOp, warpOps } from './compiled.js';
import { dealMatrices, multiplyMatrices } from './matrices.js';
import type { Block } from './thread.js';

/** Where its operands and results are: those of the block, from the warp's first thread to its last. */
interface Lanes {
  readonly values: Float64Array;
  readonly lanes: Int32Array;
  readonly parts: Int32Array | null;
  readonly first: number;
  readonly end: number;
  /** The lanes that take part. */
  readonly mask: number;
}

const held = new Float64Array(32);

/** Results replace the operands. */
const meetings: { readonly [Op in WarpOp]: (warp: Lanes) => void } = {
  'warp.barrier': () => {},
  'warp.shuffle': (warp) => shuffle(warp, (_, by) => by),
  'warp.shuffleXor': (warp) => shuffle(warp, (i, by) => i ^ by),
  'warp.shuffleUp': (warp) => shuffle(warp, (i, by) => i - by),
  'warp.ballot': (warp) => give(warp, votes(warp)),
  'warp.any': (warp) => give(warp, votes(warp) === 0 ? 0 : 1),
  'warp.match': match,
  'warp.ldmatrix': ({ parts, first }) => dealMatrices(parts!, first),
  'warp.mma': ({ parts, first }) => multiplyMatrices(parts!, first),
};

/** Computes operation `warpOps[op]` for the lanes in `mask` of a warp. */
export function completeWarpOperation(block: Block, warp: number, op: number, mask: number): void {
  const { values, lanes, parts } = block;
  const first = warp * 32;
  // A kernel whose warps only meet has no operands.
  if (values === null || lanes === null) return;
  meetings[warpOps[op]!]({ values, lanes, parts, first, end: Math.min(32, values.length - first), mask });
}

function votes({ values, first, end, mask }: Lanes): number {
  let found = 0;
  for (let i = 0; i < end; i++) if ((mask >>> i) & 1 && values[first + i] !== 0) found |= 1 << i;
  return found;
}

function give({ values, first, end, mask }: Lanes, result: number): void {
  for (let i = 0; i < end; i++) if ((mask >>> i) & 1) values[first + i] = result;
}

function shuffle(
  { values, lanes, first, end, mask }: Lanes,
  source: (i: number, by: number) => number,
): void {
  for (let i = 0; i < end; i++) held[i] = values[first + i]!;
  for (let i = 0; i < end; i++) {
    const from = source(i, lanes[first + i]! & 31);
    // A lane that is not there leaves the value as it is, as on the GPU.
    if (from >= 0 && from < 32 && (mask >>> from) & (mask >>> i) & 1) values[first + i] = held[from]!;
  }
}

function match({ values, first, end, mask }: Lanes): void {
  for (let i = 0; i < end; i++) held[i] = values[first + i]!;
  let left = mask;
  // Once for each distinct value: its lanes are found together.
  while (left !== 0) {
    const value = held[31 - Math.clz32(left & -left)]!;
    let same = 0;
    for (let i = 0; i < end; i++) if ((left >>> i) & 1 && held[i] === value) same |= 1 << i;
    for (let i = 0; i < end; i++) if ((same >>> i) & 1) values[first + i] = same;
    left &= ~same;
  }
}
