/** Blackwell's tensor memory, in PTX by hand: one block, and a pair of blocks that multiply together. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { formatFinding } from '../../../../src/gpu/sim/index.js';
import { cudaTool, needing } from '../../../needs.js';
import { temporaryFolder } from '../../../temporary.js';
import { run, type Shape } from './harness.js';
import { along, descriptor, type Form, placeOf, plain, numbers as whole } from './matrices.js';

const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const numbers: typeof whole = {
  ...whole,
  e2m1: { size: 0.5, bits: (value) => (value < 0 ? 8 : 0) | e2m1.indexOf(Math.abs(value)) },
};
const [rows, columns] = [128, 32];
/** The second factor's place in shared memory, and what both take. */
const [second, all] = [32_768, 49_152];
const kinds: Readonly<Record<string, readonly [string, number]>> = {
  bf16: ['f16', 1],
  f16: ['f16', 0],
  tf32: ['tf32', 2],
  e4m3: ['f8f6f4', 0],
  e5m2: ['f8f6f4', 1],
  s8: ['i8', 1],
  e2m1: ['', 1],
};

interface Case {
  readonly type: string;
  readonly a: Form | 'tensor memory';
  readonly b: Form;
  readonly blocks?: 1 | 2;
  /** Rows and columns have so many scales, which go from shared to tensor memory. */
  readonly scaled?: 1 | 2 | 4;
}

/** Where the scales of both factors lie, 32 rows of four words; which byte of a word the first is; and the power of two of one of a row. */
const [scalesOfA, scalesOfB] = [45_056, 45_568];
const bytesOf = { 1: [1, 2], 2: [2, 0], 4: [0, 0] } as const;
const powerOfRow = (row: number, i: number): number => (row + i) % 3;
const powerOfColumn = (column: number, i: number): number => -((column + i) % 2);

const registers = Array.from({ length: columns }, (_, i) => `%r${20 + i}`);
const wait = `WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;`;
const awaitLoad = 'tcgen05.wait::ld.sync.aligned;';

/** Twice the product, for it is added a second time; the sums go through tensor memory once more. */
function textOf({ type, a, blocks = 1, scaled }: Case): string {
  const group = `cta_group::${blocks}`;
  const [plainKind] = kinds[type]!;
  const kind = scaled
    ? `${{ 1: 'mxf8f6f4', 2: 'mxf4', 4: 'mxf4nvf4' }[scaled]}.block_scale${scaled === 4 ? '.scale_vec::4X' : ''}`
    : plainKind;
  const inMemory = a === 'tensor memory';
  const product = (adds: string): string =>
    `tcgen05.mma.${group}.kind::${kind} [%r5], ${inMemory ? '[%r6]' : '%rd3'}, %rd4, %r7, ${scaled ? '[%r52], [%r53], ' : ''}${adds};`;
  const copied = (at: number, to: string): string =>
    `mov.b64 %rd11, ${(1n << 46n) | (8n << 32n) | BigInt(at >> 4)}; tcgen05.cp.${group}.32x128b.warpx4 [${to}], %rd11;`;
  const meets =
    blocks === 1 ? 'bar.sync 0;' : 'barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;';
  const many = blocks === 1 ? '' : '.multicast::cluster';
  return `.version 8.8
.target sm_100a
.address_size 64
.shared .align 1024 .b8 tiles[${all}]; .shared .align 8 .b64 gate; .shared .align 4 .b32 first;
.visible .entry k(.param .u64 out, .param .u64 from, .param .u64 a, .param .u64 b, .param .u32 form)
${blocks === 1 ? '' : '.explicitcluster\n.reqnctapercluster 2'}
{
  .reg .pred %p<8>; .reg .b32 %r<60>; .reg .b64 %rd<20>; .reg .b16 %h<2>;
  ld.param.u64 %rd2, [out]; ld.param.u64 %rd1, [from]; ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b]; ld.param.u32 %r7, [form];
  mov.u32 %r1, %tid.x; mov.u32 %r2, gate; mov.u32 %r3, tiles; mov.u32 %r4, first; mov.u32 %r8, %ctaid.x;
  mul.wide.u32 %rd5, %r8, ${all + 4096}; add.s64 %rd1, %rd1, %rd5; shr.u32 %r9, %r1, 5; shl.b32 %r10, %r9, 21;
  setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p3, %r9, 0;
  @%p1 bra FILL;
  mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
FILL: @%p3 bra COPIES;
  tcgen05.alloc.${group}.sync.aligned.shared::cta.b32 [%r4], 64;
  tcgen05.relinquish_alloc_permit.${group}.sync.aligned;
COPIES: mov.u32 %r11, %r1;
COPY: shl.b32 %r12, %r11, 4; cvt.u64.u32 %rd6, %r12; add.s64 %rd7, %rd1, %rd6; add.u32 %r13, %r3, %r12;
  ld.global.v4.u32 {%r14, %r15, %r16, %r17}, [%rd7]; st.shared.v4.u32 [%r13], {%r14, %r15, %r16, %r17};
  add.u32 %r11, %r11, 128; setp.lt.u32 %p4, %r11, ${all / 16}; @%p4 bra COPY;
  fence.proxy.async.shared::cta;
  tcgen05.fence::before_thread_sync; ${meets} tcgen05.fence::after_thread_sync;
  ${blocks === 1 ? '' : 'fence.proxy.async.shared::cta;'}
  ld.shared.u32 %r5, [%r4]; add.u32 %r18, %r5, %r10; add.u32 %r6, %r5, 32; add.u32 %r19, %r6, %r10;
  ${
    inMemory
      ? `mul.wide.u32 %rd8, %r1, 32; add.s64 %rd8, %rd1, %rd8; ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd8+${all}];
  ld.global.v4.u32 {%r24, %r25, %r26, %r27}, [%rd8+${all + 16}];
  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r19], {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27};
  tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;`
      : ''
  }
  setp.ne.u32 %p5, %r8, 0; or.pred %p6, %p1, %p5; setp.eq.u32 %p7, %r7, 0;
  @%p6 bra WAIT;
  ${scaled ? `add.u32 %r52, %r5, 40; add.u32 %r53, %r5, 44; ${copied(scalesOfA, '%r52')} ${copied(scalesOfB, '%r53')}` : ''}
  ${product('%p7')}
  not.pred %p7, %p7;
  ${product('%p7')}
  mov.b16 %h1, 3;
  tcgen05.commit.${group}.mbarrier::arrive::one.shared::cluster${many}.b64 [%r2]${blocks === 1 ? '' : ', %h1'};
  ${wait}
  tcgen05.fence::after_thread_sync;
  tcgen05.ld.sync.aligned.32x32b.x32.b32 {${registers.join(', ')}}, [%r18];
  ${awaitLoad}
  mul.wide.u32 %rd9, %r8, 128; cvt.u64.u32 %rd10, %r1; add.s64 %rd9, %rd9, %rd10; mul.lo.u64 %rd9, %rd9, 128; add.s64 %rd9, %rd2, %rd9;
  ${[0, 4, 8, 12, 16, 20, 24, 28].map((i) => `st.global.v4.b32 [%rd9+${4 * i}], {${registers.slice(i, i + 4).join(', ')}};`).join(' ')}
  tcgen05.fence::before_thread_sync; ${meets}
  @%p3 bra END;
  tcgen05.dealloc.${group}.sync.aligned.b32 %r5, 64;
END: ret;
}
`;
}

async function multiply(of: Case, change = (text: string) => text, how: Pick<Shape, 'assume'> = {}) {
  const { type, a, b, blocks = 1, scaled } = of;
  const { size, bits } = numbers[type]!;
  const depth = 32 / size;
  const value = (i: number): number => ((i * 7) % 9) - 4;
  const image = new Uint8Array(blocks * (all + 4096));
  const put = (at: number, of: number, k: number): void => {
    if (size < 1) image[at] = image[at]! | (bits(of) << (4 * (k % 2)));
    for (let i = 0; i < size && size >= 1; i++) image[at + i] = bits(of) >>> (8 * i);
  };
  const byteAt = (k: number): number => Math.floor(k * size);
  const half = columns / blocks;
  const scaleOf = (power: number): number => (scaled === 4 ? (power + 7) << 3 : power + 127);
  for (let block = 0; block < blocks; block++) {
    const base = block * (all + 4096);
    for (let row = 0; row < rows; row++)
      for (let k = 0; k < depth; k++) {
        const at = a === 'tensor memory' ? all + 32 * row + byteAt(k) : placeOf(a, row, byteAt(k));
        put(base + at, value((block * rows + row) * 3 + k), k);
      }
    if (scaled)
      for (let row = 0; row < rows; row++) {
        const at = base + 16 * (row % 32) + 4 * (row >> 5);
        for (let i = 0; i < scaled; i++) {
          image[at + scalesOfA + bytesOf[scaled][0] + i] = scaleOf(powerOfRow(block * rows + row, i));
          image[at + scalesOfB + bytesOf[scaled][1] + i] = scaleOf(powerOfColumn(row, i));
        }
      }
    for (let row = 0; row < half; row++)
      for (let k = 0; k < depth; k++)
        put(base + second + placeOf(b, row, byteAt(k)), value(block * half + row + 5 * k), k);
  }
  const isInteger = type === 's8';
  const [, code] = kinds[type]!;
  const form =
    (scaled
      ? (bytesOf[scaled][1] << 4) | (Number(scaled < 4) << 23) | (bytesOf[scaled][0] << 29)
      : (isInteger ? 2 : 1) << 4) |
    (code << 7) |
    (code << 10) |
    ((columns / 8) << 17) |
    (((blocks * rows) / 16) << 24);
  const fixed = 1n << 46n;
  const { words, floats, error, findings } = await run(change(textOf(of)), {
    ...{
      grid: blocks,
      block: 128,
      seed: '1',
      bytes: blocks * rows * columns * 4,
      ...how,
      memory: { from: image },
    },
    set: {
      a: a === 'tensor memory' ? 0n : descriptor(a, 0) | fixed,
      b: descriptor(b, second) | fixed,
      form,
    },
  });
  const sums = isInteger ? [...new Int32Array(words.buffer)] : [...floats];
  const expected = sums.map((_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    let sum = 0;
    for (let k = 0; k < depth; k++) {
      const block = Math.floor((k * (scaled ?? 1)) / depth);
      const power = scaled ? powerOfRow(row, block) + powerOfColumn(column, block) : 0;
      sum += value(row * 3 + k) * value(column + 5 * k) * 2 ** power;
    }
    return 2 * sum;
  });
  return { sums, expected, error, findings: findings.map(formatFinding) };
}

const tall = { ...plain, near: 2048 };
const cases: readonly Case[] = [
  ...Object.keys(kinds)
    .filter((type) => type !== 'e2m1')
    .map((type) => ({ type, a: along(128), b: along(64) })),
  ...['bf16', 'e4m3'].map((type) => ({ type, a: tall, b: plain })),
  ...['f16', 's8'].map((type) => ({ type, a: 'tensor memory' as const, b: along(32) })),
  ...['bf16', 'e4m3'].map((type) => ({ type, a: along(128), b: along(128), blocks: 2 as const })),
  ...['e4m3', 'e5m2'].map((type) => ({ type, a: along(128), b: along(64), scaled: 1 as const })),
  ...([2, 4] as const).map((scaled) => ({ type: 'e2m1', a: along(128), b: along(64), scaled })),
  { type: 'e4m3', a: along(128), b: along(128), blocks: 2, scaled: 1 },
];

describe('a product in tensor memory', () => {
  test.each(cases)('$type, $a by $b, of $blocks', async (one) => {
    const { sums, expected, error, findings } = await multiply(one);
    expect([error, findings]).toEqual([null, []]);
    expect(sums).toEqual(expected);
  });

  const folder = temporaryFolder();
  test.each(cases)('is PTX to ptxas: $type, $a, of $blocks', needing('nvcc'), (one) => {
    const file = join(folder, 'k.ptx');
    writeFileSync(file, textOf(one));
    const { status, stderr } = spawnSync(
      join(dirname(cudaTool('nvcc')!), 'ptxas'),
      ['-arch=sm_100a', file, '-o', join(folder, 'k.cubin')],
      {
        encoding: 'utf8',
      },
    );
    expect(status, stderr).toBe(0);
  });

  const [plainCase] = cases as [Case];
  test.each([
    ['its commit is not awaited', wait, 'WAIT:', 'Data race on tensor memory'],
    [
      'its factors are stored by threads alone',
      'fence.proxy.async.shared::cta;',
      '',
      'Data race on shared memory',
    ],
    ['a load is not awaited', awaitLoad, '', 'no tcgen05.wait::ld stands between'],
    [
      'a factor is overwritten',
      wait,
      `${wait.replace('WAIT', 'LATER')} WAIT:`.replace(/LATER.*WAIT:/, 'WAIT: st.shared.u32 [tiles], %r1;'),
      'Data race on shared memory',
    ],
    [
      'it is not given back',
      'tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64;',
      '',
      'has not given back',
    ],
    [
      'a fence behind its commit is missing',
      `${wait}\n  tcgen05.fence::after_thread_sync;`,
      wait,
      'put tcgen05.fence::after_thread_sync between',
    ],
  ])('is wrong where %s', async (_, right, wrong, said) => {
    const { findings } = await multiply(plainCase, (text) => text.replace(right, wrong));
    expect(findings.join('\n')).toContain(said);
  });

  test('reaches a wait that says no scope in the other block of a pair by the letter of PTX alone', async () => {
    const pair = cases.find(({ blocks }) => blocks === 2)!;
    const unscoped = (text: string): string => text.replace('.acquire.cluster.', '.');
    expect((await multiply(pair, unscoped)).findings.join()).toContain('Data race on tensor memory');
    expect((await multiply(pair, unscoped, { assume: ['clusters'] })).findings).toEqual([]);
  });

  // Each warp stores a factor into its own lanes, which one thread multiplies.
  test.each([
    ['not awaited', 'tcgen05.wait::st.sync.aligned;', 'await it (tcgen05.wait::st)'],
    ['not told', 'tcgen05.fence::before_thread_sync;', 'put tcgen05.fence::before_thread_sync'],
    ['not taken note of', 'tcgen05.fence::after_thread_sync;', 'put tcgen05.fence::after_thread_sync'],
  ])('is wrong where a factor in tensor memory is %s', async (_, without, said) => {
    const stored = cases.find(({ a, type }) => a === 'tensor memory' && type === 'f16')!;
    const wrong = (text: string): string =>
      text.replace(/tcgen05.wait::st.*/, (line) => line.replace(without, ''));
    expect((await multiply(stored, wrong)).findings.join('\n')).toContain(said);
  });

  test('hands on, by its commit, what came before it', async () => {
    const before = 'setp.ne.u32 %p5, %r8, 0;';
    const behind = 'tcgen05.ld.sync.aligned.32x32b.x32.b32';
    // A word that thread 0 stores before the product, and all load behind the wait: and one that it stores too late.
    const stores = (at: string) => (text: string) =>
      text
        .replace(at, `@!%p1 st.shared.u32 [tiles+49000], 5; ${at}`)
        .replace(behind, `ld.shared.u32 %r50, [tiles+49000]; ${behind}`);
    expect((await multiply(plainCase, stores(before))).findings).toEqual([]);
    expect((await multiply(plainCase, stores('tcgen05.ld.'))).findings.join()).toContain(
      'Data race on shared memory',
    );
  });

  test.each([
    ['more than there is', '[%r4], 64', '[%r4], 1024', '512 columns, not by 1024'],
    [
      'lanes of another warp',
      'add.u32 %r18, %r5, %r10',
      'add.u32 %r18, %r5, 0x400000',
      'of tensor memory alone',
    ],
  ])('does not reach %s', async (_, right, wrong, said) => {
    const { error, findings } = await multiply(plainCase, (text) => text.replace(right, wrong));
    expect(`${error} ${findings.join()}`).toContain(said);
  });
});
