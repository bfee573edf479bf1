/** What random programs leave, on a simulated machine. */
import { expect } from 'vitest';
import type { KernelModule } from '../../../src/gpu/sim/index.js';
import type { RandomProgram } from '../../lang/random-programs.js';
import { download, launch, machineOf, upload } from './harness.js';

/** Runs one as `module`; `memory` is what it reads, by the parameters that point there. */
export async function execute(
  program: RandomProgram,
  module: KernelModule,
  mode: 'fast' | 'checked',
  memory: Readonly<Record<string, ArrayBufferView>> = {},
) {
  const { machine, rank } = machineOf({ ranks: 1, mode });
  type Memory = ReturnType<typeof rank.device.allocate>;
  const [out, floats] = [program.out, program.floats].map(({ length }, i) =>
    rank.device.allocate(Math.max(1, length) * 4, i === 0 ? 'out' : 'floats'),
  ) as [Memory, Memory];
  const scalars = Object.fromEntries(
    Object.entries(program.inputs).map(([name, value]) => [
      name,
      typeof value === 'boolean' ? Number(value) : value,
    ]),
  );
  const read = Object.entries(memory).map(([name, data]) => [name, upload(rank, data, name)] as const);
  await launch(rank, module, { block: 1 }, { out, floats, ...scalars, ...Object.fromEntries(read) });
  const words = new Uint32Array(await download(rank, out));
  const numbers = new Float32Array(await download(rank, floats));
  expect(machine.findings).toEqual([]);
  return {
    out: [...words.slice(0, program.out.length)],
    floats: [...numbers.slice(0, program.floats.length)],
  };
}
