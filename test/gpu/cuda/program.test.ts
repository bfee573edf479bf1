import { describe, expect, it } from 'vitest';
import { readAddress, view } from '../../../src/base/native/index.js';
import type { Driver } from '../../../src/gpu/cuda/driver.js';
import { printKernel } from '../../../src/gpu/cuda/print.js';
import { CudaProgram } from '../../../src/gpu/cuda/program.js';
import { CudaStream, type Home } from '../../../src/gpu/cuda/stream.js';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { field, kernel, layout, peers, pointer } from '../../../src/lang/index.js';

interface Launched {
  readonly kernel: number;
  readonly config: Uint32Array;
  readonly stream: number;
  readonly attributes: readonly number[];
  readonly block: Uint8Array;
}

/** A device whose driver only notes down what it is asked to launch, as the real one would read it. */
function fakeHome(launched: Launched[], allowed: number[][]): Home {
  const i32 = new Int32Array(8);
  const driver = {
    out: { address: 64, i32 },
    cuFuncGetAttribute: (_: number, attribute: number) => {
      i32[0] = attribute === 0 ? 512 : 0;
      return 0;
    },
    cuFuncSetAttribute: (...asked: number[]) => {
      allowed.push(asked);
      return 0;
    },
    cuLaunchKernelEx: (config: number, entry: number, parameters: number, extra: number) => {
      expect(parameters).toBe(0);
      const words = new Uint32Array(view(config, 56).slice(0));
      const count = words[12]!;
      const attribute = count === 0 ? [] : [...new Uint32Array(view(readAddress(config + 40), 12).slice(0))];
      // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
      expect([0, 16, 32].map((at) => readAddress(extra + at))).toEqual([1, 2, 0]);
      const size = readAddress(readAddress(extra + 24));
      const block = new Uint8Array(view(readAddress(extra + 8), size).slice(0));
      launched.push({
        kernel: entry,
        config: words,
        stream: readAddress(config + 32),
        attributes: attribute,
        block,
      });
      return 0;
    },
  } as unknown as Driver;
  return {
    context: { driver, ordinal: 0, use() {} },
    staging: {},
    requireLive() {},
    adopt: (dispose: () => void) => ({ freed: false, dispose }),
  } as unknown as Home;
}

const params = {
  count: 'u32',
  scale: 'f32',
  rows: pointer('f32'),
  flag: 'bool',
  bias: 'i32',
  total: 'u64',
  win: peers(layout('Window', { words: field('u32', 64) })),
} as const;
const weave = kernel({ name: 'weave', params }, () => {});
/** Its shared memory is more than a block has by itself. */
const wide = kernel({ name: 'weave', params }, (g, { count }) => {
  const words = g.shared('u32', 25_000);
  g.store(words.at(g.threadIdx.x), count);
});
const window = { rank: 1, bases: [0x7f12_3456_7000, 0x7f00_0000_0000, 0x1000], bytes: 4096 };

function prepare(programmatic = false, of = weave, overlaps = true) {
  const launched: Launched[] = [];
  const allowed: number[][] = [];
  const home = fakeHome(launched, allowed);
  const program = new CudaProgram(home, of.ir(), 0x5555_0000, overlaps);
  const launcher = program.launcher({ grid: 7, block: 256, rank: 3, programmatic });
  return { launched, allowed, home, program, launcher, stream: new CudaStream(home, 0x7fab_cdef_0010) };
}

/** The same, with every parameter set. */
function ready(...how: Parameters<typeof prepare>) {
  const all = prepare(...how);
  const { launcher } = all;
  launcher.set('count', 4_000_000_000);
  launcher.set('scale', 0.5);
  launcher.set('rows', 0x7fff_ffff_fff0);
  launcher.set('flag', 1);
  launcher.set('bias', -2);
  launcher.set('total', 2n ** 63n + 5n);
  launcher.setWindow('win', window);
  return all;
}

describe('a launch', () => {
  it('passes grid, block, stream and every parameter where the kernel reads them', () => {
    const all = ready();
    all.launcher.launch(all.stream);
    const [{ kernel: entry, config, stream, attributes, block: bytes }] = all.launched as [Launched];
    expect([entry, stream, attributes]).toEqual([0x5555_0000, 0x7fab_cdef_0010, []]);
    expect([...config.subarray(0, 7)]).toEqual([7, 1, 1, 256, 1, 1, 0]);
    const read = new DataView(bytes.buffer);
    expect(bytes).toHaveLength(612);
    expect(read.getUint32(0, true)).toBe(4_000_000_000);
    expect(read.getFloat32(4, true)).toBe(0.5);
    expect(read.getBigUint64(8, true)).toBe(0x7fff_ffff_fff0n);
    expect(read.getUint8(16)).toBe(1);
    expect(read.getInt32(20, true)).toBe(-2);
    expect(read.getBigUint64(24, true)).toBe(2n ** 63n + 5n);
    expect([32, 40, 48].map((at) => Number(read.getBigUint64(at, true)))).toEqual(window.bases);
    expect(read.getUint32(608, true)).toBe(3);
  });

  it('asks for shared memory that a block does not have by itself, once it is allowed', () => {
    const all = ready(false, wide);
    all.launcher.launch(all.stream);
    expect(all.allowed).toEqual([[0x5555_0000, 8, 100_000]]);
    expect(all.launched[0]!.config[6]).toBe(100_000);
    expect(all.program.facts.sharedBytes).toBe(100_000);
    expect(prepare().allowed).toEqual([]);
  });

  it('sees values set after an earlier launch, and a new grid', () => {
    const all = ready();
    all.launcher.launch(all.stream);
    all.launcher.set('count', 1);
    all.launcher.setGrid(2);
    all.launcher.launch(all.stream);
    expect(all.launched.map(({ config }) => config[0])).toEqual([7, 2]);
    expect(all.launched.map(({ block: bytes }) => new DataView(bytes.buffer).getUint32(0, true))).toEqual([
      4_000_000_000, 1,
    ]);
  });

  it.each([
    ['where the shape says so', true, [6, 0, 1]],
    ['and for none on a GPU that has none', false, []],
  ])('asks for programmatic dependent launch %s', (_, overlaps, attributes) => {
    const all = ready(true, weave, overlaps);
    all.launcher.launch(all.stream);
    expect(all.launched[0]!.attributes).toEqual(attributes);
  });

  it('is refused until every parameter is set', () => {
    const { launcher, stream } = prepare();
    launcher.set('count', 1);
    expect(() => launcher.launch(stream)).toThrow(
      /weave_kernel is launched without its parameters scale, rows, flag, bias, total, win/,
    );
  });

  it('is refused on a stream of another device', () => {
    const all = ready();
    const foreign = new CudaStream(fakeHome([], []), 16);
    expect(() => all.launcher.launch(foreign)).toThrow(/stream 16 of another device/);
  });

  it('names the parameters that there are, and the compiler’s limit of threads', () => {
    const { launcher, program } = prepare();
    expect(() => launcher.set('cuont', 1)).toThrow(/a parameter of weave_kernel: count, scale/);
    expect(() => program.launcher({ grid: 1, block: 1024, rank: 0 })).toThrow(/block is 1024.*from 1 to 512/);
  });
});

describe('on simulated GPUs and on GPUs, at the bounds and one beyond', () => {
  const simulated = async () => {
    const device = SimMachine.create({ ranks: 1 }).device(0);
    return { device, program: await device.load(weave.ir()) };
  };
  it.each([
    ['count', [0, 2 ** 32 - 1], [-1, 2 ** 32, 1.5, 1n, '1', true]],
    ['bias', [-(2 ** 31), 2 ** 31 - 1], [-(2 ** 31) - 1, 2 ** 31, 0n]],
    ['flag', [0, 1], [-1, 2, false, true, 0n, '0']],
    ['scale', [-0, 3e38, Number.NaN], [1n, '1', null]],
    ['total', [0, 2 ** 53 - 1, 0n, 2n ** 64n - 1n], [-1, 2 ** 53, 0.5, -1n, 2n ** 64n, '1']],
    ['rows', [], [-4, 1.5, 2 ** 60, -1n, '8', null]],
    ['win', [], [1]],
  ] as const)('a parameter: %s', async (name, good, bad) => {
    const { program } = await simulated();
    for (const launcher of [prepare().launcher, program.launcher({ grid: 1, block: 1, rank: 0 })]) {
      for (const value of good) expect(() => launcher.set(name, value)).not.toThrow();
      for (const value of bad as readonly unknown[])
        expect(() => launcher.set(name, value as number), `${value}`).toThrow(`${name} is`);
    }
  });

  it('a window', async () => {
    const { device, program } = await simulated();
    const { address } = device.allocateWindow(4096, 'window');
    for (const launcher of [prepare().launcher, program.launcher({ grid: 1, block: 1, rank: 0 })]) {
      const set = (bases: unknown) => () =>
        launcher.setWindow('win', { ...window, bases: bases as number[] });
      expect(set(Array(72).fill(address))).not.toThrow();
      for (const bases of [Array(73).fill(address), 'x', [-1], [1.5], ['1'], [2 ** 60]])
        expect(set(bases)).toThrow(/win\S* is/);
      expect(() => launcher.setWindow('win', null as never)).toThrow(/win is null/);
      expect(() => launcher.setWindow('count', window)).toThrow(/set with set/);
    }
  });

  it.each([
    ['grid', [1, 2 ** 31 - 1], [0, 2 ** 31, 1.5, '1']],
    // The compiler's limit here is 512 threads, not the kernel's 1024.
    ['block', [1, 512], [0, 1025, 1.5, '1']],
    ['rank', [0, 2 ** 16], [-1, 2 ** 16 + 1, 0.5, '0', undefined]],
  ] as const)('the shape of a launch: %s', async (name, good, bad) => {
    for (const program of [prepare().program, (await simulated()).program]) {
      const make = (value: unknown) => () => program.launcher({ grid: 1, block: 1, rank: 0, [name]: value });
      for (const value of good) expect(make(value)).not.toThrow();
      for (const value of bad) expect(make(value), `${value}`).toThrow(`${name} is`);
    }
  });
});

it('a kernel can be quoted by line when the compiler complains', () => {
  const module = weave.ir();
  const [{ lineOf }] = printKernel(module);
  const [source] = module.sources;
  const { line } = source!.position(0);
  expect(lineOf!(source!.file, line)).toBe(source!.text.split('\n')[0]);
  expect(lineOf!(source!.file, line + 10_000)).toBeNull();
  expect(lineOf!('another.ts', line)).toBeNull();
});
