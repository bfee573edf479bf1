/** Kernels of tiles as nvcc sees them: no warning, no spilled register, and the instructions that they are for. `npm run test:nvcc`. */
import { beforeAll, describe, expect, test } from 'vitest';
import { entryName, printCuda } from '../../../src/lang/index.js';
import { hopperKernels } from '../../../src/moe/experts/kernels/hopper/kernels.js';
import { needing } from '../../needs.js';
import { type CompiledCuda, compileCuda, disassemble } from '../cuda/nvcc.js';
import { boxKernel, clusterKernel } from './cases.js';
import { gemmKernel } from './gemm.js';

const gemms = [
  gemmKernel({ type: 'bf16', rows: 128, columns: 256, stages: 4 }),
  gemmKernel({ type: 'e4m3', rows: 128, columns: 128, stages: 4 }),
  gemmKernel({ type: 'bf16', rows: 64, columns: 8, stages: 2, swizzle: 32 }),
  gemmKernel({ type: 'e4m3', rows: 256, columns: 96, stages: 6, swizzle: 64 }),
].map(({ kernel }) => kernel.ir());
const boxes = [
  clusterKernel().ir(),
  ...([0, 32, 64, 128] as const).flatMap((swizzle) => [
    boxKernel(swizzle, 2).ir(),
    boxKernel(swizzle, 3).ir(),
  ]),
];

/** The experts' kernels that need most registers. */
const { gateUp, down } = hopperKernels({
  ...{ of: 'plan', experts: 16, hidden: 7168, inner: 2048, topK: 8, rows: 512, kind: 'cuda', dtype: 'e4m3' },
  multiprocessors: 132,
});
const experts = [gateUp.ir(), down.ir()];

describe('nvcc for sm_90a', needing('nvcc'), () => {
  let compiled: CompiledCuda;
  beforeAll(async () => {
    compiled = await compileCuda(printCuda([...gemms, ...boxes, ...experts]), 'sm_90a');
  });

  test('compiles products and boxes without a warning, a spill, a stack, or products one after the other', () => {
    const { kernels, warnings } = compiled;
    expect(warnings).toEqual([]);
    expect(kernels.map(({ name }) => name).sort()).toEqual(
      [...gemms, ...boxes, ...experts].map(entryName).sort(),
    );
    expect(kernels.filter(({ spillBytes, stackBytes }) => spillBytes + stackBytes !== 0)).toEqual([]);
  });

  test('as the instructions that they are for', needing('nvcc', 'nvdisasm'), async () => {
    const code = await disassemble(compiled.cubin);
    const of = (name: string) => code.get(`${name}_kernel`)!.join('\n');
    expect(of('gemm_bf16_128x256_128').match(/HGMMA\.64x256x16\.F32\.BF16/g)).toHaveLength(4);
    expect(of('gemm_e4m3_128x128_128').match(/QGMMA\.64x128x32\.F32\.E4M3/g)).toHaveLength(4);
    expect(of('gemm_bf16_128x256_128')).toMatch(/UTMALDG\.2D/);
    expect(of('gemm_bf16_128x256_128').match(/USETMAXREG/g)).toHaveLength(2);
    expect(of('box_128_3d')).toMatch(/UTMALDG\.3D/);
    expect(of('box_128_3d')).toMatch(/UTMASTG\.3D/);
  });
});

test('nvcc compiles boxes for sm_100a', needing('nvcc'), async () => {
  const { warnings, kernels } = await compileCuda(printCuda(boxes), 'sm_100a');
  expect(warnings).toEqual([]);
  expect(kernels.length).toBe(boxes.length);
});
