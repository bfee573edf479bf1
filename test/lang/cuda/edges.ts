/** What random and exhaustive tests of arithmetic have in common. */
import type { Expr } from '../../../src/lang/ir.js';
import * as ir from './ir-builder.js';

type Scalar = 'i32' | 'u32' | 'u64' | 'f32' | 'bool';

/** The values of types at whose edges programs go wrong. */
export const edges: Readonly<Record<Scalar, readonly (number | bigint | boolean)[]>> = {
  i32: [0, 1, -1, 2, -2, 7, 31, 32, 33, 255, -256, 65535, 2 ** 31 - 1, -(2 ** 31), -(2 ** 31) + 1, 123456789],
  u32: [
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    255,
    256,
    65535,
    65536,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 32 - 1,
    0x3f800000,
    // Pairs of bf16: halves of the smallest normal numbers, ties among the subnormal ones, infinities.
    0x00803f00,
    0x80010003,
    0x7f80ff7f,
    0x3fc0bec1,
    // Times the one above, its upper half lies between two bf16; a subnormal number that is added decides.
    0x3f810001,
  ],
  u64: [
    0n,
    1n,
    2n,
    3n,
    63n,
    64n,
    65n,
    255n,
    2n ** 24n + 1n,
    2n ** 32n,
    2n ** 53n + 1n,
    2n ** 63n,
    2n ** 64n - 1n,
  ],
  f32: [
    0,
    -0,
    1,
    -1,
    0.5,
    -1.5,
    2.5,
    3,
    1e-3,
    0.1,
    240,
    448,
    464,
    465,
    -500,
    65504,
    65520,
    1e9,
    -1e9,
    2147483647,
    4294967295,
    1.8446744e19,
    2 ** 128 - 2 ** 104,
    2 ** -126,
    2 ** -149,
    2 ** -14,
    2 ** -24,
    2 ** -9,
    2 ** -10,
    Infinity,
    -Infinity,
    NaN,
  ].map(Math.fround),
  bool: [false, true],
};

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** An integer from 0 to 2^32 - 1 (a mixed Weyl sequence). */
  word(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  below(n: number): number {
    return this.word() % n;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)]!;
  }
}

/** Any scalar as a u64. The bits of a NaN are nobody's promise, so it counts as 0. */
export function word(expr: Expr): Expr {
  const type = expr.type.kind === 'value' ? expr.type.name : 'u64';
  if (type === 'u64') return expr;
  return ir.convert('u64', type === 'f32' ? floatBits(expr) : expr);
}

function floatBits(float: Expr): Expr {
  return ir.select(ir.binary('==', float, float), ir.bits('u32', float), ir.u32(0));
}
