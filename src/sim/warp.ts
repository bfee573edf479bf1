/** Warp operations: what each lane gets once the lanes of a warp have met. */
import { warpOps } from './compiled.js';
import type { Block, Thread } from './thread.js';

const held = new Float64Array(32);

/** Computes the operation for the given threads of one warp; results replace the operands. */
export function completeWarpOperation(block: Block, threads: readonly Thread[]): void {
  const op = warpOps[threads[0]!.warpOp]!;
  if (op === 'warpBarrier') return;
  const values = block.values!;
  const lanes = block.lanes!;
  const present = new Array<boolean>(32).fill(false);
  for (const thread of threads) {
    held[thread.index & 31] = values[thread.index]!;
    present[thread.index & 31] = true;
  }
  switch (op) {
    case 'ballot':
    case 'any':
    case 'all': {
      let mask = 0;
      for (const thread of threads) if (values[thread.index] !== 0) mask |= 1 << (thread.index & 31);
      const full = threads.reduce((all, thread) => all | (1 << (thread.index & 31)), 0);
      const result = op === 'ballot' ? mask : (op === 'any' ? mask !== 0 : mask === full) ? 1 : 0;
      for (const thread of threads) values[thread.index] = result;
      return;
    }
    case 'elect': {
      const lowest = Math.min(...threads.map((thread) => thread.index));
      for (const thread of threads) values[thread.index] = thread.index === lowest ? 1 : 0;
      return;
    }
    case 'match':
      for (const thread of threads) {
        let mask = 0;
        const mine = held[thread.index & 31]!;
        for (let lane = 0; lane < 32; lane++) if (present[lane] && held[lane] === mine) mask |= 1 << lane;
        values[thread.index] = mask;
      }
      return;
    default:
      for (const thread of threads) {
        const me = thread.index & 31;
        const by = lanes[thread.index]! & 31;
        const from =
          op === 'shuffle' ? by : op === 'shuffleXor' ? me ^ by : op === 'shuffleUp' ? me - by : me + by;
        // A lane that is not there leaves the value as it is, as on the GPU.
        values[thread.index] = from >= 0 && from < 32 && present[from] ? held[from]! : held[me]!;
      }
  }
}
