/** Adds up a part of a token's rows that are home, and writes it to the caller's tensor; a warp. */
import { device, record, registers } from '../../../lang/index.js';
import { formatOf, stretchesOf } from '../../layer/index.js';
import { mostRows } from '../common/owners.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, rowSum, scaleOf, sumRow, sumUnit, travelled } from '../common/sum.js';
import type { Portable } from './kit.js';
import { returnedParts, returnedRow } from './window.js';

/** A token's rows: the first `count` of `owners` have one, in the order of the sum. */
const rowsOfToken = ({ at: { mine } }: Portable) => record({ mine, token: 'u32', owners: registers('u32') });

export function sumPart(p: Portable) {
  const { shape } = p;
  const { partUnits } = returnedParts(shape);
  const scaled = formatOf(shape.output).rounding !== null;
  const at = rowsOfToken(p);
  return sumRow(shape, {
    at,
    sum: rowSum({
      ...travelled(shape, mostRows(shape), sumUnit(shape).values),
      ...{ scaled, at, gather: gather(p) },
    }),
    part: scaled
      ? partUnits / stretchesOf(shape.output).STRETCH
      : partUnits * (sumUnit(shape).units / returnedRow(shape).units),
  });
}

function gather(p: Portable) {
  const { shape } = p;
  return device(
    {
      params: gatherParams(rowsOfToken(p)),
      using: {
        ...{ ...p.u, VECTORS: sumUnit(shape).vectors, DTYPE: partialDtype(shape) },
        ...{ SCALED: formatOf(shape.output).rounding !== null, scaleOf: scaleOf(shape) },
      },
    },
    (g, { at: { mine, token, owners }, count, i, word, first, rows, scales }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length && first + r < count) {
          const owner = owners[first + r]!;
          // Where it came home, or where this rank's experts left it.
          let row = mine.returned.at(owner, token / u.REPLICAS, 0).as('u8');
          if (u.STAYS && owner === g.rank) row = mine.output.at(g.rank / u.REPLICAS, token, 0).as('u8');
          if (u.VECTORS) rows[r] = g.load(row.as('v16').at(i), { order: 'relaxed', scope: 'gpu' });
          else rows[r] = g.pack('f32', [g.f32(g.load(row.as(u.DTYPE).at(i))), 0, 0, 0]);
          if (u.SCALED)
            scales[r] = u.scaleOf({
              word: g.load(row.as('u32').at(word), { order: 'relaxed', scope: 'gpu' }),
            });
        }
      }
    },
  );
}
