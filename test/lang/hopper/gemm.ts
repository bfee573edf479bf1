/** A GEMM with roles: a warp brings tiles to a ring of stages, warp groups multiply them. Small, and meant to be read. */
import { kernel, pipeline, pointer, tensorMap, tile } from '../../../src/lang/index.js';

export interface GemmShape {
  readonly type: 'bf16' | 'e4m3';
  /** Of the sums of a block: rows are multiples of 64, a warp group each. */
  readonly rows: 64 | 128 | 192 | 256;
  readonly columns: number;
  readonly stages: number;
  readonly swizzle?: 128 | 64 | 32;
}

/** c = a · bᵀ: a is m × k, b is n × k, c is m × n of f32; a block makes a tile of c. */
export function gemmKernel({ type, rows, columns, stages, swizzle = 128 }: GemmShape) {
  const size = type === 'bf16' ? 2 : 1;
  const A = tile(type, [rows, swizzle / size], { swizzle });
  const B = tile(type, [columns, swizzle / size], { swizzle });
  const consumers = rows / 64;
  const made = kernel(
    {
      name: `gemm_${type}_${rows}x${columns}_${swizzle}`,
      params: { a: tensorMap(A), b: tensorMap(B), c: pointer('f32'), m: 'u32', n: 'u32', k: 'u32' },
      using: {
        A,
        B,
        ring: pipeline({ stages, empties: 4 * consumers }),
        CONSUMERS: consumers,
        COLUMNS: columns,
        // Of two warp groups a thread may have all that there are from the start.
        MOVES: consumers > 1,
        REGISTERS: consumers === 2 ? 232 : consumers === 3 ? 152 : 104,
      },
      maxThreads: 128 * (consumers + 1),
    },
    (g, { a, b, c, m, n, k }, { A, B, ring, CONSUMERS, COLUMNS, MOVES, REGISTERS }) => {
      const left = g.shared(A, ring.stages);
      const right = g.shared(B, ring.stages);
      const full = g.shared('u64', ring.stages);
      const empty = g.shared('u64', ring.stages);
      const gates = { full, empty };
      const group = g.warpId / 4;
      const across = (n + COLUMNS - 1) / COLUMNS;
      const firstRow = (g.blockIdx.x / across) * A.rows;
      const firstColumn = (g.blockIdx.x % across) * COLUMNS;
      const steps = (k + A.columns - 1) / A.columns;
      if (g.threadIdx.x === 0) ring.start({ gates });
      g.barrier();
      if (group === CONSUMERS) {
        if (MOVES) g.group.giveRegisters(40);
        if (g.threadIdx.x === CONSUMERS * 128) {
          for (let step = g.u32(0); step < steps; step += 1) {
            const stage = ring.acquire({ gates, step });
            g.mbarrier.expect(full.at(stage), A.bytes + B.bytes);
            g.tensor.load(left.at(stage), a, [firstRow, step * A.columns], full.at(stage));
            g.tensor.load(right.at(stage), b, [firstColumn, step * B.columns], full.at(stage));
          }
        }
      } else {
        if (MOVES) g.group.takeRegisters(REGISTERS);
        const sums = g.registers('f32', COLUMNS / 2);
        for (let step = g.u32(0); step < steps; step += 1) {
          const stage = ring.wait({ gates, step });
          g.wgmma.fence();
          g.wgmma.multiply(sums, left.at(stage).rows(group * 64, 64), right.at(stage), step === 0);
          g.wgmma.commit();
          g.wgmma.wait(0);
          if (g.laneId === 0) ring.release({ gates, step });
        }
        const row = firstRow + g.warpId * 16 + g.laneId / 4;
        const column = firstColumn + (g.laneId % 4) * 2;
        for (const i of g.unroll(COLUMNS / 2)) {
          const r = row + 8 * (g.u32(i % 4) / 2);
          const col = column + 8 * (g.u32(i) / 4) + (i % 2);
          if (r < m && col < n) g.store(c.at(r * n + col), sums[i]!);
        }
      }
    },
  );
  return { kernel: made, block: 128 * (consumers + 1), tiles: { A, B } };
}
