/** Kernels in PTX on the simulated machine: how control flows, what lanes do together, and what a race looks like. */
import { describe, expect, test } from 'vitest';
import { formatFinding, type KernelModule } from '../../../../src/gpu/sim/index.js';
import { ptx } from '../../../../src/lang/ptx/index.js';
import { mutantsOf, mutate } from '../../../../src/verify/check/index.js';
import { launch, machineOf } from '../harness.js';
import { clean, fileOf, run } from './harness.js';

/** Stores `%r0` at the thread's place. */
const storeOfThread = `
  mov.u32 %r9, %tid.x; mul.wide.u32 %rd9, %r9, 4; add.s64 %rd9, %out, %rd9; st.global.u32 [%rd9], %r0;`;

describe('control flow', () => {
  test('a loop, and a way out of its middle', async () => {
    const body = `
  mov.u32 %r0, 0; mov.u32 %r1, 0;
HEAD:
  setp.eq.u32 %p0, %r1, 7;
  @%p0 bra OUT;
  add.u32 %r0, %r0, %r1;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, 100;
  @%p1 bra HEAD;
  mov.u32 %r0, 999;
OUT:
  st.global.u32 [%out], %r0;`;
    for (const mode of ['fast', 'checked'] as const)
      expect((await run(fileOf(body), { mode })).words[0]).toBe(21);
  });

  test('a loop that can be entered in two places', async () => {
    const body = `
  mov.u32 %r0, 0; mov.u32 %r1, %tid.x;
  setp.eq.u32 %p0, %r1, 0;
  @%p0 bra SECOND;
FIRST:
  add.u32 %r0, %r0, 1;
SECOND:
  add.u32 %r0, %r0, 10;
  setp.lt.u32 %p1, %r0, 30;
  @%p1 bra FIRST;${storeOfThread}`;
    expect([...(await run(fileOf(body), { block: 2 })).words.slice(0, 2)]).toEqual([32, 33]);
  });

  test('a table of branches', async () => {
    const body = `
  mov.u32 %r1, %tid.x;
  TABLE: .branchtargets ZERO, ONE, ZERO;
  brx.idx %r1, TABLE;
ZERO: mov.u32 %r0, 5; bra DONE;
ONE: mov.u32 %r0, 6;
DONE:${storeOfThread}`;
    expect([...(await run(fileOf(body), { block: 3 })).words.slice(0, 3)]).toEqual([5, 6, 5]);
  });

  test('names of an inner scope are its own', async () => {
    const body = `
  mov.u32 %r0, 1;
  { .reg .b32 %r<3>; mov.u32 %r0, 7; LABEL: add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 9; @%p0 bra LABEL; st.global.u32 [%out+4], %r0; }
  { .reg .pred %q; LABEL: setp.eq.u32 %q, %r0, 1; @!%q bra LABEL; }
  st.global.u32 [%out], %r0;`;
    expect([...(await run(fileOf(body))).words.slice(0, 2)]).toEqual([1, 9]);
  });
});

describe('functions that are called', () => {
  // 10 x + y, with y through memory of its own; early is how a thread comes back for x = 0.
  const sum = `.func (.param .b32 back) sum(.param .b32 sum_0, .param .align 4 .b8 sum_1[8])
{
  .reg .b32 %r<9>; .reg .pred %p<3>; .local .align 4 .b8 depot[4];
  ld.param.u32 %r0, [sum_0]; ld.param.u32 %r1, [sum_1+4];
  st.local.u32 [depot], %r1;
  setp.eq.u32 %p0, %r0, 0; st.param.b32 [back+0], 77;
  @%p0 ret;
  mov.u32 %r2, 0;
AGAIN: add.u32 %r2, %r2, 10; sub.u32 %r0, %r0, 1; setp.ne.u32 %p1, %r0, 0; @%p1 bra AGAIN;
  ld.local.u32 %r1, [depot]; add.u32 %r2, %r2, %r1;
  st.param.b32 [back+0], %r2;
  ret;
}
.func (.param .b32 back) twice(.param .b32 twice_0)
{
  .reg .b32 %r<9>;
  ld.param.u32 %r0, [twice_0];
  { .param .b32 a; .param .align 4 .b8 b[8]; .param .b32 c; st.param.b32 [a], %r0; st.param.b32 [b+4], 5; call.uni (c), sum, (a, b); ld.param.b32 %r1, [c]; }
  add.u32 %r1, %r1, %r1; st.param.b32 [back], %r1; ret;
}`;
  const call = (name: string, x: string, to: string) =>
    `{ .param .b32 a; .param .b32 c; st.param.b32 [a], ${x}; call.uni (c), ${name}, (a); ld.param.b32 ${to}, [c]; }`;

  test('each copy has registers, labels and memory of its own', async () => {
    const body = `
  mov.u32 %r1, %tid.x; mov.u32 %r2, 1000;
  ${call('twice', '%r1', '%r3')}
  ${call('twice', '%r2', '%r4')}
  { .param .b32 a; .param .align 4 .b8 b[8]; .param .b32 c; st.param.b32 [a], 3; st.param.b32 [b+4], 4; st.param.b32 [c], 9;
    setp.eq.u32 %p0, %r1, 1; @%p0 call.uni (c), sum, (a, b); ld.param.b32 %r5, [c]; }
  mul.wide.u32 %rd1, %r1, 12; add.s64 %rd1, %rd1, %out;
  st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+4], %r4; st.global.u32 [%rd1+8], %r5;`;
    for (const mode of ['fast', 'checked'] as const) {
      const { words } = await clean(fileOf(body, { declarations: sum }), { mode, block: 3 });
      expect([...words.slice(0, 9)]).toEqual([154, 20010, 9, 30, 20010, 34, 50, 20010, 9]);
    }
  });

  test('a finding names the line in the function, and the one that calls it', async () => {
    const declarations = `.file 1 "mine.cu"
.func put(.param .b64 put_0)
{
  .reg .b64 %rd<2>;
  .loc 1 3 5
  ld.param.u64 %rd0, [put_0]; st.global.u32 [%rd0], 1; ret;
}`;
    const body = `
  .loc 1 9 1
  { .param .b64 a; st.param.b64 [a], %out; call.uni put, (a); }`;
    const { findings } = await run(fileOf(body, { declarations }), { block: 2 });
    expect(findings.map(formatFinding).join()).toContain('mine.cu:3:5, inlined at mine.cu:9:1');
  });

  describe('in another file', () => {
    // Both have a table and a function of their own, by the same names.
    const files = (change = '') => [
      {
        file: 'a.ptx',
        text: fileOf(
          `
  { .param .b64 to; .param .b32 by; .param .b32 got; ld.global.u32 %r0, [own]; ld.global.u32 %r1, [table+4]; add.u32 %r0, %r0, %r1;
    st.param.b64 [to], %out; st.param.b32 [by], %r0; call.uni (got), put, (to, by); ld.param.u32 %r2, [got]; }
  ${change} st.global.u32 [%out+4], %r2;`,
          {
            declarations: `.extern .global .align 4 .u32 table[2]; .global .u32 own = 3; .func same() { trap; }
.extern .func (.param .b32 r) put(.param .b64 put_0, .param .b32 put_1);`,
          },
        ),
      },
      {
        file: 'b.ptx',
        text: `.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 table[2] = {10, 20}; .global .u32 own = 5; .global .u64 at = generic(own);
.func (.param .b32 r) same(.param .b32 x)
{ .reg .b32 %r<3>; .reg .b64 %a; ld.param.u32 %r0, [x]; ld.global.u64 %a, [at]; ld.u32 %r1, [%a]; mul.lo.u32 %r2, %r0, %r1; st.param.b32 [r], %r2; ret; }
.visible .func (.param .b32 r) put(.param .b64 put_0, .param .b32 put_1)
{ .reg .b64 %rd<2>; .reg .b32 %r<2>; .param .b32 x; .param .b32 y;
  ld.param.u64 %rd0, [put_0]; ld.param.u32 %r0, [put_1]; st.param.b32 [x], %r0; call.uni (y), same, (x); ld.param.u32 %r1, [y];
  st.global.u32 [%rd0], %r1; st.param.b32 [r], %r0; ret; }`,
      },
    ];

    test('its variables are found, and each file keeps its own', async () => {
      for (const mode of ['fast', 'checked'] as const) {
        const { words } = await clean(files(), { mode });
        expect([...words.slice(0, 2)]).toEqual([115, 23]);
      }
    });

    test('a finding names the line of its file', async () => {
      const { findings } = await run(files('ld.global.u32 %r3, [%out];'), { block: 2 });
      expect(findings.map(formatFinding).join()).toMatch(/b\.ptx:10 .*a\.ptx:14 /s);
    });

    test('is not defined twice', () => {
      expect(() => ptx([...files(), { ...files()[1]!, file: 'c.ptx' }])).toThrow(
        "c.ptx:4: 'table' has been defined before",
      );
    });
  });

  test.each([
    ['itself', '.func f() { call.uni f; ret; }', 'call.uni f;', "'f' calls itself"],
    [
      'by its address',
      '',
      'call.uni %rd1, proto; proto: .callprototype _ (.param .b32 _);',
      'by its address',
    ],
    ['that is elsewhere', '.extern .func f;', 'call.uni f;', 'whose body is in no file that was read'],
    ['with too little', sum, '{ .param .b32 c; call.uni (c), twice, (); }', "'twice' takes 2 variables"],
  ])('one that calls %s is refused', async (_, declarations, body, message) => {
    await expect(run(fileOf(body, { declarations }))).rejects.toThrow(message);
  });
});

// As cooperative groups' this_grid().sync(): blocks count each other in memory that the launch brings.
describe('a cooperative launch', () => {
  const body = `
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %nctaid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %out, %rd1; st.global.u32 [%rd1], %r0;
  mov.u32 %r2, %envreg2; cvt.u64.u32 %rd2, %r2; mov.u32 %r3, %envreg1; cvt.u64.u32 %rd3, %r3; bfi.b64 %rd4, %rd3, %rd2, 32, 32;
  setp.ne.s64 %p0, %rd4, 0; @%p0 bra VALID; trap;
VALID:
  setp.eq.u32 %p1, %r0, 0; mov.u32 %r4, -2147483647; sub.s32 %r5, %r4, %r1; selp.b32 %r6, %r5, 1, %p1;
  atom.add.release.gpu.u32 %r7, [%rd4+4], %r6;
WAIT:
  ld.acquire.gpu.u32 %r8, [%rd4+4]; xor.b32 %r9, %r8, %r7; setp.gt.s32 %p2, %r9, -1; @%p2 bra WAIT;
  add.u32 %r10, %r0, 1; rem.u32 %r10, %r10, %r1; mul.wide.u32 %rd5, %r10, 4; add.s64 %rd5, %out, %rd5; ld.global.u32 %r11, [%rd5];
  st.global.u32 [%rd1+64], %r11;`;

  test.each(['fast', 'checked'] as const)('has a barrier of all its blocks (%s)', async (mode) => {
    const { words } = await clean(fileOf(body), { mode, grid: 3, cooperative: true });
    expect([...words.subarray(16, 19)]).toEqual([1, 2, 0]);
  });

  test('is what the kernel asks for', async () => {
    const { error } = await run(fileOf(body), { grid: 3 });
    expect(String(error)).toContain('trap');
    await expect(run(fileOf(body), { grid: 133, cooperative: true })).rejects.toThrow('1 to 132');
  });
});

test('a grid and a block along x, y and z', async () => {
  const place = (name: string) => `
  mov.u32 %r1, %${name}.x; mov.u32 %r2, %${name}.y; mov.u32 %r3, %${name}.z; mov.u32 %r4, %n${name}.x; mov.u32 %r5, %n${name}.y;
  mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;`;
  const body = `${place('ctaid')} mov.u32 %r7, %r6; ${place('tid')}
  mov.u32 %r8, %ntid.x; mov.u32 %r9, %ntid.y; mul.lo.u32 %r8, %r8, %r9; mov.u32 %r9, %ntid.z; mul.lo.u32 %r8, %r8, %r9;
  mad.lo.u32 %r7, %r7, %r8, %r6; mul.wide.u32 %rd1, %r7, 4; add.s64 %rd1, %rd1, %out;
  shl.b32 %r1, %r1, 8; shl.b32 %r2, %r2, 4; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; st.global.u32 [%rd1], %r1;`;
  const [grid, block] = [
    [2, 3],
    [4, 3, 2],
  ];
  const { words } = await clean(fileOf(body), { grid, block, bytes: 4 * 144 });
  expect([...words]).toEqual(
    Array.from(
      { length: 144 },
      (_, i) => ((i % 4) << 8) | ((Math.floor(i / 4) % 3) << 4) | (Math.floor(i / 12) % 2),
    ),
  );
  await expect(run(fileOf(body), { grid: [2, 3, 4, 5] })).rejects.toThrow('one for each of x, y and z');
  await expect(run(fileOf(body), { grid: 1, block: [64, 32] })).rejects.toThrow('from 1 to 1024');
});

describe('memory', () => {
  test('shared, local and constant memory, and their generic addresses', async () => {
    const declarations = `.shared .align 8 .b8 tile[64];
.const .align 4 .u32 table[3] = {10, 20, 30};
.global .align 8 .u64 where = table;`;
    const body = `
  .local .align 4 .b8 stack[16];
  mov.u32 %r1, tile; st.shared.u32 [%r1+8], 1;
  mov.u64 %rd1, tile; cvta.shared.u64 %rd2, %rd1; ld.u32 %r2, [%rd2+8];
  mov.u64 %rd3, stack; st.local.u32 [stack+4], 2; cvta.local.u64 %rd4, %rd3; ld.u32 %r3, [%rd4+4];
  ld.global.u64 %rd5, [where]; ld.const.u32 %r4, [%rd5+8];
  add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4;
  st.global.u32 [%out], %r0;`;
    const { words } = await clean(fileOf(body, { declarations }));
    expect(words[0]).toBe(33);
  });

  test.each([
    ['f32 a[2] = {1.5, 0f40000000}', 0, 0x3fc00000],
    ['f64 a = 0f3FC00000', 4, 0x3ff80000],
    ['b32 a[2][2] = {{1}, {2, 3}}', 8, 2],
    ['b32 a[2][2] = {{1, 2}, {3, 4}}', 12, 4],
    ['b32 a[][2] = {{1, 2}, {3, 4}, {5}}', 16, 5],
    ['b32 a[][2] = {{1, 2}, {3, 4}, {5}}', 20, 0],
  ])('%s: byte %i', async (declared, at, expected) => {
    const body = `ld.global.u32 %r0, [a+${at}]; st.global.u32 [%out], %r0;`;
    const { words } = await clean(fileOf(body, { declarations: `.global .${declared};` }));
    expect(words[0]).toBe(expected);
  });

  test('what CUDA keeps of a block for cooperative groups lies behind its own', async () => {
    const declarations = '.shared .align 4 .b8 tile[20];';
    const body = `mov.u32 %r1, %reserved_smem_offset_1; st.shared.u32 [%r1+284], 7; mov.u32 %r2, tile; st.shared.u32 [%r2+16], 1;
  ld.shared.u32 %r0, [%r1+284]; st.global.u32 [%out], %r0;`;
    const { words, findings, error } = await run(fileOf(body, { declarations }));
    expect([words[0], findings, error]).toEqual([7, [], null]);
  });

  const nowhere = 'mov.u64 %rd0, 16; ld.global.u32 %r0, [%rd0];';
  test.each([
    ['past the end of a buffer', 'st.global.u32 [%out+256], 1;', 'out', 'bytes 256 to 259 of 256'],
    ['before its start', 'st.global.u32 [%out+-4], 1;', 'out', 'bytes -4 to -1 of 256'],
    ['of nothing', nowhere, 'address 0x10, where no memory is', expect.anything()],
  ])('an address %s hits no other one', async (_, body, buffer, location) => {
    const { findings } = await run(fileOf(body));
    expect(findings[0]).toMatchObject({ kind: 'out-of-bounds', buffer, location });
  });

  test('an address of nothing is an error where nobody checks', async () => {
    const { error } = await run(fileOf(`${nowhere} st.global.u32 [%out], %r0;`), { mode: 'fast' });
    expect(String(error)).toContain('no memory is at address 0x10');
  });

  test('updates give what was there before', async () => {
    const body = `
  st.global.u32 [%out], 5;
  atom.global.add.u32 %r0, [%out], 3; st.global.u32 [%out+4], %r0;
  atom.global.cas.b32 %r0, [%out], 8, 1; st.global.u32 [%out+8], %r0;
  atom.global.inc.u32 %r0, [%out], 1; st.global.u32 [%out+12], %r0;
  red.global.max.s32 [%out], -1;
  mov.u64 %rd1, 1; atom.global.exch.b64 %rd2, [%out+16], %rd1; atom.global.add.u64 %rd2, [%out+16], -2;
  st.global.u64 [%out+24], %rd2;
  mov.u16 %h0, 7; st.global.u16 [%out+32], %h0; ld.global.s8 %r1, [%out+32]; st.global.u32 [%out+36], %r1;`;
    const { words } = await clean(fileOf(body));
    expect([...words.slice(0, 10)]).toEqual([0, 5, 8, 1, 0xffffffff, 0xffffffff, 1, 0, 7, 7]);
  });

  test('128 bits at once', async () => {
    const body = `
  .reg .b128 %q;
  mov.u64 %rd1, 1; mov.u64 %rd2, 2; mov.b128 %q, {%rd1, %rd2};
  st.relaxed.gpu.global.b128 [%out+16], %q;
  ld.relaxed.gpu.global.b128 %q, [%out+16]; mov.b128 {%rd3, %rd4}, %q;
  st.global.v2.u64 [%out], {%rd4, %rd3};`;
    expect([...(await run(fileOf(body))).words.slice(0, 4)]).toEqual([2, 0, 1, 0]);
  });

  test('structs by value are bytes', async () => {
    const body = `mov.b64 %rd1, pair; add.s64 %rd1, %rd1, 4; ld.param.u32 %r0, [%rd1]; ld.param.u32 %r1, [pair];
  sub.u32 %r0, %r0, %r1; st.global.u32 [%out], %r0;`;
    const text = fileOf(body, { params: '.param .align 4 .b8 pair[8]' });
    const pair = new Uint8Array(new Uint32Array([3, 10]).buffer);
    expect((await run(text, { set: { pair } })).words[0]).toBe(7);
  });
});

describe('lanes', () => {
  test.each([
    [
      'shfl.sync.up.b32 %r0|%p0, %r1, 1, 0, -1; @!%p0 mov.u32 %r0, 77;',
      (lane: number) => (lane === 0 ? 77 : lane - 1),
    ],
    ['shfl.sync.down.b32 %r0, %r1, 3, 31, -1;', (lane: number) => (lane + 3 > 31 ? lane : lane + 3)],
    ['shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1;', (lane: number) => lane ^ 5],
    // Segments of eight lanes.
    ['shfl.sync.idx.b32 %r0, %r1, 2, 0x181f, -1;', (lane: number) => (lane & 24) + 2],
    ['setp.lt.u32 %p0, %r1, 4; vote.sync.ballot.b32 %r0, %p0, -1;', () => 15],
    ['setp.lt.u32 %p0, %r1, 4; vote.sync.all.pred %p1, %p0, -1; selp.u32 %r0, 1, 0, %p1;', () => 0],
    [
      'and.b32 %r2, %r1, 1; match.any.sync.b32 %r0, %r2, -1;',
      (lane: number) => (lane & 1 ? 0xaaaaaaaa : 0x55555555),
    ],
    ['match.all.sync.b32 %r0|%p0, 5, -1;', () => 0xffffffff],
    ['redux.sync.add.s32 %r0, %r1, -1;', () => 496],
    ['redux.sync.min.u32 %r0, %r1, -1;', () => 0],
    ['elect.sync %r0|%p0, -1;', () => 0],
    [
      'mov.u32 %r2, %lanemask_lt; setp.eq.u32 %p0, %r2, 0x7fffffff; selp.u32 %r0, 1, 0, %p0;',
      (lane: number) => (lane === 31 ? 1 : 0),
    ],
    [
      'mov.u32 %r2, %lanemask_le; setp.gt.s32 %p0, %r2, 0; selp.u32 %r0, 1, 0, %p0;',
      (lane: number) => (lane === 31 ? 0 : 1),
    ],
  ])('%s', async (body, of) => {
    const { words } = await clean(fileOf(`mov.u32 %r1, %tid.x; ${body}${storeOfThread}`), {
      block: 32,
    });
    expect([...words.slice(0, 32)]).toEqual(Array.from({ length: 32 }, (_, lane) => of(lane) >>> 0));
  });

  const inHalves = (mask: string): string => `
  mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 16;
  mov.u32 %r2, ${mask}; @!%p0 mov.u32 %r2, 0xffff0000;
  @!%p0 bra OTHERS;
  redux.sync.add.s32 %r0, %r1, %r2; bra DONE;
OTHERS:
  redux.sync.add.s32 %r0, %r1, %r2;
DONE:${storeOfThread}`;

  test('halves of a warp meet by their masks, each at an instruction of its own', async () => {
    const { words } = await clean(fileOf(inHalves('0xffff')), { block: 32 });
    expect([words[0], words[31]]).toEqual([120, 376]);
  });

  test('a lane that a mask names and that does not come is a finding, and so is one that it leaves out', async () => {
    const apart =
      'mov.u32 %r1, %tid.x; setp.gt.u32 %p0, %r1, 15; @%p0 bra ON; redux.sync.add.s32 %r0, 1, 0x1ffff; ON: bar.sync 0;';
    const awaited = await run(fileOf(apart), { block: 32 });
    expect(awaited.findings[0]).toMatchObject({
      kind: 'divergence',
      operation: 'an operation of the warp',
      absent: [16],
    });
    const leftOut = await run(fileOf(inHalves('0x7fff')), { block: 32 });
    expect(leftOut.findings[0]).toMatchObject({ kind: 'divergence', present: [15] });
  });

  test('those that have ended are not awaited', async () => {
    const body = `mov.u32 %r1, %tid.x; setp.gt.u32 %p0, %r1, 3; @%p0 ret; redux.sync.add.s32 %r0, 1, -1;${storeOfThread}`;
    const { words } = await clean(fileOf(body), { block: 32 });
    expect(words[3]).toBe(4);
  });
});

/** Thread 0 of block 0 writes a word and raises a flag; thread 0 of block 1 waits for it, and reads. */
const messagePassing = ({
  store = 'st.release.gpu',
  load = 'ld.acquire.gpu',
  before = '',
  after = '',
} = {}): string =>
  fileOf(
    `
  mov.u32 %r1, %ctaid.x; setp.ne.u32 %p0, %r1, 0; @%p0 bra READER;
  .loc 1 10 3
  st.global.u32 [%out], 42;
  ${before}
  .loc 1 12 3
  ${store}.global.u32 [%out+4], 1;
  ret;
READER:
  .loc 1 20 5
  ${load}.global.u32 %r2, [%out+4];
  setp.eq.u32 %p1, %r2, 0; @%p1 bra READER;
  ${after}
  .loc 1 22 5
  ld.global.u32 %r3, [%out];
  st.global.u32 [%out+8], %r3;`,
    { declarations: '.file 1 "/home/me/mine.cu"' },
  );

describe('races', () => {
  test('the weakest correct forms of message passing are silent', async () => {
    const relaxed = { store: 'st.relaxed.gpu', load: 'ld.relaxed.gpu' };
    for (const text of [
      messagePassing(),
      messagePassing({ ...relaxed, before: 'fence.acq_rel.gpu;', after: 'fence.acq_rel.gpu;' }),
      messagePassing({ ...relaxed, before: 'membar.gl;', after: 'membar.gl;' }),
      messagePassing({ ...relaxed, before: 'fence.release.gpu;', after: 'fence.acquire.gpu;' }),
    ]) {
      for (let seed = 0; seed < 20; seed++) {
        const { words } = await clean(text, { grid: 2, seed: `${seed}` });
        expect(words[2]).toBe(42);
      }
    }
  });

  test.each([
    ['a missing fence', { store: 'st.relaxed.gpu', load: 'ld.relaxed.gpu', after: 'fence.acq_rel.gpu;' }],
    ['a relaxed load', { load: 'ld.relaxed.gpu' }],
    ['a fence of the wrong direction', { store: 'st.relaxed.gpu', before: 'fence.acquire.gpu;' }],
    ['a volatile flag', { store: 'st.volatile', load: 'ld.volatile' }],
    ['a scope too narrow', { store: 'st.release.cta' }],
  ])('%s is found by the line of the source', async (_, how) => {
    const { findings } = await run(messagePassing(how), { grid: 2 });
    const text = findings.map(formatFinding).join('\n');
    expect(text).toContain('mine.cu:22:5  ld.global.u32 %r3, [%out]; (k.ptx:');
    expect(text).toContain('mine.cu:10:3  st.global.u32 [%out], 42; (k.ptx:');
  });

  test.each(['b32', 'b64'])('a compare-and-swap of %s that misses releases nothing', async (type) => {
    const register = type === 'b32' ? '%r' : '%rd';
    const body = `
  mov.u32 %r1, %ctaid.x;
  mov.${type} ${register}7, 7; mov.${type} ${register}8, 8;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra READER;
  st.global.u32 [%out], 42;
  atom.release.gpu.global.cas.${type} ${register}9, [%out+16], ${register}7, ${register}8;
  st.relaxed.gpu.global.u32 [%out+4], 1;
  ret;
READER:
  ld.relaxed.gpu.global.u32 %r2, [%out+4];
  setp.eq.u32 %p1, %r2, 0; @%p1 bra READER;
  ld.acquire.gpu.global.${type} ${register}9, [%out+16];
  ld.global.u32 %r3, [%out];`;
    for (let seed = 0; seed < 8; seed++) {
      const { findings } = await run(fileOf(body), { grid: 2, seed: `${seed}` });
      expect(findings[0]).toMatchObject({ kind: 'race', location: 'byte 0' });
    }
  });

  test('on shared memory names the variable as C++ does', async () => {
    const declarations = '.shared .align 4 .b8 _ZZ5applyPfiE4tile[64];';
    const body = 'mov.u32 %r1, %tid.x; st.shared.u32 [_ZZ5applyPfiE4tile+4], %r1;';
    const { findings } = await run(fileOf(body, { declarations }), { block: 2 });
    expect(findings).toMatchObject([{ kind: 'race', location: 'apply(float*, int)::tile[4]' }]);
  });

  test('with what a host copies has a hint in the language of the kernel', async () => {
    const { machine, ranks } = machineOf({ ranks: 2, mode: 'checked', seed: '0' });
    const window = ranks[1]!.device.allocateWindow(8, 'window');
    const body = `ld.param.u32 %r1, [who]; setp.eq.u32 %p1, %r1, 1; @%p1 bra WAIT;
st.global.u32 [%out], 5; st.relaxed.sys.global.u32 [%out+4], 1; ret;
WAIT: ld.acquire.sys.global.u32 %r2, [%out+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;`;
    const text = fileOf(body, { params: '.param .u32 who' });
    const kernel = ptx(text, 'k.ptx').kernel('k', { params: ['out', 'who'] });
    for (const on of ranks) await launch(on, kernel, { block: 1 }, { out: window, who: on.rank });
    await ranks[1]!.stream.copyOut(window.address, 4);
    const hints = machine.findings.map((one) => (one.kind === 'race' ? one.hint : ''));
    expect(hints).toEqual([expect.stringContaining('make it a release, or put fence.acq_rel.sys before it')]);
  });

  describe('a load by the cache that is not coherent', () => {
    const store = 'st.global.u32 [%out], 1;';
    const load = 'ld.global.nc.u32 %r1, [%out];';

    test.each([
      ['of what another thread stored before a barrier', `@%p0 ${store} bar.sync 0; @!%p0 ${load}`],
      ['of what its own thread has stored', `@%p0 ${store} @%p0 ${load}`],
      ['of what another thread stores behind a barrier', `@!%p0 ${load} bar.sync 0; @%p0 ${store}`],
      ['of vectors', `@%p0 ${store} bar.sync 0; ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%out];`],
    ])('%s races', async (_, body) => {
      const text = fileOf(`mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; ${body}`);
      const { findings } = await run(text, { block: 2, fills: 1 });
      expect(findings).toMatchObject([{ kind: 'race', hint: expect.stringContaining('without .nc') }]);
      const coherent = await run(text.replace('.nc', ''), { block: 2, fills: 1 });
      expect(coherent.findings).toEqual([]);
    });

    test('does not race with what stands before and behind its launch', async () => {
      await clean(fileOf(`${load} ld.global.u32 %r2, [%out];`), { fills: 2 });
    });
  });

  describe('a barrier of some lanes', () => {
    /** Lane 20 stores, and lane 0 loads behind a barrier. */
    const betweenLanes = (barriers: string) =>
      fileOf(
        `
  mov.u32 %r1, %tid.x; mov.u32 %r2, word; setp.ne.u32 %p1, %r1, 20;
  @%p1 bra MEET;
  st.shared.u32 [%r2], 1;
MEET: setp.gt.u32 %p2, %r1, 15;
  ${barriers}
  setp.ne.u32 %p3, %r1, 0; @%p3 bra END;
  ld.shared.u32 %r3, [%r2];
END:`,
        { declarations: '.shared .align 4 .b32 word;' },
      );

    test('orders them, and no others', async () => {
      for (let seed = 0; seed < 8; seed++) {
        const text = betweenLanes('@%p2 bra END; bar.warp.sync 0xffff;');
        const { findings } = await run(text, { block: 32, seed: `${seed}` });
        expect(findings.map(({ kind }) => kind)).toContain('race');
      }
    });

    test.each([
      ['a barrier of all', ''],
      ['barriers of some, then one of all', '@!%p2 bar.warp.sync 0xffff; @%p2 bar.warp.sync 0xffff0000;'],
    ])('%s', async (_, before) => {
      for (let seed = 0; seed < 8; seed++) {
        const text = betweenLanes(`${before} bar.warp.sync -1;`);
        await clean(text, { block: 32, seed: `${seed}` });
      }
    });
  });

  test('every mutant of it is caught', async () => {
    const kernel = ptx(messagePassing(), 'k.ptx').kernel('k');
    const mutants = mutantsOf(kernel);
    expect(mutants.map(({ where, description }) => `${where} ${description}`)).toEqual([
      'mine.cu:12:3 release → relaxed',
      'mine.cu:12:3 gpu → cta',
      'mine.cu:20:5 acquire → relaxed',
      'mine.cu:20:5 gpu → cta',
    ]);
    for (const mutant of mutants) expect(await survives(kernel, mutate(kernel, mutant))).toBe(false);
    expect(await survives(kernel, kernel)).toBe(true);
  });

  const bytes = ['64 → 80', '64 → 48'];
  test.each([
    ['bytes that are expected', 'mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 64;', bytes],
    ['and that a thread arrives with', 'mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;', bytes],
    ['a thread that arrives for the last time', 'mbarrier.arrive_drop.shared::cta.b64 _, [%r1];', []],
    ['copies that arrive', 'cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];', []],
  ])('mutants of %s', (_, body, others) => {
    const mutants = mutantsOf(ptx(fileOf(body)).kernel('k'));
    expect(mutants.map((one) => one.description)).toEqual([`${body.split('.')[0]} removed`, ...others]);
  });

  async function survives(
    kernel: ReturnType<ReturnType<typeof ptx>['kernel']>,
    instead: KernelModule,
  ): Promise<boolean> {
    const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', substitute: () => instead });
    const out = rank.device.allocateWindow(64, 'out');
    await launch(rank, kernel, { grid: 2, block: 1 }, { out });
    await rank.stream.synchronize();
    return machine.findings.length === 0;
  }

  test('a barrier in a branch', async () => {
    const body =
      'mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 16; @%p0 bra ON; bar.sync 0; ret; ON: bar.warp.sync -1;';
    const { findings } = await run(fileOf(body), { block: 32 });
    expect(findings[0]).toMatchObject({ kind: 'divergence' });
  });
});

describe('refusals name the line, and what is not known', () => {
  test.each([
    [
      'tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [a, {%r0}];',
      "k.ptx:10: the simulated machine does not have 'tex.1d.v4.f32.s32': no such instruction",
    ],
    ['fence.proxy.newish;', 'of the other proxies'],
    ['griddepcontrol.quiet.gpu;', "'.quiet' is not known of it"],
    ['ld.global.newish.u32 %r0, [%out];', "'.newish' is not known of it"],
    ['atom.global.add.noftz.b128 %r0, [%out], 1;', '128 bits are not updated'],
    [
      'cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], 16, [%r3];',
      'between blocks of a cluster',
    ],
    [
      'cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r2}], [%r3];',
      'of either block of a pair are not simulated',
    ],
    ['tcgen05.shift.cta_group::1.down [%r1];', 'wait and fence are simulated'],
    ['bra NOWHERE;', "no label 'NOWHERE'"],
  ])('%s', async (body, message) => {
    await expect(run(fileOf(body))).rejects.toThrow(message);
  });

  test('what was printed stands beside the trap that follows', async () => {
    const text = [...Buffer.from('waited %d %llu\0')];
    const declarations = `.global .align 1 .b8 text[24] = {${text}};`;
    const body = `
  .local .align 8 .b8 stack[16];
  mov.u64 %rd1, stack; st.local.u32 [%rd1], -3; st.local.u64 [%rd1+8], 5000000000; cvta.local.u64 %rd2, %rd1;
  mov.u64 %rd3, text;
  { .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a], %rd3; st.param.b64 [b], %rd2; call.uni (r), vprintf, (a, b); ld.param.b32 %r1, [r]; }
  trap;`;
    const { error } = await run(fileOf(body, { declarations }));
    expect(String(error)).toContain('which said: waited -3 5000000000');
  });

  test('an assertion that failed says its text', async () => {
    const declarations = '.global .align 1 .b8 text[6] = {97, 32, 62, 32, 37, 0};';
    const body = `
  { .param .b64 p; st.param.b64 [p], text; call.uni __assertfail, (p, p, p, p, p); }`;
    const { error } = await run(fileOf(body, { declarations }));
    expect(String(error)).toContain('which said: a > %');
  });

  test('a trap ends the launch, and says where', async () => {
    const { error } = await run(fileOf('trap;'));
    expect(String(error)).toContain('trap at k.ptx:10  trap;');
  });

  test('a trap comes before all that waits for the thread in vain', async () => {
    const body = `mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 trap;
AGAIN: ld.relaxed.gpu.global.u32 %r2, [%out]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;`;
    const { error, findings } = await run(fileOf(body), { grid: 2, fills: 1 });
    expect(String(error)).toContain('trap at k.ptx:10');
    expect(findings).toEqual([]);
  });
});

test('copies of an instruction from one place of the source are one mutant; others are their own', () => {
  const barrier = (line: number) => `.loc 1 ${line} 3\n  bar.sync 0;`;
  const kernel = ptx(
    `${fileOf(`${barrier(5)}\n${barrier(5)}\n${barrier(6)}`)}.file 1 "k.cu"\n`,
    'k.ptx',
  ).kernel('k');
  const mutants = mutantsOf(kernel);
  expect(mutants.map(({ where }) => where)).toEqual(['k.cu:5:3', 'k.cu:6:3']);
  const left = mutants.map((mutant) =>
    (mutate(kernel, mutant) as typeof kernel).entry.instructions.filter(({ parts }) => parts[0] === 'bar'),
  );
  expect(left.map(({ length }) => length)).toEqual([1, 2]);
});

test('barrier 0 is of as many threads as come to it say', async () => {
  // The first warp alone meets at it, while the second waits at another.
  const body = `
  .shared .align 4 .b32 word;
  mov.u32 %r1, %tid.x; setp.gt.u32 %p0, %r1, 31; mov.u32 %r3, 0; mov.u32 %r4, 32;
  @%p0 bra SECOND;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET; st.shared.u32 [word], 7;
MEET: bar.sync %r3, %r4; ld.shared.u32 %r0, [word]; bra DONE;
SECOND: bar.sync 1, 32; mov.u32 %r0, 1;
DONE: bar.sync 0, 64;${storeOfThread}`;
  const { words } = await clean(fileOf(body), { block: 64 });
  expect([words[31], words[32]]).toEqual([7, 1]);
});

describe('barriers at which threads only arrive', () => {
  // The first warp stores and arrives; the second waits and reads.
  const body = `
  .shared .align 4 .b32 word;
  mov.u32 %r1, %tid.x; setp.gt.u32 %p0, %r1, 31; mov.u32 %r0, 1;
  @%p0 bra SECOND;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET; st.shared.u32 [word], 7;
MEET: bar.arrive 1, 64; bra DONE;
SECOND: bar.sync 1, 64; ld.shared.u32 %r0, [word];
DONE: ${storeOfThread}`;

  test('order what the one did before what the others do', async () => {
    for (let seed = 0; seed < 8; seed++) {
      const { words } = await clean(fileOf(body), { block: 64, seed: `${seed}` });
      expect([words[0], words[32]]).toEqual([1, 7]);
    }
    expect((await run(fileOf(body), { block: 64, mode: 'fast' })).words[63]).toBe(7);
  });

  test('order nothing the other way round', async () => {
    // Who arrived does not know what the others did before.
    const wrong = body
      .replace('SECOND: bar', 'SECOND: st.shared.u32 [word], 9; bar')
      .replace('st.shared.u32 [word], 7', 'mov.u32 %r2, 0')
      .replace('bra DONE', 'ld.shared.u32 %r0, [word]; bra DONE')
      .replace('bar.sync 1, 64; ld.shared.u32 %r0, [word];', 'bar.sync 1, 64;');
    const { findings } = await run(fileOf(wrong), { block: 64 });
    expect(findings.some(({ kind }) => kind === 'race' || kind === 'uninitialised-read')).toBe(true);
  });
});

test('threads vote at a barrier', async () => {
  const vote = (form: string, to: string) => `bar.red.${form} ${to}, 0, %p1;`;
  const body = `
  mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40;
  ${vote('popc.u32', '%r2')} ${vote('and.pred', '%p2')} ${vote('or.pred', '%p3')}
  selp.u32 %r3, 1000, 0, %p2; selp.u32 %r4, 2000, 0, %p3; add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4;${storeOfThread}`;
  for (const mode of ['fast', 'checked'] as const) {
    const { words } = await run(fileOf(body), { block: 64, mode });
    expect(new Set(words)).toEqual(new Set([2040]));
  }
});
