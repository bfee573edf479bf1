import fc from 'fast-check';
import type { Bits, Output, Shape, Source } from '../../src/moe/layer/index.js';
import {
  makeAllRoutes,
  type RouterLaw,
  type Routes,
  randomBytes,
  randomElements,
} from '../../src/verify/testing/index.js';

/** Fixed seed and few runs: the same cases every time, in a second or two. */
export const runs = { seed: 20_26, numRuns: 60 };

const router: fc.Arbitrary<RouterLaw> = fc.oneof(
  fc.constant<RouterLaw>({ kind: 'uniform' }),
  fc.constant<RouterLaw>({ kind: 'balanced' }),
  fc.constant<RouterLaw>({ kind: 'remote' }),
  fc.constant<RouterLaw>({ kind: 'repeated' }),
  fc.constant<RouterLaw>({ kind: 'one-rank', target: 0 }),
  fc.constant<RouterLaw>({ kind: 'zipf', exponent: 1 }),
);

/** A round: a shape, each rank's routes (uneven, some empty, with holes and ids out of range) and payload rows. */
export interface Round {
  readonly shape: Shape;
  readonly routes: readonly Routes[];
  readonly sources: readonly Source[];
  readonly seed: number;
}

export function round(output: Partial<Output> = {}): fc.Arbitrary<Round> {
  return fc
    .record({
      ranks: fc.integer({ min: 1, max: 9 }),
      experts: fc.integer({ min: 1, max: 40 }),
      topK: fc.integer({ min: 1, max: 9 }),
      maxTokens: fc.integer({ min: 1, max: 6 }),
      hidden: fc.integer({ min: 1, max: 150 }),
      rowBytes: fc.array(fc.integer({ min: 1, max: 33 }), { maxLength: 3 }),
      router,
      holes: fc.constantFrom(0, 0.3, 1),
      seed: fc.integer({ min: 0, max: 2 ** 31 }),
      stray: fc.constantFrom(undefined, -7, 40, 2 ** 31 - 1, -(2 ** 31)),
    })
    .map(({ hidden, rowBytes, router, holes, seed, stray, ...sizes }) => {
      const shape: Shape = {
        ...sizes,
        topK: Math.min(sizes.topK, sizes.experts),
        payloads: rowBytes.map((bytes, i) => ({ name: `p${i}`, rowBytes: bytes })),
        output: { dtype: 'f32', hidden, ...output },
      };
      // Rank r brings seed-dependent numbers of tokens, 0 … maxTokens.
      const tokens = Array.from({ length: shape.ranks }, (_, r) => (seed + r * 3) % (shape.maxTokens + 1));
      const routes = makeAllRoutes(shape, tokens, seed, { router, holes });
      for (const { topkIds } of routes) if (stray !== undefined && topkIds.length > 0) topkIds[0] = stray;
      return { shape, routes, sources: sourcesOf(shape, routes, seed), seed };
    });
}

export function sourcesOf(shape: Shape, routes: readonly Routes[], seed: number): Source[] {
  return routes.map(({ tokens, topkIds, topkWeights }, rank) => ({
    tokens,
    topkIds,
    topkWeights,
    payloads: Object.fromEntries(
      shape.payloads.map(({ name, rowBytes }, i) => [
        name,
        randomBytes(tokens * rowBytes, seed + rank * 8 + i),
      ]),
    ),
  }));
}

/** Expert outputs of every rank: random rows in every slot, magnitudes far apart so that wrong orders show. */
export function outputsOf(shape: Shape, seed: number, rowsPerSlot = 1): Bits[] {
  const { dtype, hidden } = shape.output;
  const count = shape.ranks * shape.maxTokens * rowsPerSlot * hidden;
  return Array.from({ length: shape.ranks }, (_, rank) => randomElements(dtype, count, seed + rank, 12));
}

/** Who owns what, as a plain table: experts dealt out in order, the first ranks one more each. */
export function ownerTable(shape: Pick<Shape, 'ranks' | 'experts'>): number[] {
  const table: number[] = [];
  for (let rank = 0; rank < shape.ranks; rank++) {
    let share = 0;
    for (let expert = rank; expert < shape.experts; expert += shape.ranks) share++;
    for (; share > 0; share--) table.push(rank);
  }
  return table;
}
