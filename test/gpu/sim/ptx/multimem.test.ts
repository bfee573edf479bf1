/** Multicast addresses: an all-reduce in the switch, as kernels with NVLink SHARP have it. */
import { describe, expect, test } from 'vitest';
import { type Kernel, kernel as kernelOf, pointer } from '../../../../src/lang/index.js';
import { ptx } from '../../../../src/lang/ptx/index.js';
import { type CheckSubject, check, everyRank, formatFinding } from '../../../../src/verify/check/index.js';
import { fileOf } from './harness.js';

const barrier = (n: number): string => `
  multimem.red.release.sys.global.add.u32 [%rd2], 1;
WAIT${n}: ld.acquire.sys.global.u32 %r3, [%rd1]; setp.lt.u32 %p0, %r3, %r${4 + n}; @%p0 bra WAIT${n};`;

/** Rank r sums its 16 bytes of all ranks', and stores the sums to all. */
const kernel = (load: string, store: string): string =>
  fileOf(
    `
  ld.param.u64 %rd1, [flags]; ld.param.u64 %rd2, [allFlags]; ld.param.u64 %rd3, [all]; ld.param.u32 %r1, [rank]; ld.param.u32 %r4, [ranks];
  mul.wide.u32 %rd4, %r1, 16; add.s64 %rd3, %rd3, %rd4; shl.b32 %r5, %r4, 1;${barrier(0)}
  ${load} [%rd3];
  ${store};${barrier(1)}
`,
    {
      params: '.param .u64 flags, .param .u64 allFlags, .param .u64 all, .param .u32 rank, .param .u32 ranks',
    },
  );

const words = (name: string) => `{%${name}10, %${name}11, %${name}12, %${name}13}`;
const f32 = kernel(
  `multimem.ld_reduce.weak.global.add.v4.f32 ${words('f')},`,
  `multimem.st.weak.global.v4.f32 [%rd3], ${words('f')}`,
);

type Type = 'f32' | 'bf16' | 'u32' | 'u64';

/** The kernel in PTX, or in the language. */
function subjectOf(
  text: string | Kernel,
  type: Type,
  expected: (index: number, ranks: number) => number,
  covered = 8,
  ranks = 3,
): CheckSubject {
  const program = typeof text === 'string' ? ptx(text, 'k.ptx') : null;
  const each = 16 / { f32: 4, u32: 4, bf16: 2, u64: 8 }[type];
  const configuration = everyRank('switch', { ranks }, async (host) => {
    const { rank } = host;
    const data = await host.windows('data', type, each * ranks);
    const flags = await host.windows('flags', 'u32', 1);
    host.write(
      data[rank]!,
      type,
      Array.from({ length: each * ranks }, (_, i) => (rank + 1) * (i + 1)),
    );
    await host.meet();
    const addressesOf = (all: readonly { readonly address: number }[]) => all.map(({ address }) => address);
    const [all, allFlags] = [data, flags].map((one, i) =>
      host.device.multicast(['data', 'flags'][i]!, addressesOf(one)),
    );
    const params = ['out', 'flags', 'allFlags', 'all', 'rank', 'ranks'];
    const values = { out: data[rank]!, flags: flags[rank]!, allFlags: allFlags!, all: all!, rank, ranks };
    if (program !== null) host.launch(program.kernel('k', { params }), { grid: 1, block: 1 }, values);
    else {
      const launcher = host.device.program((text as Kernel).ir()).launcher({ grid: 1, block: 1, rank });
      for (const name of params) {
        const value = values[name as 'all'];
        launcher.set(name, typeof value === 'number' ? value : (value as { address: number }).address);
      }
      launcher.launch(host.stream);
    }
    // What the slices do not cover stays.
    await host.expect(data[rank]!, (i) => (i % each < covered ? expected(i, ranks) : (rank + 1) * (i + 1)));
  });
  const kernels = program?.kernels ?? [(text as Kernel).ir().name];
  return { name: 'switch', kernels, configurations: [configuration] };
}

const sumOf = (i: number, ranks: number): number => ((ranks * (ranks + 1)) / 2) * (i + 1);

/** Each has stored a number of its own before. */
const own = f32.replace('ld.param.u64 %rd1', 'st.global.f32 [%out], 0f40A00000; ld.param.u64 %rd1');

test('adds what all ranks hold, and stores it to all; each of its mutants is caught', async () => {
  const report = await check(
    [subjectOf(own, 'f32', (i, ranks) => (i === 0 ? 5 * ranks : sumOf(i, ranks)), 8, 2)],
    { seeds: 6, mutants: true },
  );
  expect(report.findings.map(formatFinding)).toEqual([]);
  expect(report.mutants.survivors.map(({ id }) => id)).toEqual([]);
  expect(report.mutants.total).toBeGreaterThan(5);
});

/** The first word of each, in every number of which is 5, is stored by its rank. */
const written = (OF: 'f32' | 'bf16') =>
  kernelOf(
    {
      name: `switch_${OF}`,
      params: {
        out: pointer('u32'),
        flags: pointer('u32'),
        allFlags: pointer('u32'),
        all: pointer('v16'),
        rank: 'u32',
        ranks: 'u32',
      },
      using: { OF, FIVES: OF === 'f32' ? 0x40a00000 : 0x40a040a0 },
    },
    (g, { out, flags, allFlags, all, rank, ranks }, { OF, FIVES }) => {
      g.store(out, FIVES);
      g.multimem.add(allFlags, 1, { order: 'release', scope: 'sys' });
      g.awaitEpoch(flags, ranks, { order: 'acquire', scope: 'sys', limit: 9 });
      g.multimem.store(all.at(rank), g.multimem.load(all.at(rank), OF));
      g.multimem.add(allFlags, 1, { order: 'release', scope: 'sys' });
      g.awaitEpoch(flags, 2 * ranks, { order: 'acquire', scope: 'sys', limit: 9 });
    },
  );

test.each(['f32', 'bf16'] as const)(
  'the same in the language, of %s; each of its mutants is caught',
  async (of) => {
    const fives = of === 'f32' ? 1 : 2;
    const expected = (i: number, ranks: number): number => (i < fives ? 5 * ranks : sumOf(i, ranks));
    const report = await check([subjectOf(written(of), of, expected, 8, 2)], { seeds: 6, mutants: true });
    expect(report.findings.map(formatFinding)).toEqual([]);
    expect(report.mutants.survivors.map(({ id }) => id)).toEqual([]);
    expect(report.mutants.total).toBeGreaterThan(5);
  },
);

describe('the forms of a load', () => {
  const forms: readonly (readonly [string, Type, string, (i: number, ranks: number) => number])[] = [
    ['add.acc::f32.v4.bf16x2', 'bf16', 'v4.bf16x2', sumOf],
    ['max.v4.bf16x2', 'bf16', 'v4.bf16x2', (i, ranks) => ranks * (i + 1)],
    ['max.u64', 'u64', 'u64', (i, ranks) => ranks * (i + 1)],
    ['and.b32', 'u32', 'b32', (i) => [1, 2, 3].reduce((all, rank) => all & (rank * (i + 1)), -1)],
  ];
  test.each(forms)('%s', async (load, type, store, expected) => {
    const [to, count] = load.includes('v4')
      ? [words('r'), 8]
      : load.includes('64')
        ? ['%rd10', 1]
        : ['%r10', 1];
    const text = kernel(
      `multimem.ld_reduce.relaxed.sys.global.${load} ${to},`,
      `multimem.st.relaxed.sys.global.${store} [%rd3], ${to}`,
    );
    const report = await check([subjectOf(text, type, expected, count)], { seeds: 2 });
    expect(report.findings.map(formatFinding)).toEqual([]);
  });
});

test('a multicast address is for nothing else', async () => {
  const plain = f32.replace('multimem.st.weak.global.v4.f32', 'st.global.v4.f32');
  const report = await check([subjectOf(plain, 'f32', sumOf)], { seeds: 1 });
  expect(report.findings.map(formatFinding).join()).toContain('a multicast address');
  const other = f32.replace(
    'multimem.red.release.sys.global.add.u32 [%rd2]',
    'multimem.red.release.sys.global.add.u32 [%rd1]',
  );
  const wrong = await check([subjectOf(other, 'f32', sumOf)], { seeds: 1 });
  expect(wrong.findings.map(formatFinding).join()).toContain("not for one of 'flags'");
});
