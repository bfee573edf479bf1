/** The kernel that rounds rows which no dispatch has brought. */
import { kernel, pointer } from '../../../lang/index.js';
import { rowFormats } from '../../layer/index.js';

/** Rows of bf16 as e4m3 with a scale for every 128 elements. A lane takes 16 elements. */
export const rowsToFp8Kernel = (threads: number) =>
  kernel(
    {
      name: 'rows_to_fp8',
      maxThreads: threads,
      params: {
        ...{ from: pointer('v16'), to: pointer('v16'), scales: pointer('f32') },
        /** Vectors of 16 elements: a multiple of 8. */
        units: 'u32',
      },
      using: { narrow: rowFormats.e4m3.rounding.narrow, WARPS: threads / 32 },
    },
    (g, { from, to, scales, units }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const warps = g.gridDim.x * u.WARPS;
      for (let first = (g.blockIdx.x * u.WARPS + g.warpId) * 32; first < units; first += warps * 32) {
        const i = first + g.laneId;
        const values = g.registers('f32', 16);
        if (i < units) {
          for (const half of g.unroll(2)) {
            const some = g.load(from.at(2 * i + half), { cache: 'stream' });
            for (const lane of g.unroll(8)) values[8 * half + lane] = g.f32(g.lane(some, 'bf16', lane));
          }
        }
        // All lanes of the warp take part.
        const scale = u.narrow({ values });
        if (i < units) {
          g.store(to.at(i), g.pack('e4m3', values));
          if (g.laneId % 8 === 0) g.store(scales.at(i / 8), g.bits('f32', scale));
        }
      }
    },
  );

/** One launch for all layers of a process. */
export const rowsToFp8 = {
  sim: { kernel: rowsToFp8Kernel(64), blocks: 2, threads: 64 },
  cuda: { kernel: rowsToFp8Kernel(256), blocks: 264, threads: 256 },
} as const;
