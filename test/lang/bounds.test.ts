/** Each number that docs/language.md names: at its bound, and one beyond. */
import { expect, test } from 'vitest';
import { HeddleError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import {
  field,
  KernelError,
  kernel,
  layout,
  list,
  peers,
  pipeline,
  pointer,
  printCuda,
  tile,
} from '../../src/lang/index.js';

const window = layout('bounds', { rows: field('u32', [4, 8]), others: field('u32', [4, 8]) });
const Tile = tile('u32', [16, 4], { swizzle: 0 });

/** What becomes of a body with N, a constant or known only at the launch, in checked mode: the error or the first finding. */
async function outcome(text: string, n: number, known: boolean, block: number): Promise<string | undefined> {
  const args = known ? '{ out, vectors, win }, { Tile, N }' : '{ out, vectors, win, N }, { Tile }';
  const body = new Function(`return (g, ${args}) => { ${text} }`)();
  const params = {
    out: pointer('u32'),
    vectors: pointer('v16'),
    win: peers(window),
    ...(known ? {} : { N: 'u32' as const }),
  };
  try {
    const module = kernel(
      { name: 'k', params, using: { Tile, ...(known ? { N: n } : {}) }, maxThreads: block },
      body,
    ).ir();
    printCuda(module);
    const machine = SimMachine.create({ ranks: 1, mode: 'checked', seed: '1' });
    const device = machine.device(0);
    const stream = device.createStream();
    const launcher = (await device.load(module)).launcher({ grid: 1, block, rank: 0 });
    const { address } = device.allocateWindow(1 << 21, 'memory');
    for (const name of ['out', 'vectors']) launcher.set(name, address);
    launcher.setWindow('win', { rank: 0, bytes: window.bytes, bases: [address] });
    if (!known) launcher.set('N', n);
    launcher.launch(stream);
    await stream.synchronize();
    return machine.findings[0]?.kind;
  } catch (error) {
    return error instanceof KernelError ? error.code : (error as Error).message;
  }
}

/**
 * Each with what is allowed; with what is not, and what becomes of it as a constant and, where it may be told then, at the launch; and with the
 * threads of its block.
 */
const bounds = `
the barrier of a group | 1, 15 | 0 HK305 failed, 16 HK305 failed | 64 | g.group.barrier(N, 64);
the threads of a group | 32, 64 | 16 HK305 failed, 33 HK305 failed | 64 | if (g.threadIdx.x < N) g.group.barrier(1, N);
the registers that a group keeps | 24, 248 | 16 HK305, 28 HK305, 256 misuse, 264 HK502 | 128 | g.group.giveRegisters(N);
the bytes of shared memory | 1, 232448 | 0 HK502, 232449 HK608 | 1 | const s = g.shared('u8', N); g.store(s, 1);
the first index of a shaped field | 0, 3 | 4 HK502 out-of-bounds | 1 | g.store(win.at(0).rows.at(N, 7), 1);
the second, by itself | 0, 7 | 8 HK502 out-of-bounds | 1 | g.store(win.at(0).rows.at(1).at(N), 1);
the index of what let holds | 0, 3 | 4 HK502 out-of-bounds | 1 | let v = win.at(0).rows; if (N < 99) v = win.at(0).others; g.store(v.at(N, 1), 1);
the index of what ?: chooses | 0, 7 | 8 HK502 out-of-bounds | 1 | const v = g.blockDim.x === 1 ? win.at(0).rows : win.at(0).others; g.store(v.at(1, N), 1);
the index of a field | 0, 7 | 8 HK502 out-of-bounds | 1 | g.store(win.at(0).others.at(1).at(N), 1);
the row of a tile | 0, 15 | 16 HK502 out-of-bounds | 1 | const t = g.shared(Tile); g.store(t.element(N, 3), 1);
the column of a tile | 0, 3 | 4 HK502 out-of-bounds | 1 | const t = g.shared(Tile); g.store(t.element(0, N), 1);
how many rows of a tile | 8, 16 | 4 HK502, 24 HK502 | 1 | const t = g.shared(Tile); g.store(t.rows(0, N).element(0, 0), 1);
the first of some rows of a tile | 0, 8 | 4 HK502 out-of-bounds, 16 HK502 out-of-bounds | 1 | const t = g.shared(Tile); g.store(t.rows(N, 8).element(0, 0), 1);
a tile before another | 1, 2 | 0 out-of-bounds out-of-bounds, 3 out-of-bounds out-of-bounds | 1 | const t = g.shared(Tile, 2); g.store(t.at(1).at(g.i32(N) - 2).element(0, 0), 1);
the bytes of a bulk copy | 16, 32 | 24 misuse misuse | 1 | FILLS g.proxyFence('shared'); g.bulk.store(vectors, s, N); g.bulk.commit(); g.bulk.wait(0);
the bytes of a phase | 16, 1048575 | 1048576 misuse misuse | 1 | const b = g.shared('u64', 1); g.mbarrier.init(b, 2); g.mbarrier.expect(b, N);
the iterations of g.unroll | 0, 9 | 16385 HK502 | 1 | for (const i of g.unroll(N)) g.store(out.at(i % 8), i);
the length of a register array | 1, 256 | 0 HK502, 257 HK502 | 1 | const r = g.registers('u32', N); g.store(out, r[0]);
a lane | 0, 15 | 16 HK502 | 1 | g.store(out, g.lane(g.load(vectors), 'u8', N));`;

const fills =
  "const v = g.pack('u32', [1, 2, 3, 4]); const s = g.shared('v16', 2); g.store(s, v); g.store(s.at(1), v);";

const rows = bounds
  .trim()
  .split('\n')
  .map((row) => row.split(' | '));
test.each(rows)('%s', async (_what, good, bad, block, text) => {
  const body = text!.replace('FILLS', fills);
  const wrong = bad!.split(', ').map((one) => one.split(' '));
  const atLaunch = wrong.some(([, , later]) => later !== undefined);
  for (const n of good!.split(', ').map(Number)) {
    expect([n, await outcome(body, n, true, Number(block))]).toEqual([n, undefined]);
    expect([n, await outcome(body, n, false, Number(block))]).toEqual([n, atLaunch ? undefined : 'HK501']);
  }
  for (const [n, constant, later = 'HK501'] of wrong) {
    expect(`${n} ${await outcome(body, Number(n), true, Number(block))}`).toContain(`${n} ${constant}`);
    expect(await outcome(body, Number(n), false, Number(block)), `${n}`).toContain(later);
  }
});

const body = () => {};
const shaped = (shape: readonly number[]) => field('u8', shape);
const hosts: readonly (readonly [
  what: string,
  make: (n: number) => unknown,
  good: readonly number[],
  bad: readonly number[],
])[] = [
  ['dimensions of a field', (n) => shaped(Array(n).fill(1)), [1, 4], [0, 5]],
  ['elements of a shaped field', (n) => shaped([n, 3]), [0, (2 ** 32 - 1) / 3], [-1, (2 ** 32 - 1) / 3 + 1]],
  ['elements seen as others', (n) => viewed(n), [1, 2 ** 27 - 1], [2 ** 27]],
  ['rows of a tile', (n) => tile('bf16', [n, 64], { swizzle: 128 }), [8, 256], [0, 12, 264]],
  ['columns of a tile', (n) => tile('u8', [8, n], { swizzle: 0 }), [16, 256], [0, 8, 272]],
  ['a row under a swizzle', (n) => tile('bf16', [8, n], { swizzle: 64 }), [32], [31, 64]],
  [
    'blocks of a cluster',
    (n) => kernel({ name: 'k', params: {}, cluster: n as 2 }, body),
    [1, 2, 4, 8],
    [0, 3, 16],
  ],
  ['threads of a block', (n) => kernel({ name: 'k', params: {}, maxThreads: n }, body), [1, 1024], [0, 1025]],
  ['items of a list', (n) => list('u32', n), [0, 256], [-1, 257]],
  ['stages of a pipeline', (n) => pipeline({ stages: n, fills: 1, empties: 1 }), [1], [0]],
];

function viewed(rows: number) {
  const large = layout('large', { rows: field('v16', [rows, 2]) });
  return kernel({ name: 'k', params: { win: peers(large) } }, (g, { win }) => {
    g.prefetch(win.at(0).rows.as('u8').at(0, 1));
  }).ir();
}

test.each(hosts)('%s', (_what, make, good, bad) => {
  for (const n of good) expect(() => make(n)).not.toThrow();
  for (const n of bad) expect(() => make(n), `${n}`).toThrow(HeddleError);
});
