/** Every kernel that Heddle has, as nvcc sees it: no warning, no spilled register, no stack. */
import { describe, expect, test } from 'vitest';
import { registry, type ShapeText } from '../../src/kernels/index.js';
import { printCuda } from '../../src/lang/index.js';
import { architectures, compileCuda, findTool } from '../lang/cuda/nvcc.js';

const nvcc = findTool('nvcc');

/** Besides its default: the other ways of dispatch and combine, many vectors in flight, rows that no vector divides, other types, one token, many ranks. */
const variants: Readonly<Record<string, readonly ShapeText[]>> = {
  one_sided_dispatch: [
    { ranks: 4, hidden: 77, counts: 'yes' },
    { tokens: 1, parts: 4, blocks: 4, threads: 256, scales: 224 },
    { ranks: 72, experts: 288, topk: 32, way: 'pull' },
    { hidden: 2 ** 17, threads: 512, inflight: 8 },
    { hidden: 2 ** 17, threads: 896, inflight: 8 },
    { dispatch: 'bulk', threads: 128, scales: 224 },
    { dispatch: 'bulk', threads: 1024, blocks: 16, scales: 36, way: 'pull', counts: 'yes' },
    { dispatch: 'bulk', ranks: 72, experts: 288, topk: 32, threads: 128, parts: 3 },
  ],
  one_sided_combine: [
    { way: 'pull' },
    { way: 'pull', hidden: 77, dtype: 'f16' },
    { ranks: 4, tokens: 1, parts: 7, blocks: 7, threads: 128 },
    { dtype: 'f32', ahead: 4, counts: 'yes' },
    { ranks: 72, experts: 288, topk: 32 },
    { hidden: 2 ** 17, threads: 512, inflight: 8 },
    { hidden: 2 ** 17, threads: 896, inflight: 8 },
  ],
  one_sided_combine_e4m3: [
    { weighting: 'combine', hidden: 144 },
    { ranks: 4, tokens: 1, parts: 7, blocks: 7, threads: 128, dtype: 'f32' },
    { ranks: 72, experts: 288, topk: 32, dtype: 'f16', counts: 'yes' },
  ],
  one_sided_weigh: [
    { transport: 'e4m3', topk: 32 },
    { hidden: 77, dtype: 'f16', way: 'pull' },
    { dtype: 'f32', tokens: 1, parts: 7 },
  ],
  example_experts: [{ dtype: 'f32', weights: 'no' }, { hidden: 77 }, { routes: 'yes' }],
};

const shapes = registry.flatMap(({ name, build }) =>
  [{}, ...(variants[name] ?? [])].map((shape) => ({
    name: [name, ...Object.entries(shape).map(([key, value]) => `${key}=${value}`)].join(' '),
    build: () => build(shape),
  })),
);

test('every variant is one of a kernel that is there', () => {
  const known = registry.map(({ name }) => name);
  expect(Object.keys(variants).filter((name) => !known.includes(name))).toEqual([]);
});

describe.skipIf(nvcc === null).each(architectures)('nvcc compiles for %s', (architecture) => {
  test.each(shapes)('$name', async ({ build }) => {
    const { kernels, warnings } = await compileCuda(nvcc!, printCuda([build().ir()]), architecture);
    expect(warnings).toEqual([]);
    expect(kernels).toHaveLength(1);
    expect(kernels.filter(({ spillBytes, stackBytes }) => spillBytes + stackBytes !== 0)).toEqual([]);
  });
});
