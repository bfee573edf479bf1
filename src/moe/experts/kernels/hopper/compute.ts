/** A warp group that multiplies: unit after unit, its sums and where they go. */
import { device, list, pointer, record } from '../../../../lang/index.js';
import { multiplyRows, multiplyScaled, scalePlaces } from './multiply.js';
import { ringOf } from './ring.js';
import { groupRows, type HopperShape, type HopperSizes, type HopperTile } from './shape.js';
import { gate, storeRows, storeScaled, warpVectors } from './store.js';
import { findUnit, work } from './units.js';

/** Pointers of the kernel that only those use that multiply. */
export const outputsOf = ({ dtype, gated, rows }: HopperShape) =>
  record({
    rowScales: list(pointer('f32'), dtype === 'e4m3' ? 1 : 0),
    weightScales: list(pointer('f32'), dtype === 'e4m3' ? 1 : 0),
    routes: list(pointer('i32'), rows === 'gathered' ? 1 : 0),
    to: pointer('v16'),
    toScales: list(pointer('f32'), dtype === 'e4m3' && gated ? 1 : 0),
  });

/** Scales of the rows that a thread has sums of, and of weights: where those of the first stage lie. */
const findScales = (shape: HopperShape, sizes: HopperSizes) =>
  device(
    {
      name: 'find_scales',
      params: {
        outputs: outputsOf(shape),
        expert: 'u32',
        /** Its first row, and the last that it has; the warp's first. All but the first count from the expert's. */
        begin: 'u32',
        last: 'u32',
        first: 'u32',
        element: 'u32',
      },
      returns: scalePlaces,
      using: {
        GATHERED: shape.rows === 'gathered',
        K: shape.topK,
        STEPS: sizes.steps,
        WEIGHT_ROWS: sizes.bringing.WEIGHT_ROWS,
        OUTPUTS: shape.outputs,
      },
    },
    (g, { outputs: { routes }, expert, begin, last, first, element }, u) => {
      // Behind the last row nobody uses sums: they take its scale.
      let upper = begin + g.min(first + g.laneId / 4, last);
      let lower = begin + g.min(first + g.laneId / 4 + 8, last);
      if (u.GATHERED) {
        upper = g.u32(g.load(routes[0]!.at(upper))) / u.K;
        lower = g.u32(g.load(routes[0]!.at(lower))) / u.K;
      }
      const gates = (expert * u.WEIGHT_ROWS + element) / 128;
      return {
        upper: upper * u.STEPS,
        lower: lower * u.STEPS,
        gates: gates * u.STEPS,
        scaled: (gates + u.OUTPUTS / 128) * u.STEPS,
      };
    },
  );

export const multiplyUnits = (shape: HopperShape, of: HopperTile, sizes: HopperSizes) => {
  const { gated, dtype } = shape;
  return device(
    {
      name: 'multiply_units',
      params: {
        ring: ringOf(sizes),
        work,
        outputs: outputsOf(shape),
        /** Vectors of shared memory for each warp, and the groups' peaks. */
        passage: pointer('v16'),
        peaks: pointer('u32'),
        /** Which of the groups that multiply this is. */
        group: 'u32',
      },
      using: {
        BY_ROWS: of.split === 'rows',
        GROUP_ROWS: groupRows,
        COLUMNS: of.columns,
        GATED: gated,
        SCALED: dtype === 'e4m3',
        PASSES: of.passes,
        SUMS: sizes.sums,
        MADE: gated ? sizes.sums / 2 : 1,
        STEPS: sizes.steps,
        MADE_IN_PASS: sizes.bringing.MADE_IN_PASS,
        BOX_ROWS: sizes.boxRows,
        WARP_VECTORS: warpVectors,
        findUnit: findUnit(sizes),
        findScales: findScales(shape, sizes),
        multiplyRows: multiplyRows(shape, of, sizes),
        multiplyScaled: multiplyScaled(shape, of, sizes),
        gate,
        storeRows: storeRows(shape, of),
        storeScaled: storeScaled(shape, of, sizes),
      },
    },
    (g, { ring, work: { ends, begins, counts, units }, outputs, passage, peaks, group }, u) => {
      const warp = g.warpId % 4;
      const own = passage.at((group * 4 + warp) * u.WARP_VECTORS);
      let groupRow = g.u32(0);
      let column = group * u.COLUMNS;
      if (u.BY_ROWS) {
        groupRow = group * u.GROUP_ROWS;
        column = g.u32(0);
      }
      const beside = column / u.COLUMNS;
      let turn = g.u32(0);
      let expert = g.u32(0);
      let before = g.u32(0);
      for (let unit = g.blockIdx.x; unit < units; unit += g.gridDim.x) {
        const unitPlace = u.findUnit({ unit, ends, expert, before });
        expert = unitPlace.expert;
        before = unitPlace.before;
        const first = unitPlace.row + groupRow + warp * 16;
        const there = g.load(counts.at(expert));
        // None where the expert has no row for this warp.
        const left = g.max(first, there) - first;
        const begin = g.load(begins.at(expert));
        const row = begin + first;
        const made = g.registers('f32', u.PASSES * u.MADE);
        for (const pass of g.unroll(u.PASSES)) {
          const element = unitPlace.element + pass * u.MADE_IN_PASS + beside * u.BOX_ROWS;
          const part = { row: groupRow, column, turn };
          const sums = g.registers('f32', u.SUMS);
          if (u.SCALED) {
            const at = u.findScales({ outputs, expert, begin, last: there - 1, first, element });
            const scales = { rows: outputs.rowScales[0]!, weights: outputs.weightScales[0]!, at };
            u.multiplyScaled({ ring, part, scales, sums });
          } else u.multiplyRows({ ring, part, sums });
          turn += u.STEPS;
          // A warp without rows has nothing to make of its sums.
          if (left > 0) {
            if (u.GATED) {
              const some = g.registers('f32', u.MADE);
              u.gate({ sums, made: some });
              if (u.SCALED) for (const i of g.unroll(u.MADE)) made[pass * u.MADE + i] = some[i]!;
              else u.storeRows({ own, to: outputs.to, place: { row, left, element }, values: some });
            } else u.storeRows({ own, to: outputs.to, place: { row, left, element }, values: sums });
          }
        }
        if (u.GATED && u.SCALED) {
          const place = { row, left, element: unitPlace.element };
          const toScales = outputs.toScales[0]!;
          u.storeScaled({ own, to: outputs.to, scales: toScales, peaks, group: beside, place, values: made });
        }
      }
    },
  );
};
