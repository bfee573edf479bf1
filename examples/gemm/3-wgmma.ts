/** Step 3: the copy engine brings the tiles, and a warp group multiplies 64 rows of them with one instruction. */
import { kernel, pointer, tensorMap, tile } from 'heddle/lang';
import type { Gemm } from './multiply.js';

const Tile = tile('bf16', [128, 64], { swizzle: 128 });
/** Two warp groups, each with 64 of the tile's rows. */
const threads = 256;

export const wgmma: Gemm = {
  threads,
  tile: { rows: Tile.rows, columns: Tile.rows, depth: Tile.columns },
  whole: true,
  maps: ['a', 'b'],
  persistent: false,
  kernel: kernel(
    {
      name: 'gemm_wgmma',
      params: {
        ...{ a: tensorMap(Tile), b: tensorMap(Tile), c: pointer('bf16') },
        ...{ m: 'u32', n: 'u32', k: 'u32' },
      },
      using: { Tile },
      maxThreads: threads,
    },
    (g, { a, b, c, n, k }, { Tile }) => {
      const left = g.shared(Tile);
      const right = g.shared(Tile);
      const full = g.shared('u64', 1);
      const across = n / Tile.rows;
      const firstRow = (g.blockIdx.x / across) * Tile.rows;
      const firstColumn = (g.blockIdx.x % across) * Tile.rows;
      const group = g.warpId / 4;
      const sums = g.registers('f32', Tile.rows / 2);
      if (g.threadIdx.x === 0) g.mbarrier.init(full, 1);
      g.barrier();
      for (let step = g.u32(0); step < k / Tile.columns; step += 1) {
        if (g.threadIdx.x === 0) {
          g.mbarrier.expect(full, 2 * Tile.bytes);
          g.tensor.load(left, a, [firstRow, step * Tile.columns], full);
          g.tensor.load(right, b, [firstColumn, step * Tile.columns], full);
        }
        g.mbarrier.await(full, step % 2);
        g.wgmma.fence();
        g.wgmma.multiply(sums, left.rows(64 * group, 64), right, step === 0);
        g.wgmma.commit();
        g.wgmma.wait(0);
        // Both groups have multiplied the tiles: they may be overwritten.
        g.barrier();
      }
      for (const i of g.unroll(Tile.rows / 8)) {
        for (const half of g.unroll(2)) {
          const row = firstRow + 16 * g.warpId + 8 * half + g.laneId / 4;
          const column = firstColumn + 8 * i + 2 * (g.laneId % 4);
          const pair = g.word('bf16', [sums[4 * i + 2 * half]!, sums[4 * i + 2 * half + 1]!]);
          g.store(c.at(row * n + column).as('u32'), pair);
        }
      }
    },
  ),
};
