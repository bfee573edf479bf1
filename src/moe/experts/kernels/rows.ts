/** The steps of a layer beside its experts. */
import { kernel, pointer } from '../../../lang/index.js';
import { rowFormats } from '../../layer/index.js';

/** Rows of bf16 as e4m3 with a scale for every 128 elements, for dispatch to carry. A lane takes 16 elements. */
export const rowsToFp8Kernel = (threads: number) =>
  kernel(
    {
      name: 'rows_to_fp8',
      maxThreads: threads,
      params: {
        from: pointer('v16'),
        to: pointer('v16'),
        scales: pointer('f32'),
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

/** Adds rows to rows: what the shared expert made to what came back from the others. */
const addRowsKernel = (threads: number) =>
  kernel(
    {
      name: 'add_rows',
      maxThreads: threads,
      params: {
        to: pointer('bf16'),
        from: pointer('bf16'),
        /** Of 8 elements each. */
        vectors: 'u32',
      },
    },
    (g, { to, from, vectors }) => {
      g.awaitPrevious();
      g.releaseNext();
      for (
        let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
        i < vectors;
        i += g.gridDim.x * g.blockDim.x
      ) {
        const own = g.load(to.as('v16').at(i));
        const other = g.load(from.as('v16').at(i));
        const sums = g.registers('f32', 8);
        for (const lane of g.unroll(8)) {
          sums[lane] = g.f32(g.lane(own, 'bf16', lane)) + g.f32(g.lane(other, 'bf16', lane));
        }
        g.store(to.as('v16').at(i), g.pack('bf16', sums));
      }
    },
  );

/** One launch each for all layers of a process. */
export const addRows = {
  sim: { kernel: addRowsKernel(64), blocks: 2, threads: 64 },
  cuda: { kernel: addRowsKernel(256), blocks: 264, threads: 256 },
} as const;

export const rowsToFp8 = {
  sim: { kernel: rowsToFp8Kernel(64), blocks: 2, threads: 64 },
  cuda: { kernel: rowsToFp8Kernel(256), blocks: 264, threads: 256 },
} as const;
