import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  combineRowBytes,
  dispatchRowBytes,
  payloadsFor,
  profiles,
  reference,
  type Shape,
  traffic,
} from '../../../src/moe/layer/index.js';
import { makeAllRoutes } from '../../../src/verify/testing/index.js';
import { ownerTable, round, runs } from '../arbitrary.js';

const v3 = (ranks: number): Shape => ({
  ranks,
  experts: profiles.deepseek_v3.experts,
  topK: profiles.deepseek_v3.topK,
  maxTokens: 512,
  payloads: payloadsFor('bf16', 7168),
  output: { dtype: 'bf16', hidden: 7168 },
});

describe('traffic', () => {
  it('counts the rows that the reference delivers', () => {
    fc.assert(
      fc.property(round(), ({ shape, routes, sources }) => {
        let rows = 0;
        let remote = 0;
        const arriving = sources.map((_, rank) => {
          const { experts } = reference.dispatch(shape, sources, rank);
          let fromOthers = 0;
          for (let slot = 0; slot < shape.ranks * shape.maxTokens; slot++) {
            const ids = experts.subarray(slot * shape.topK, (slot + 1) * shape.topK);
            if (!ids.some((id) => id >= 0)) continue;
            rows++;
            if (Math.floor(slot / shape.maxTokens) !== rank) fromOthers++;
          }
          remote += fromOthers;
          return fromOthers;
        });
        const counted = traffic(shape, routes);
        expect(counted.rows).toBe(rows);
        expect(counted.dispatch).toBe(rows * dispatchRowBytes(shape));
        expect(counted.combine).toBe(rows * combineRowBytes(shape));
        expect(counted.remote.rows).toBe(remote);
        expect(counted.remote.dispatch).toBe(remote * dispatchRowBytes(shape));
        expect(counted.arriving).toEqual(arriving);
        expect(counted.leaving.reduce((a, b) => a + b)).toBe(remote);
      }),
      runs,
    );
  });

  it('counts a row per route and phase without deduplication', () => {
    fc.assert(
      fc.property(round(), ({ shape, routes }) => {
        const owners = ownerTable(shape);
        const live = routes.flatMap(({ topkIds }, rank) =>
          [...topkIds].flatMap((id) => (owners[id] === undefined ? [] : [{ rank, owner: owners[id] }])),
        );
        const bytes = dispatchRowBytes(shape) + combineRowBytes(shape);
        const counted = traffic(shape, routes);
        expect(counted.routes).toBe(live.length);
        expect(counted.withoutDedup).toBe(live.length * bytes);
        expect(counted.remote.withoutDedup).toBe(
          live.filter(({ rank, owner }) => rank !== owner).length * bytes,
        );
        expect(counted.withoutDedup).toBeGreaterThanOrEqual(counted.dispatch + counted.combine);
      }),
      runs,
    );
  });

  it('of top-8 of 256 on 4 ranks: 3.6 ranks a token, 2.7 of them remote', () => {
    const counted = traffic(v3(4), makeAllRoutes(v3(4), 512, 1));
    expect(counted.rows / counted.tokens).toBeCloseTo(3.6, 1);
    expect(counted.remote.rows / counted.tokens).toBeCloseTo(2.7, 1);
  });

  it('counts what crosses the network once for each token and other node', () => {
    fc.assert(
      fc.property(round(), ({ shape, routes }) => {
        const apart = traffic(shape, routes, shape.ranks);
        const { rows, dispatch, combine } = apart.remote;
        expect(apart.between).toEqual({ rows, dispatch, combine });
        expect(traffic(shape, routes).between).toEqual({ rows: 0, dispatch: 0, combine: 0 });
      }),
      runs,
    );
    const of = { ...v3(4), experts: 4, topK: 3 };
    const topkIds = Int32Array.of(0, 2, 3, 2, 3, -1, 0, 1, -1);
    const routes = [0, 1, 2, 3].map((rank) => ({ tokens: rank === 0 ? 3 : 0, topkIds }));
    // The first token and the second go to node 1, each once.
    expect(traffic(of, routes, 2).between.rows).toBe(2);
    expect(() => traffic(of, routes, 3)).toThrow('nodes is 3; it must be a divisor of 4');
  });

  it('of top-8 of 256 on 16 ranks of 2 nodes: a row a token between them', () => {
    const { between, tokens } = traffic(v3(16), makeAllRoutes(v3(16), 128, 1), 2);
    expect(between.rows / tokens).toBeGreaterThan(0.98);
    expect(between.rows / tokens).toBeLessThanOrEqual(1);
  });

  it('of the balanced router reaches every rank with every token', () => {
    const routes = makeAllRoutes(v3(8), 16, 1, { router: { kind: 'balanced' } });
    expect(traffic(v3(8), routes).rows).toBe(8 * 16 * 8);
  });

  it('of rows as e4m3 counts a scale for every 128 elements', () => {
    expect(combineRowBytes({ output: { dtype: 'bf16', hidden: 7168, combineFormat: 'e4m3' } })).toBe(
      7168 + 56 * 4,
    );
    expect(combineRowBytes({ output: { dtype: 'bf16', hidden: 130, combineFormat: 'e4m3' } })).toBe(130 + 8);
  });

  it('of rows as mxfp8 counts a scale for every 32 elements, four to a word', () => {
    expect(combineRowBytes({ output: { dtype: 'bf16', hidden: 7168, combineFormat: 'mxfp8' } })).toBe(
      7168 + 224,
    );
    expect(combineRowBytes({ output: { dtype: 'f32', hidden: 130 } })).toBe(520);
  });
});
