/** Step 4: one warp group brings tiles, some steps ahead, and two others multiply them. */
import { kernel, pipeline, pointer, tensorMap, tile } from 'heddle/lang';
import type { Gemm } from './multiply.js';

const A = tile('bf16', [128, 64], { swizzle: 128 });
const B = tile('bf16', [256, 64], { swizzle: 128 });
/** Two groups multiply, the third brings. */
const threads = 3 * 128;

export const roles: Gemm = {
  threads,
  tile: { rows: A.rows, columns: B.rows, depth: A.columns },
  whole: true,
  maps: ['a', 'b'],
  persistent: false,
  kernel: kernel(
    {
      name: 'gemm_roles',
      params: {
        ...{ a: tensorMap(A), b: tensorMap(B), c: pointer('bf16') },
        ...{ m: 'u32', n: 'u32', k: 'u32' },
      },
      // Each of the eight warps that multiply says when it has done with a stage.
      using: { A, B, ring: pipeline({ stages: 4, empties: 8 }) },
      maxThreads: threads,
    },
    (g, { a, b, c, n, k }, { A, B, ring }) => {
      const left = g.shared(A, ring.stages);
      const right = g.shared(B, ring.stages);
      const full = g.shared('u64', ring.stages);
      const empty = g.shared('u64', ring.stages);
      const gates = { full, empty };
      const across = n / B.rows;
      const firstRow = (g.blockIdx.x / across) * A.rows;
      const firstColumn = (g.blockIdx.x % across) * B.rows;
      const steps = k / A.columns;
      const group = g.warpId / 4;
      if (g.threadIdx.x === 0) ring.start({ gates });
      g.barrier();
      if (group === 2) {
        g.group.giveRegisters(40);
        if (g.threadIdx.x === 256) {
          for (let step = g.u32(0); step < steps; step += 1) {
            const stage = ring.acquire({ gates, step });
            g.mbarrier.expect(full.at(stage), A.bytes + B.bytes);
            g.tensor.load(left.at(stage), a, [firstRow, step * A.columns], full.at(stage));
            g.tensor.load(right.at(stage), b, [firstColumn, step * B.columns], full.at(stage));
          }
        }
      } else {
        g.group.takeRegisters(232);
        const sums = g.registers('f32', B.rows / 2);
        for (let step = g.u32(0); step < steps; step += 1) {
          const stage = ring.wait({ gates, step });
          g.wgmma.fence();
          g.wgmma.multiply(sums, left.at(stage).rows(64 * group, 64), right.at(stage), step === 0);
          g.wgmma.commit();
          g.wgmma.wait(0);
          if (g.laneId === 0) ring.release({ gates, step });
        }
        for (const i of g.unroll(B.rows / 8)) {
          for (const half of g.unroll(2)) {
            const row = firstRow + 16 * g.warpId + 8 * half + g.laneId / 4;
            const column = firstColumn + 8 * i + 2 * (g.laneId % 4);
            const pair = g.word('bf16', [sums[4 * i + 2 * half]!, sums[4 * i + 2 * half + 1]!]);
            g.store(c.at(row * n + column).as('u32'), pair);
          }
        }
      }
    },
  ),
};
