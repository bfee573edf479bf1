/** Step 1: a thread makes an element, with one multiplication after the other. */
import { kernel, pointer } from 'heddle/lang';
import type { Gemm } from './multiply.js';

/** A block makes so many rows and columns. */
const side = 16;

export const loop: Gemm = {
  threads: side * side,
  tile: { rows: side, columns: side, depth: 1 },
  whole: false,
  maps: [],
  persistent: false,
  kernel: kernel(
    {
      name: 'gemm_loop',
      params: {
        ...{ a: pointer('bf16'), b: pointer('bf16'), c: pointer('bf16') },
        ...{ m: 'u32', n: 'u32', k: 'u32' },
      },
      using: { SIDE: side },
      maxThreads: side * side,
    },
    (g, { a, b, c, m, n, k }, { SIDE }) => {
      const across = (n + SIDE - 1) / SIDE;
      const row = (g.blockIdx.x / across) * SIDE + g.threadIdx.x / SIDE;
      const column = (g.blockIdx.x % across) * SIDE + (g.threadIdx.x % SIDE);
      if (row < m && column < n) {
        let sum = g.f32(0);
        for (let i = g.u32(0); i < k; i += 1)
          sum = g.fma(g.f32(g.load(a.at(row * k + i))), g.f32(g.load(b.at(column * k + i))), sum);
        g.store(c.at(row * n + column), g.bf16(sum));
      }
    },
  ),
};
