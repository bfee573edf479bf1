import { describe, expect, it } from 'vitest';
import { type ReferenceReceived, reference, type Shape } from '../../../src/moe/layer/index.js';
import {
  compareBits,
  compareClosely,
  compareCombined,
  compareReceived,
  makeAllRoutes,
  mergeComparisons,
} from '../../../src/verify/testing/index.js';
import { sourcesOf } from '../../moe/arbitrary.js';

const shape: Shape = {
  ranks: 3,
  experts: 6,
  topK: 2,
  maxTokens: 4,
  payloads: [{ name: 'x', rowBytes: 5 }],
  output: { dtype: 'bf16', hidden: 3 },
};
const sources = sourcesOf(shape, makeAllRoutes(shape, [4, 2, 0], 1), 1);

describe('comparing elements', () => {
  it('finds equal ones equal', () => {
    expect(compareBits('out', 'bf16', Uint16Array.of(0x3f80), Uint16Array.of(0x3f80))).toEqual({
      compared: 1,
      different: 0,
      maxAbsError: 0,
    });
  });

  it('measures differences in values and says where the first is', () => {
    const actual = Uint16Array.of(0, 0x3f80, 0x4000, 0);
    const expected = Uint16Array.of(0, 0x3f80, 0x3f80, 0xc000);
    expect(compareBits('out', 'bf16', actual, expected, 2)).toEqual({
      compared: 4,
      different: 2,
      maxAbsError: 2,
      first: 'out[1, 0] is 2, expected 1',
    });
  });

  it('takes any NaN for any other, but not for a number', () => {
    expect(compareBits('out', 'bf16', Uint16Array.of(0x7fc0), Uint16Array.of(0xffff)).different).toBe(0);
    const mixed = compareBits('out', 'f32', Float32Array.of(Number.NaN), Float32Array.of(1));
    expect(mixed).toMatchObject({ different: 1, maxAbsError: Number.POSITIVE_INFINITY });
  });

  it('tells −0 from 0, in f32 and in bf16', () => {
    expect(compareBits('out', 'f32', Float32Array.of(-0), Float32Array.of(0))).toMatchObject({
      different: 1,
      maxAbsError: 0,
      first: 'out[0] is -0, expected 0',
    });
    expect(compareBits('out', 'bf16', Uint16Array.of(0x8000), Uint16Array.of(0)).different).toBe(1);
  });

  it('closely: an infinity or a NaN says nothing of how far off the others may be', () => {
    const close = (actual: readonly number[], expected: readonly number[]) =>
      compareClosely('out', 'f32', Float32Array.from(actual), Float32Array.from(expected)).different;
    const { NaN: nan, POSITIVE_INFINITY: infinite } = Number;
    expect(close([1, infinite], [1.001, infinite])).toBe(0);
    expect(close([1, nan], [1.001, nan])).toBe(0);
    expect(close([1, infinite], [100, infinite])).toBe(1);
    expect(close([1, nan], [100, nan])).toBe(1);
    expect(close([1], [infinite])).toBe(1);
    expect(close([infinite], [1])).toBe(1);
    expect(close([-infinite], [infinite])).toBe(1);
  });

  it('refuses other lengths', () => {
    expect(compareBits('out', 'u8', new Uint8Array(3), new Uint8Array(4))).toMatchObject({
      different: 4,
      first: 'out has 3 elements, expected 4',
    });
  });

  it('merges: sums, the largest error, the first of the firsts', () => {
    expect(
      mergeComparisons([
        { compared: 1, different: 0, maxAbsError: 0 },
        { compared: 2, different: 1, maxAbsError: 3, first: 'a' },
        { compared: 3, different: 1, maxAbsError: 2, first: 'b' },
      ]),
    ).toEqual({ compared: 6, different: 2, maxAbsError: 3, first: 'a' });
  });
});

describe('comparing what a rank received', () => {
  const received = () => reference.dispatch(shape, sources, 1);
  const slotOf = ({ experts }: ReferenceReceived, used: boolean) =>
    Array.from({ length: 12 }, (_, slot) => slot).find(
      (slot) => experts.subarray(slot * 2, slot * 2 + 2).some((id) => id >= 0) === used,
    )!;

  it('finds the reference equal to itself', () => {
    const found = compareReceived(shape, sources, 1, received());
    expect(found.different).toBe(0);
    expect(found.compared).toBeGreaterThan(12 * 2 * 2 + 2);
  });

  it.each(['experts', 'weights', 'counts'] as const)('sees one wrong element of %s', (plane) => {
    const wrong = received();
    wrong[plane][1]! += 1;
    const found = compareReceived(shape, sources, 1, wrong);
    expect(found.different).toBe(1);
    expect(found.first).toContain(`rank 1: ${plane}[`);
  });

  it('sees one wrong byte of a row that was sent, and none where no row was', () => {
    const wrong = received();
    wrong.payloads.x![slotOf(wrong, false) * 5] ^= 1;
    expect(compareReceived(shape, sources, 1, wrong).different).toBe(0);
    const slot = slotOf(wrong, true);
    wrong.payloads.x![slot * 5 + 3] ^= 1;
    expect(compareReceived(shape, sources, 1, wrong)).toMatchObject({
      different: 1,
      first: expect.stringContaining(`rank 1: x[${Math.floor(slot / 4)}, ${slot % 4}][3] is `),
    });
  });

  it('does without weights and counts, but not without a payload', () => {
    const { experts, payloads } = received();
    expect(compareReceived(shape, sources, 1, { experts, payloads }).different).toBe(0);
    expect(compareReceived(shape, sources, 1, { experts, payloads: {} }).first).toBe(
      'rank 1: x has 0 elements, expected 60',
    );
  });
});

it('names rank, token and element of a wrong output', () => {
  const found = compareCombined(shape, 2, Uint16Array.of(0, 0, 0, 0, 0x3f80, 0), new Uint16Array(6));
  expect(found.first).toBe('rank 2: out[1, 1] is 1, expected 0');
});
