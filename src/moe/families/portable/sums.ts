/**
 * Sums on their way to the other ranks of a group. Each rank adds up its share of the group's tokens, in its own `sums`,
 * and puts every part to the others, to the same place. So a row travels once to a group, and a sum once to each other
 * rank of it. Everything here is a warp's.
 */
import { device } from '../../../lang/index.js';
import { numbers, turnParams } from '../common/params.js';
import { unitsOfPart } from '../common/received.js';
import type { Portable } from './kit.js';
import { type PortableShape, summedRow } from './window.js';

/** How a sum is cut: as the rows that it is made of. */
function partOf(shape: PortableShape) {
  const { units } = summedRow(shape);
  return { UNITS: units, PART_UNITS: unitsOfPart(shape, units, shape.combine.parts) };
}

/** Puts a part of a sum that this warp has made to the others. */
export const sendSum = (p: Portable) =>
  device(
    {
      params: { win: p.at.win, ...numbers('token', 'part', 'epoch') },
      using: { ...p.u, row: partOf(p.shape), put: p.put(summedRow(p.shape).unit) },
    },
    (g, { win, token, part, epoch }, u) => {
      const start = part * u.row.PART_UNITS;
      const count = g.min(u.row.UNITS - start, g.u32(u.row.PART_UNITS));
      g.warp.barrier(); // the lanes send what others wrote
      for (let other = g.u32(1); other < u.REPLICAS; other += 1) {
        const peer = u.mateOf({ other });
        const there = win.at(peer);
        u.put({
          mine: win.at(g.rank),
          peer,
          to: there.sums.at(token, start),
          from: win.at(g.rank).sums.at(token, start),
          count,
          signal: there.handed.at(token, part),
          value: epoch,
          adds: false,
        });
      }
      g.warp.barrier(); // each lane's signal is for all lanes' puts
      for (let other = 1 + g.laneId; other < u.REPLICAS; other += 32) {
        const peer = u.mateOf({ other });
        const signal = win.at(peer).handed.at(token, part);
        u.settle({ mine: win.at(g.rank), peer, signal, value: epoch, adds: false });
      }
    },
  );

/** A part of all sums of a turn, this rank's and those that come, on its way to the caller's tensor. */
export const receiveSums = (p: Portable) =>
  device(
    {
      params: turnParams(p.window, p.shape),
      using: { ...p.u, ...p.phases.combine, row: partOf(p.shape), UNIT: summedRow(p.shape).unit },
    },
    (g, { win, out, turn, tokens, part, epoch, patience }, u) => {
      const mine = win.at(g.rank);
      const start = part * u.row.PART_UNITS;
      const end = g.min(start + u.row.PART_UNITS, g.u32(u.row.UNITS));
      for (let other = g.u32(0); other < u.REPLICAS; other += 1) {
        const peer = u.mateOf({ other });
        const token = turn * u.REPLICAS + (peer % u.REPLICAS);
        if (token < tokens) {
          let came = true;
          if (other > 0 && g.laneId === 0) {
            const signal = mine.handed.at(token, part);
            came = u.awaitSignal({ signal, value: epoch, limit: patience[0]! });
            if (!came && patience[0]! > 0) u.failed({ failure: mine.failure, peer, epoch });
          }
          g.warp.barrier(); // passes on what the lane acquired
          if (g.warp.any(!came)) {
            patience[0] = g.u32(0);
          } else {
            for (let i = start + g.laneId; i < end; i += 32)
              g.store(out.as(u.UNIT).at(token * u.row.UNITS + i), g.load(mine.sums.at(token, i)));
          }
        }
      }
    },
  );
