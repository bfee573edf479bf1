/**
 * Sums on their way to the other ranks of a group. Each rank adds up its share of the group's tokens and stores every part
 * in the others' windows as well. So a row crosses the network once for a group. Everything here is a warp's.
 */
import { device, pointer, registers } from '../../../lang/index.js';
import { numbers } from '../common/params.js';
import { rowsOf, unitsOfPart } from '../common/received.js';
import type { Hybrid } from './kit.js';
import type { HybridShape } from './shape.js';

/** How a sum is cut: as the rows that it is made of. */
function partOf(shape: HybridShape) {
  const { unit, units } = rowsOf(shape, shape.output.dtype);
  return { UNIT: unit, UNITS: units, PART_UNITS: unitsOfPart(shape, units, shape.combine.parts) };
}

/** Stores a part of a sum that this warp has made in the windows of the others. */
export const sendSum = ({ shape, at: { win }, u }: Hybrid) =>
  device(
    {
      params: { win, out: pointer(shape.output.dtype), token: 'u32', part: 'u32', epoch: 'u32' },
      using: { ...u, row: partOf(shape) },
    },
    (g, { win, out, token, part, epoch }, u) => {
      const start = part * u.row.PART_UNITS;
      const end = g.min(start + u.row.PART_UNITS, g.u32(u.row.UNITS));
      g.warp.barrier(); // the lanes load what others stored
      for (let i = start + g.laneId; i < end; i += 32) {
        const some = g.load(out.as(u.row.UNIT).at(token * u.row.UNITS + i));
        for (let other = g.u32(1); other < u.REPLICAS; other += 1)
          g.store(win.at(u.mateOf({ other })).sums.at(token, i), some);
      }
      g.warp.barrier(); // the releases below are for the stores of all lanes
      if (g.laneId > 0 && g.laneId < u.REPLICAS) {
        const there = win.at(u.mateOf({ other: g.laneId }));
        g.store(there.handed.at(token, part), epoch, { order: 'release', scope: 'sys' });
      }
    },
  );

/** A part of the sums that the others made in a turn, on its way to the caller's tensor. */
export const receiveSums = ({ shape, at: { mine }, u, phases }: Hybrid) =>
  device(
    {
      params: {
        ...{ mine, out: pointer(shape.output.dtype) },
        ...numbers('turn', 'tokens', 'part', 'node', 'epoch'),
        patience: registers('u32', 1),
      },
      using: { ...u, ...phases.combine, row: partOf(shape) },
    },
    (g, { mine, out, turn, tokens, part, node, epoch, patience }, u) => {
      const start = part * u.row.PART_UNITS;
      const end = g.min(start + u.row.PART_UNITS, g.u32(u.row.UNITS));
      for (let other = g.u32(1); other < u.REPLICAS; other += 1) {
        const mate = u.mateOf({ other });
        const token = turn * u.REPLICAS + (mate % u.REPLICAS);
        if (token < tokens) {
          let came = true;
          if (g.laneId === 0) {
            const handed = mine.handed.at(token, part);
            came = g.awaitEpoch(handed, epoch, { order: 'acquire', scope: 'sys', limit: patience[0]! });
            if (!came && patience[0]! > 0)
              u.failed({ failure: mine.failure, peer: node * u.LOCAL + mate, epoch });
          }
          g.warp.barrier(); // passes on what the lane acquired
          if (g.warp.any(!came)) {
            patience[0] = g.u32(0);
          } else {
            for (let i = start + g.laneId; i < end; i += 32)
              g.store(out.as(u.row.UNIT).at(token * u.row.UNITS + i), g.load(mine.sums.at(token, i)));
          }
        }
      }
    },
  );
