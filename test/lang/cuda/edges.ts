/** The values of types at whose edges programs go wrong. */
export const edges: Readonly<
  Record<'i32' | 'u32' | 'f32', readonly number[]> & { readonly u64: readonly bigint[] }
> = {
  i32: [0, 1, -1, 2, -2, 7, 31, 32, 33, 255, -256, 65535, 2 ** 31 - 1, -(2 ** 31), -(2 ** 31) + 1, 123456789],
  u32: [
    ...[
      0, 1, 2, 3, 31, 32, 33, 63, 64, 255, 256, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000,
    ],
    // Pairs of bf16: halves of the smallest normal numbers, ties among the subnormal ones, infinities.
    ...[0x00803f00, 0x80010003, 0x7f80ff7f, 0x3fc0bec1],
    // Times the one above, its upper half lies between two bf16; a subnormal number that is added decides.
    0x3f810001,
  ],
  u64: [
    ...[0n, 1n, 2n, 3n, 63n, 64n, 65n, 255n],
    ...[2n ** 24n + 1n, 2n ** 32n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n],
  ],
  f32: [
    ...[0, -0, 1, -1, 0.5, -1.5, 2.5, 3, 1e-3, 0.1, 240, 448, 464, 465, -500, 65504, 65520, 1e9, -1e9],
    ...[2147483647, 4294967295, 1.8446744e19, 2 ** 128 - 2 ** 104, Infinity, -Infinity, NaN],
    ...[-126, -149, -14, -24, -9, -10].map((power) => 2 ** power),
  ].map(Math.fround),
};
