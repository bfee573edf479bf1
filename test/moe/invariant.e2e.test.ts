/** A token's bits are the same in every batch: on every number of ranks, wherever its experts live. */
import { describe, expect, test } from 'vitest';
import { MoeLayer } from '../../src/moe/index.js';
import type { MoeModel } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { makeSources, runRounds, shapeOfRounds } from '../../src/verify/testing/index.js';
import { batchesOf, bitsOfTokens } from './batches.js';
import { makeLayer } from './whole-layer.js';

const model: MoeModel = {
  ...{ hidden: 128, experts: 12, topK: 4, inner: 128, sharedInner: 128 },
  routing: { scores: 'sigmoid', normalise: true, scale: 2.5 },
};
const all = 10;

describe.each(['bf16', 'fp8', 'mxfp4'] as const)('a layer with weights of %s', (dtype) => {
  const inputs = makeLayer(model, [all], 5, dtype);
  const rows = dtype === 'fp8' ? dtype : 'bf16';
  const how = { rows, invariant: true } as const;
  const together = bitsOfTokens(inputs, { tokens: [Array.from({ length: all }, (_, t) => t)], ...how });

  test.each(Object.entries(batchesOf(model, all, dtype === 'bf16' ? 8 : 2)))('%s', async (_, batch) => {
    const expected = await together;
    for (const [token, bits] of await bitsOfTokens(inputs, { ...batch, ...how }))
      expect(bits, `token ${token}`).toEqual(expected.get(token));
  });

  test('and it is not so by itself', async () => {
    const { tokens } = batchesOf(model, all, 4)['on 4 ranks']!;
    const expected = await together;
    const usual = await bitsOfTokens(inputs, { tokens, rows });
    const differs = [...usual].filter(([token, bits]) => `${bits}` !== `${expected.get(token)}`);
    expect(differs.length).toBeGreaterThan(0);
  });
});

test('every routing of two tokens to two experts, on one rank and on two', async () => {
  const shapeOf = (ranks: number) =>
    shapeOfRounds({
      ...{ ranks, experts: 2, topK: 2, maxTokens: 2, hidden: 8, dtype: 'bf16', weighting: 'source' },
    });
  const ids = [-1, 0, 1];
  const routes = ids.flatMap((a) => ids.map((b) => [a, b] as const));
  const [{ payloads, topkWeights }] = makeSources(shapeOf(1), 2, 9) as [ReturnType<typeof makeSources>[0]];
  /** Tokens with these routes, the same two in either order. */
  const source = (order: readonly number[], of: readonly (readonly number[])[]) => ({
    tokens: order.length,
    topkIds: Int32Array.from(order.flatMap((t) => of[t]!)),
    topkWeights: Float32Array.from(order.flatMap((t) => [...topkWeights!.subarray(2 * t, 2 * t + 2)])),
    payloads: { x: Uint8Array.from(order.flatMap((t) => [...payloads.x!.subarray(16 * t, 16 * t + 16)])) },
  });
  const run = async (ranks: number, rounds: ReturnType<typeof source>[][]) =>
    (await World.local({ ranks, device: 'sim' }, (world) => runRounds(world, shapeOf(ranks), rounds))).map(
      ({ out }) => out.map((bits) => [...bits!]),
    );
  // Alone: token t with routes n is round 9 · t + n.
  const [alone] = await run(
    1,
    [0, 1].flatMap((t) => routes.map((own) => [source([t], [own, own])])),
  );
  const pairs = routes.flatMap((_, m) => routes.map((_, n) => [m, n] as const));
  const [first, second] = await run(
    2,
    pairs.map(([m, n]) => {
      const of = [routes[m]!, routes[n]!];
      return [source([0, 1], of), source([1, 0], of)];
    }),
  );
  for (const [round, [m, n]] of pairs.entries()) {
    const expected = [alone![m]!, alone![9 + n]!];
    expect(first![round], `routes ${routes[m]} and ${routes[n]}`).toEqual(expected.flat());
    expect(second![round], `routes ${routes[n]} and ${routes[m]}`).toEqual(expected.toReversed().flat());
  }
  expect(new Set(alone!.map(String)).size).toBeGreaterThan(12);
});

test.each([
  [
    { family: 'portable' },
    'family is "portable"; it must be \'one-sided\' or left out, because the layer is invariant',
  ],
  [{ family: 'hybrid' }, 'because the layer is invariant'],
  [{ gemm: 'cublas' as const }, "it must be 'heddle', because the layer is invariant"],
])('%j is refused', (change, message) => {
  expect(() => MoeLayer.memory({ model, maxTokens: 4, ranks: 2, invariant: true, ...change })).toThrow(
    message,
  );
});
