/** Tiles on the simulated machine: products (wgmma), and boxes that the copy engine (TMA) brings and takes. */
import { describe, expect, test } from 'vitest';
import type { Device } from '../../../src/gpu/index.js';
import { formatFinding, SimMachine } from '../../../src/gpu/sim/index.js';
import { type Mutant, mutantsOf, mutate } from '../../../src/verify/check/index.js';
import {
  type BoxCase,
  boxCases,
  boxKernel,
  boxName,
  clusterKernel,
  type GemmCase,
  gemmCases,
  gemmName,
  moveBox,
  multiply,
  type Outcome,
  shareBoxes,
} from '../../lang/hopper/cases.js';
import { gemmKernel } from '../../lang/hopper/gemm.js';
import { machineOf } from './harness.js';

describe.each(['fast', 'checked'] as const)('on a %s machine', (mode) => {
  test.each(gemmCases.map((one) => ({ name: gemmName(one), one })))('a GEMM of $name', async ({ one }) => {
    const { machine, ranks } = machineOf({ ranks: 1, mode });
    const { result, expected } = await multiply(ranks[0]!.device, one);
    expect(machine.findings).toEqual([]);
    expect(result).toEqual(expected);
  });

  test('boxes for both blocks of a cluster', async () => {
    for (const seed of mode === 'fast' ? ['0'] : Array.from({ length: 20 }, (_, i) => String(i))) {
      const { machine, ranks } = machineOf({ ranks: 1, mode, seed });
      const { result, expected } = await shareBoxes(ranks[0]!.device);
      expect(machine.findings).toEqual([]);
      expect(result).toEqual(expected);
    }
  });

  test.each(boxCases.map((one) => ({ name: boxName(one), one })))('a box, $name', async ({ one }) => {
    const { machine, ranks } = machineOf({ ranks: 1, mode });
    const { result, expected } = await moveBox(ranks[0]!.device, one);
    expect(machine.findings).toEqual([]);
    expect(result).toEqual(expected);
  });
});

/** What the schedules of some seeds show of a kernel on a checked machine: kinds of findings, and 'wrong' results. */
async function shown(
  run: (device: Device) => Promise<Outcome>,
  kernel: string,
  mutant: Mutant,
  seeds: number,
) {
  for (let seed = 0; seed < seeds; seed++) {
    const machine = SimMachine.create({
      ...{ ranks: 1, mode: 'checked', seed: String(seed), schedule: seed % 2 === 0 ? 'random' : 'priority' },
      ...{ stepLimit: 1_000_000 },
      substitute: (module) => (module.name === kernel ? mutate(module, mutant) : module),
    });
    let wrong = false;
    try {
      const { result, expected } = await run(machine.device(0));
      wrong = result.some((value, i) => value !== expected[i]);
    } catch (error) {
      return [error instanceof Error ? error.message : String(error)];
    }
    const found = machine.findings.map((finding) => formatFinding(finding));
    if (wrong) found.push('wrong');
    if (found.length > 0) return found;
  }
  return [];
}

describe('each mistake of synchronisation is found', () => {
  const gemm: GemmCase = { type: 'bf16', swizzle: 32, rows: 128, columns: 8, stages: 2, m: 128, n: 8, k: 80 };
  const product = gemmKernel(gemm).kernel;
  test.each(mutantsOf(product.ir()).map((mutant) => ({ mutant, ...mutant })))(
    'a GEMM: $text, $description',
    async ({ mutant }) => {
      expect(await shown((device) => multiply(device, gemm), product.name, mutant, 20)).not.toEqual([]);
    },
  );

  const shared = clusterKernel();
  test.each(mutantsOf(shared.ir()).map((mutant) => ({ mutant, ...mutant })))(
    'a cluster: $text, $description',
    async ({ mutant }) => {
      expect(await shown(shareBoxes, shared.name, mutant, 40)).not.toEqual([]);
    },
  );

  const move: BoxCase = { swizzle: 64, extents: [40, 80], from: [-5, -3], to: [30, 72] };
  const box = boxKernel(64, 2);
  test.each(mutantsOf(box.ir()).map((mutant) => ({ mutant, ...mutant })))(
    'a box: $text, $description',
    async ({ mutant }) => {
      expect(await shown((device) => moveBox(device, move), box.name, mutant, 20)).not.toEqual([]);
    },
  );
});
