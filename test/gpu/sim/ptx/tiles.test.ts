/** Boxes of tensors, products of warp groups and clusters, in PTX by hand. */
import { describe, expect, test } from 'vitest';
import { e4m3ToF32, f16ToF32, f32ToBf16 } from '../../../../src/gpu/index.js';
import { formatFinding, SimMachine } from '../../../../src/gpu/sim/index.js';
import { mapOf } from '../../../../src/gpu/sim/tensor-maps.js';
import { tensorMap, tile } from '../../../../src/lang/index.js';
import { ptx } from '../../../../src/lang/ptx/index.js';
import { clean, fileOf, run } from './harness.js';
import { along, descriptor, type Form, numbers, placeOf, plain, turned } from './matrices.js';

const barrier = '.shared .align 8 .b64 gate;';

describe('boxes of tensors', () => {
  // The box at row 2, column 4 of a tensor of 5 × 12 goes to the same place of another, with 1 added to its element 0.
  const kernel = `.version 8.0
.target sm_90
.address_size 64
.shared .align 128 .b8 box[256];
${barrier}
.visible .entry k(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128])
{
  .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<8>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, gate; mov.u32 %r3, box; mov.u32 %r4, 2; mov.u32 %r5, 4;
  mov.b64 %rd1, from; cvta.param.u64 %rd2, %rd1; mov.b64 %rd3, to; cvta.param.u64 %rd4, %rd3;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MEET;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r5, %r4}], [%r2];
MEET:
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  bar.sync 0;
  @%p1 bra END;
  ld.shared.u32 %r6, [box]; add.u32 %r6, %r6, 1; st.shared.u32 [box], %r6;
  fence.proxy.async.shared::cta;
  cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd4, {%r5, %r4}], [%r3];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
END:
  ret;
}
`;

  /** `bytes`: parameters get their maps as drivers write them. */
  async function move(text: string, how: { bytes?: (address: number) => Uint8Array; mode?: 'fast' } = {}) {
    const machine = SimMachine.create({ ranks: 1, mode: how.mode ?? 'checked', seed: '3' });
    const device = machine.device(0);
    const stream = device.createStream();
    const [from, to] = [device.allocate(240, 'from'), device.allocateWindow(240, 'to')];
    const numbers = Uint32Array.from({ length: 60 }, (_, i) => i + 1);
    stream.copyIn(from.address, new Uint8Array(numbers.buffer));
    const map = tensorMap(tile('u32', [8, 8], { swizzle: 0 }));
    const kernel = ptx(text, 'k.ptx').kernel('k', {
      params: ['from', 'to'],
      tensors: { from: map, to: map },
    });
    const launcher = (await device.load(kernel)).launcher({ grid: 1, block: 64, rank: 0 });
    for (const [name, { address }] of Object.entries({ from, to }))
      if (how.bytes) launcher.setBytes(name, how.bytes(address));
      else launcher.setTensor(name, { address, extents: [5, 12] });
    launcher.launch(stream);
    const moved = new Uint32Array((await stream.copyOut(to.address, 240)).slice().buffer);
    return { moved, numbers, findings: machine.findings };
  }

  test('go to shared memory and back, as far as they lie in their tensor', async () => {
    const { moved, numbers, findings } = await move(kernel);
    expect(findings.map(formatFinding)).toEqual([]);
    const expected = numbers.map((number, i) => (i >= 24 && i % 12 >= 4 ? number : 0));
    expected[28]! += 1;
    expect(moved).toEqual(expected);
  });

  test('go by a map in the bytes of a parameter, too', async () => {
    const form = { extents: [5, 12], strides: [48], tile: tile('u32', [8, 8], { swizzle: 0 }) };
    const { moved } = await move(kernel);
    const again = await move(kernel, { bytes: (address) => mapOf(form, address) });
    expect(again).toMatchObject({ moved, findings: [] });
  });

  test('fail by a map that is none, also where other threads then wait for ever', async () => {
    const none = move(kernel, { bytes: () => new Uint8Array(128), mode: 'fast' });
    await expect(none).rejects.toThrow('is of address 0x0, where no memory is');
  });

  test('need a proxy fence behind stores of threads', async () => {
    const { findings } = await move(kernel.replace('fence.proxy.async.shared::cta;', ''));
    expect(findings[0]).toMatchObject({ kind: 'race' });
  });

  test('need a fence behind the mbarrier at which they arrive', async () => {
    const shown = 'fence.mbarrier_init.release.cluster;';
    expect((await move(kernel.replace(shown, 'fence.proxy.async.shared::cta;'))).findings).toEqual([]);
    const { findings } = await move(kernel.replace(shown, ''));
    expect(findings[0]).toMatchObject({ kind: 'misuse', location: 'gate[0]' });
  });

  test('a parameter that `tensors` does not name takes none', async () => {
    const machine = SimMachine.create({ ranks: 1, mode: 'fast', seed: '3' });
    const device = machine.device(0);
    const launcher = (await device.load(ptx(kernel).kernel('k'))).launcher({ grid: 1, block: 64, rank: 0 });
    expect(() => launcher.setTensor('param_0', { address: 16, extents: [5, 12] })).toThrow();
    expect(() => launcher.setTensor('from', { address: 16, extents: [5, 12] })).toThrow('`tensors`');
  });
});

describe('a product of a warp group', () => {
  /** 64 × 16 by 8 × 16 of bf16, whose rows have 32 bytes: the pieces of 16 of every other four rows change places. */
  const kernel = fileOf(
    `
  mov.u32 %r1, %tid.x; mov.u32 %r2, tiles;
  ld.param.u64 %rd1, [tilesFrom];
  // 16 bytes a thread of a, and of 16 threads of b: piece t & 1 of row t >> 1.
  mul.wide.u32 %rd2, %r1, 16; add.s64 %rd3, %rd1, %rd2;
  shl.b32 %r3, %r1, 4; shr.u32 %r4, %r3, 7; and.b32 %r4, %r4, 1; shl.b32 %r4, %r4, 4; xor.b32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r2;
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3]; st.shared.v4.u32 [%r3], {%r5, %r6, %r7, %r8};
  setp.gt.u32 %p1, %r1, 15;
  @%p1 bra READY;
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3+2048]; st.shared.v4.u32 [%r3+2048], {%r5, %r6, %r7, %r8};
READY:
  fence.proxy.async.shared::cta;
  bar.sync 0;
  mov.b64 %rd4, 0xC000001000010000;
  shr.u32 %r9, %r2, 4; cvt.u64.u32 %rd5, %r9; or.b64 %rd5, %rd5, %rd4; add.s64 %rd6, %rd5, 128;
  mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  setp.ne.u32 %p2, %r2, 99999;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd5, %rd6, %p2, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  st.global.v4.f32 [%rdOut], {%f1, %f2, %f3, %f4};
`,
    { declarations: '.shared .align 1024 .b8 tiles[2304];', params: '.param .u64 tilesFrom' },
  )
    .replace('%rdOut', '%rd9')
    .replace('wgmma.fence', 'mul.wide.u32 %rd8, %r1, 16; add.s64 %rd9, %out, %rd8;\n  wgmma.fence');

  async function multiply(text: string) {
    const a = Float32Array.from({ length: 64 * 16 }, (_, i) => ((i * 7) % 23) - 11);
    const b = Float32Array.from({ length: 8 * 16 }, (_, i) => ((i * 5) % 17) - 8);
    const from = new Uint8Array(Uint16Array.from([...a, ...b], f32ToBf16).buffer);
    const { floats: sums, findings } = await run(text, {
      block: 128,
      seed: '5',
      bytes: 2048,
      memory: { from },
    });
    const expected = sums.map((_, i) => {
      const [thread, n] = [i >> 2, i & 3];
      const row = 16 * (thread >> 5) + ((thread & 31) >> 2) + 8 * (n >> 1);
      const column = 2 * (thread & 3) + (n & 1);
      let sum = 1;
      for (let k = 0; k < 16; k++) sum += a[16 * row + k]! * b[16 * column + k]!;
      return sum;
    });
    return { sums, expected, findings };
  }

  test('is added to what the registers hold', async () => {
    const { sums, expected, findings } = await multiply(kernel);
    expect(findings.map(formatFinding)).toEqual([]);
    expect(sums).toEqual(expected);
  });

  test.each([
    ['fence.proxy.async.shared::cta;', 'race'],
    ['wgmma.wait_group.sync.aligned 0;', 'misuse'],
  ])('without %j is a mistake', async (line, kind) => {
    const { findings } = await multiply(kernel.replace(line, ''));
    expect(findings.map((finding) => finding.kind)).toContain(kind);
  });

  test.each([
    ['add.f32 %f5, %f4, %f4;', ['still under way']],
    // To move a sum is to read nothing; what is read afterwards is it all the same.
    ['mov.f32 %f5, %f4;', []],
    ['mov.f32 %f5, %f4; add.f32 %f6, %f5, %f5;', ['still under way']],
    ['mov.f32 %f4, 0f00000000;', ['still under way']],
  ])('%j before the wait', async (early, said) => {
    const wait = 'wgmma.wait_group.sync.aligned 0;';
    const { findings } = await multiply(kernel.replace(wait, `${early} ${wait}`));
    expect(findings.map((finding) => formatFinding(finding).match(/still under way/)?.[0])).toEqual(said);
  });

  test('sums of one group may be read while the next is under way', async () => {
    const second = `wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f11, %f12, %f13, %f14}, %rd5, %rd6, %p2, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; add.f32 %f5, %f1, %f2; wgmma.wait_group.sync.aligned 0;`;
    const { findings } = await multiply(kernel.replace('wgmma.wait_group.sync.aligned 0;', second));
    expect(findings.map(formatFinding)).toEqual([]);
  });
});

// A warp makes the map of another tensor, of 8 columns, of one that it was given.
describe('a tensor map that a kernel changes', () => {
  const acquire = 'fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;';
  const wait = `WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;`;
  const kernel = `.version 8.3
.target sm_90a
.address_size 64
.shared .align 128 .b8 box[256]; .shared .align 128 .b8 own[128];
${barrier}
.visible .entry k(.param .align 64 .b8 from[128], .param .u64 other, .param .u64 maps, .param .u64 out)
{
  .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  ld.param.u64 %rd2, [other]; ld.param.u64 %rd3, [maps]; ld.param.u64 %rd4, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, gate; mov.u32 %r3, box; mov.u32 %r4, own; mov.u32 %r5, 2; mov.u32 %r6, 4;
  mov.b64 %rd1, from; cvta.param.u64 %rd5, %rd1; mul.wide.u32 %rd6, %r1, 4; add.s64 %rd5, %rd5, %rd6;
  shl.b32 %r7, %r1, 2; add.u32 %r8, %r4, %r7; ld.u32 %r9, [%rd5]; st.shared.u32 [%r8], %r9;
  bar.warp.sync -1;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra CHANGED;
  mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4], %rd2;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4], 0, 8;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r4], 0, 32;
CHANGED:
  bar.warp.sync -1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd3], [%r4], 128;
  ${acquire}
  @%p1 bra READ;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd3, {%r6, %r5}], [%r2];
READ:
  bar.warp.sync -1;
  ${wait}
  shl.b32 %r10, %r1, 3; add.u32 %r11, %r3, %r10; ld.shared.v2.u32 {%r12, %r13}, [%r11];
  mul.wide.u32 %rd7, %r1, 8; add.s64 %rd8, %rd4, %rd7; st.global.v2.u32 [%rd8], {%r12, %r13};
  @%p1 bra END;
  tensormap.replace.tile.global_dim.global.b1024.b32 [%rd3], 0, 4;
END:
  ret;
}
`;

  async function load(text: string) {
    const machine = SimMachine.create({ ranks: 1, mode: 'checked', seed: '3' });
    const device = machine.device(0);
    const stream = device.createStream();
    const [from, other, maps] = [240, 320, 128].map((bytes, i) => device.allocate(bytes, `buffer ${i}`));
    const out = device.allocateWindow(256, 'out');
    stream.copyIn(other!.address, new Uint8Array(Uint32Array.from({ length: 80 }, (_, i) => i + 1).buffer));
    const map = tensorMap(tile('u32', [8, 8], { swizzle: 0 }));
    const names = ['from', 'other', 'maps', 'out'];
    const launcher = (
      await device.load(ptx(text, 'k.ptx').kernel('k', { params: names, tensors: { from: map } }))
    ).launcher({
      ...{ grid: 1, block: 32, rank: 0 },
    });
    launcher.setTensor('from', { address: from!.address, extents: [5, 12] });
    for (const [name, { address }] of Object.entries({ other: other!, maps: maps!, out }))
      launcher.set(name, address);
    launcher.launch(stream);
    const words = new Uint32Array((await stream.copyOut(out.address, 256)).slice().buffer);
    return { words, findings: machine.findings.map(formatFinding) };
  }

  test('is what copies read', async () => {
    const { words, findings } = await load(kernel);
    expect(findings).toEqual([]);
    // Rows 2 to 4, columns 4 to 7 of five rows of eight.
    const expected = words.map((_, i) =>
      i >> 3 < 3 && i % 8 < 4 ? 8 * (2 + (i >> 3)) + 4 + (i % 8) + 1 : 0,
    );
    expect(words).toEqual(expected);
  });

  test.each([
    [
      'without an acquire by their own path',
      acquire,
      'fence.acq_rel.gpu;',
      'fence.proxy.tensormap::generic.acquire',
    ],
    ['while a copy may read it', wait, '', 'may still be under way'],
  ])('is wrong %s', async (_, right, wrong, said) => {
    const { findings } = await load(kernel.replace(right, wrong));
    expect(findings.join()).toContain(said);
  });
});

// Where each element lies is as PTX documents its canonical layouts: 64 × 16 words by 24 × 16 words, 32 bytes a row.
describe('factors of a product', () => {
  async function multiply(type: string, a: Form | 'registers', b: Form, change = (text: string) => text) {
    const { size, bits } = numbers[type]!;
    const [depth, columns, isInteger] = [32 / size, 24, type === 's8' || type === 'u8'];
    const value = (i: number): number => ((i * 7) % 9) - 4;
    const image = new Uint8Array(32_768);
    const put = (at: number, of: number): void => {
      for (let i = 0; i < size; i++) image[at + i] = bits(of) >>> (8 * i);
    };
    const element = (form: Form, base: number, row: number, k: number, of: number): void =>
      put(base + (form.turned ? placeOf(form, k, row * size) : placeOf(form, row, k * size)), of);
    for (let row = 0; row < 64; row++)
      for (let k = 0; k < depth; k++)
        if (a !== 'registers') element(a, 0, row, k, value(row * 3 + k));
        else {
          // Four words a thread, behind the matrices.
          const [word, byte] = [Math.floor((k * size) / 4), (k * size) % 4];
          const thread = 32 * (row >> 4) + 4 * (row & 7) + (word & 3);
          put(24_576 + 16 * thread + 4 * (((row >> 3) & 1) + 2 * (word >> 2)) + byte, value(row * 3 + k));
        }
    for (let row = 0; row < columns; row++)
      for (let k = 0; k < depth; k++) element(b, 16_384, row, k, value(row + 5 * k));
    const list = (name: string, n: number): string =>
      `{${Array.from({ length: n }, (_, i) => `%${name}${i}`)}}`;
    const sum = isInteger ? 'w' : 'f';
    const turns = [...(a === 'registers' ? [] : [a]), b].map(({ turned }) => Number(turned));
    const signs = isInteger ? '' : size === 2 ? `, -1, 1, ${turns}` : ', -1, 1';
    const into = isInteger ? 's32' : 'f32';
    const text = change(`.version 8.0
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tiles[32768];
.visible .entry k(.param .u64 out, .param .u64 from, .param .u64 a, .param .u64 b)
{
  .reg .pred %p<3>; .reg .b32 %r<40>; .reg .b32 %w<12>; .reg .f32 %f<12>; .reg .b64 %rd<20>;
  ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [out]; ld.param.u64 %rd3, [a]; ld.param.u64 %rd4, [b];
  mov.u32 %r1, %tid.x; mov.u32 %r2, tiles; mul.wide.u32 %rd5, %r1, 16; add.s64 %rd6, %rd1, %rd5;
  ld.global.v4.u32 ${list('r', 14).replace(/.*(%r10,%r11,%r12,%r13)/, '{$1')}, [%rd6+24576];
  mov.u32 %r3, %r1;
COPY: shl.b32 %r4, %r3, 4; cvt.u64.u32 %rd7, %r4; add.s64 %rd8, %rd1, %rd7; add.u32 %r5, %r2, %r4;
  ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd8]; st.shared.v4.u32 [%r5], {%r6, %r7, %r8, %r9};
  add.u32 %r3, %r3, 128; setp.lt.u32 %p1, %r3, 2048; @%p1 bra COPY;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p2, %r2, 99999;
  ${Array.from({ length: 12 }, (_, i) => (isInteger ? `mov.u32 %w${i}, 1;` : `mov.f32 %f${i}, 0f3F800000;`)).join(' ')}
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n24k${depth}.${into}.${type}.${type} ${list(sum, 12)}, ${a === 'registers' ? '{%r10, %r11, %r12, %r13}' : '%rd3'}, %rd4, %p2${signs};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  mul.wide.u32 %rd9, %r1, 48; add.s64 %rd9, %rd2, %rd9;
  ${[0, 4, 8].map((i) => `st.global.v4.b32 [%rd9+${4 * i}], {${[0, 1, 2, 3].map((n) => `%${sum}${i + n}`)}};`).join(' ')}
  ret;
}
`);
    const { words, floats, findings } = await run(text, {
      ...{ block: 128, seed: '5', bytes: 128 * 48, memory: { from: image } },
      set: { a: a === 'registers' ? 0n : descriptor(a, 0), b: descriptor(b, 16_384) },
    });
    const sums = isInteger ? [...new Int32Array(words.buffer)] : [...floats];
    const shift = type === 'u8' ? 4 : 0;
    const expected = sums.map((_, i) => {
      const [thread, n] = [Math.floor(i / 12), i % 12];
      const row = 16 * (thread >> 5) + ((thread & 31) >> 2) + 8 * ((n >> 1) & 1);
      const column = 8 * (n >> 2) + 2 * (thread & 3) + (n & 1);
      let total = 1;
      for (let k = 0; k < depth; k++)
        total += (isInteger ? 1 : -1) * (value(row * 3 + k) + shift) * (value(column + 5 * k) + shift);
      return total;
    });
    return { sums, expected, findings: findings.map(formatFinding) };
  }

  const forms: readonly (readonly [string, Form | 'registers', Form])[] = [
    ...Object.keys(numbers).map((type) => [type, 'registers', along(128)] as const),
    ...Object.keys(numbers).map((type) => [type, along(64), along(32)] as const),
    ...(['bf16', 'e4m3'] as const).map((type) => [type, plain, plain] as const),
    ...[32, 64, 128].map((swizzle) => ['f16', turned(swizzle), turned(swizzle)] as const),
    ['bf16', 'registers', turned(64)],
    [
      'bf16',
      { ...plain, turned: true, near: 128, far: 1024 },
      { ...plain, turned: true, near: 128, far: 1024 },
    ],
    ['bf16', { ...along(128), far: 2048 }, along(128)],
  ];
  test.each(forms)('%s, %j by %j', async (type, a, b) => {
    const { sums, expected, findings } = await multiply(type, a, b);
    expect(findings).toEqual([]);
    expect(sums).toEqual(expected);
  });

  test('are not changed in registers before they are read', async () => {
    const wait = 'wgmma.wait_group.sync.aligned 0;';
    const early = (line: string) =>
      multiply('bf16', 'registers', along(128), (text) => text.replace(wait, `${line} ${wait}`));
    expect((await early('add.u32 %r10, %r10, 1;')).findings[0]).toContain('still under way');
    expect((await early('add.u32 %r14, %r10, 1;')).findings).toEqual([]);
  });

  test('are seen behind a proxy fence alone', async () => {
    for (const b of [turned(128), plain]) {
      const { findings } = await multiply('bf16', turned(64), b, (text) =>
        text.replace('fence.proxy.async.shared::cta;', ''),
      );
      expect(findings.some((one) => one.startsWith('Data race'))).toBe(true);
    }
  });
});

// Which byte lies where is as PTX documents it for m16n8k32.
test.each([
  ['s32.s8.s8.s32', (byte: number) => (byte << 24) >> 24],
  ['s32.u8.u8.s32', (byte: number) => byte],
  ['f32.e4m3.e4m3.f32', (byte: number) => e4m3ToF32(byte)],
  ['f32.e5m2.e5m2.f32', (byte: number) => f16ToF32(byte << 8)],
] as const)('mma of bytes, %s', async (form, read) => {
  const isFloat = form.startsWith('f32');
  // No byte is a NaN or infinite.
  const [by, mask] = isFloat ? [0x01030201, 0x3c3c3c3c] : [0x0a0b0c0d, -1];
  const word = (lane: number, i: number): number => Math.imul(lane + 7 * i, by) & mask;
  const brought = [0, 1, 2, 3, 4, 5].map(
    (i) =>
      `add.u32 %r${i}, %r20, ${7 * i}; mul.lo.u32 %r${i}, %r${i}, ${by}; and.b32 %r${i}, %r${i}, ${mask};`,
  );
  const sums = isFloat ? '%f0, %f1, %f2, %f3' : '%r10, %r11, %r12, %r13';
  const zeros = isFloat
    ? [0, 1, 2, 3].map((i) => `mov.f32 %f${i}, 0f00000000;`)
    : [0, 1, 2, 3].map((i) => `mov.u32 %r1${i}, 0;`);
  const body = `
  mov.u32 %r20, %tid.x; ${brought.join(' ')} ${zeros.join(' ')}
  mma.sync.aligned.m16n8k32.row.col.${form} {${sums}}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {${sums}};
  mul.wide.u32 %rd1, %r20, 16; add.s64 %rd1, %out, %rd1; st.global.v4.b32 [%rd1], {${sums}};`;
  const { words, floats, error } = await run(fileOf(body), { block: 32, bytes: 512 });
  expect(error).toBeNull();
  const [a, b] = [new Float64Array(16 * 32), new Float64Array(8 * 32)];
  for (let lane = 0; lane < 32; lane++)
    for (let j = 0; j < 4; j++) {
      const [group, at] = [lane >> 2, 4 * (lane & 3) + j];
      const value = (i: number): number => read((word(lane, i) >>> (8 * j)) & 255);
      for (let i = 0; i < 4; i++) a[32 * (group + 8 * (i & 1)) + at + 16 * (i >> 1)] = value(i);
      for (let i = 0; i < 2; i++) b[32 * group + at + 16 * i] = value(4 + i);
    }
  for (let lane = 0; lane < 32; lane++)
    for (let i = 0; i < 4; i++) {
      const [row, column] = [(lane >> 2) + 8 * (i >> 1), 2 * (lane & 3) + (i & 1)];
      let sum = 0;
      for (let n = 0; n < 32; n++) sum = Math.fround(sum + a[32 * row + n]! * b[32 * column + n]!);
      expect(isFloat ? floats[4 * lane + i] : words[4 * lane + i]! | 0).toBe(sum);
    }
});

test.each(['', '.trans'])('stmatrix%s stores what ldmatrix would load', async (turned) => {
  const body = `
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3;
  mul.lo.u32 %r4, %r1, 0x10001; or.b32 %r5, %r4, 0x01000100; or.b32 %r6, %r4, 0x02000200; or.b32 %r7, %r4, 0x03000700;
  stmatrix.sync.aligned.m8n8.x4${turned}.shared.b16 [%r2], {%r4, %r5, %r6, %r7};
  bar.warp.sync -1;
  ldmatrix.sync.aligned.m8n8.x4${turned}.shared.b16 {%r8, %r9, %r10, %r11}, [%r2];
  xor.b32 %r8, %r8, %r4; xor.b32 %r9, %r9, %r5; xor.b32 %r10, %r10, %r6; xor.b32 %r11, %r11, %r7;
  ld.shared.u32 %r12, [%r2+4];
  mul.wide.u32 %rd1, %r1, 32; add.s64 %rd1, %out, %rd1;
  st.global.v4.u32 [%rd1], {%r8, %r9, %r10, %r11}; st.global.u32 [%rd1+16], %r12;`;
  const text = fileOf(body, { declarations: '.shared .align 16 .b8 tile[512];' });
  for (const mode of ['fast', 'checked'] as const) {
    const { words } = await clean(text, { mode, block: 32, bytes: 1024 });
    for (let lane = 0; lane < 32; lane++)
      expect([...words.subarray(8 * lane, 8 * lane + 4)]).toEqual([0, 0, 0, 0]);
    // Row 1 of the first matrix: its third and fourth elements.
    expect(words[8 + 4]).toBe(turned === '' ? 0x00050005 : 0x000c0008);
  }
});

describe('a cluster of two blocks', () => {
  // Each stores its number to the other's shared memory.
  const kernel = fileOf(
    `
  mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, word; xor.b32 %r3, %r1, 1; mov.u32 %r7, %ctaid.x;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r4, %r2, %r3;
  st.shared::cluster.u32 [%r4], %r7;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  ld.shared.u32 %r5, [word];
  mul.wide.u32 %rd1, %r7, 4; add.s64 %rd2, %out, %rd1;
  st.global.u32 [%rd2], %r5;
`,
    { declarations: '.shared .align 4 .b32 word;' },
  ).replace('.param .u64 out)', '.param .u64 out)\n.explicitcluster\n.reqnctapercluster 2');

  test('reaches each other’s shared memory', async () => {
    const { words } = await clean(kernel, { grid: 4 });
    expect([...words.subarray(0, 4)]).toEqual([1, 0, 3, 2]);
  });

  test('must meet before the other reads', async () => {
    const last = kernel.lastIndexOf('barrier.cluster.arrive');
    const { findings } = await run(kernel.slice(0, last) + kernel.slice(kernel.indexOf('\n', last)), {
      grid: 4,
    });
    expect(findings.some(({ kind }) => kind === 'race' || kind === 'uninitialised-read')).toBe(true);
  });

  test('that comes relaxed hands on no more than a fence before it', async () => {
    const last = kernel.lastIndexOf('barrier.cluster.arrive');
    const relaxed = (fence: string) =>
      `${kernel.slice(0, last)}${fence}${kernel.slice(last).replace('arrive', 'arrive.relaxed')}`;
    // Also where the detector has heard of others than threads before.
    for (const fills of [0, 4])
      expect((await run(relaxed(''), { grid: 4, fills })).findings[0]).toMatchObject({ kind: 'race' });
    const { words } = await clean(relaxed('fence.acq_rel.cluster; '), { grid: 4 });
    expect([...words.subarray(0, 4)]).toEqual([1, 0, 3, 2]);
  });

  test('shows the other its mbarriers by their fence, and comes relaxed', async () => {
    // Each arrives at the other's.
    const text = (fence: string) =>
      fileOf(
        `
  mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, gate; xor.b32 %r3, %r1, 1;
  mbarrier.init.shared::cta.b64 [%r2], 1; ${fence}
  barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
  mapa.shared::cluster.u32 %r4, %r2, %r3;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
`,
        { declarations: barrier },
      ).replace('.param .u64 out)', '.param .u64 out)\n.explicitcluster\n.reqnctapercluster 2');
    await clean(text('fence.mbarrier_init.release.cluster;'), { grid: 2 });
    expect((await run(text(''), { grid: 2 })).findings[0]).toMatchObject({ kind: 'race' });
  });
});

// A 4 × 4 grid of clusters of 2 × 2. Each block reads its diagonal neighbour's place in the grid, by a generic address.
describe('a cluster along x and y', () => {
  const kernel = fileOf(
    `
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; shl.b32 %r3, %r2, 2; or.b32 %r3, %r3, %r1; st.shared.u32 [word], %r3;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
  mov.u32 %r4, %cluster_ctarank; xor.b32 %r5, %r4, 3; cvta.shared.u64 %rd1, %rd9; mapa.u64 %rd2, %rd1, %r5;
  ld.u32 %r6, [%rd2]; getctarank.u64 %r7, %rd2; cvta.to.shared.u64 %rd4, %rd2; cvt.u32.u64 %r14, %rd4; ld.shared::cluster.u32 %r15, [%r14];
  isspacep.shared::cluster %p1, %rd2; isspacep.shared::cta %p2, %rd2; selp.b32 %r8, 1, 0, %p1; selp.b32 %r9, 1, 0, %p2;
  mov.u32 %r10, %clusterid.x; mov.u32 %r11, %clusterid.y; mov.u32 %r12, %nclusterid.y; mov.u32 %r13, %cluster_nctaid.y;
  mul.wide.u32 %rd3, %r3, 32; add.s64 %rd3, %out, %rd3;
  st.global.v4.u32 [%rd3], {%r6, %r7, %r8, %r9}; shl.b32 %r12, %r12, 4; or.b32 %r12, %r12, %r13;
  st.global.v4.u32 [%rd3+16], {%r10, %r11, %r12, %r15};
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;`,
    { declarations: '.shared .align 4 .b32 word;' },
  )
    .replace('ld.param', 'mov.u64 %rd9, word; ld.param')
    .replace('.param .u64 out)', '.param .u64 out)\n.explicitcluster\n.reqnctapercluster 2, 2');

  test('reaches other blocks’ memory by generic addresses', async () => {
    for (const seed of ['0', '1']) {
      const { words } = await clean(kernel, { grid: [4, 4], bytes: 512, seed });
      for (let block = 0; block < 16; block++) {
        const [x, y] = [block & 3, block >> 2];
        const other = 4 * (y ^ 1) + (x ^ 1);
        const rank = 3 - (2 * (y & 1) + (x & 1));
        const expected = [other, rank, 1, 0, x >> 1, y >> 1, 0x22, other];
        expect([...words.subarray(8 * block, 8 * block + 8)]).toEqual(expected);
      }
    }
  });

  test('has no place in a grid that it does not divide', async () => {
    await expect(run(kernel, { grid: [4, 3] })).rejects.toThrow('a multiple of 2');
  });

  test('is not read where its blocks have not met', async () => {
    const met = kernel.indexOf('barrier.cluster.arrive');
    const text = kernel.slice(0, met) + kernel.slice(kernel.indexOf('\n', met));
    const { findings } = await run(text, { grid: [4, 4], bytes: 512 });
    expect(findings.some(({ kind }) => kind === 'race' || kind === 'uninitialised-read')).toBe(true);
  });
});

test('a block without a cluster is a cluster of its own', async () => {
  const body = `
  mov.u32 %r1, word; mov.u32 %r2, gate; mov.u32 %r3, 0; mov.u32 %r4, 7;
  mapa.shared::cluster.u32 %r5, %r1, %r3;
  st.shared::cluster.u32 [%r5], %r4;
  ld.shared.u32 %r6, [word];
  st.global.u32 [%out], %r6;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  mapa.shared::cluster.u32 %r7, %r2, %r3;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;`;
  const text = fileOf(body, { declarations: `${barrier} .shared .align 4 .b32 word;` });
  const { words } = await clean(text);
  expect(words[0]).toBe(7);
});

describe('mbarriers', () => {
  const kernel = (second: string) =>
    fileOf(
      `
  mov.u32 %r1, %tid.x; mov.u32 %r2, gate; setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MEET;
  mbarrier.init.shared::cta.b64 [%r2], 33;
  st.shared.u32 [word], 1;
MEET: bar.sync 0;
  ${second}
WAIT: mbarrier.try_wait.shared::cta.b64 %p2, [%r2], %rd1;
  @!%p2 bra WAIT;
  ld.shared.u32 %r3, [word];
  @%p1 bra END;
  st.global.u32 [%out], %r3;
END:`,
      { declarations: `${barrier} .shared .align 4 .u32 word;` },
    );

  test('count arrivals, and hand out states to wait for', async () => {
    const both = `@!%p1 st.shared.u32 [word], 7;
  @%p1 mbarrier.arrive.shared::cta.b64 %rd1, [%r2]; @!%p1 mbarrier.arrive.shared::cta.b64 %rd1, [%r2], 2;`;
    for (const mode of ['fast', 'checked'] as const) {
      const { words } = await clean(kernel(both), { block: 32, mode });
      expect(words[0]).toBe(7);
    }
    const dropped = `${both.replaceAll('arrive', 'arrive_drop')} mov.u64 %rd1, 0;`;
    expect((await run(kernel(dropped), { block: 32 })).words[0]).toBe(7);
    // Without the second arrival of thread 0 it does not end.
    const { findings } = await run(kernel(both.replace(', 2;', ';')), { block: 32 });
    expect(findings[0]).toMatchObject({ kind: 'stuck-wait' });
  });
});

describe('asynchronous loads', () => {
  // 4 and 8 bytes, and 16 of which 5 are copied.
  const body = `
  mov.u32 %r1, tile;
  st.global.u64 [%out], 0x0807060504030201; st.global.u64 [%out+8], 0x1817161514131211;
  cp.async.ca.shared.global [%r1], [%out], 4;
  cp.async.ca.shared.global [%r1+8], [%out+8], 8;
  mov.u32 %r2, 5; cp.async.cg.shared.global [%r1+16], [%out], 16, %r2;
  setp.eq.u32 %p1, 0, 0; cp.async.ca.shared.global [%r1+4], [%out], 4, %p1;
  cp.async.wait_all;
  ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [tile]; st.global.v4.u32 [%out+16], {%r3, %r4, %r5, %r6};
  ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [tile+16]; st.global.v4.u32 [%out+32], {%r3, %r4, %r5, %r6};`;
  const declarations = '.shared .align 16 .b8 tile[32];';

  test('of few bytes; what is not given is zero', async () => {
    const { words } = await clean(fileOf(body, { declarations }));
    expect([...words.slice(4, 12)]).toEqual([
      ...[0x04030201, 0, 0x14131211, 0x18171615],
      ...[0x04030201, 5, 0, 0],
    ]);
  });

  test('arrive at an mbarrier, beside the arrivals that it is for or as one of them', async () => {
    // Thread 1 reads what thread 0 has copied.
    const through = (arrive: string, count: number) =>
      fileOf(
        `
  mov.u32 %r1, %tid.x; mov.u32 %r2, gate; mov.u32 %r7, tile; setp.ne.u32 %p1, %r1, 0;
  @%p1 bra MEET;
  mbarrier.init.shared::cta.b64 [%r2], ${count}; st.global.u32 [%out], 7;
MEET: bar.sync 0;
  @%p1 bra WAIT;
  cp.async.ca.shared.global [%r7], [%out], 4;
  ${arrive}
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  ld.shared.u32 %r3, [tile];
  @!%p1 bra END;
  st.global.u32 [%out+4], %r3;
END:`,
        { declarations: `${barrier} ${declarations}` },
      );
    const own = 'cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];';
    const extra = `cp.async.mbarrier.arrive.shared.b64 [%r2]; mbarrier.arrive.shared::cta.b64 _, [%r2];`;
    for (const arrive of [own, extra])
      for (const mode of ['fast', 'checked'] as const)
        for (const seed of ['1', '2', '3', '4']) {
          const { words } = await clean(through(arrive, 1), { block: 2, mode, seed });
          expect(words[1]).toBe(7);
        }
    // One that arrives by itself does not wait for its copies, and one that nobody expects, or that does not come, is found.
    const alone = await run(through('mbarrier.arrive.shared::cta.b64 _, [%r2];', 1), { block: 2 });
    expect(alone.findings.some(({ kind }) => kind === 'race')).toBe(true);
    const missing = await run(through(own, 2), { block: 2 });
    expect(missing.findings[0]).toMatchObject({ kind: 'stuck-wait' });
  });

  test('that are read too soon, or lie askew, are found', async () => {
    const early = await run(fileOf(body.replace('cp.async.wait_all;', ''), { declarations }));
    expect(early.findings.some(({ kind }) => kind === 'race')).toBe(true);
    const askew = await run(
      fileOf(body.replace('[%r1+8], [%out+8]', '[%r1+12], [%out+8]'), { declarations }),
    );
    expect(askew.findings[0]).toMatchObject({ kind: 'misaligned' });
  });
});
