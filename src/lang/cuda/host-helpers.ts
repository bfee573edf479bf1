/**
 * Helpers for the host's C++ compiler, where they differ from CUDA's: what each PTX instruction computes, written
 * out. The differential tests hold them against plain arithmetic in TypeScript.
 */
import type { HelperTable } from './helper.js';

export const hostHelpers: HelperTable = {
  min: { text: 'template <typename T>\nDEVICE T min(T a, T b) { return b < a ? b : a; }' },
  max: { text: 'template <typename T>\nDEVICE T max(T a, T b) { return a < b ? b : a; }' },
  min_f32: {
    text: `DEVICE f32 min_f32(f32 a, f32 b) {
  if (a != a || b != b) return a != a ? b : a;
  return a < b || (a == b && bits_u32(a) >> 31) ? a : b;
}`,
    needs: ['bits_u32'],
  },
  max_f32: {
    text: `DEVICE f32 max_f32(f32 a, f32 b) {
  if (a != a || b != b) return a != a ? b : a;
  return b < a || (a == b && bits_u32(b) >> 31) ? a : b;
}`,
    needs: ['bits_u32'],
  },
  fma_f32: { text: 'DEVICE f32 fma_f32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }' },
  rcp_f32: { text: 'DEVICE f32 rcp_f32(f32 a) { return 1.0f / a; }' },
  popc: { text: 'DEVICE u32 popc(u32 a) { return u32(__builtin_popcount(a)); }' },
  ffs: { text: 'DEVICE u32 ffs(u32 a) { return u32(__builtin_ffs(i32(a))); }' },

  bits_u32: {
    text: `DEVICE u32 bits_u32(f32 a) {
  u32 result;
  __builtin_memcpy(&result, &a, 4);
  return result;
}`,
  },
  bits_f32: {
    text: `DEVICE f32 bits_f32(u32 a) {
  f32 result;
  __builtin_memcpy(&result, &a, 4);
  return result;
}`,
  },

  to_i32: {
    text: `DEVICE i32 to_i32(f32 a) {
  if (a != a) return 0;
  return a >= 0x1p31f ? 2147483647 : a < -0x1p31f ? -2147483647 - 1 : i32(a);
}`,
  },
  to_u32: {
    text: `DEVICE u32 to_u32(f32 a) {
  if (a != a || a <= 0.0f) return 0u;
  return a >= 0x1p32f ? 0xffffffffu : u32(a);
}`,
  },
  to_u64: {
    text: `DEVICE u64 to_u64(f32 a) {
  if (a != a || a <= 0.0f) return 0ull;
  return a >= 0x1p64f ? ~0ull : u64(a);
}`,
  },

  // Rounds the magnitude of an f32 to a float of fewer bits: `exponentBias` and `mantissaBits` describe the target,
  // the result is its exponent and mantissa as one integer. To nearest, ties to even; too large a value runs over
  // into the exponents above, where the caller finds it.
  round_magnitude: {
    text: `DEVICE u32 round_magnitude(u32 magnitude, i32 exponentBias, i32 mantissaBits) {
  i32 exponent = i32(magnitude >> 23) - 127;
  u64 mantissa = magnitude & 0x7fffffu;
  if (magnitude >> 23) mantissa |= 0x800000u; else exponent = -126;
  const i32 lowest = 1 - exponentBias;
  const i32 target = exponent < lowest ? lowest : exponent;
  i32 drop = 23 - mantissaBits + (target - exponent);
  if (drop > 40) drop = 40;
  u64 kept = mantissa >> drop;
  const u64 rest = mantissa & ((u64(1) << drop) - 1);
  const u64 half = drop == 0 ? 0 : u64(1) << (drop - 1);
  if (drop > 0 && (rest > half || (rest == half && (kept & 1)))) kept += 1;
  return u32(kept) + (u32(target - lowest) << mantissaBits);
}`,
  },
  to_bf16: {
    text: `DEVICE bf16 to_bf16(f32 a) {
  const u32 bits = bits_u32(a);
  if (a != a) return bf16{0x7fff};
  return bf16{u16((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}`,
    needs: ['bf16', 'bits_u32'],
  },
  to_f16: {
    text: `DEVICE f16 to_f16(f32 a) {
  const u32 bits = bits_u32(a), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (a != a) return f16{0x7fff};
  const u32 rounded = round_magnitude(magnitude, 15, 10);
  return f16{u16(sign | (rounded > 0x7c00u ? 0x7c00u : rounded))};
}`,
    needs: ['f16', 'bits_u32', 'round_magnitude'],
  },
  e4m3x2: {
    text: `DEVICE u8 e4m3x1(f32 a) {
  const u32 bits = bits_u32(a), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (a != a) return 0x7f;
  const u32 rounded = round_magnitude(magnitude, 7, 3);
  return u8(sign | (rounded > 0x7eu ? 0x7eu : rounded));
}

DEVICE u16 e4m3x2(f32 low, f32 high) { return u16(e4m3x1(low) | e4m3x1(high) << 8); }`,
    needs: ['u8', 'u16', 'bits_u32', 'round_magnitude'],
  },
  f32_of_f16: {
    text: `DEVICE f32 f32_of_f16(f16 a) {
  const u32 sign = u32(a.bits & 0x8000u) << 16, exponent = a.bits >> 10 & 31u, mantissa = a.bits & 0x3ffu;
  if (exponent == 31u) return bits_f32(mantissa ? 0x7fffffffu : sign | 0x7f800000u);
  const f32 magnitude = exponent ? bits_f32((exponent + 112u) << 23 | mantissa << 13) : f32(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}`,
    needs: ['f16', 'bits_f32'],
  },
  f32_of_e4m3x2: {
    text: `DEVICE f32 f32_of_e4m3x2(u16 pair, u32 half) {
  const u32 byte = pair >> (half * 8u) & 0xffu, sign = byte & 0x80u, exponent = byte >> 3 & 15u, mantissa = byte & 7u;
  if ((byte & 0x7fu) == 0x7fu) return bits_f32(0x7fffffffu);
  const f32 magnitude = exponent ? bits_f32((exponent + 120u) << 23 | mantissa << 20) : f32(mantissa) * 0x1p-9f;
  return sign ? -magnitude : magnitude;
}`,
    needs: ['u16', 'bits_f32'],
  },
  bf16x2: {
    text: 'DEVICE u32 bf16x2(f32 low, f32 high) { return to_bf16(low).bits | u32(to_bf16(high).bits) << 16; }',
    needs: ['to_bf16'],
  },
  f16x2: {
    text: 'DEVICE u32 f16x2(f32 low, f32 high) { return to_f16(low).bits | u32(to_f16(high).bits) << 16; }',
    needs: ['to_f16'],
  },

  // Indices of the one thread that a call of a host program stands for.
  indices: {
    text: `struct Index {
  u32 x;
};
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;`,
  },
};
