/**
 * Expand: copies the rows that arrived to where the plan, or the caller, wants them. A row crossed the network once; here
 * it is loaded once, and stored for each of its routes.
 */
import { device, kernel, list, pointer } from '../../../lang/index.js';
import { type Spread, unitBytes, widestUnit } from '../../families/common/parts.js';
import type { Payload } from '../../layer/index.js';
import { type ExpertsShape, slotsOf } from './shape.js';

/** Vectors of a row that a thread loads before it stores the first. */
const inFlight = 4;

export function expandKernel({ layer }: ExpertsShape, { threads, parts }: Spread) {
  const payloads = layer.payloads.length;
  return kernel(
    {
      name: 'experts_expand',
      maxThreads: threads,
      params: {
        /** [slot][k]: the route's row; −1 where it has none. */
        scatter: pointer('i32'),
        /** For each payload an array of rows by slot (`from`), and one of rows by expert (`to`). */
        from: list(pointer('v16'), payloads),
        to: list(pointer('v16'), payloads),
        /** A bit for each payload that is wanted. */
        wanted: 'u32',
        /** There are so many rows; a larger index counts as none. */
        rows: 'u32',
      },
      using: {
        ...{ K: layer.topK, PARTS: parts, PIECES: slotsOf(layer) * parts, PAYLOADS: payloads },
        copyRow: layer.payloads.map((payload) => copyRow(payload, threads, parts)),
      },
    },
    (g, { scatter, from, to, wanted, rows }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      for (let piece = g.blockIdx.x; piece < u.PIECES; piece += g.gridDim.x) {
        const slot = piece / u.PARTS;
        const part = piece % u.PARTS;
        // Lane k has the row of route k.
        let row = rows;
        if (g.laneId < u.K) row = g.u32(g.load(scatter.at(slot * u.K + g.laneId)));
        const routes = g.warp.ballot(row < rows);
        if (routes !== 0) {
          for (const p of g.unroll(u.PAYLOADS)) {
            if ((wanted & (1 << p)) !== 0)
              u.copyRow[p]!({ from: from[p]!, to: to[p]!, slot, part, row, routes });
          }
        }
      }
    },
  );
}

/** One part of a slot's row, to the rows of its routes. */
function copyRow({ rowBytes }: Payload, threads: number, parts: number) {
  const unit = widestUnit(rowBytes);
  const units = rowBytes / unitBytes[unit];
  const partUnits = Math.ceil(units / parts);
  return device(
    {
      params: {
        ...{ from: pointer('v16'), to: pointer('v16'), slot: 'u32', part: 'u32', row: 'u32', routes: 'u32' },
      },
      using: {
        ...{ UNIT: unit, UNITS: units, PART_UNITS: partUnits },
        DEPTH: Math.min(inFlight, Math.ceil(partUnits / threads)),
      },
    },
    (g, { from, to, slot, part, row, routes }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let base = part * u.PART_UNITS; base < end; base += g.blockDim.x * u.DEPTH) {
        const some = g.registers(u.UNIT, u.DEPTH);
        for (const d of g.unroll(u.DEPTH)) {
          const i = base + d * g.blockDim.x + g.threadIdx.x;
          if (i < end) some[d] = g.load(from.as(u.UNIT).at(slot * u.UNITS + i), { cache: 'stream' });
        }
        let left = routes;
        while (left !== 0) {
          const there = g.warp.shuffle(row, g.ffs(left) - 1) * u.UNITS;
          left &= left - 1;
          for (const d of g.unroll(u.DEPTH)) {
            const i = base + d * g.blockDim.x + g.threadIdx.x;
            if (i < end) g.store(to.as(u.UNIT).at(there + i), some[d]!);
          }
        }
      }
    },
  );
}
