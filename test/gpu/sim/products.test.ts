/** Products of tiles (wgmma), brought and taken by the copy engine (TMA), beside a plain reference. */
import { expect, test } from 'vitest';
import { bf16ToF32, e4m3ToF32, f32ToBf16, f32ToE4m3 } from '../../../src/gpu/index.js';
import { gemmKernel } from '../../lang/hopper/gemm.js';
import { download, machineOf, upload } from './harness.js';

/** Small numbers whose products and sums are exact, so that no order of adding matters. */
function matrix(rows: number, columns: number, salt: number): Float32Array {
  return Float32Array.from({ length: rows * columns }, (_, i) => ((i * 7 + salt * 13 + (i >> 5)) % 15) - 7);
}

const formats = {
  bf16: { pack: (x: Float32Array) => Uint16Array.from(x, f32ToBf16), open: bf16ToF32 },
  e4m3: { pack: (x: Float32Array) => Uint8Array.from(x, f32ToE4m3), open: e4m3ToF32 },
};

const shapes = (['bf16', 'e4m3'] as const).flatMap((type) =>
  ([128, 64, 32] as const).flatMap((swizzle) => [
    { type, swizzle, rows: 64 as const, columns: 8, stages: 2, m: 64, n: 8, k: 128 },
    { type, swizzle, rows: 128 as const, columns: 40, stages: 3, m: 200, n: 72, k: 176 },
  ]),
);

test.each([...shapes, { type: 'bf16' as const, swizzle: 128 as const, rows: 128 as const, columns: 256, stages: 3, m: 128, n: 256, k: 64 }])(
  'a GEMM of $type, swizzle $swizzle, $rows × $columns of $m × $n × $k',
  async ({ m, n, k, ...shape }) => {
    const { kernel, block } = gemmKernel(shape);
    const { ranks } = machineOf({ ranks: 1 });
    const [rank] = ranks as [(typeof ranks)[0]];
    const [x, y] = [matrix(m, k, 1), matrix(n, k, 2)];
    const { pack } = formats[shape.type];
    const [a, b] = [upload(rank, pack(x)), upload(rank, pack(y))];
    const c = rank.device.allocate(m * n * 4, 'c');
    const grid = Math.ceil(m / shape.rows) * Math.ceil(n / shape.columns);
    const launcher = (await rank.device.load(kernel.ir())).launcher({ grid, block, rank: 0 });
    launcher.setTensor('a', { address: a.address, extents: [m, k] });
    launcher.setTensor('b', { address: b.address, extents: [n, k] });
    launcher.set('c', c.address);
    launcher.set('m', m);
    launcher.set('n', n);
    launcher.set('k', k);
    launcher.launch(rank.stream);
    const result = new Float32Array(await download(rank, c));
    const expected = new Float32Array(m * n);
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0; l < k; l++) sum += x[i * k + l]! * y[j * k + l]!;
        expected[i * n + j] = sum;
      }
    expect(result).toEqual(expected);
  },
);
