/**
 * How the kernels of field.cu are launched, for the race detector:
 *
 *   nvcc -ptx -arch=sm_90 -lineinfo examples/ptx/field.cu -o field.ptx
 *   npx heddle check --ptx field.ptx --host examples/ptx/field.ts
 */
import { type PtxHost, WrongResult } from 'heddle/check';

const words = (values: readonly number[]): Uint8Array => new Uint8Array(Int32Array.from(values).buffer);

const host: PtxHost = (kernels) =>
  [
    { name: 'stage', ranks: 1, grid: 1, expected: 32 },
    { name: 'tail', ranks: 2, grid: 1, expected: 0 },
    { name: 'copy_in', ranks: 2, grid: 1, expected: 0 },
    { name: 'last', ranks: 1, grid: 3, expected: 3 },
  ].map(({ name, ranks, grid, expected }) => {
    const kernel = kernels.kernel(name, { params: ['input', 'mine', 'peer', 'out'] });
    return {
      ...{ name, ranks },
      async run(machine) {
        const devices = Array.from({ length: ranks }, (_, rank) => machine.device(rank));
        const boxes = devices.map((device) => device.allocateWindow(256, 'box').address);
        const results = devices.map(async (device, rank) => {
          const stream = device.createStream();
          const [input, out] = [device.allocate(256, 'input').address, device.allocate(128, 'out').address];
          stream.copyIn(input, words(Array.from({ length: 64 }, (_, i) => i)));
          const launcher = (await device.load(kernel)).launcher({ grid, block: 32, rank });
          launcher.set('input', input);
          launcher.set('mine', boxes[rank]!);
          launcher.set('peer', boxes[(rank + 1) % ranks]!);
          launcher.set('out', out);
          launcher.launch(stream);
          return new Int32Array((await stream.copyOut(out, 4)).slice().buffer)[0];
        });
        for (const first of await Promise.all(results))
          if (first !== expected) throw new WrongResult(`${name}: ${first}, not ${expected}`);
      },
    };
  });

export default host;
