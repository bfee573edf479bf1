/**
 * Sums of a combine that pulls with few, big blocks. A token's rows come to shared memory by copies that hold no registers, while those of the
 * token before are added up: so a multiprocessor always has loads under way. Each thread has places of its own, so nobody meets.
 */
import { device, pointer } from '../../../lang/index.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { negativeZeros, treeSum } from '../common/sum.js';
import type { OneSided } from './kit.js';
import { teamSize } from './team.js';

/** The numbers of two halves of a block's memory; no vectors where sums do not go this way. */
export function halvesOf({ shape, u }: OneSided) {
  const { combine } = shape;
  const { vectors, lanes, units } = rowsOf(shape, partialDtype(shape));
  const each = units / teamSize(combine);
  const vectorsOfBoth = 2 * each * u.ROWS * combine.threads;
  const fits = combine.teams > 1 && combine.parts === 1 && !u.SHARES && 16 * vectorsOfBoth <= shape.room;
  const halved = vectors && Number.isInteger(each) && fits;
  return {
    ...{ BOTH: halved ? vectorsOfBoth : 0, EACH: halved ? each : 0, UNITS: units, LANES: lanes },
    THREADS: combine.threads,
  };
}

/** A half of the memory, and whose rows it has. */
const ofHalf = { both: pointer('v16'), half: 'u32', token: 'u32' } as const;

/** Asks for this thread's vectors of a token's rows; returns how many rows there are. */
export const askForRows = (o: OneSided) =>
  device(
    {
      params: { win: o.at.win, ...ofHalf, id: 'i32' },
      returns: 'u32',
      using: { ...o.u, ...o.phases.combine, ...halvesOf(o) },
    },
    (g, { win, both, half, token, id }, u) => {
      const owners = g.registers('u32', u.ROWS);
      const count = u.findOwners({ expert: id, owners });
      for (const w of g.unroll(u.EACH)) {
        const i = u.team.thread() + w * u.team.threads();
        for (const r of g.unroll(u.ROWS)) {
          const place = both.at(((half * u.EACH + w) * u.ROWS + r) * u.THREADS + g.threadIdx.x);
          if (r < count)
            g.async.load(
              place,
              win
                .at(owners[r]!)
                .output.at(g.rank / u.REPLICAS, token, i)
                .as('v16'),
            );
        }
      }
      return count;
    },
  );

/** Adds up what came. */
export const addRows = (o: OneSided) =>
  device(
    {
      params: { ...ofHalf, count: 'u32', out: pointer(o.shape.output.dtype) },
      using: {
        ...{ ...o.u, ...o.phases.combine, ...halvesOf(o), treeSum },
        NEGATIVE_ZEROS: negativeZeros[o.shape.output.dtype],
      },
    },
    (g, { both, half, token, count, out }, u) => {
      // As in `rowSum`: −0 stands for rows that a token has not.
      const nothing = g.u32(count === 0 ? 0 : u.NEGATIVE_ZEROS);
      for (const w of g.unroll(u.EACH)) {
        const rows = g.registers('v16', u.ROWS, g.pack('u32', [nothing, nothing, nothing, nothing]));
        for (const r of g.unroll(u.ROWS)) {
          if (r < count)
            rows[r] = g.load(both.at(((half * u.EACH + w) * u.ROWS + r) * u.THREADS + g.threadIdx.x));
        }
        const total = g.registers('f32', u.LANES);
        for (const lane of g.unroll(u.LANES)) {
          const values = g.registers('f32', u.ROWS);
          for (const r of g.unroll(u.ROWS)) values[r] = g.f32(g.lane(rows[r]!, u.DTYPE, lane));
          total[lane] = u.treeSum({ values });
        }
        const to = token * u.UNITS + u.team.thread() + w * u.team.threads();
        u.storeSum({ to: out.as('v16').at(to), vector: g.pack(u.DTYPE, total) });
      }
    },
  );
