/** What instructions compute, on values at which they differ from what comes to mind. */
import { describe, expect, test } from 'vitest';
import { compilePtx } from '../../../../src/gpu/sim/ptx/compile.js';
import { ptx } from '../../../../src/lang/ptx/index.js';
import { clean, fileOf, run } from './harness.js';

/** The word that an instruction leaves in `%r0`. */
async function word(body: string): Promise<number> {
  return (await clean(fileOf(`${body}\n  st.global.u32 [%out], %r0;`), { mode: 'fast' })).words[0]!;
}

/** The 64 bits that it leaves in `%rd0`. */
async function long(body: string): Promise<bigint> {
  const { words } = await clean(fileOf(`${body}\n  st.global.u64 [%out], %rd0;`), { mode: 'fast' });
  return (BigInt(words[1]!) << 32n) | BigInt(words[0]!);
}

const all = 0xffff_ffff_ffff_ffffn;

describe('words', () => {
  test.each([
    ['shl.b32 %r0, 1, 32;', 0],
    ['mov.u32 %r1, 40; shl.b32 %r0, 1, %r1;', 0],
    ['mov.u32 %r1, 33; shr.s32 %r0, -5, %r1;', 0xffffffff],
    ['shr.u32 %r0, 0x80000000, 31;', 1],
    ['mul.hi.u32 %r0, 0xffffffff, 0xffffffff;', 0xfffffffe],
    ['mul.hi.s32 %r0, -2, 3;', 0xffffffff],
    ['mov.u32 %r1, 0x80000000; div.s32 %r0, %r1, -1;', 0x80000000],
    ['div.u32 %r0, 7, 0;', 0xffffffff],
    ['rem.s32 %r0, -7, 3;', 0xffffffff],
    ['mad.lo.s32 %r0, 0x10000, 0x10000, 5;', 5],
    ['add.sat.s32 %r0, 0x7fffffff, 1;', 0x7fffffff],
    ['min.u32 %r0, -1, 3;', 3],
    ['min.s32 %r0, -1, 3;', 0xffffffff],
    ['bfe.u32 %r0, 0xabcd1234, 8, 8;', 0x12],
    ['bfe.s32 %r0, 0x0000f000, 12, 4;', 0xffffffff],
    ['bfi.b32 %r0, 0xff, 0x11111111, 8, 4;', 0x11111f11],
    ['bfind.u32 %r0, 0;', 0xffffffff],
    ['bmsk.clamp.b32 %r0, 4, 8;', 0xff0],
    ['mov.u32 %r1, 40; bmsk.clamp.b32 %r0, 8, %r1;', 0xffffff00],
    ['mov.u32 %r1, 40; bmsk.clamp.b32 %r0, %r1, 3;', 0],
    ['mov.u32 %r1, 40; bmsk.wrap.b32 %r0, %r1, %r1;', 0xff00],
    ['add.u16x2 %r0, 0x0001ffff, 0xffff0002;', 1],
    ['min.u16x2 %r0, 0xffff0001, 0x00020003;', 0x00020001],
    ['min.s16x2 %r0, 0xffff0001, 0x00020003;', 0xffff0001],
    ['max.s16x2 %r0, 0xffff8000, 0x8000ffff;', 0xffffffff],
    ['bfind.s32 %r0, -1;', 0xffffffff],
    ['bfind.shiftamt.u32 %r0, 0x00010000;', 15],
    ['brev.b32 %r0, 0x00000001;', 0x80000000],
    ['clz.b32 %r0, 0;', 32],
    ['popc.b64 %r0, 0xf0f0f0f0f0f0f0f0;', 32],
    ['prmt.b32 %r0, 0x33221100, 0x77665544, 0x7531;', 0x77553311],
    ['prmt.b32 %r0, 0x000080ff, 0, 0xa998;', 0x00ffffff],
    ['lop3.b32 %r0, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96;', 0x96969696],
    ['shf.l.wrap.b32 %r0, 0x80000001, 0x00000003, 1;', 7],
    ['shf.r.clamp.b32 %r0, 1, 2, 40;', 2],
    ['mov.u16 %h0, 65535; add.s16 %h1, %h0, 2; cvt.u32.u16 %r0, %h1;', 1],
    ['mov.u16 %h0, 0x8000; shr.s16 %h1, %h0, 4; cvt.s32.s16 %r0, %h1;', 0xfffff800],
    ['mov.u16 %h0, 0xffff; mul.wide.s16 %r0, %h0, 5;', 0xfffffffb],
    ['cvt.s32.s8 %r0, 0x1ff;', 0xffffffff],
    ['cvt.sat.u8.s32 %r0, 300;', 255],
    ['mov.b32 %r1, 0x12345678; mov.b32 {%h0, %h1}, %r1; mov.b32 %r0, {%h1, %h0};', 0x56781234],
    ['setp.lt.and.u32 %p0|%p1, 1, 2, 0; selp.u32 %r0, 1, 2, %p1;', 2],
    ['setp.hi.u32 %p0, -1, 1; @!%p0 mov.u32 %r0, 3; @%p0 mov.u32 %r0, 4;', 4],
    ['set.lt.u32.s32 %r0, -1, 1;', 0xffffffff],
    ['sad.u32 %r0, 1, 3, 10;', 12],
    ['dp4a.s32.u32 %r0, 0x017f80ff, 0xff020102, 7;', 386],
    ['dp4a.u32.s32 %r0, 0xff020304, 0xff010101, 0x7fffffff;', 0x7fffff09],
    ['dp2a.lo.s32.u32 %r0, 0xffff0003, 0x0000ff02, -1;', 0xffffff06],
    ['dp2a.hi.u32.s32 %r0, 0xffff0003, 0xff020000, 0;', 0xffff0007],
    ['lop3.or.b32 _|%p0, 0, 0, 0, 0xfe, 1; selp.u32 %r0, 5, 6, %p0;', 5],
    ['max.relu.s32 %r0, -5, -3;', 0],
    ['cvt.pack.sat.s16.s32 %r0, 70000, -70000;', 0x7fff8000],
    ['cvt.pack.sat.u8.s32.b32 %r0, -1, 300, 0x1234;', 0x123400ff],
    ['cvt.pack.sat.u4.s32.b32 %r0, 3, 99, 0x12;', 0x123f],
    ['mov.u64 %rd1, 0x100000000; cvt.sat.u32.u64 %r0, %rd1;', 0xffffffff],
    ['mov.s64 %rd1, -300; cvt.sat.s8.s64 %r0, %rd1;', 0xffffff80],
    ['add.cc.u32 %r1, -1, 1; addc.u32 %r0, 5, 6;', 12],
    ['add.cc.u32 %r1, -2, 1; addc.u32 %r0, 5, 6;', 11],
    ['sub.cc.u32 %r1, 0, 1; subc.u32 %r0, 5, 6;', 0xfffffffe],
    ['mad.lo.cc.u32 %r1, 0x10000, 0xffff, 0x10000; madc.hi.u32 %r0, 0x10000, 0x10000, 1;', 3],
  ])('%s', async (body, expected) => {
    expect(await word(body)).toBe(expected);
  });
});

describe('64 bits', () => {
  const minusOne = 'mov.u64 %rd1, -1;';
  test.each([
    [`${minusOne} add.s64 %rd0, %rd1, %rd1;`, all - 1n],
    ['mov.u64 %rd1, 0x1ffffffff; add.s64 %rd0, %rd1, 1;', 0x200000000n],
    ['mov.u64 %rd1, 0x100000000; sub.s64 %rd0, %rd1, 1;', 0xffffffffn],
    ['mov.u32 %r1, -1; mul.wide.u32 %rd0, %r1, 16;', 0xffffffff0n],
    ['mov.u32 %r1, -1; mul.wide.s32 %rd0, %r1, 16;', all - 15n],
    ['mov.u32 %r1, -1; mul.wide.u32 %rd0, %r1, %r1;', 0xfffffffe00000001n],
    ['mov.u32 %r1, -3; mul.wide.s32 %rd0, %r1, %r1;', 9n],
    [`${minusOne} mul.lo.s64 %rd0, %rd1, %rd1;`, 1n],
    [`${minusOne} mul.hi.u64 %rd0, %rd1, %rd1;`, all - 1n],
    ['mov.u32 %r1, 7; mov.u64 %rd1, 5; mad.wide.u32 %rd0, %r1, 0x20000000, %rd1;', 0xe0000005n],
    ['mov.u64 %rd1, 1; shl.b64 %rd0, %rd1, 63;', 1n << 63n],
    ['mov.u64 %rd1, 1; mov.u32 %r1, 64; shl.b64 %rd0, %rd1, %r1;', 0n],
    [`${minusOne} shr.u64 %rd0, %rd1, 36;`, 0xfffffffn],
    ['mov.u64 %rd1, 0x8000000000000000; mov.u32 %r1, 33; shr.s64 %rd0, %rd1, %r1;', 0xffffffffc0000000n],
    ['mov.u64 %rd1, -7; div.s64 %rd0, %rd1, 2;', all - 2n],
    [`${minusOne} div.u64 %rd0, %rd1, 10;`, 1844674407370955161n],
    ['mov.u64 %rd1, -7; rem.s64 %rd0, %rd1, 4;', all - 2n],
    ['mov.u64 %rd1, -7; abs.s64 %rd0, %rd1;', 7n],
    ['mov.u64 %rd1, 5; neg.s64 %rd0, %rd1;', all - 4n],
    [`${minusOne} min.u64 %rd0, %rd1, 3;`, 3n],
    [`${minusOne} min.s64 %rd0, %rd1, 3;`, all],
    ['bfe.u64 %rd0, 0x123456789abcdef0, 4, 36;', 0x789abcdefn],
    ['mov.u64 %rd1, 0xff; mov.u64 %rd2, 0; bfi.b64 %rd0, %rd1, %rd2, 32, 16;', 0xff00000000n],
    ['mov.u64 %rd1, 7; mov.u64 %rd2, 0x1ffffffff; bfi.b64 %rd0, %rd1, %rd2, 32, 32;', 0x7ffffffffn],
    ['mov.u64 %rd1, 0x15; mov.u64 %rd2, 0; mov.u32 %r1, 30; bfi.b64 %rd0, %rd1, %rd2, %r1, 5;', 0x540000000n],
    ['mov.u64 %rd1, 0x15; mov.u64 %rd2, 0; bfi.b64 %rd0, %rd1, %rd2, 30, 5;', 0x540000000n],
    ['brev.b64 %rd0, 1;', 1n << 63n],
    ['mov.u32 %r1, -2; cvt.s64.s32 %rd0, %r1;', all - 1n],
    ['mov.u32 %r1, -2; cvt.u64.u32 %rd0, %r1;', 0xfffffffen],
    ['mov.b64 %rd0, {1, 2};', 0x200000001n],
    ['setp.gt.s64 %p0, -1, 0; selp.b64 %rd0, 1, 2, %p0;', 2n],
    ['mov.u64 %rd1, 0x100000000; setp.lt.u64 %p0, 5, %rd1; selp.b64 %rd0, 1, 2, %p0;', 1n],
    ['cvt.rzi.s64.f32 %rd0, 0fDF000000;', 1n << 63n],
    ['cvt.rzi.u64.f32 %rd0, 0f7FC00000;', 1n << 63n],
    ['cvt.rzi.u64.f32 %rd0, 0f7F800000;', all],
    ['cvt.sat.u64.s32 %rd0, -5;', 0n],
    ['mov.u64 %rd1, -1; cvt.sat.s64.u64 %rd0, %rd1;', (1n << 63n) - 1n],
    // 128 bits of two sums.
    ['mov.u64 %rd1, -1; add.cc.u64 %rd2, %rd1, %rd1; addc.u64 %rd0, %rd1, 7;', 7n],
  ])('%s', async (body, expected) => {
    expect(await long(body)).toBe(expected);
  });
});

describe('floats', () => {
  const bits = (body: string): Promise<number> => word(`${body} mov.b32 %r0, %f0;`);
  test.each([
    // Arithmetic makes one NaN, whatever it is given.
    ['mov.f32 %f1, 0f7F800001; add.f32 %f0, %f1, %f1;', 0x7fffffff],
    ['sub.f32 %f0, 0f7F800000, 0f7F800000;', 0x7fffffff],
    ['min.f32 %f0, 0f7FC00000, 0f3F800000;', 0x3f800000],
    ['min.NaN.f32 %f0, 0f7FC00000, 0f3F800000;', 0x7fffffff],
    ['min.f32 %f0, 0f80000000, 0f00000000;', 0x80000000],
    ['mul.ftz.f32 %f0, 0f00400000, 0f40000000;', 0],
    ['add.sat.f32 %f0, 0f3F800000, 0f3F800000;', 0x3f800000],
    ['add.rz.f32 %f0, 0f3F800000, 0f33FFFFFF;', 0x3f800000],
    ['add.rp.f32 %f0, 0f3F800000, 0f00000001;', 0x3f800001],
    ['add.rm.f32 %f0, 0f3F800000, 0f80000001;', 0x3f7fffff],
    // 1 + 2^-24, once by a product that is rounded and once not.
    ['fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800002;', 0x28800000],
    ['cvt.rn.f32.u32 %f0, 0xffffffff;', 0x4f800000],
    ['cvt.rn.f32.u64 %f0, 0x8000008000000001;', 0x5f000001],
    ['cvt.rni.f32.f32 %f0, 0f40200000;', 0x40000000],
    ['cvt.rn.f32.f64 %f0, 0d3FF0000010000001;', 0x3f800001],
    ['mov.u16 %h0, 1; cvt.f32.f16 %f0, %h0;', 0x33800000],
    ['rcp.rn.f32 %f0, 0f40400000;', 0x3eaaaaab],
    ['rcp.rm.f32 %f0, 0f40400000;', 0x3eaaaaaa],
    ['div.rp.f32 %f0, 0f3F800000, 0fC0400000;', 0xbeaaaaaa],
    ['sqrt.rz.f32 %f0, 0f40400000;', 0x3fddb3d7],
    ['sqrt.rp.f32 %f0, 0f40400000;', 0x3fddb3d8],
    ['add.rm.f32 %f0, 0f3F800000, 0fBF800000;', 0x80000000],
    ['add.rp.f32 %f0, 0f7F7FFFFF, 0f7F7FFFFF;', 0x7f800000],
    ['add.rz.f32 %f0, 0f7F7FFFFF, 0f7F7FFFFF;', 0x7f7fffff],
    ['cvt.rz.f32.s32 %f0, -2147483647;', 0xceffffff],
    ['cvt.rm.f32.s32 %f0, -2147483647;', 0xcf000000],
    ['cvt.rp.f32.u64 %f0, -1;', 0x5f800000],
    ['cvt.rz.f32.u64 %f0, -1;', 0x5f7fffff],
    ['cvt.rn.sat.f32.s32 %f0, 7;', 0x3f800000],
    ['cvt.rp.f32.f64 %f0, 0d3FF0000000000001;', 0x3f800001],
    ['copysign.f32 %f0, 0f80000000, 0f3F800000;', 0xbf800000],
  ])('%s', async (body, expected) => {
    expect(await bits(body)).toBe(expected);
  });

  test.each([
    ['cvt.rzi.s32.f32 %r0, 0f4F800000;', 0x7fffffff],
    ['cvt.rzi.u32.f32 %r0, 0fBF800000;', 0],
    ['cvt.rni.s32.f32 %r0, 0f40200000;', 2],
    ['cvt.rn.bf16x2.f32 %r0, 0f3F800000, 0f40000000;', 0x3f804000],
    ['cvt.rn.f16x2.f32 %r0, 0f47FFE000, 0f33000000;', 0x7c000000],
    ['add.f16x2 %r0, 0x3c003c00, 0x10003c00;', 0x3c004000],
    ['fma.rn.bf16x2 %r0, 0x3f803f80, 0x40004000, 0x3f800000;', 0x40404000],
    ['cvt.rn.satfinite.e4m3x2.f32 %h0, 0f44FA0000, 0f3F800000; cvt.u32.u16 %r0, %h0;', 0x7e38],
    ['mov.u16 %h0, 0x7e38; cvt.rn.f16x2.e4m3x2 %r0, %h0;', 0x5f003c00],
    ['cvt.rz.f16x2.f32 %r0, 0f3F801FFF, 0f47FFFFFF;', 0x3c007bff],
    ['cvt.rn.satfinite.f16x2.f32 %r0, 0f7F800000, 0fC7FFFFFF;', 0x7bfffbff],
    ['cvt.rz.relu.bf16x2.f32 %r0, 0fBF800000, 0f3F80FFFF;', 0x00003f80],
    ['cvt.rm.f16.f32 %h0, 0f00000001; cvt.u32.u16 %r0, %h0;', 0],
    ['cvt.rp.f16.f32 %h0, 0f00000001; cvt.u32.u16 %r0, %h0;', 1],
    ['mov.u16 %h1, 0x3f81; cvt.rz.f32.bf16 %f1, %h1; mov.b32 %r0, %f1;', 0x3f810000],
    ['cvt.rn.f16.f64 %h0, 0d3FF0020000000001; cvt.u32.u16 %r0, %h0;', 0x3c01],
    ['cvt.rn.f16.u64 %h0, 2049; cvt.u32.u16 %r0, %h0;', 0x6800],
    ['cvt.rn.satfinite.relu.e4m3x2.f32 %h0, 0fBF800000, 0f3F800000; cvt.u32.u16 %r0, %h0;', 0x0038],
    ['cvt.rn.satfinite.e5m2x2.f32 %h0, 0f7F800000, 0f3FA00000; cvt.u32.u16 %r0, %h0;', 0x7b3d],
    ['cvt.rn.satfinite.e5m2x2.f16x2 %h0, 0x3c00bc00; cvt.u32.u16 %r0, %h0;', 0x3cbc],
    ['mov.u16 %h0, 0xbc3c; cvt.rn.relu.f16x2.e5m2x2 %r0, %h0;', 0x00003c00],
    ['add.sat.f16x2 %r0, 0x3c003c00, 0xc0003c00;', 0x00003c00],
    ['add.ftz.f16x2 %r0, 0x00018001, 0x00000000;', 0x00000000],
    ['fma.rn.relu.bf16x2 %r0, 0x3f80bf80, 0x3f803f80, 0x00000000;', 0x3f800000],
    ['min.NaN.f16x2 %r0, 0x7e003c00, 0x3c004000;', 0x7fff3c00],
    ['setp.gt.f16x2 %p0|%p1, 0x3c004000, 0x40003c00; selp.u32 %r1, 1, 0, %p0; selp.u32 %r0, 9, %r1, %p1;', 1],
    ['set.lt.f16x2.f16x2 %r0, 0x3c004000, 0x40003c00;', 0x3c000000],
    ['mov.u16 %h1, 0x4000; mov.u16 %h2, 0x3c00; set.gt.f16.f16 %h0, %h1, %h2; cvt.u32.u16 %r0, %h0;', 0x3c00],
    ['setp.neu.f32 %p0, 0f7FC00000, 0f7FC00000; selp.u32 %r0, 1, 0, %p0;', 1],
    ['setp.ne.f32 %p0, 0f7FC00000, 0f00000000; selp.u32 %r0, 1, 0, %p0;', 0],
  ])('%s', async (body, expected) => {
    expect(await word(body)).toBe(expected);
  });

  test.each([
    [
      'mov.f64 %fd1, 0d3FF0000000000001; fma.rn.f64 %fd0, %fd1, %fd1, 0dBFF0000000000002; mov.b64 %rd0, %fd0;',
      0x3970000000000000n,
    ],
    // 2^-200, which is no subnormal of f64; and one that is.
    ['rcp.approx.ftz.f64 %fd0, 0d3370000000000000; mov.b64 %rd0, %fd0;', 0x4c70000000000000n],
    ['rcp.approx.ftz.f64 %fd0, 0d8000000000000001; mov.b64 %rd0, %fd0;', 0xfff0000000000000n],
    ['cvt.rn.f64.u64 %fd0, -1; mov.b64 %rd0, %fd0;', 0x43f0000000000000n],
    ['cvt.rz.f64.u64 %fd0, -1; mov.b64 %rd0, %fd0;', 0x43efffffffffffffn],
    ['add.rp.f64 %fd0, 0d3FF0000000000000, 0d0000000000000001; mov.b64 %rd0, %fd0;', 0x3ff0000000000001n],
    ['div.rz.f64 %fd0, 0d4000000000000000, 0d4008000000000000; mov.b64 %rd0, %fd0;', 0x3fe5555555555555n],
    // What is below the smallest normal number is rounded once, too.
    [
      'fma.rn.f64 %fd0, 0d0010000000000001, 0d3FE0000000000000, 0d0000000000000000; mov.b64 %rd0, %fd0;',
      0x0008000000000000n,
    ],
    ['cvt.f64.f32 %fd0, 0f40490FDB; mov.b64 %rd0, %fd0;', 0x400921fb60000000n],
  ])('%s', async (body, expected) => {
    expect(await long(body)).toBe(expected);
  });

  test('what is loaded, moved and stored keeps its bits, though it is no number', async () => {
    const body =
      'st.global.u32 [%out+4], 0x7f812345; ld.global.f32 %f0, [%out+4]; mov.f32 %f1, %f0; add.f32 %f2, %f1, %f1; st.global.f32 [%out], %f1;';
    expect((await run(fileOf(body))).words[0]).toBe(0x7f812345);
  });

  test('sums that move from register to register stay floats', () => {
    const body = `
  mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.u32 %r1, 0;
AGAIN: add.f32 %f2, %f2, 0f3F800000; mov.f32 %f3, %f2; selp.f32 %f2, %f3, %f1, 1;
  add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 5; @%p1 bra AGAIN;
  st.global.f32 [%out], %f2;`;
    const { text } = compilePtx(ptx(fileOf(body)).kernel('k'), 'fast');
    expect(text).not.toMatch(/floatOf|bitsOf/);
  });
});
