import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Bits,
  dequantise,
  expertsOf,
  fromF32,
  quantise,
  reference,
  type Shape,
  type Source,
  toF32,
} from '../../../src/moe/layer/index.js';
import { outputsOf, ownerTable, type Round, round, runs } from '../arbitrary.js';

/** Every route that names an expert, as one flat list: the dumbest picture of a round. */
interface Route {
  readonly source: number;
  readonly token: number;
  readonly k: number;
  readonly expert: number;
  readonly owner: number;
  readonly weight: number;
}

function routesOf({ shape, sources }: Round): Route[] {
  const owners = ownerTable(shape);
  return sources.flatMap((source, from) =>
    Array.from(source.topkIds, (expert, i) => ({
      source: from,
      token: Math.floor(i / shape.topK),
      k: i % shape.topK,
      expert,
      owner: owners[expert] ?? -1,
      weight: source.topkWeights![i]!,
    })).filter((route) => route.owner >= 0),
  );
}

const routesOfToken = (round: Round, source: number, token: number): Route[] =>
  routesOf(round).filter((route) => route.source === source && route.token === token);

it('dispatch puts every route and its rows in its one place, −1 and 0 everywhere else, and counts it', () => {
  fc.assert(
    fc.property(round(), (round) => {
      const { shape, sources } = round;
      const received = sources.map((_, rank) => reference.dispatch(shape, sources, rank));
      const routes = routesOf(round);
      for (const { source, token, k, expert, owner, weight } of routes) {
        const slot = source * shape.maxTokens + token;
        const { experts, weights, payloads } = received[owner]!;
        expect(experts[slot * shape.topK + k]).toBe(expert);
        expect(weights[slot * shape.topK + k]).toBe(weight);
        for (const { name, rowBytes } of shape.payloads)
          expect(payloads[name]!.subarray(slot * rowBytes, (slot + 1) * rowBytes)).toEqual(
            sources[source]!.payloads[name]!.subarray(token * rowBytes, (token + 1) * rowBytes),
          );
      }
      // Conservation: nothing else is anywhere.
      const places = received.flatMap(({ experts }) => [...experts]).filter((id) => id !== -1);
      expect(places).toHaveLength(routes.length);
      const weights = received.flatMap(({ weights }) => [...weights]).filter((weight) => weight !== 0);
      expect(weights).toHaveLength(routes.filter(({ weight }) => weight !== 0).length);
      for (const [rank, { counts }] of received.entries()) {
        const { first, count } = expertsOf(shape, rank);
        const countOf = (id: number) => routes.filter(({ expert }) => expert === id).length;
        expect([...counts]).toEqual(Array.from({ length: count }, (_, i) => countOf(first + i)));
      }
    }),
    runs,
  );
});

describe('combine', () => {
  /** One element of one token's result, scalar by scalar, from the flat list of routes. */
  function element(round: Round, outputs: readonly Bits[], source: number, token: number, i: number): number {
    const { shape } = round;
    const { dtype, hidden, weighting } = shape.output;
    const mine = routesOfToken(round, source, token);
    const slot = source * shape.maxTokens + token;
    const at = (owner: number, row: number) =>
      toF32(dtype, outputs[owner]!.subarray(row * hidden + i, row * hidden + i + 1))[0]!;
    const partials = [...new Set(mine.map(({ owner }) => owner))].map((owner) => {
      if (weighting !== 'plan') return at(owner, slot);
      const products = mine
        .filter((route) => route.owner === owner)
        .map(({ k, weight }) => Math.fround(at(owner, slot * shape.topK + k) * weight));
      return toF32(dtype, fromF32(dtype, Float32Array.of(tree(products))))[0]!;
    });
    return fromF32(dtype, Float32Array.of(tree(partials)))[0]!;
  }

  /** Rows of slots, or of routes where combine weighs, that did not arrive hold NaN. */
  function poison({ shape, sources }: Round, outputs: readonly Bits[]): void {
    const { dtype, hidden, weighting } = shape.output;
    const [nan] = fromF32(dtype, Float32Array.of(Number.NaN));
    for (const [rank, plane] of outputs.entries()) {
      const { experts } = reference.dispatch(shape, sources, rank);
      const routes = weighting === 'plan' ? 1 : shape.topK;
      for (let row = 0; row * routes < experts.length; row++)
        if (experts.subarray(row * routes, (row + 1) * routes).every((id) => id < 0))
          plane.fill(nan!, row * hidden, (row + 1) * hidden);
    }
  }

  function tree(values: readonly number[]): number {
    if (values.length < 2) return values[0] ?? 0;
    let left = 1;
    while (left * 2 < values.length) left *= 2;
    return Math.fround(tree(values.slice(0, left)) + tree(values.slice(left)));
  }

  it.each([
    { dtype: 'f32', weighting: 'experts' },
    { dtype: 'bf16', weighting: 'experts' },
    { dtype: 'f16', weighting: 'experts' },
    { dtype: 'f32', weighting: 'plan' },
    { dtype: 'bf16', weighting: 'plan' },
  ] as const)(
    'sums what arrived over distinct ranks as a tree, and rounds once ($dtype, weights by $weighting)',
    (output) => {
      fc.assert(
        fc.property(round(output), (round) => {
          const { shape, sources, seed } = round;
          const outputs = outputsOf(shape, seed, output.weighting === 'plan' ? shape.topK : 1);
          poison(round, outputs);
          for (const [rank, source] of sources.entries()) {
            const result = reference.combine(shape, source, rank, outputs);
            expect(result).toHaveLength(source.tokens * shape.output.hidden);
            for (let token = 0; token < source.tokens; token++) {
              for (const i of new Set([0, shape.output.hidden - 1])) {
                expect(result[token * shape.output.hidden + i]).toBe(element(round, outputs, rank, token, i));
              }
            }
          }
        }),
        runs,
      );
    },
  );

  it.each(['experts', 'plan'] as const)(
    'with rows as e4m3 strays from the exact sum by at most Σ amax/17 and the rounding of f32 (weights by %s)',
    (weighting) => {
      fc.assert(
        fc.property(round({ weighting, combineFormat: 'e4m3' }), (round) => {
          const { shape, sources, seed } = round;
          const { hidden } = shape.output;
          const outputs = outputsOf(shape, seed, weighting === 'plan' ? shape.topK : 1);
          const exact: Shape = { ...shape, output: { ...shape.output, combineFormat: 'rows' } };
          for (const [rank, source] of sources.entries()) {
            const low = reference.combine(shape, source, rank, outputs);
            const high = reference.combine(exact, source, rank, outputs);
            for (let token = 0; token < source.tokens; token++) {
              for (let i = 0; i < hidden; i += 37) {
                const block = Math.floor(i / 128) * 128;
                // |x| < 4 in the test's rows, so amax of a rank's partial row is found the plain way.
                let allowed = 0;
                for (const owner of new Set(routesOfToken(round, rank, token).map(({ owner }) => owner))) {
                  const partial = partialOf(exact, source, rank, token, owner, outputs);
                  const amax = Math.max(...partial.subarray(block, block + 128).map(Math.abs));
                  allowed += amax / 17 + amax * 2 ** -20;
                }
                const at = token * hidden + i;
                expect(Math.abs(low[at]! - high[at]!)).toBeLessThanOrEqual(allowed);
              }
            }
          }
        }),
        { ...runs, numRuns: 30 },
      );
    },
  );

  /** The partial row of one owner: what combine returns when the token's other routes are holes. */
  function partialOf(
    shape: Shape,
    source: Source,
    rank: number,
    token: number,
    owner: number,
    outputs: readonly Bits[],
  ): Float32Array {
    const { first, count } = expertsOf(shape, owner);
    const topkIds = source.topkIds.map((id) => (id >= first && id < first + count ? id : -1));
    const result = reference.combine(shape, { ...source, topkIds }, rank, outputs) as Float32Array;
    return result.subarray(token * shape.output.hidden, (token + 1) * shape.output.hidden);
  }

  it('quantises rows that stay at home as well: one rank alone shows the error', () => {
    const shape: Shape = {
      ranks: 1,
      experts: 1,
      topK: 1,
      maxTokens: 1,
      payloads: [],
      output: { dtype: 'f32', hidden: 2, combineFormat: 'e4m3' },
    };
    const source: Source = { tokens: 1, topkIds: Int32Array.of(0), payloads: {} };
    const row = Float32Array.of(1, 0.3);
    expect(reference.combine(shape, source, 0, [row])).toEqual(dequantise(quantise(row)));
    expect(reference.combine(shape, source, 0, [row])).not.toEqual(row);
  });
});

it('ranks of a group bring the same weights, or all of them none', () => {
  const shape: Shape = {
    ...{ ranks: 2, experts: 2, topK: 1, maxTokens: 2, replicas: 2, payloads: [] },
    output: { dtype: 'f32', hidden: 1, weighting: 'plan' },
  };
  const without: Source = { tokens: 1, topkIds: Int32Array.of(0), payloads: {} };
  const weighted: Source = { ...without, topkWeights: Float32Array.of(0.5) };
  for (const sources of [
    [weighted, without],
    [without, weighted],
  ])
    expect(() => reference.dispatch(shape, sources, 0)).toThrow(
      /sources\[1\] is .* must be what rank 0 brings/,
    );
  expect(reference.dispatch(shape, [weighted, { ...weighted }], 0).weights[0]).toBe(0.5);
});

it('combine refuses nodes that ranks cannot share evenly, as traffic does', () => {
  const shape: Shape = {
    ...{ ranks: 4, experts: 4, topK: 1, maxTokens: 1, payloads: [] },
    output: { dtype: 'f32', hidden: 1 },
  };
  const source: Source = { tokens: 1, topkIds: Int32Array.of(0), payloads: {} };
  const outputs = new Array<Float32Array>(4).fill(new Float32Array(4));
  const combined = (nodes: number) => reference.combine(shape, source, 0, outputs, nodes);
  expect([...combined(2)]).toEqual([0]);
  expect(() => combined(3)).toThrow(/^nodes is 3; it must be a divisor of 4, the number of ranks/);
});
