/**
 * The ring of stages between the warp group that brings and those that multiply.
 *
 * Why each synchronisation is enough: the copy engine's bytes complete on *full*, and a wait for it makes them known to the tensor
 * cores, which work in the same proxy. Rows that threads copied are ordinary writes: each of these threads fences before it
 * arrives. A warp arrives at *empty* behind a wait for its own products, so nobody reads the stage any more.
 */
import { pipeline, pointer, record, tiles } from '../../../../lang/index.js';
import { groups, groupThreads, type HopperShape, type HopperSizes, type HopperTile } from './shape.js';

/** How stages are handed on: a warp arrives at *empty*; at *full* who asks the copy engine, and threads that copy rows themselves. */
export const handOn = ({ rows }: HopperShape, { stages }: HopperTile) =>
  pipeline({
    stages,
    fills: 1 + (rows === 'gathered' ? groupThreads : 0),
    empties: (groups * groupThreads) / 32,
  });

export const gates = record({ full: pointer('u64'), empty: pointer('u64') });

export const ringOf = (sizes: HopperSizes) =>
  record({ rows: tiles(sizes.rowsTile), weights: tiles(sizes.weightsTile), gates });
