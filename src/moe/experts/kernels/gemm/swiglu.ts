/** SwiGLU as a launch of its own, for GEMMs that leave gates and what they scale side by side. */
import { device, kernel, pointer } from '../../../../lang/index.js';
import { exp } from '../../../families/common/exp.js';

/** x / (1 + e^−x) */
export const silu = device(
  { name: 'silu', params: { x: 'f32' }, returns: 'f32', using: { exp } },
  (g, { x }, u) => x * g.rcp(1 + u.exp({ x: -x })),
);

/** For rows of 2 · inner elements, a multiple of 8: those of a plan, or as many as the host says. */
export function swigluKernel(inner: number, threads: number, of: 'plan' | 'all') {
  return kernel(
    {
      name: 'experts_swiglu',
      maxThreads: threads,
      params: {
        /** Rows that there are, of a plan or of all; nobody looks at the other. */
        total: pointer('u32'),
        count: 'u32',
        /** [row][2 · inner]: gates, then what they scale; and [row][inner]. */
        from: pointer('v16'),
        to: pointer('v16'),
      },
      using: { UNITS: inner / 8, ALL: of === 'all', silu },
    },
    (g, { total, count, from, to }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      let rows = count;
      if (!u.ALL) rows = g.load(total);
      const vectors = rows * u.UNITS;
      for (
        let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x;
        i < vectors;
        i += g.gridDim.x * g.blockDim.x
      ) {
        const at = from.at(2 * u.UNITS * (i / u.UNITS) + (i % u.UNITS));
        const gate = g.load(at, { cache: 'stream' });
        const up = g.load(at.at(u.UNITS), { cache: 'stream' });
        const made = g.registers('f32', 8);
        for (const lane of g.unroll(8))
          made[lane] = u.silu({ x: g.f32(g.lane(gate, 'bf16', lane)) }) * g.f32(g.lane(up, 'bf16', lane));
        g.store(to.at(i), g.pack('bf16', made));
      }
    },
  );
}
