// What lets the host's compiler take printed CUDA, as far as one thread can run it: arithmetic, conversions, lanes, control
// flow, weak loads and stores. CUDA's own functions, and what each PTX instruction computes, are written out.

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

using i32 = int;
using u32 = unsigned int;
using u64 = unsigned long long;
using f32 = float;
using u8 = unsigned char;
using u16 = unsigned short;
struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

static const struct {
  u32 x;
} threadIdx = {0u}, blockIdx = {0u}, blockDim = {1u}, gridDim = {1u};

static inline u32 __float_as_uint(f32 a) {
  u32 result;
  __builtin_memcpy(&result, &a, 4);
  return result;
}

static inline f32 __uint_as_float(u32 a) {
  f32 result;
  __builtin_memcpy(&result, &a, 4);
  return result;
}

static inline u32 __popc(u32 a) { return u32(__builtin_popcount(a)); }
static inline u32 __ffs(i32 a) { return u32(__builtin_ffs(a)); }
// Four bytes of two words: eight more than a byte's place asks for its highest bit, eight times.
static inline u32 permute(u32 a, u32 b, u32 selection) {
  const u64 both = u64(b) << 32 | a;
  u32 result = 0;
  for (u32 i = 0; i < 4; i++) {
    const u32 nibble = selection >> 4 * i & 15u;
    const u32 byte = u32(both >> 8 * (nibble & 7u)) & 0xffu;
    result |= (nibble < 8 ? byte : byte >> 7 ? 0xffu : 0u) << 8 * i;
  }
  return result;
}
static inline f32 __fmaf_rn(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
static inline f32 __frcp_rn(f32 a) { return 1.0f / a; }

template <typename T>
static inline T min(T a, T b) { return b < a ? b : a; }

template <typename T>
static inline T max(T a, T b) { return a < b ? b : a; }

static inline f32 min_f32(f32 a, f32 b) {
  if (a != a || b != b) return a != a ? b : a;
  return a < b || (a == b && __float_as_uint(a) >> 31) ? a : b;
}

static inline f32 max_f32(f32 a, f32 b) {
  if (a != a || b != b) return a != a ? b : a;
  return b < a || (a == b && __float_as_uint(b) >> 31) ? a : b;
}

template <typename T>
static inline T load(const T* p) { return *p; }
static inline u32 load(const u8* p) { return *p; }
static inline u32 load(const u16* p) { return *p; }

template <typename T, typename U>
static inline void store(T* p, U value) { *p = T(value); }

static inline i32 to_i32(f32 a) {
  if (a != a) return 0;
  return a >= 0x1p31f ? 2147483647 : a < -0x1p31f ? -2147483647 - 1 : i32(a);
}

static inline u32 to_u32(f32 a) {
  if (a != a || a <= 0.0f) return 0u;
  return a >= 0x1p32f ? 0xffffffffu : u32(a);
}

static inline u64 to_u64(f32 a) {
  if (a != a || a <= 0.0f) return 0ull;
  return a >= 0x1p64f ? ~0ull : u64(a);
}

// Rounds the magnitude of an f32 to a float of fewer bits: `exponentBias` and `mantissaBits` describe the target,
// the result is its exponent and mantissa as one integer. To nearest, ties to even; too large a value runs over
// into the exponents above, where the caller finds it.
static inline u32 round_magnitude(u32 magnitude, i32 exponentBias, i32 mantissaBits) {
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
}

static inline bf16 to_bf16(f32 a) {
  const u32 bits = __float_as_uint(a);
  if (a != a) return bf16{0x7fff};
  return bf16{u16((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

static inline f16 to_f16(f32 a) {
  const u32 bits = __float_as_uint(a), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (a != a) return f16{0x7fff};
  const u32 rounded = round_magnitude(magnitude, 15, 10);
  return f16{u16(sign | (rounded > 0x7c00u ? 0x7c00u : rounded))};
}

static inline u8 to_e4m3_bits(f32 a) {
  const u32 bits = __float_as_uint(a), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (a != a) return 0x7f;
  const u32 rounded = round_magnitude(magnitude, 7, 3);
  return u8(sign | (rounded > 0x7eu ? 0x7eu : rounded));
}

static inline u16 e4m3x2(f32 low, f32 high) { return u16(to_e4m3_bits(low) | to_e4m3_bits(high) << 8); }
static inline u32 bf16x2(f32 low, f32 high) { return to_bf16(low).bits | u32(to_bf16(high).bits) << 16; }

// a · b + c of bf16: the product is exact in f64; of a sum that is not, the last bit says so. bf16 below 2^-126 are multiples of 2^-133.
static inline u32 bf16_fused(u32 a, u32 b, u32 c) {
  const double product = double(__uint_as_float(a << 16)) * double(__uint_as_float(b << 16));
  const double add = double(__uint_as_float(c << 16));
  double sum = product + add;
  if (sum != sum) return 0x7fffu;
  if (__builtin_isinf(sum)) return __float_as_uint(f32(sum)) >> 16;
  const bool first = __builtin_fabs(product) > __builtin_fabs(add);
  const double rest = first ? add - (sum - product) : product - (sum - add);
  const double step = __builtin_fabs(sum) < 0x1p-126 ? 0x1p-133 : __builtin_scalbn(1.0, __builtin_ilogb(sum) - 7);
  double whole = __builtin_floor(sum / step);
  const double over = sum - whole * step - step / 2;
  if (over > 0 || (over == 0 && (rest > 0 || (rest == 0 && __builtin_fmod(whole, 2.0) != 0)))) whole += 1;
  return __float_as_uint(f32(__builtin_copysign(whole * step, sum))) >> 16;
}
// Both halves, by what makes bits of the bits of one.
#define PAIRS(name, PARAMETERS, low, high) \
  static inline u32 name##_pairs PARAMETERS { return u32(u16(low)) | u32(u16(high)) << 16; }
PAIRS(multiply, (u32 a, u32 b), bf16_fused(a & 0xffffu, b & 0xffffu, 0x8000u), bf16_fused(a >> 16, b >> 16, 0x8000u))
PAIRS(add, (u32 a, u32 b), bf16_fused(a & 0xffffu, 0x3f80u, b & 0xffffu), bf16_fused(a >> 16, 0x3f80u, b >> 16))
PAIRS(fma, (u32 a, u32 b, u32 c), bf16_fused(a & 0xffffu, b & 0xffffu, c & 0xffffu), bf16_fused(a >> 16, b >> 16, c >> 16))
PAIRS(min, (u32 a, u32 b), to_bf16(min_f32(__uint_as_float(a << 16), __uint_as_float(b << 16))).bits,
      to_bf16(min_f32(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u))).bits)
PAIRS(max, (u32 a, u32 b), to_bf16(max_f32(__uint_as_float(a << 16), __uint_as_float(b << 16))).bits,
      to_bf16(max_f32(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u))).bits)

static inline u32 f16x2(f32 low, f32 high) { return to_f16(low).bits | u32(to_f16(high).bits) << 16; }

static inline f32 f32_of_f16(f16 a) {
  const u32 sign = u32(a.bits & 0x8000u) << 16, exponent = a.bits >> 10 & 31u, mantissa = a.bits & 0x3ffu;
  if (exponent == 31u) return __uint_as_float(mantissa ? 0x7fffffffu : sign | 0x7f800000u);
  const f32 magnitude =
      exponent ? __uint_as_float((exponent + 112u) << 23 | mantissa << 13) : f32(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

static inline f32 f32_of_e4m3x2(u16 pair, u32 half) {
  const u32 byte = pair >> (half * 8u) & 0xffu, sign = byte & 0x80u, exponent = byte >> 3 & 15u, mantissa = byte & 7u;
  if ((byte & 0x7fu) == 0x7fu) return __uint_as_float(0x7fffffffu);
  const f32 magnitude =
      exponent ? __uint_as_float((exponent + 120u) << 23 | mantissa << 20) : f32(mantissa) * 0x1p-9f;
  return sign ? -magnitude : magnitude;
}
