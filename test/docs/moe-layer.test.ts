import { expect, test } from 'vitest';
import { results } from '../../examples/moe-layer.js';

test('the layer of examples/moe-layer.ts runs, and its numbers stay what they are', () => {
  expect(results).toEqual([-1.0625, -23]);
});
