/**
 * How the kernels of field.cu are launched, for the race detector:
 *
 *   nvcc -ptx -arch=sm_90 -lineinfo examples/ptx/field.cu -o field.ptx
 *   npx heddle check --ptx field.ptx --host examples/ptx/field.ts
 */
import { everyRank, type PtxHost } from 'heddle/check';

const host: PtxHost = (kernels) =>
  [
    { name: 'stage', ranks: 1, grid: 1, expected: 32 },
    { name: 'tail', ranks: 2, grid: 1, expected: 0 },
    { name: 'copy_in', ranks: 2, grid: 1, expected: 0 },
    { name: 'last', ranks: 1, grid: 3, expected: 3 },
    { name: 'prefetch', ranks: 1, grid: 1, expected: 32 },
    { name: 'epilogue', ranks: 1, grid: 1, expected: 32 },
  ].map(({ name, ranks, grid, expected }) => {
    const kernel = kernels.kernel(name, { params: ['input', 'mine', 'peer', 'out'] });
    return everyRank(name, { ranks }, async (host) => {
      const { rank } = host;
      const boxes = await host.windows('box', 'i32', 64);
      const input = host.buffer(
        'input',
        'i32',
        Array.from({ length: 64 }, (_, i) => i),
      );
      const out = host.buffer('out', 'i32', 32);
      const boxesOf = { mine: boxes[rank]!, peer: boxes[(rank + 1) % ranks]! };
      host.launch(kernel, { grid, block: 32 }, { input, ...boxesOf, out });
      await host.expect({ ...out, count: 1 }, () => expected);
    });
  });

export default host;
