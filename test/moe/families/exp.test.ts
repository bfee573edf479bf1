import { expect, test } from 'vitest';
import { exp } from '../../../src/moe/families/common/exp.js';
import { ofEach, worstUnits } from '../of-each.js';

test('e^x is within 2 units in the last place, from the smallest result to the largest', async () => {
  const values = Float32Array.from({ length: 20_000 }, (_, i) => -103.9 + i * (192.6 / 20_000));
  expect(await worstUnits(exp, Math.exp, values)).toBeLessThan(2);
});

test('what is out of range is +0 or infinity, and NaN stays NaN', async () => {
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
  const values = Float32Array.of(-infinity, -1e30, -104.5, -0, 0, 88.8, 1e30, infinity, nan);
  const expected = Float32Array.of(0, 0, 0, 1, 1, infinity, infinity, infinity, nan);
  expect(await ofEach(exp, values)).toEqual(expected);
});
