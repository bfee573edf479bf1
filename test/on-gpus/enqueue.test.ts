/** Calls that only enqueue wait for nothing: behind a kernel that waits, each returns within a millisecond. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { probe } from '../../src/base/native/index.js';
import type { WireSide } from '../../src/gpu/index.js';
import { World } from '../../src/net/world/index.js';
import { copyWires, wiresRefused } from './copied-wires.js';
import { timesOfLayer, timesOfRounds } from './enqueue.js';
import { keepAwakeBetween, needs, runRanks } from './machine.js';

keepAwakeBetween();

type Times = ReadonlyMap<string, number>;

function requireQuick(ranks: readonly Times[]): void {
  const calls = ranks.flatMap((times) => [...times]);
  assert.ok(calls.length > 0);
  const slow = calls.filter(([, ms]) => ms >= 1);
  assert.deepEqual(new Set(slow.map(([call, ms]) => `${call}: ${ms.toFixed(1)} ms`)), new Set());
}

/** Two GPUs that are two nodes where messages lie somewhere. */
function onTwo(run: (world: World) => Promise<Times>, side?: WireSide): Promise<Times[]> {
  const ends: Parameters<typeof copyWires>[1] = [];
  const options = { ranks: 2, device: 'cuda', timeoutMs: 15_000, ...(side && { nodes: 2 }) } as const;
  return World.local(options, (world) => {
    if (side) copyWires(world, ends, side);
    return run(world);
  });
}

const places = [
  { families: ['one-sided', 'portable'] },
  { families: ['hybrid'], side: 'host' },
  { families: ['hybrid'], side: 'gpu' },
] as const;

for (const place of places) {
  const side = 'side' in place ? place.side : undefined;
  const where = side ? `2 nodes, messages in memory of the ${side}` : 'one node';
  const options = { ...needs(2), ...(side === 'gpu' && wiresRefused && { skip: wiresRefused }) };
  describe(`behind a kernel that waits, on ${where}`, options, () => {
    for (const family of place.families) {
      for (const split of [false, true]) {
        test(`${family}: ${split ? 'halves' : 'whole phases'}`, { timeout: 30_000 }, async () => {
          requireQuick(await onTwo((world) => timesOfRounds(world, { family, split }), side));
        });
      }
      test(`${family}: a layer`, { timeout: 30_000 }, async () => {
        requireQuick(await onTwo((world) => timesOfLayer(world, { family }), side));
      });
    }
  });
}

describe('behind a kernel that waits', needs(2), () => {
  test('a layer in two chunks', { timeout: 30_000 }, async () => {
    requireQuick(await onTwo((world) => timesOfLayer(world, { rounds: 2, chunks: 2 })));
  });

  test('a layer by cuBLAS', { timeout: 30_000 }, async () => {
    requireQuick(await onTwo((world) => timesOfLayer(world, { gemm: 'cublas' })));
  });

  const skip = probe(['libnvshmem_host.so.3']).ok ? false : 'needs libnvshmem_host.so.3';
  test('portable over NVSHMEM', { timeout: 60_000, skip }, async () => {
    const { result, reports, stderr } = await runRanks<[string, number][]>(2, 'enqueue-rank.js', [], 50_000);
    assert.equal(result.exitCode, 0, stderr);
    requireQuick(reports.map((times) => new Map(times)));
  });
});
