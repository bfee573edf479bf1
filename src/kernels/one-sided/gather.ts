/** Where the partial rows of a sum come from: the peers' `output`, or this rank's `returned`. */
import { device, peers, record, registers } from '../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { partialDtype, rowsOf } from '../common/received.js';
import { gatherParams } from '../common/sum.js';
import { awaitVector, isEmpty, lookAt, makeEmpty } from './arrival.js';
import type { OneSidedShape, OneSidedWindow } from './window.js';

/** One vector of one token, and who has rows of it. */
export const placeOf = (window: OneSidedWindow) =>
  record({
    win: peers(window),
    token: 'u32',
    /** In vectors; in values where rows are no whole vectors. */
    i: 'u32',
    /** The first `count` of `owners` are this token's, in the order of the sum. */
    count: 'u32',
    owners: registers('u32'),
    epoch: 'u32',
    patience: registers('u32', 1),
  });

/** Loads from the peers. Not by 'stream': loads from a peer that do not allocate in L1 reach half the bandwidth. */
export const gatherPulled = (shape: OneSidedShape, window: OneSidedWindow) =>
  device(
    {
      name: 'gather_pulled',
      params: gatherParams(placeOf(window)),
      using: {
        REPLICAS: sharing(shape).replicas,
        VECTORS: rowsOf(shape, partialDtype(shape)).vectors,
        DTYPE: shape.output.dtype,
      },
    },
    (g, { at: { win, token, i, count, owners }, first, rows }, { REPLICAS, VECTORS, DTYPE }) => {
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const there = win.at(owners[first + r]!).output.at(g.rank / REPLICAS, token, i);
            if (VECTORS) rows[r] = g.load(there.as('v16'));
            else rows[r] = g.pack('f32', [g.f32(g.load(there.as(DTYPE))), 0, 0, 0]);
          }
        }
      }
    },
  );

/** This rank's own rows from `output`; the others' from `returned`, as they come. */
export const gatherPushed = (shape: OneSidedShape, window: OneSidedWindow) =>
  device(
    {
      name: 'gather_pushed',
      params: gatherParams(placeOf(window)),
      using: {
        REPLICAS: sharing(shape).replicas,
        awaitVector: awaitVector(window),
        isEmpty,
        lookAt,
        makeEmpty,
      },
    },
    (g, { at: { win, token, i, count, owners, epoch, patience }, first, rows }, u) => {
      const mine = win.at(g.rank);
      const turn = token / u.REPLICAS;
      // All loads before the first use.
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          if (first + r < count) {
            const peer = owners[first + r]!;
            if (peer !== g.rank) rows[r] = u.lookAt({ home: mine.returned.at(peer, turn, i) });
            else rows[r] = g.load(mine.output.at(g.rank / u.REPLICAS, token, i).as('v16'));
          }
        }
      }
      for (const r of g.unroll(rows.length)) {
        if (first + r < owners.length) {
          const peer = owners[first + r]!;
          if (first + r < count && peer !== g.rank) {
            const home = mine.returned.at(peer, turn, i);
            if (u.isEmpty({ vector: rows[r]! })) {
              rows[r] = u.awaitVector({ mine, home, peer, epoch, patience });
              // Others came meanwhile: another look at all of them at once.
              for (const q of g.unroll(rows.length)) {
                if (q > r && first + q < owners.length) {
                  const later = owners[first + q]!;
                  if (first + q < count && later !== g.rank && u.isEmpty({ vector: rows[q]! }))
                    rows[q] = u.lookAt({ home: mine.returned.at(later, turn, i) });
                }
              }
            }
            u.makeEmpty({ home });
          }
        }
      }
    },
  );
