import { expect } from 'vitest';
import type { IrModule } from '../../src/lang/index.js';
import { download, launch, machineOf, upload } from '../gpu/sim/harness.js';

/** Every byte of memory that nobody has written. */
const unwritten = 0xab;

/**
 * The words that one thread of a kernel leaves in `out`, on a simulated machine; an array has no element where it wrote nothing.
 * Arguments that are arrays are memory; without `out` among them it has 32 words.
 */
export async function evaluate(
  module: IrModule,
  args: Readonly<Record<string, number | readonly number[]>> = {},
): Promise<number[]> {
  const { machine, rank } = machineOf({ ranks: 1, mode: 'checked' });
  const out = rank.device.allocate(4 * 32, 'out');
  rank.stream.fill(out.address, out.bytes, unwritten);
  const given = Object.entries({ out, ...args }).map(([name, value]) => {
    return [name, Array.isArray(value) ? upload(rank, Int32Array.from(value), name) : value] as const;
  });
  const all = Object.fromEntries(given);
  await launch(rank, module, { block: 1 }, all);
  const words = new Int32Array(await download(rank, all.out));
  expect(machine.findings).toEqual([]);
  const left: number[] = [];
  for (const [i, word] of words.entries()) if (word >>> 0 !== 0x01010101 * unwritten) left[i] = word;
  return left;
}
