/** Step 5: blocks stay, the tensor cores never wait for a warp, and the copy engine stores whole lines of c. */
import { device, kernel, pipeline, record, registers, tensorMap, tile, tiles } from 'heddle/lang';
import type { Gemm } from './multiply.js';

const A = tile('bf16', [128, 64], { swizzle: 128 });
const B = tile('bf16', [256, 64], { swizzle: 128 });
/** A warp's 16 rows of c pass through shared memory in boxes of 128 bytes a row. */
const C = tile('bf16', [16, 64], { swizzle: 128 });
const threads = 3 * 128;

/**
 * Where tile number `tile` lies. Sixteen rows of tiles meet all columns before the next are begun, so that blocks which run at the
 * same time read the same rows of a and b, while the cache has them.
 */
const placeOf = device(
  {
    name: 'place_of',
    params: { tile: 'u32', m: 'u32', n: 'u32' },
    returns: record({ row: 'u32', column: 'u32' }),
    using: { A, B, TOGETHER: 16 },
  },
  (g, { tile, m, n }, { A, B, TOGETHER }) => {
    const across = n / B.rows;
    const first = (tile / (TOGETHER * across)) * TOGETHER;
    const rows = g.min(m / A.rows - first, g.u32(TOGETHER));
    const turn = tile - first * across;
    return { row: (first + (turn % rows)) * A.rows, column: (turn / rows) * B.rows };
  },
);

/** A warp's sums to c, which begin at this row and column. It has two boxes: one is stored while the other is filled. */
const storeSums = device(
  {
    name: 'store_sums',
    params: { sums: registers('f32'), own: tiles(C), c: tensorMap(C), row: 'u32', column: 'u32' },
    using: { C },
  },
  (g, { sums, own, c, row, column }, { C }) => {
    for (const part of g.unroll((2 * sums.length) / C.columns)) {
      const box = own.at(part % 2);
      // The box before last has been read: its place is free.
      if (g.laneId === 0) g.bulk.waitReads(1);
      g.warp.barrier();
      for (const i of g.unroll(C.columns / 8)) {
        for (const half of g.unroll(2)) {
          const at = (part * C.columns) / 2 + 4 * i + 2 * half;
          const element = box.element(8 * half + g.laneId / 4, 8 * i + 2 * (g.laneId % 4));
          g.store(element.as('u32'), g.word('bf16', [sums[at]!, sums[at + 1]!]));
        }
      }
      g.proxyFence('shared');
      g.warp.barrier();
      if (g.laneId === 0) {
        g.tensor.store(c, [row, column + part * C.columns], box);
        g.bulk.commit();
      }
    }
  },
);

export const persistent: Gemm = {
  threads,
  tile: { rows: A.rows, columns: B.rows, depth: A.columns },
  whole: true,
  maps: ['a', 'b', 'c'],
  persistent: true,
  kernel: kernel(
    {
      name: 'gemm_persistent',
      params: {
        ...{ a: tensorMap(A), b: tensorMap(B), c: tensorMap(C) },
        ...{ m: 'u32', n: 'u32', k: 'u32' },
      },
      using: { A, B, C, ring: pipeline({ stages: 4, empties: 8 }), placeOf, storeSums },
      maxThreads: threads,
    },
    (g, { a, b, c, m, n, k }, { A, B, C, ring, placeOf, storeSums }) => {
      const left = g.shared(A, ring.stages);
      const right = g.shared(B, ring.stages);
      const boxes = g.shared(C, 16);
      const full = g.shared('u64', ring.stages);
      const empty = g.shared('u64', ring.stages);
      const gates = { full, empty };
      const count = (m / A.rows) * (n / B.rows);
      const steps = k / A.columns;
      const group = g.warpId / 4;
      // Both sides count the steps of all tiles, one behind the other.
      let turn = g.u32(0);
      if (g.threadIdx.x === 0) ring.start({ gates });
      g.barrier();
      if (group === 2) {
        g.group.giveRegisters(40);
        if (g.threadIdx.x === 256) {
          for (let tile = g.blockIdx.x; tile < count; tile += g.gridDim.x) {
            const { row, column } = placeOf({ tile, m, n });
            for (let step = g.u32(0); step < steps; step += 1) {
              const stage = ring.acquire({ gates, step: turn });
              g.mbarrier.expect(full.at(stage), A.bytes + B.bytes);
              g.tensor.load(left.at(stage), a, [row, step * A.columns], full.at(stage));
              g.tensor.load(right.at(stage), b, [column, step * B.columns], full.at(stage));
              turn += 1;
            }
          }
        }
      } else {
        g.group.takeRegisters(232);
        const own = boxes.at(2 * g.warpId);
        for (let tile = g.blockIdx.x; tile < count; tile += g.gridDim.x) {
          const { row, column } = placeOf({ tile, m, n });
          const sums = g.registers('f32', B.rows / 2);
          for (let step = g.u32(0); step < steps; step += 1) {
            const stage = ring.wait({ gates, step: turn });
            g.wgmma.fence();
            g.wgmma.multiply(sums, left.at(stage).rows(64 * group, 64), right.at(stage), step === 0);
            g.wgmma.commit();
            // This product is under way: the one before it is done with its stage.
            g.wgmma.wait(1);
            if (step > 0 && g.laneId === 0) ring.release({ gates, step: turn - 1 });
            turn += 1;
          }
          g.wgmma.wait(0);
          if (g.laneId === 0) ring.release({ gates, step: turn - 1 });
          storeSums({ sums, own, c, row: row + 16 * g.warpId, column });
        }
        if (g.laneId === 0) g.bulk.waitReads(0);
      }
    },
  ),
};
