/**
 * Weigh: where combine applies the router weights, makes the one row of a token that travels from the rows that this
 * rank's experts left for its routes: Σ weight · row in order of k, as the tree of docs/semantics.md.
 *
 * A launch of its own before combine, on its stream: a pushing combine releases the slots right at its start, and from
 * then on the next dispatch may write over the ids and weights that are read here.
 */
import { kernel, peers, pointer } from '../../lang/index.js';
import { dtypes } from '../../layer/index.js';
import type { Spread } from './knobs.js';
import { sumTree } from './tree.js';
import { type OneSidedShape, type OneSidedWindow, partialDtype } from './window.js';

export function weighKernel(shape: OneSidedShape, window: OneSidedWindow, weigh: Spread) {
  const { ranks, maxTokens, topK } = shape;
  const { dtype, hidden } = shape.output;
  const partial = partialDtype(shape);
  // Rows of whole 16-byte vectors are read as such, others element by element.
  const vectors = (hidden * dtypes[dtype].size) % 16 === 0;
  const lanes = vectors ? 16 / dtypes[dtype].size : 1;
  const units = hidden / lanes;
  const partialLanes = 16 / dtypes[partial].size;
  return kernel(
    {
      name: 'one_sided_weigh',
      maxThreads: weigh.threads,
      params: {
        win: peers(window),
        /** [slot][k][hidden]: what the experts made of each route, not weighted. */
        rows: pointer(dtype),
      },
      using: {
        ...sumTree(topK),
        K: topK,
        PIECES: ranks * maxTokens * weigh.parts,
        PARTS: weigh.parts,
        DTYPE: dtype,
        PARTIAL: partial,
        VECTORS: vectors,
        LANES: lanes,
        UNITS: units,
        PART_UNITS: Math.ceil(units / weigh.parts),
        /** Vectors of sums for each vector of a row: two where rows of 16 bits become sums of 32. */
        SUM_VECTORS: Math.max(1, lanes / partialLanes),
        SUM_LANES: partialLanes,
        NEGATIVE_ZERO: dtype === 'f32' ? 0x80000000 : 0x80008000,
        NEGATIVE_ZERO_F32: 0x80000000,
      },
    },
    (g, { win, rows }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const mine = win.at(g.rank);
      const absent = g.pack('u32', [u.NEGATIVE_ZERO, u.NEGATIVE_ZERO, u.NEGATIVE_ZERO, u.NEGATIVE_ZERO]);

      for (let piece = g.blockIdx.x; piece < u.PIECES; piece += g.gridDim.x) {
        const slot = piece / u.PARTS;
        const part = piece % u.PARTS;
        let here = false;
        if (g.laneId < u.K) here = g.load(mine.experts.at(slot * u.K + g.laneId)) >= 0;
        const routes = g.warp.ballot(here);
        if (routes !== 0) {
          const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
          for (let i = part * u.PART_UNITS + g.threadIdx.x; i < end; i += g.blockDim.x) {
            let left = routes;
            const sums = g.registers('f32', u.GROUPS * u.LANES);
            for (const group of g.unroll(u.GROUPS)) {
              // All of a group's loads before their first use. A row that is not there is -0, whose weight is 1.
              const vectors = g.registers('v16', u.GROUP, absent);
              const values = g.registers('f32', u.GROUP, g.bits('f32', u.NEGATIVE_ZERO_F32));
              const weights = g.registers('f32', u.GROUP, 1);
              for (const r of g.unroll(u.GROUP)) {
                if (group * u.GROUP + r < u.ROWS) {
                  if (left !== 0) {
                    const route = slot * u.K + g.ffs(left) - 1;
                    left &= left - 1;
                    weights[r] = g.load(mine.weights.at(route));
                    const at = route * u.UNITS + i;
                    if (u.VECTORS) vectors[r] = g.load(rows.as('v16').at(at), { cache: 'stream' });
                    else values[r] = g.f32(g.load(rows.at(at)));
                  }
                }
              }
              for (const lane of g.unroll(u.LANES)) {
                if (u.VECTORS) {
                  for (const r of g.unroll(u.GROUP)) values[r] = g.f32(g.lane(vectors[r]!, u.DTYPE, lane));
                }
                for (const r of g.unroll(u.GROUP)) values[r]! *= weights[r]!;
                for (const level of g.unroll(u.GROUP_LEVELS)) {
                  for (const r of g.unroll(u.GROUP)) {
                    if (r % (2 << level) === 0) values[r]! += values[r + (1 << level)]!;
                  }
                }
                sums[group * u.LANES + lane] = values[0]!;
              }
            }
            for (const lane of g.unroll(u.LANES)) {
              for (const level of g.unroll(u.LEVELS)) {
                for (const group of g.unroll(u.GROUPS)) {
                  if (group % (2 << level) === 0) {
                    sums[group * u.LANES + lane]! += sums[(group + (1 << level)) * u.LANES + lane]!;
                  }
                }
              }
            }
            const to = slot * u.UNITS + i;
            if (u.VECTORS) {
              for (const v of g.unroll(u.SUM_VECTORS)) {
                const total = g.registers('f32', u.SUM_LANES);
                for (const lane of g.unroll(u.SUM_LANES)) total[lane] = sums[v * u.SUM_LANES + lane]!;
                g.store(mine.output.as('v16').at(to * u.SUM_VECTORS + v), g.pack(u.PARTIAL, total));
              }
            } else {
              g.store(mine.output.as(u.PARTIAL).at(to), g.convert(u.PARTIAL, sums[0]!));
            }
          }
        }
      }
    },
  );
}
