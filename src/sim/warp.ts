/** Warp operations: what each lane gets once the lanes of a warp have met. */
import { warpOps } from './compiled.js';
import type { Block } from './thread.js';

const held = new Float64Array(32);
const shuffles: readonly string[] = ['shuffle', 'shuffleXor', 'shuffleUp', 'shuffleDown'];

/** Computes operation `warpOps[op]` for the lanes in `mask` of a warp; results replace the operands. */
export function completeWarpOperation(block: Block, warp: number, op: number, mask: number): void {
  const name = warpOps[op]!;
  if (name === 'warpBarrier') return;
  const values = block.values!;
  const first = warp * 32;
  const end = Math.min(32, values.length - first);
  if (shuffles.includes(name)) {
    shuffle(block, name, first, end, mask);
  } else if (name === 'match') {
    match(values, first, end, mask);
  } else {
    let votes = 0;
    for (let i = 0; i < end; i++) if ((mask >>> i) & 1 && values[first + i] !== 0) votes |= 1 << i;
    const lowest = 31 - Math.clz32(mask & -mask);
    const result = name === 'ballot' ? votes : name === 'any' ? Number(votes !== 0) : Number(votes === mask);
    for (let i = 0; i < end; i++) {
      if ((mask >>> i) & 1) values[first + i] = name === 'elect' ? Number(i === lowest) : result;
    }
  }
}

function shuffle(block: Block, name: string, first: number, end: number, mask: number): void {
  const values = block.values!;
  const lanes = block.lanes!;
  for (let i = 0; i < end; i++) held[i] = values[first + i]!;
  for (let i = 0; i < end; i++) {
    const by = lanes[first + i]! & 31;
    const from =
      name === 'shuffle' ? by : name === 'shuffleXor' ? i ^ by : name === 'shuffleUp' ? i - by : i + by;
    // A lane that is not there leaves the value as it is, as on the GPU.
    if (from >= 0 && from < 32 && (mask >>> from) & (mask >>> i) & 1) values[first + i] = held[from]!;
  }
}

function match(values: Float64Array, first: number, end: number, mask: number): void {
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
