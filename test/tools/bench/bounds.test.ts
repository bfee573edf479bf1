import { expect, test } from 'vitest';
import { World } from '../../../src/net/world/index.js';
import { boundOf, boundsColumns, boundsOf, type Rates } from '../../../src/tools/bench/bounds.js';
import { mostOfRanks } from '../../../src/tools/bench/layer.js';

const h200: Rates = { reads: 4000, tensorCores: { bf16: 1000, fp8: 2000 } };

test('bounds are the time to read weights, and the time to multiply rows by tensor cores', () => {
  const of = { weightBytes: 4e9, flops: 4e12 };
  expect(boundsOf(h200, 'bf16', of)).toEqual({ memory: 1000, tensorCores: 4000 });
  expect(boundsOf(h200, 'fp8', of)).toEqual({ memory: 1000, tensorCores: 2000 });
  expect(boundOf(boundsOf(h200, 'fp8', of))).toBe(2000);
  expect(boundOf(boundsOf(h200, 'fp8', { ...of, flops: 1e12 }))).toBe(1000);
});

test('a GPU whose tensor cores are not known has the bound of its memory alone', () => {
  const bounds = boundsOf({ reads: 4000, tensorCores: null }, 'bf16', { weightBytes: 4e9, flops: 4e12 });
  expect(bounds).toEqual({ memory: 1000, tensorCores: null });
  expect(boundOf(bounds)).toBe(1000);
  expect(boundsColumns(() => bounds).map(({ cell }) => cell(undefined))).toEqual(['1000.0', '–']);
});

test('bounds of a layer are of the ranks that have most: a rank with few experts in use is not the slowest', async () => {
  const counts = [Uint32Array.of(9, 0, 0), Uint32Array.of(1, 2, 3)];
  const most = World.local({ ranks: 2, device: 'sim' }, (world) => mostOfRanks(world, counts[world.rank]!));
  expect(await most).toEqual(new Array(2).fill([3, 9]));
});
