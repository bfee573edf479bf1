/** Kernels in TypeScript, printed as CUDA and compiled to PTX: they do on the simulated machine what their own form does there. */
import { describe, expect, test } from 'vitest';
import { prepare, steps } from '../../../../examples/gemm/index.js';
import { f32ToBf16 } from '../../../../src/gpu/index.js';
import { formatFinding, type KernelModule, Random, SimMachine } from '../../../../src/gpu/sim/index.js';
import { checkSubjects, runOnce } from '../../../../src/verify/check/index.js';
import { needing } from '../../../needs.js';
import { temporaryFolder } from '../../../temporary.js';
import { compiledBy } from './compiled.js';

describe('what nvcc makes of kernels', needing('nvcc'), () => {
  const folder = temporaryFolder();
  const compiled = compiledBy(folder);

  test.each([
    'push, 2 ranks',
    'push, a rank lost in dispatch',
    'hybrid, 2 ranks',
    'hybrid, groups of 2, a rank lost in combine',
    'portable, 2 ranks',
    'ceilings, transfers between barriers',
    'mlp, one resident block',
  ])('%s', async (name) => {
    const configuration = checkSubjects
      .flatMap(({ configurations }) => configurations)
      .find((one) => one.name === name);
    expect(configuration).toBeDefined();
    for (const seed of ['random-0', 'priority-1']) {
      const { findings } = await runOnce(configuration!, {
        seed,
        schedule: seed.startsWith('random') ? 'random' : 'priority',
        substitute: compiled,
      });
      expect(findings.map(formatFinding)).toEqual([]);
    }
  });

  test.each(steps.slice(2).map((gemm) => ({ name: gemm.kernel.ir().name, gemm })))(
    '$name gives the same bits, by tensor maps and wgmma',
    async ({ gemm }) => {
      const { rows, columns, depth } = gemm.tile;
      const sizes = { m: rows, n: columns, k: 2 * depth };
      const random = new Random(1, 2, 3);
      const bits = (count: number) =>
        new Uint8Array(
          Uint16Array.from({ length: count }, () => f32ToBf16(random.below(2000) / 999 - 1)).buffer,
        );
      const [left, right] = [bits(sizes.m * sizes.k), bits(sizes.n * sizes.k)];
      async function multiply(substitute: (module: KernelModule) => KernelModule) {
        const machine = SimMachine.create({ ranks: 1, mode: 'checked', seed: '1', substitute });
        const device = machine.device(0);
        const stream = device.createStream();
        const [a, b] = [left, right].map((bytes, i) => {
          const { address } = device.allocate(bytes.length, 'ab'[i]!);
          stream.copyIn(address, bytes);
          return address;
        }) as [number, number];
        const bytes = 2 * sizes.m * sizes.n;
        const c = device.allocateWindow(bytes, 'c').address;
        (await prepare(device, gemm, { a, b, c, ...sizes })).launch(stream);
        const product = (await stream.copyOut(c, bytes)).slice();
        expect(machine.findings.map(formatFinding)).toEqual([]);
        return product;
      }
      expect(await multiply(compiled)).toEqual(await multiply((module) => module));
    },
  );
});
