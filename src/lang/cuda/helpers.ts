/**
 * The helpers that several operations share, and those of pure expressions, in CUDA. Where C++ leaves a case open (division by zero,
 * conversion out of range) the helper pins it to what the language promises.
 *
 * `asm` without `volatile` marks what depends on its operands alone: the compiler may merge and move it.
 */

/** A conversion of one f32 by one instruction. */
const converted = (type: string, to: string, result: string): string => `DEVICE ${type} to_${type}(f32 a) {
  ${type} result;
  asm("cvt.${to}.f32 %0, %1;" : ${result} : "f"(a));
  return result;
}`;
const pairOf = (
  type: string,
  name: string,
  to: string,
  constraint: string,
): string => `DEVICE ${type} ${name}(f32 low, f32 high) {
  ${type} result;
  asm("cvt.${to}.f32 %0, %1, %2;" : "=${constraint}"(result) : "f"(high), "f"(low));
  return result;
}`;

/** Helpers by name. Behind a text stand names of others that come before it, in that order, where its text names them in another. */
export const helpers: Readonly<Record<string, string | readonly [text: string, ...first: string[]]>> = {
  u8: 'using u8 = unsigned char;',
  u16: 'using u16 = unsigned short;',
  bf16: 'struct bf16 {\n  u16 bits;\n};',
  f16: 'struct f16 {\n  u16 bits;\n};',
  e4m3: 'struct e4m3 {\n  u8 bits;\n};',
  v16: 'struct alignas(16) v16 {\n  u32 x, y, z, w;\n};',

  // Division is total: x / 0 has all bits set, x % 0 is x, and the most negative i32 divided by -1 wraps to itself.
  divide_u32: 'DEVICE u32 divide_u32(u32 a, u32 b) { return b == 0u ? 0xffffffffu : a / b; }',
  divide_u64: 'DEVICE u64 divide_u64(u64 a, u64 b) { return b == 0ull ? ~0ull : a / b; }',
  divide_i32:
    'DEVICE i32 divide_i32(i32 a, i32 b) { return b == 0 ? -1 : b == -1 ? i32(0u - u32(a)) : a / b; }',
  divide_f32: 'DEVICE f32 divide_f32(f32 a, f32 b) { return a / b; }',
  remainder_u32: 'DEVICE u32 remainder_u32(u32 a, u32 b) { return b == 0u ? a : a % b; }',
  remainder_u64: 'DEVICE u64 remainder_u64(u64 a, u64 b) { return b == 0ull ? a : a % b; }',
  remainder_i32: 'DEVICE i32 remainder_i32(i32 a, i32 b) { return b == 0 ? a : b == -1 ? 0 : a % b; }',

  bits_u32: 'DEVICE u32 bits_u32(f32 a) { return __float_as_uint(a); }',
  bits_f32: 'DEVICE f32 bits_f32(u32 a) { return __uint_as_float(a); }',

  // f32 → integer truncates and saturates, NaN becomes 0. cvt.rzi does that for 32 bits; for 64 bits it makes
  // 1 << 63 of NaN. A C++ cast would be undefined out of range, and the compiler uses that.
  to_i32: converted('i32', 'rzi.s32', '"=r"(result)'),
  to_u32: converted('u32', 'rzi.u32', '"=r"(result)'),
  to_u64: `DEVICE u64 to_u64(f32 a) {
  u64 result;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(result) : "f"(a));
  return a != a ? 0ull : result;
}`,

  // f32 → storage rounds to nearest even. e4m3 has no infinity: it saturates to ±448, and NaN stays NaN.
  to_bf16: converted('bf16', 'rn.bf16', '"=h"(result.bits)'),
  to_f16: converted('f16', 'rn.f16', '"=h"(result.bits)'),
  to_e4m3: 'DEVICE e4m3 to_e4m3(f32 a) { return e4m3{u8(e4m3x2(a, 0.0f))}; }',
  f32_of_bf16: 'DEVICE f32 f32_of_bf16(bf16 a) { return bits_f32(u32(a.bits) << 16); }',
  f32_of_f16: `DEVICE f32 f32_of_f16(f16 a) {
  f32 result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(a.bits));
  return result;
}`,
  f32_of_e4m3: 'DEVICE f32 f32_of_e4m3(e4m3 a) { return f32_of_e4m3x2(a.bits, 0); }',
  // Every e4m3 value is exact in f16, and hardware unpacks two at a time. Two lanes of one pair share the first
  // instruction, because an asm without volatile is merged with its twin.
  f32_of_e4m3x2: `DEVICE f32 f32_of_e4m3x2(u16 pair, u32 half) {
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  return f32_of_f16(f16{u16(half == 0u ? halves : halves >> 16)});
}`,

  // Two values in one conversion, the first in the low half.
  bf16x2: pairOf('u32', 'bf16x2', 'rn.bf16x2', 'r'),
  f16x2: pairOf('u32', 'f16x2', 'rn.f16x2', 'r'),
  e4m3x2: pairOf('u16', 'e4m3x2', 'rn.satfinite.e4m3x2', 'h'),

  // Lanes of a v16. Indices are constants, so the selection folds.
  lane_u32:
    'DEVICE u32 lane_u32(v16 v, u32 i) { return i == 0u ? v.x : i == 1u ? v.y : i == 2u ? v.z : v.w; }',
  lane_i32: 'DEVICE i32 lane_i32(v16 v, u32 i) { return i32(lane_u32(v, i)); }',
  lane_f32: ['DEVICE f32 lane_f32(v16 v, u32 i) { return bits_f32(lane_u32(v, i)); }', 'lane_u32'],
  lane_u64:
    'DEVICE u64 lane_u64(v16 v, u32 i) { return i == 0u ? v.x | u64(v.y) << 32 : v.z | u64(v.w) << 32; }',
  lane_u16: 'DEVICE u32 lane_u16(v16 v, u32 i) { return (lane_u32(v, i / 2u) >> (i % 2u * 16u)) & 0xffffu; }',
  lane_u8: 'DEVICE u32 lane_u8(v16 v, u32 i) { return (lane_u32(v, i / 4u) >> (i % 4u * 8u)) & 0xffu; }',
  lane_bf16: 'DEVICE bf16 lane_bf16(v16 v, u32 i) { return bf16{u16(lane_u16(v, i))}; }',
  lane_f16: 'DEVICE f16 lane_f16(v16 v, u32 i) { return f16{u16(lane_u16(v, i))}; }',
  lane_e4m3: 'DEVICE e4m3 lane_e4m3(v16 v, u32 i) { return e4m3{u8(lane_u8(v, i))}; }',
  lane_e4m3_f32: [
    `DEVICE f32 lane_e4m3_f32(v16 v, u32 i) {
  return f32_of_e4m3x2(u16(lane_u16(v, i / 2u)), i % 2u);
}`,
    'u16',
    'lane_u16',
  ],

  // A v16 of 16/size values.
  pack_u32: 'DEVICE v16 pack_u32(u32 a, u32 b, u32 c, u32 d) { return v16{a, b, c, d}; }',
  pack_i32: 'DEVICE v16 pack_i32(i32 a, i32 b, i32 c, i32 d) { return v16{u32(a), u32(b), u32(c), u32(d)}; }',
  pack_f32: `DEVICE v16 pack_f32(f32 a, f32 b, f32 c, f32 d) {
  return v16{bits_u32(a), bits_u32(b), bits_u32(c), bits_u32(d)};
}`,
  pack_u64: 'DEVICE v16 pack_u64(u64 a, u64 b) { return v16{u32(a), u32(a >> 32), u32(b), u32(b >> 32)}; }',
  pack_u16: `DEVICE v16 pack_u16(u32 a, u32 b, u32 c, u32 d, u32 e, u32 f, u32 g, u32 h) {
  return v16{(a & 0xffffu) | b << 16, (c & 0xffffu) | d << 16, (e & 0xffffu) | f << 16, (g & 0xffffu) | h << 16};
}`,
  bytes4: `DEVICE u32 bytes4(u32 a, u32 b, u32 c, u32 d) {
  return (a & 0xffu) | (b & 0xffu) << 8 | (c & 0xffu) << 16 | d << 24;
}`,
  pack_u8: `DEVICE v16 pack_u8(u32 a, u32 b, u32 c, u32 d, u32 e, u32 f, u32 g, u32 h, u32 i, u32 j, u32 k, u32 l, u32 m,
                   u32 n, u32 o, u32 p) {
  return v16{bytes4(a, b, c, d), bytes4(e, f, g, h), bytes4(i, j, k, l), bytes4(m, n, o, p)};
}`,
  pack_bf16_f32: `DEVICE v16 pack_bf16_f32(f32 a, f32 b, f32 c, f32 d, f32 e, f32 f, f32 g, f32 h) {
  return v16{bf16x2(a, b), bf16x2(c, d), bf16x2(e, f), bf16x2(g, h)};
}`,
  pack_f16_f32: `DEVICE v16 pack_f16_f32(f32 a, f32 b, f32 c, f32 d, f32 e, f32 f, f32 g, f32 h) {
  return v16{f16x2(a, b), f16x2(c, d), f16x2(e, f), f16x2(g, h)};
}`,
  e4m3x4: 'DEVICE u32 e4m3x4(f32 a, f32 b, f32 c, f32 d) { return e4m3x2(a, b) | u32(e4m3x2(c, d)) << 16; }',
  pack_e4m3_f32: `DEVICE v16 pack_e4m3_f32(f32 a, f32 b, f32 c, f32 d, f32 e, f32 f, f32 g, f32 h, f32 i, f32 j, f32 k, f32 l,
                         f32 m, f32 n, f32 o, f32 p) {
  return v16{e4m3x4(a, b, c, d), e4m3x4(e, f, g, h), e4m3x4(i, j, k, l), e4m3x4(m, n, o, p)};
}`,

  // Where a window of another rank (or this one's own) is mapped here, plus the offset of a field.
  peer: `template <typename T>
DEVICE T* peer(const HeddlePeers& windows, u32 rank, u64 offset) {
  return reinterpret_cast<T*>(windows.base[rank] + offset);
}`,
  as: 'template <typename T, typename P>\nDEVICE T* as(P* pointer) { return reinterpret_cast<T*>(pointer); }',

  // All 32 lanes take part in a warp operation.
  full_warp: 'constexpr u32 full_warp = 0xffffffffu;',

  // The clock that the GPUs of a node roughly share; the SM's own counter (clock64) differs between SMs.
  clock_ns: `DEVICE u64 clock_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}`,

  // Whether a wait has lasted too long; the first look starts the clock.
  past_limit: `DEVICE bool past_limit(u64& start, u32 limit_us) {
  const u64 now = clock_ns();
  if (start == 0u) start = now;
  return now - start >= u64(limit_us) * 1000u;
}`,

  shared_address: 'DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }',

  // A place of shared memory as it lies in another block of the cluster.
  cluster_address: `DEVICE u32 cluster_address(const void* p, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(rank));
  return there;
}`,

  // A tensor's map as the copy engine reads it: a parameter of the kernel.
  HeddleTensorMap: `// A tensor, as cuTensorMapEncodeTiled describes it.
struct alignas(64) HeddleTensorMap {
  u64 opaque[16];
};`,
};
