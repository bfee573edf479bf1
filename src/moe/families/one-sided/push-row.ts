/** Rows that travel back as they are: those that experts left, or that their rows for a token's routes make. */
import { device, pointer, record } from '../../../lang/index.js';
import { dtypes, outputRowBytes } from '../../layer/index.js';
import { routeParams } from '../common/params.js';
import { inOrder, routeSum } from '../common/route-sum.js';
import type { OneSided } from './kit.js';
import { depth, partVectors, sumsRoutes } from './window.js';

/** One part of a row: from `output` of this rank to `returned` of its source. */
export const pushParams = { from: pointer('v16'), to: pointer('v16'), part: 'u32' } as const;

/** arrival.ts says why each vector is one relaxed store. */
export function pushRow({ shape, u, phases }: OneSided) {
  const units = outputRowBytes(shape) / 16;
  const partUnits = partVectors(shape);
  return device(
    {
      params: pushParams,
      using: {
        ...{ ...u, ...phases.combine },
        ...{ UNITS: units, PART_UNITS: partUnits, DEPTH: depth(partUnits, shape.combine) },
      },
    },
    (g, { from, to, part }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let base = part * u.PART_UNITS; base < end; base += u.team.threads() * u.DEPTH) {
        const row = g.registers('v16', u.DEPTH);
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * u.team.threads() + u.team.thread();
          if (i < end) row[d] = g.load(from.at(i), { cache: 'stream' });
        }
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * u.team.threads() + u.team.thread();
          const vector = u.filled({ vector: row[d]! });
          if (i < end) g.store(to.at(i), vector, { order: 'relaxed', scope: 'sys' });
        }
      }
    },
  );
}

/** One part of the row that a slot's routes make, to where its source, or this rank, adds it up. */
export function pushSum({ shape, u, phases }: OneSided) {
  return device(
    {
      params: {
        ...{ routes: record(routeParams(shape, sumsRoutes(shape))), slot: 'u32', to: pointer('v16') },
        part: 'u32',
      },
      using: {
        ...{ ...u, ...phases.combine, inOrder, LANES: 16 / dtypes[shape.output.dtype].size },
        ...{ UNITS: outputRowBytes(shape) / 16, PART_UNITS: partVectors(shape) },
        // With more rows under way, two large blocks would not fit on a multiprocessor (push.ts).
        routeSum: routeSum(shape, shape.combine.threads > 256 ? 4 : 8),
      },
    },
    (g, { routes: { made, madeRows, scatter, routeWeights }, slot, to, part }, u) => {
      let row = madeRows[0]!;
      let weight = g.f32(1);
      if (g.laneId < u.K) {
        row = g.u32(g.load(scatter[0]!.at(slot * u.K + g.laneId)));
        weight = g.load(routeWeights[0]!.at(slot * u.K + g.laneId));
      }
      const there = g.warp.ballot(row < madeRows[0]!);
      const places = g.registers('u32', u.K);
      const scales = g.registers('f32', u.K);
      u.inOrder({ routes: there, row, weight, places, scales });
      const count = g.popc(there);
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let i = part * u.PART_UNITS + u.team.thread(); i < end; i += u.team.threads()) {
        const total = g.registers('f32', u.LANES);
        u.routeSum({ at: { from: made[0]!, places, scales }, count, unit: i, i, word: 0, values: total });
        const vector = u.filled({ vector: g.pack(u.DTYPE, total) });
        g.store(to.at(i), vector, { order: 'relaxed', scope: 'sys' });
      }
    },
  );
}
