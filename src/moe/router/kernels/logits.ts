/**
 * Logits: the products of tokens' rows with the router's rows of experts, in f32. A block makes a small tile of them, its
 * warps a part of the elements each, so that one token keeps as many blocks busy as there are tiles of experts.
 */
import { device, kernel, pointer, registers } from '../../../lang/index.js';
import { type RouterShape, tile } from './shape.js';

export function logitsKernel({ hidden, experts, weights: dtype }: RouterShape, threads: number) {
  const [rows, columns] = [tile.tokens, tile.experts];
  return kernel(
    {
      name: 'router_logits',
      maxThreads: threads,
      params: {
        /** [token][element] */
        x: pointer('bf16'),
        /** [expert][element] */
        weights: pointer(dtype),
        /** [token][expert] */
        logits: pointer('f32'),
        tokens: 'u32',
      },
      using: {
        EXPERTS: experts,
        UNITS: hidden / 8,
        WARPS: threads / 32,
        ROWS: rows,
        COLUMNS: columns,
        SUMS: rows * columns,
        TILES: Math.ceil(experts / columns),
        eightOf: eightOf(dtype),
        addUp,
      },
    },
    (g, { x, weights, logits, tokens }, u) => {
      // It waits for nothing: it is no programmatic launch (moe/router.ts), so it begins when all before it has ended.
      g.releaseNext();
      const parts = g.shared('f32', u.WARPS * u.SUMS);
      const tiles = ((tokens + u.ROWS - 1) / u.ROWS) * u.TILES;
      for (let at = g.blockIdx.x; at < tiles; at += g.gridDim.x) {
        const token = (at / u.TILES) * u.ROWS;
        const expert = (at % u.TILES) * u.COLUMNS;
        const sums = g.registers('f32', u.SUMS);
        for (let i = g.threadIdx.x; i < u.UNITS; i += g.blockDim.x) {
          const some = g.registers('v16', u.ROWS);
          for (const t of g.unroll(u.ROWS)) {
            const row = g.min(token + t, tokens - 1); // beyond the last one: its products are not kept
            some[t] = g.load(x.as('v16').at(row * u.UNITS + i));
          }
          for (const e of g.unroll(u.COLUMNS)) {
            const by = g.registers('f32', 8);
            const row = g.min(expert + e, g.u32(u.EXPERTS - 1));
            u.eightOf({ weights, at: row * u.UNITS + i, values: by });
            for (const t of g.unroll(u.ROWS)) {
              for (const lane of g.unroll(8)) {
                const value = g.f32(g.lane(some[t]!, 'bf16', lane));
                sums[t * u.COLUMNS + e] = g.fma(value, by[lane]!, sums[t * u.COLUMNS + e]!);
              }
            }
          }
        }
        u.addUp({ sums });
        g.store(parts.at(g.threadIdx.x), sums[0]!);
        g.barrier();
        const t = token + g.laneId / u.COLUMNS;
        const e = expert + (g.laneId % u.COLUMNS);
        if (g.warpId === 0 && t < tokens && e < u.EXPERTS) {
          let sum = g.f32(0);
          for (const w of g.unroll(u.WARPS)) sum += g.load(parts.at(w * u.SUMS + g.laneId));
          g.store(logits.at(t * u.EXPERTS + e), sum);
        }
        g.barrier();
      }
    },
  );
}

/** Eight weights from vector `at` on, as f32. */
const eightOf = (dtype: RouterShape['weights']) =>
  device(
    {
      name: 'eight_of',
      params: { weights: pointer(dtype), at: 'u32', values: registers('f32', 8) },
      using: { WIDE: dtype === 'f32' },
    },
    (g, { weights, at, values }, u) => {
      if (u.WIDE) {
        for (const half of g.unroll(2)) {
          const vector = g.load(weights.as('v16').at(at * 2 + half));
          for (const lane of g.unroll(4)) values[half * 4 + lane] = g.lane(vector, 'f32', lane);
        }
      } else {
        const vector = g.load(weights.as('v16').at(at));
        for (const lane of g.unroll(8)) values[lane] = g.f32(g.lane(vector, 'bf16', lane));
      }
    },
  );

/** Leaves lane n sum n of the whole warp: each step halves what a lane still has to do with. */
const addUp = device({ name: 'add_up', params: { sums: registers('f32', 32) } }, (g, { sums }) => {
  for (const step of g.unroll(5)) {
    const width = 16 >> step;
    const upper = (g.laneId & width) !== 0;
    for (const n of g.unroll(width)) {
      const theirs = g.select(upper, sums[n]!, sums[n + width]!);
      sums[n] = g.select(upper, sums[n + width]!, sums[n]!) + g.warp.shuffleXor(theirs, g.u32(width));
    }
  }
});
