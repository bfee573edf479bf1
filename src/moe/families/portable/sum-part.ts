/** Adds up a part of a token's rows that are home, and writes it to the caller's tensor; a warp. */
import { device, record, registers, windowOf } from '../../../lang/index.js';
import { formatOf, sharing, stretchesOf } from '../../layer/index.js';
import { partialDtype } from '../common/received.js';
import { gatherParams, rowSum, scaleOf, sumParams, sumRow, sumUnit, travelled } from '../common/sum.js';
import { ownStays, type PortableShape, type PortableWindow, returnedParts, returnedRow } from './window.js';

/** A token's rows: the first `count` of `owners` have one, in the order of the sum. */
const rowsOfToken = (window: PortableWindow) =>
  record({ mine: windowOf(window), token: 'u32', owners: registers('u32'), count: 'u32' });

/** Likewise, and where a lane's unit of them lies, and its word of scales. */
const placeOf = (window: PortableWindow) =>
  record({
    mine: windowOf(window),
    token: 'u32',
    i: 'u32',
    word: 'u32',
    owners: registers('u32'),
    count: 'u32',
  });

export function sumPart(shape: PortableShape, window: PortableWindow) {
  const { partUnits } = returnedParts(shape);
  const asTheyLie = formatOf(shape.output).rounding === null;
  return sumRow(shape, {
    at: rowsOfToken(window),
    sum: sumOfUnit(shape, window),
    part: asTheyLie
      ? partUnits * (sumUnit(shape).units / returnedRow(shape).units)
      : partUnits / stretchesOf(shape.output).STRETCH,
  });
}

function sumOfUnit(shape: PortableShape, window: PortableWindow) {
  const { values } = sumUnit(shape);
  const rows = Math.min(shape.topK, shape.ranks);
  return device(
    {
      params: sumParams(rowsOfToken(window), values),
      using: {
        rowSum: rowSum({
          ...travelled(shape, rows, values),
          scaled: formatOf(shape.output).rounding !== null,
          at: placeOf(window),
          gather: gather(shape, window),
        }),
      },
    },
    (_, { at: { mine, token, owners, count }, i, word, values }, { rowSum }) =>
      rowSum({ at: { mine, token, i, word, owners, count }, count, total: values }),
  );
}

function gather(shape: PortableShape, window: PortableWindow) {
  return device(
    {
      params: gatherParams(placeOf(window)),
      using: {
        VECTORS: sumUnit(shape).vectors,
        DTYPE: partialDtype(shape),
        SCALED: formatOf(shape.output).rounding !== null,
        scaleOf: scaleOf(shape),
        REPLICAS: sharing(shape).replicas,
        STAYS: ownStays(shape),
      },
    },
    (g, { at: { mine, token, i, word, owners, count }, first, rows, scales }, u) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const owner = owners[first + r]!;
            // Where it came home, or where this rank's experts left it.
            let row = mine.returned.at(owner, token / u.REPLICAS, 0).as('u8');
            if (u.STAYS) {
              if (owner === g.rank) row = mine.output.at(g.rank / u.REPLICAS, token, 0).as('u8');
            }
            if (u.VECTORS) rows[r] = g.load(row.as('v16').at(i), { order: 'relaxed', scope: 'gpu' });
            else rows[r] = g.pack('f32', [g.f32(g.load(row.as(u.DTYPE).at(i))), 0, 0, 0]);
            if (u.SCALED)
              scales[r] = u.scaleOf({
                word: g.load(row.as('u32').at(word), { order: 'relaxed', scope: 'gpu' }),
              });
          }
        }
      }
    },
  );
}
