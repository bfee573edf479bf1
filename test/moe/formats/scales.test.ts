import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { e4m3ToF32 } from '../../../src/gpu/index.js';
import { dequantise, quantise, rowFormats, scaleBlock, scaleRow } from '../../../src/moe/layer/index.js';
import { randomElements } from '../../../src/verify/testing/index.js';

/**
 * The most that an element can change on its way. In e4m3's normal range half a step is 1/16 of the power of two
 * below the element, hence at most 1/17 of the element (at 1 + 1/16, the tie); below it half a step is 2^-10. Both
 * grow with the scale, which is at most amax/224 unless it is the smallest, 2^-126. So no element of a block changes
 * by more than amax/17, as long as amax is 2^-131 or more.
 */
function quantisationBound(value: number, scale: number): number {
  return Math.max(Math.abs(value) / 17, scale * 2 ** -10);
}

const row = (...values: number[]) => Float32Array.from(values);

describe('rows as e4m3', () => {
  const rows = fc.tuple(
    fc.integer({ min: 1, max: 300 }),
    fc.integer({ min: 0, max: 2 ** 31 }),
    fc.integer({ min: -60, max: 100 }),
    fc.constantFrom(0, 3, 12, 30),
  );

  it.each([scaleBlock, 32])(
    'change no element by more than the stated bound, and none by more than amax/17 of its block of %i',
    (size) => {
      fc.assert(
        fc.property(rows, ([length, seed, exponent, spread]) => {
          const x = scaleRow(randomElements('f32', length, seed, spread) as Float32Array, 2 ** exponent);
          const sent = quantise(x, size);
          const y = dequantise(sent, size);
          expect(sent.scales).toHaveLength(Math.ceil(length / size));
          for (let i = 0; i < length; i++) {
            const block = Math.floor(i / size);
            const amax = Math.max(...x.subarray(block * size, (block + 1) * size).map(Math.abs));
            const error = Math.abs(y[i]! - x[i]!);
            expect(error).toBeLessThanOrEqual(quantisationBound(x[i]!, sent.scales[block]!));
            expect(error).toBeLessThanOrEqual(amax / 17);
          }
        }),
        { seed: 3, numRuns: 80 },
      );
    },
  );

  it('come within a hair of the bound: it is the best one', () => {
    const tie = 256 * (1 + 1 / 16); // halfway between 256 and 288, rounds to the even 256
    const error = Math.abs(dequantise(quantise(row(tie)))[0]! - tie);
    expect(error).toBe(tie / 17);
  });

  it('scale each block by the smallest power of two that makes its largest fit', () => {
    fc.assert(
      fc.property(fc.float({ noNaN: true, noDefaultInfinity: true, min: Math.fround(2 ** -110) }), (amax) => {
        const scale = quantise(row(amax, -amax / 3)).scales[0]!;
        expect(Number.isInteger(Math.log2(scale))).toBe(true);
        expect(amax / scale).toBeLessThanOrEqual(448);
        expect(amax / scale).toBeGreaterThan(224);
      }),
      { seed: 4, numRuns: 500 },
    );
    expect(quantise(row(448)).scales[0]).toBe(1);
    expect(quantise(row(Math.fround(448 * (1 + 2 ** -22)))).scales[0]).toBe(2);
    expect(quantise(row(0)).scales[0]).toBe(2 ** -126);
    expect(quantise(row(2 ** -149)).scales[0]).toBe(2 ** -126);
  });

  it('keep values that e4m3 holds, whatever the power of two', () => {
    const held = [448, -416, 1, -0.015625, 2 ** -9, 0, -0];
    for (const exponent of [-110, -1, 0, 100]) {
      const x = scaleRow(Float32Array.from(held), 2 ** exponent);
      expect(dequantise(quantise(x))).toEqual(x);
    }
  });

  it('give each block its own scale, so that a large block does not drown a small one', () => {
    const x = new Float32Array(scaleBlock + 1).fill(2 ** 60);
    x[scaleBlock] = 2 ** -60;
    expect(dequantise(quantise(x))).toEqual(x);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
    'poison the whole block that holds %d, and only that',
    (poison) => {
      const x = new Float32Array(2 * scaleBlock).fill(1);
      x[5] = poison;
      const y = dequantise(quantise(x));
      expect(y.subarray(0, scaleBlock).every(Number.isNaN)).toBe(true);
      expect(y.subarray(scaleBlock).every((value) => value === 1)).toBe(true);
    },
  );
});

/** Every e4m3 that is not negative, in order; the index is its code. */
const codes = Array.from({ length: 0x7f }, (_, code) => e4m3ToF32(code));

/** What arrives of a block as mxfp8, by search: for the scale, and for the nearest code, of two the even one. */
function plainly(block: Float32Array): number[] {
  if (!block.every(Number.isFinite)) return Array(block.length).fill(Number.NaN);
  const amax = Math.max(...block.map(Math.abs));
  let scale = 2 ** -126;
  while (amax > 448 * scale) scale *= 2;
  return Array.from(block, (value) => {
    const away = codes.map((code) => Math.abs(Math.abs(value) / scale - code));
    const least = Math.min(...away);
    const nearest = [...away.keys()].filter((code) => away[code] === least);
    const code = nearest.find((code) => code % 2 === 0) ?? nearest[0]!;
    return codes[code]! * scale * (value < 0 ? -1 : 1);
  });
}

it('what arrives of a row as mxfp8 is what a search for scale and codes finds', () => {
  const special = fc.constantFrom(
    0,
    448,
    449,
    464,
    1e-45,
    2 ** -126,
    2 ** -131,
    1e38,
    Number.NaN,
    Number.POSITIVE_INFINITY,
  );
  const value = fc.oneof(
    { weight: 9, arbitrary: fc.float({ noNaN: true, noDefaultInfinity: true }) },
    special,
  );
  const values = fc.array(value, { minLength: 1, maxLength: 100 });
  fc.assert(
    fc.property(values, fc.integer({ min: -20, max: 0 }), (given, exponent) => {
      const x = scaleRow(row(...given), 2 ** exponent);
      const arrived = rowFormats.mxfp8.arrives(x);
      for (let i = 0; i < x.length; i += 32)
        expect(Array.from(arrived.subarray(i, i + 32), (v) => v + 0)).toEqual(
          plainly(x.subarray(i, i + 32)).map((v) => Math.fround(v) + 0),
        );
    }),
    { seed: 5, numRuns: 200 },
  );
});
