/** A warp group that multiplies: unit after unit, its sums and where they go. */
import { device, pointer } from '../../../../lang/index.js';
import { type HopperKit, placeOf, work } from './kit.js';
import { multiplyRows, multiplyScaled, scalePlaces } from './multiply.js';
import { groupRows } from './shape.js';
import { addBiases, send, warpVectors } from './store.js';
import { findUnit } from './units.js';

/** Finds the scales of the rows that a thread has sums of, and of weights: where those of the first stage lie. */
const findScales = (kit: HopperKit) =>
  device(
    {
      params: {
        ...{ outputs: kit.at.outputs, expert: 'u32' },
        /** Its first row, and the last that it has; the warp's first. All but the first count from the expert's. */
        ...{ begin: 'u32', last: 'u32', first: 'u32', element: 'u32', step: 'u32' },
      },
      returns: scalePlaces,
      using: { ...kit.u, STEPS: kit.steps, OTHER: kit.u.GATED ? kit.u.OUTPUTS : kit.of.columns / 2 },
    },
    (g, { outputs: { routes }, expert, begin, last, first, element, step }, u) => {
      // Behind the last row nobody uses sums: they take its scale.
      let upper = begin + g.min(first + g.laneId / 4, last);
      let lower = begin + g.min(first + g.laneId / 4 + 8, last);
      if (u.GATHERED) {
        upper = g.u32(g.load(routes[0]!.at(upper))) / u.K;
        lower = g.u32(g.load(routes[0]!.at(lower))) / u.K;
      }
      const row = expert * u.WEIGHT_ROWS + element;
      return {
        upper: upper * u.STEPS + step,
        lower: lower * u.STEPS + step,
        half: (row / 128) * u.STEPS + step,
        other: ((row + u.OTHER) / 128) * u.STEPS + step,
      };
    },
  );

/** A warp group: what it shares with others, what its warps have to themselves, and which of the groups that multiply it is. */
const groupOf = ({ at: { ring, outputs } }: HopperKit) => ({
  ...{ ring, work, outputs },
  /** Vectors of shared memory for each warp, and the groups' peaks. */
  passage: pointer('v16'),
  peaks: pointer('u32'),
  group: 'u32' as const,
});

/** All units of this block. */
export const multiplyUnits = (kit: HopperKit) =>
  device(
    { params: groupOf(kit), using: { ...kit.u, findUnit: findUnit(kit), multiplyUnit: multiplyUnit(kit) } },
    (g, { ring, work, outputs, passage, peaks, group }, u) => {
      let turn = g.u32(0);
      let expert = g.u32(0);
      let before = g.u32(0);
      for (let unit = g.blockIdx.x; unit < work.units; unit += g.gridDim.x) {
        const place = u.findUnit({ unit, ends: work.ends, expert, before });
        u.multiplyUnit({ ring, work, outputs, passage, peaks, group, place, turn });
        turn += u.STEPS;
        expert = place.expert;
        before = place.before;
      }
    },
  );

const multiplyUnit = (kit: HopperKit) =>
  device(
    {
      params: { ...groupOf(kit), place: placeOf, turn: 'u32' },
      using: {
        ...{
          ...kit.u,
          BY_ROWS: kit.of.groupsDivide === 'rows',
          GROUP_ROWS: groupRows,
          WARP_VECTORS: warpVectors,
        },
        ...{ SCALED: kit.shape.dtype === 'e4m3', SUMS: kit.sums, findScales: findScales(kit) },
        ...{ multiplyRows: multiplyRows(kit), multiplyScaled: multiplyScaled(kit) },
        ...{ addBiases: addBiases(kit), send: send(kit) },
      },
    },
    (g, { ring, work: { begins, counts }, outputs, passage, peaks, group, place, turn }, u) => {
      const own = passage.at((g.warpId - 4) * u.WARP_VECTORS);
      const groupRow = u.BY_ROWS ? group * u.GROUP_ROWS : g.u32(0);
      const beside = u.BY_ROWS ? g.u32(0) : group;
      const { expert } = place;
      const first = place.row + groupRow + (g.warpId % 4) * 16;
      const there = g.load(counts.at(expert));
      // None where the expert has no row for this warp.
      const left = g.max(first, there) - first;
      const begin = g.load(begins.at(expert));
      const row = begin + first;
      const sums = g.registers('f32', u.SUMS);
      const part = { row: groupRow, column: beside * u.COLUMNS, turn };
      const element = place.element + beside * u.BOX_ROWS;
      if (u.SCALED) {
        const at = u.findScales({
          outputs,
          expert,
          begin,
          last: there - 1,
          first,
          element,
          step: place.step,
        });
        const scales = { rows: outputs.rowScales[0]!, weights: outputs.weightScales[0]!, at };
        u.multiplyScaled({ ring, part, scales, sums });
      } else u.multiplyRows({ ring, part, sums });
      if (outputs.bias.length > 0) u.addBiases({ bias: outputs.bias[0]!, expert, element, sums });
      u.send({ own, outputs, peaks, group: beside, part: place.part, place: { row, left, element }, sums });
    },
  );
