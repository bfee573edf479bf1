/** Tiles on the simulated machine: products (wgmma), and boxes that the copy engine (TMA) brings and takes. */
import { describe, expect, test } from 'vitest';
import { bf16ToF32, type Device } from '../../../src/gpu/index.js';
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
  async function right(run: (device: Device) => Promise<Outcome>, seed = '0'): Promise<void> {
    const { machine, rank } = machineOf({ ranks: 1, mode, seed });
    const { result, expected } = await run(rank.device);
    expect(machine.findings).toEqual([]);
    expect(result).toEqual(expected);
  }

  // How tiles lie is the same for the race detector.
  const gemms = gemmCases.filter(({ swizzle }) => mode === 'fast' || swizzle === 128);
  test.each(gemms.map((one) => ({ name: gemmName(one), one })))('a GEMM of $name', async ({ one }) => {
    await right((device) => multiply(device, one));
  });

  test('boxes for both blocks of a cluster', async () => {
    for (const seed of mode === 'fast' ? ['0'] : Array.from({ length: 6 }, (_, i) => String(i))) {
      await right(shareBoxes, seed);
    }
  });

  test.each(boxCases.map((one) => ({ name: boxName(one), one })))('a box, $name', async ({ one }) => {
    await right((device) => moveBox(device, one));
  });
});

test.each([
  [
    'begins in the middle of 16 bytes',
    [0, 1],
    [0, 0],
    'a box begins at column 1, byte 2 of a row: it must be a multiple of 16',
  ],
  ['is stored to before a tensor', [0, 0], [-1, 0], 'a box is stored to -1, 0'],
])('a box that %s ends its kernel, as on Hopper', async (_, from, to, message) => {
  const { rank } = machineOf({ ranks: 1, mode: 'fast' });
  const moved = moveBox(rank.device, { swizzle: 128, extents: [40, 80], from, to });
  await expect(moved).rejects.toThrow(message);
});

test('rows that nobody wrote come as NaNs, and are no mistake by themselves', async () => {
  const { machine, ranks } = machineOf({ ranks: 1, mode: 'checked' });
  const { device } = ranks[0]!;
  const stream = device.createStream();
  const [source, target] = ['source', 'target'].map((name) => device.allocate(16 * 128, name));
  // Of 16 rows the first 10 are written.
  stream.fill(source!.address, 10 * 128, 0);
  const launcher = (await device.load(boxKernel(128, 2).ir())).launcher({ grid: 1, block: 32, rank: 0 });
  for (const [name, memory] of Object.entries({ source, target }))
    launcher.setTensor(name, { address: memory!.address, extents: [16, 64] });
  for (const index of ['i0', 'i1', 'i2', 'o0', 'o1', 'o2']) launcher.set(index, 0);
  launcher.launch(stream);
  const bytes = await stream.copyOut(target!.address, 16 * 128);
  const came = Array.from(new Uint16Array(bytes.slice().buffer), bf16ToF32);
  expect(came.map((value) => (Number.isNaN(value) ? 'NaN' : value))).toEqual(
    Array.from({ length: 16 * 64 }, (_, i) => (i < 10 * 64 ? 1 : 'NaN')),
  );
  expect(machine.findings).toEqual([]);
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
  const move: BoxCase = { swizzle: 64, extents: [40, 80], from: [-5, -3], to: [30, 72] };
  const subjects = [
    { what: 'a GEMM', kernel: gemmKernel(gemm).kernel, run: (on: Device) => multiply(on, gemm), seeds: 20 },
    { what: 'a cluster', kernel: clusterKernel(), run: shareBoxes, seeds: 40 },
    { what: 'a box', kernel: boxKernel(64, 2), run: (on: Device) => moveBox(on, move), seeds: 20 },
  ].flatMap((subject) => mutantsOf(subject.kernel.ir()).map((mutant) => ({ ...mutant, mutant, ...subject })));
  test.each(subjects)('$what: $text, $description', async ({ kernel: { name }, run, mutant, seeds }) => {
    expect(await shown(run, name, mutant, seeds)).not.toEqual([]);
  });
});
