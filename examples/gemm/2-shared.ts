/** Step 2: a block keeps tiles of a and b in shared memory, and its warps multiply them on the tensor cores. */
import { kernel, pointer, tile } from 'heddle/lang';
import type { Gemm } from './multiply.js';

const Tile = tile('bf16', [128, 64], { swizzle: 128 });
const threads = 256;

export const shared: Gemm = {
  threads,
  tile: { rows: Tile.rows, columns: Tile.rows, depth: Tile.columns },
  whole: true,
  maps: [],
  persistent: false,
  kernel: kernel(
    {
      name: 'gemm_shared',
      params: {
        ...{ a: pointer('bf16'), b: pointer('bf16'), c: pointer('bf16') },
        ...{ m: 'u32', n: 'u32', k: 'u32' },
      },
      using: { Tile, THREADS: threads },
      maxThreads: threads,
    },
    (g, { a, b, c, n, k }, { Tile, THREADS }) => {
      const left = g.shared(Tile);
      const right = g.shared(Tile);
      const across = n / Tile.rows;
      const firstRow = (g.blockIdx.x / across) * Tile.rows;
      const firstColumn = (g.blockIdx.x % across) * Tile.rows;
      // Of the block's 128 × 128 sums a warp makes 64 × 32: 4 × 4 pieces of 16 × 8.
      const warpRow = (g.warpId / 4) * 64;
      const warpColumn = (g.warpId % 4) * 32;
      const sums = g.registers('v16', 16, g.pack('u32', [0, 0, 0, 0]));
      for (let first = g.u32(0); first < k; first += Tile.columns) {
        // Eight elements at a time, 16 bytes.
        for (const part of g.unroll((Tile.rows * Tile.columns) / 8 / THREADS)) {
          const i = part * THREADS + g.threadIdx.x;
          const row = i / (Tile.columns / 8);
          const column = (i % (Tile.columns / 8)) * 8;
          const fromLeft = a.at((firstRow + row) * k + first + column);
          const fromRight = b.at((firstColumn + row) * k + first + column);
          g.store(left.element(row, column).as('v16'), g.load(fromLeft.as('v16')));
          g.store(right.element(row, column).as('v16'), g.load(fromRight.as('v16')));
        }
        g.barrier();
        for (const piece of g.unroll(Tile.columns / 16)) {
          const mine = g.registers('v16', 4);
          for (const i of g.unroll(4)) {
            const row = warpRow + 16 * i + (g.laneId % 16);
            mine[i] = g.warp.ldmatrix(left.element(row, 16 * piece + 8 * (g.laneId / 16)).as('v16'));
          }
          for (const j of g.unroll(2)) {
            const row = warpColumn + 16 * j + 8 * (g.laneId / 16) + (g.laneId % 8);
            const column = 16 * piece + 8 * ((g.laneId / 8) % 2);
            const theirs = g.warp.ldmatrix(right.element(row, column).as('v16'));
            for (const i of g.unroll(4))
              for (const half of g.unroll(2))
                sums[4 * i + 2 * j + half] = g.warp.mma(mine[i]!, theirs, half, sums[4 * i + 2 * j + half]!);
          }
        }
        // All warps have read the tiles: they may be overwritten.
        g.barrier();
      }
      for (const i of g.unroll(4)) {
        for (const j of g.unroll(4)) {
          for (const half of g.unroll(2)) {
            const row = firstRow + warpRow + 16 * i + 8 * half + g.laneId / 4;
            const column = firstColumn + warpColumn + 8 * j + 2 * (g.laneId % 4);
            const sum = sums[4 * i + j]!;
            const pair = g.word('bf16', [g.lane(sum, 'f32', 2 * half), g.lane(sum, 'f32', 2 * half + 1)]);
            g.store(c.at(row * n + column).as('u32'), pair);
          }
        }
      }
    },
  ),
};
