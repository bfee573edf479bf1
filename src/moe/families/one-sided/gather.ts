/** Where the partial rows of a sum come from: the peers' `output`, or this rank's `returned`. */
import { constant, device, record, registers } from '../../../lang/index.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { gatherParams } from '../common/sum.js';
import type { OneSided } from './kit.js';

/** A token, and who has rows of it. */
export const placeOf = ({ at: { win } }: OneSided) =>
  record({
    win,
    token: 'u32',
    /** The first `count` are this token's, in the order of the sum; k + 32 · owner of route k where all routes return. */
    owners: registers('u32'),
    epoch: 'u32',
    patience: registers('u32', 1),
  });

/** Rows of this rank's tokens, from the peers' `output` and its own. */
export const gatherPulled = (o: OneSided) =>
  device(
    { params: gatherParams(placeOf(o)), using: { look: lookPulled(o) } },
    (_, { at, count, i, first, rows }, { look }) =>
      look({ at, count, i, first, base: 0, held: rows.length, rows }),
  );

/** This rank's own rows from `output`, unless they return; the others' from `returned`, as they come. */
export const gatherPushed = (o: OneSided) =>
  device(
    { params: gatherParams(placeOf(o)), using: { look: lookPushed(o), settle: settlePushed(o) } },
    (_, { at, count, i, first, rows }, u) => {
      u.look({ at, count, i, first, base: 0, held: rows.length, rows });
      u.settle({ at, count, i, first, base: 0, held: rows.length, rows });
    },
  );

/** Rows `first`, the next … of a sum, which `rows` holds from `base` on. */
const heldParams = (o: OneSided) => ({
  at: placeOf(o),
  count: 'u32' as const,
  /** The position in the row, in vectors; in values if the row is not made of whole vectors. */
  i: 'u32' as const,
  first: constant(),
  base: constant(),
  held: constant(),
  rows: registers('v16'),
});

/** Loads from the peers. Not by 'stream': loads from a peer that do not allocate in L1 reach half the bandwidth. */
export const lookPulled = (o: OneSided) =>
  device(
    { params: heldParams(o), using: { ...o.u, VECTORS: rowsOf(o.shape, partialDtype(o.shape)).vectors } },
    (g, { at: { win, token, owners }, count, i, first, base, held, rows }, { REPLICAS, VECTORS, DTYPE }) => {
      for (const r of g.unroll(held)) {
        if (first + r < owners.length && first + r < count) {
          const there = win.at(owners[first + r]!).output.at(g.rank / REPLICAS, token, i);
          if (VECTORS) rows[base + r] = g.load(there.as('v16'));
          else rows[base + r] = g.pack('f32', [g.f32(g.load(there.as(DTYPE))), 0, 0, 0]);
        }
      }
    },
  );

/** Loads what there is. All loads before the first use: `settlePushed` sees which have come. */
export const lookPushed = (o: OneSided) =>
  device(
    { params: heldParams(o), using: o.u },
    (g, { at: { win, token, owners }, count, i, first, base, held, rows }, u) => {
      const mine = win.at(g.rank);
      for (const r of g.unroll(held)) {
        if (first + r < owners.length && first + r < count) {
          const peer = owners[first + r]!;
          if (u.RETURNS || peer !== g.rank)
            rows[base + r] = u.lookAt({
              home: mine.returned.at(u.ROUTES ? peer % 32 : peer, token / u.REPLICAS, i),
            });
          else {
            const own = mine.output.at(g.rank / u.REPLICAS, token, i).as('v16');
            // A receive is not behind its `awaitPrevious`, so L1 might answer with what was there before.
            if (u.SPLIT) rows[base + r] = g.load(own, { order: 'relaxed', scope: 'gpu' });
            else rows[base + r] = g.load(own);
          }
        }
      }
    },
  );

/** Waits for what had not come, and makes every place EMPTY again. */
export const settlePushed = (o: OneSided) =>
  device(
    { params: heldParams(o), using: o.u },
    (g, { at: { win, token, owners, epoch, patience }, count, i, first, base, held, rows }, u) => {
      const mine = win.at(g.rank);
      for (const r of g.unroll(held)) {
        if (first + r < owners.length) {
          const peer = owners[first + r]!;
          if (first + r < count && (u.RETURNS || peer !== g.rank)) {
            const home = mine.returned.at(u.ROUTES ? peer % 32 : peer, token / u.REPLICAS, i);
            if (u.isEmpty({ vector: rows[base + r]! })) {
              rows[base + r] = u.awaitVector({
                mine,
                home,
                peer: u.ROUTES ? peer / 32 : peer,
                epoch,
                patience,
              });
              // Others came meanwhile: another look at all of them at once.
              for (const q of g.unroll(held)) {
                if (q > r && first + q < owners.length) {
                  const later = owners[first + q]!;
                  const returns = u.RETURNS || later !== g.rank;
                  if (first + q < count && returns && u.isEmpty({ vector: rows[base + q]! }))
                    rows[base + q] = u.lookAt({
                      home: mine.returned.at(u.ROUTES ? later % 32 : later, token / u.REPLICAS, i),
                    });
                }
              }
            }
            u.makeEmpty({ home });
          }
        }
      }
    },
  );
