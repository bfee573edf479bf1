import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  programCapacity,
  programKernel,
  type RandomProgram,
  randomProgram,
} from '../../lang/random-programs.js';
import { download, launch, machineOf } from './harness.js';

async function execute(program: RandomProgram, mode: 'fast' | 'checked') {
  const { machine, ranks } = machineOf({ ranks: 1, mode });
  const rank = ranks[0]!;
  const out = rank.device.allocate(programCapacity * 4, 'out');
  const floats = rank.device.allocate(programCapacity * 4, 'floats');
  const scalars = Object.fromEntries(
    Object.entries(program.inputs).map(([name, value]) => [
      name,
      typeof value === 'boolean' ? Number(value) : value,
    ]),
  );
  await launch(rank, programKernel(program).ir(), { block: 1 }, { out, floats, ...scalars });
  const words = new Uint32Array(await download(rank, out));
  const numbers = new Float32Array(await download(rank, floats));
  expect(machine.findings).toEqual([]);
  return {
    out: [...words.slice(0, program.out.length)],
    floats: [...numbers.slice(0, program.floats.length)],
  };
}

it.each(['fast', 'checked'] as const)(
  'random programs compute the same as plain arithmetic (%s)',
  async (mode) => {
    await fc.assert(
      fc.asyncProperty(fc.nat(), fc.integer({ min: 1, max: 20 }), async (seed, size) => {
        const program = randomProgram(seed, size);
        expect(await execute(program, mode), program.text).toEqual({
          out: [...program.out],
          floats: [...program.floats],
        });
      }),
      { seed: 3, numRuns: 300 },
    );
  },
);
