/**
 * How the kernels of field.cu are launched, for the race detector:
 *
 *   nvcc -ptx -arch=sm_90a -lineinfo examples/ptx/field.cu -o field.ptx
 *   npx heddle check --ptx field.ptx --host examples/ptx/field.ts
 */
import { everyRank, type PtxHost } from 'heddle/check';
import { tensorMap, tile } from 'heddle/lang';

const base = tensorMap(tile('i32', [8, 4], { swizzle: 0 }));

const host: PtxHost = (kernels) =>
  [
    { name: 'stage', ranks: 1, grid: 1, expected: 32 },
    { name: 'tail', ranks: 2, grid: 1, expected: 0 },
    { name: 'copy_in', ranks: 2, grid: 1, expected: 0 },
    { name: 'last', ranks: 1, grid: 3, expected: 3 },
    { name: 'prefetch', ranks: 1, grid: 1, expected: 32 },
    { name: 'epilogue', ranks: 1, grid: 1, expected: 32 },
    { name: 'regroup', ranks: 1, grid: 1, expected: 32 },
    { name: 'meet', ranks: 2, grid: 3, expected: 1 },
  ].map(({ name, ranks, grid, expected }) => {
    const isOfTensor = name === 'regroup';
    const kernel = kernels.kernel(
      name,
      isOfTensor
        ? { params: ['base', 'input', 'map', 'out'], tensors: { base } }
        : { params: ['input', 'mine', 'peer', 'out'] },
    );
    return everyRank(name, { ranks }, async (host) => {
      const { rank } = host;
      const boxes = await host.windows('box', 'i32', 64);
      const input = host.buffer(
        'input',
        'i32',
        Array.from({ length: 64 }, (_, i) => i),
      );
      const out = host.buffer('out', 'i32', 32);
      const boxesOf = isOfTensor
        ? { base: { address: input.address, extents: [8, 4] }, map: host.buffer('map', 'i32', 32) }
        : { mine: boxes[rank]!, peer: boxes[(rank + 1) % ranks]! };
      host.launch(kernel, { grid, block: 32 }, { input, ...boxesOf, out });
      await host.expect({ ...out, count: 1 }, () => expected);
    });
  });

export default host;
