/** The step of a layer behind its experts. */
import { kernel, pointer } from '../../../lang/index.js';

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

/** One launch for all layers of a process. */
export const addRows = {
  sim: { kernel: addRowsKernel(64), blocks: 2, threads: 64 },
  cuda: { kernel: addRowsKernel(256), blocks: 264, threads: 256 },
} as const;
