/**
 * The ring of stages between the warp group that brings and those that multiply. Stage `turn % STAGES` is handed on for the
 * `turn`-th time by two mbarriers: `full` once its bytes have come, `empty` once every warp that multiplies has read them.
 *
 * Why each synchronisation is enough: the copy engine's bytes complete on `full`, and a wait for it makes them known to the tensor
 * cores, which work in the same proxy. Rows that threads copied are ordinary writes: each of these threads fences before it comes
 * to `full`. Warps come to `empty` behind a wait for their own products, so nobody reads the stage any more.
 */
import { device, pointer, record, tiles } from '../../../../lang/index.js';
import { groups, groupThreads, type HopperShape, type HopperSizes, type HopperTile } from './shape.js';

export const ringOf = (sizes: HopperSizes) =>
  record({
    rows: tiles(sizes.rowsTile),
    weights: tiles(sizes.weightsTile),
    full: pointer('u64'),
    empty: pointer('u64'),
  });

/** Begins the barriers of a ring. One thread. */
export const beginRing = ({ rows }: HopperShape, { stages }: HopperTile) =>
  device(
    {
      name: 'begin_ring',
      params: { full: pointer('u64'), empty: pointer('u64') },
      using: {
        STAGES: stages,
        // The thread that asks the copy engine, and those that copy rows themselves.
        BRINGERS: 1 + (rows === 'gathered' ? groupThreads : 0),
        READERS: (groups * groupThreads) / 32,
      },
    },
    (g, { full, empty }, u) => {
      for (const stage of g.unroll(u.STAGES)) {
        g.mbarrier.init(full.at(stage), u.BRINGERS);
        g.mbarrier.init(empty.at(stage), u.READERS);
      }
    },
  );
