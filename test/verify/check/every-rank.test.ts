/** What `heddle/check` gives hosts of kernels in PTX. */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ptx } from '../../../src/lang/index.js';
import { check, formatFinding } from '../../../src/verify/check/index.js';
import { everyRank, type RankHost, struct } from '../../../src/verify/check/public.js';
import { hostCompiler, needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';

/** A thread copies a word, from where a struct says. */
const program = ptx(`
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .align 8 .b8 copy_param_0[16], .param .u64 copy_param_1) {
  .reg .b32 %r<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [copy_param_0+8];
  ld.param.u64 %rd2, [copy_param_1];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd2], %r1;
  ret;
}`);
const copy = program.kernel('copy', { params: ['from', 'to'] });
const From = struct({ rank: 'u32', word: 'pointer' });

async function findingsOf(host: (host: RankHost) => Promise<unknown>, ranks = 2) {
  const subject = { name: 'x', kernels: ['copy'], configurations: [everyRank('x', { ranks }, host)] };
  return (await check([subject], { seeds: 4 })).findings.map(formatFinding);
}

describe('a struct', () => {
  const Inner = struct({ flag: 'u8', weight: 'f64' });
  const Outer = struct(
    { a: 'u8', b: 'bf16', list: [Inner, 2], c: 'i8', to: ['pointer', 3], d: 'f16' },
    { align: 32 },
  );

  test('lies in memory as C++ has it', needing('c++'), () => {
    const source = join(temporaryFolder(), 'layout.cpp');
    const offsets = Object.entries(Outer.offsets).map(
      ([name, at]) => `static_assert(offsetof(Outer, ${name}) == ${at});`,
    );
    const lines = [
      '#include <cstddef>\n#include <cstdint>',
      'struct Inner { uint8_t flag; double weight; };',
      'struct alignas(32) Outer { uint8_t a; uint16_t b; Inner list[2]; int8_t c; void* to[3]; uint16_t d; };',
      `static_assert(sizeof(Inner) == ${Inner.bytes} && sizeof(Outer) == ${Outer.bytes});`,
      ...offsets,
    ];
    writeFileSync(source, lines.join('\n'));
    execFileSync(hostCompiler()!, ['-std=c++17', '-fsyntax-only', source], { stdio: 'pipe' });
  });

  test('has values by name; others are zeros', () => {
    const bytes = Outer.of({ b: 1.004, list: [{ flag: 7 }], c: -1, to: [{ address: 2 ** 40 }, 5n] });
    const view = new DataView(bytes.buffer);
    const { b, list, c, to, d } = Outer.offsets;
    expect([view.getUint16(b, true), view.getUint8(list), view.getInt8(c)]).toEqual([0x3f81, 7, -1]);
    expect([view.getBigUint64(to, true), view.getBigUint64(to + 8, true)]).toEqual([1n << 40n, 5n]);
    expect(bytes.subarray(d).every((byte) => byte === 0)).toBe(true);
  });

  test('says what it does not have', () => {
    expect(() => Outer.of({ e: 1 } as object)).toThrow('a field: a, b, list, c, to, d');
    expect(() => Outer.of({ to: [1, 2, 3, 4] })).toThrow('at most 3 values');
    expect(() => struct({ a: 'float' as 'f32' })).toThrow('type');
  });

  test('of another size than the parameter is refused', async () => {
    const [said] = await findingsOf(async (host) => {
      const to = host.buffer('to', 'u32', 1);
      host.launch(copy, { grid: 1, block: 1 }, { from: struct({ word: 'pointer' }).of({ word: to }), to });
    });
    expect(said).toMatch(/from is "8 bytes".* the 16 bytes that copy takes/);
  });
});

const rounded = {
  ...{ u8: 7, i8: -3, u16: 7, i16: -3, u32: 7, i32: -3, u64: 7, i64: -3 },
  ...{ f32: 0.1, f64: 0.1, f16: 0.1, bf16: 0.1, e4m3: 0.1 },
};

test('buffers hold numbers of their type', async () => {
  const read: Record<string, number> = {};
  const said = await findingsOf(async (host) => {
    for (const [type, value] of Object.entries(rounded) as [keyof typeof rounded, number][])
      [read[type]] = (await host.read(host.buffer('values', type, [value]))) as [number];
    const from = host.buffer('word', 'u32', [5]);
    const to = host.buffer('to', 'u32', 1);
    host.launch(copy, { grid: 1, block: 1 }, { from: From.of({ word: from }), to });
    await host.expect(to, () => 5);
  }, 1);
  expect(said).toEqual([]);
  const halves = { f16: 0.0999755859375, bf16: 0.10009765625 };
  const floats = { f32: Math.fround(0.1), f64: 0.1, ...halves, e4m3: 0.1015625 };
  expect(read).toEqual({ ...rounded, ...floats });
});

test('comparing names the rank, the element and both values', async () => {
  const said = await findingsOf(async (host) => {
    const to = host.buffer('sums', 'f32', [1, 2.5]);
    const from = From.of({ word: to });
    host.launch(copy, { grid: 1, block: 1 }, { from, to: { address: to.address } });
    await host.expect(to, (i) => i + 1, 0.5);
    await host.expect(to, (i) => i + 1);
  }, 1);
  expect(said.join()).toContain('rank 0: sums[1] is 2.5, not 2');
});

test('a program of another copy of the package is refused', async () => {
  const other = everyRank('x', { ranks: 1 }, async () => {});
  await expect(other.run({} as never)).rejects.toThrow('another copy than the command');
});

test('a wrong result on one rank is told once the others have got what they wait for', async () => {
  let [begun, ended] = [0, 0];
  const said = await findingsOf(async (host) => {
    begun++;
    const to = host.buffer('to', 'u32', [host.rank]);
    host.launch(copy, { grid: 1, block: 1 }, { from: From.of({ word: to }), to: { address: to.address } });
    await host.expect(to, () => 1);
    await host.meet();
    ended++;
  });
  expect(said).toEqual([expect.stringContaining('Wrong result: rank 0: to[0] is 0, not 1')]);
  expect(ended).toBe(begun);
});

test.each([
  [true, 0],
  [false, 1],
])('hosts that meet (%s) see what the others have written before', async (meets, findings) => {
  const said = await findingsOf(async (host) => {
    const words = await host.windows('words', 'u32', 1);
    host.write(words[host.rank]!, 'u32', [7]);
    if (meets) await host.meet();
    const to = host.buffer('to', 'u32', 1);
    host.launch(copy, { grid: 1, block: 1 }, { from: From.of({ word: words[1 - host.rank]! }), to });
    if (meets) await host.expect(to, () => 7);
  });
  expect(said.filter((text) => text.startsWith('Data race on words'))).toHaveLength(findings);
});
