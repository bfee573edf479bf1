/** Grouped GEMM: rows by expert, times each expert's weights. */
import { device, kernel, pointer } from '../../../lang/index.js';
import type { GemmShape } from './shape.js';
import { silu } from './silu.js';

export function gemmKernel({ rows, experts, inputs, outputs, gated, topK }: GemmShape, threads: number) {
  return kernel(
    {
      name: gated ? 'experts_gate_up' : 'experts_down',
      maxThreads: threads,
      params: {
        /** [expert]: rows of each, and where they begin; with `all` nobody looks. */
        counts: pointer('u32'),
        offsets: pointer('u32'),
        /** [row]: its route. */
        routes: pointer('i32'),
        /** With `all`. */
        count: 'u32',
        /** Rows that come in; [expert][out][in]; rows that go out, in the order of the plan. */
        from: pointer('bf16'),
        weights: pointer('bf16'),
        to: pointer('bf16'),
      },
      using: {
        EXPERTS: experts,
        INPUTS: inputs,
        OUTPUTS: outputs,
        GATED: gated,
        ALL: rows === 'all',
        GATHERED: rows === 'gathered',
        K: topK,
        product,
        silu,
      },
    },
    (g, { counts, offsets, routes, count, from, weights, to }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const stride = g.gridDim.x * g.blockDim.x;
      const planes = u.GATED ? 2 : 1;
      for (let e = g.u32(0); e < u.EXPERTS; e += 1) {
        let rows = count;
        let first = g.u32(0);
        if (!u.ALL) {
          rows = g.load(counts.at(e));
          first = g.load(offsets.at(e));
        }
        for (let i = g.blockIdx.x * g.blockDim.x + g.threadIdx.x; i < rows * u.OUTPUTS; i += stride) {
          const row = first + i / u.OUTPUTS;
          const column = i % u.OUTPUTS;
          let source = row;
          if (u.GATHERED) source = g.u32(g.load(routes.at(row))) / u.K;
          const a = from.at(source * u.INPUTS);
          const b = weights.at((e * planes * u.OUTPUTS + column) * u.INPUTS);
          let sum = u.product({ a, b, length: u.INPUTS });
          if (u.GATED) {
            const up = u.product({ a, b: b.at(u.OUTPUTS * u.INPUTS), length: u.INPUTS });
            sum = u.silu({ x: sum }) * up;
          }
          g.store(to.at(i + first * u.OUTPUTS), g.bf16(sum));
        }
      }
    },
  );
}

const product = device(
  { name: 'product', params: { a: pointer('bf16'), b: pointer('bf16'), length: 'u32' }, returns: 'f32' },
  (g, { a, b, length }) => {
    let sum = g.f32(0);
    for (let i = g.u32(0); i < length; i += 8) {
      const [left, right] = [g.load(a.at(i).as('v16')), g.load(b.at(i).as('v16'))];
      for (const lane of g.unroll(8))
        sum = g.fma(g.f32(g.lane(left, 'bf16', lane)), g.f32(g.lane(right, 'bf16', lane)), sum);
    }
    return sum;
  },
);
