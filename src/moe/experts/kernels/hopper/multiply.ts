/** A warp group's sums: one stage after the other, as they come. */
import { device, pointer, record, registers } from '../../../../lang/index.js';
import { handOn, ringOf } from './ring.js';
import { groupRows, type HopperShape, type HopperSizes, type HopperTile } from './shape.js';

/** A warp group's part of a stage, and the turn that the first stage has. */
export const partOf = record({ row: 'u32', column: 'u32', turn: 'u32' });

/** bf16: the tensor cores add all stages up. While one is multiplied, the next is asked for: a stage is released a turn later. */
export const multiplyRows = (shape: HopperShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      name: 'multiply_rows',
      params: { ring: ringOf(sizes), part: partOf, sums: registers('f32') },
      using: {
        STEPS: sizes.steps,
        ROWS: groupRows,
        COLUMNS: of.columns,
        wait: handOn(shape, of).wait,
        release: handOn(shape, of).release,
      },
    },
    (g, { ring, part: { row, column, turn }, sums }, u) => {
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const stage = u.wait({ gates: ring.gates, step: turn + step });
        const rows = ring.rows.at(stage).rows(row, u.ROWS);
        const weights = ring.weights.at(stage).rows(column, u.COLUMNS);
        g.wgmma.fence();
        g.wgmma.multiply(sums, rows, weights, step === 0);
        g.wgmma.commit();
        if (step > 0) {
          g.wgmma.wait(1);
          if (g.laneId === 0) u.release({ gates: ring.gates, step: turn + step - 1 });
        }
      }
      g.wgmma.wait(0);
      if (g.laneId === 0) u.release({ gates: ring.gates, step: turn + u.STEPS - 1 });
    },
  );

/** Where a thread's scales begin, one for every stage: of its two rows, of gates (or of all weights), and of what gates scale. */
export const scalePlaces = record({ upper: 'u32', lower: 'u32', gates: 'u32', scaled: 'u32' });
const scalesOf = record({ rows: pointer('f32'), weights: pointer('f32'), at: scalePlaces });

/**
 * e4m3: the tensor cores add up a stage, 128 elements, and the threads add that to their sums, times the scales of its rows and
 * weights. A stage's scales are loaded while the one before is multiplied.
 */
export const multiplyScaled = (shape: HopperShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      name: 'multiply_scaled',
      params: { ring: ringOf(sizes), part: partOf, scales: scalesOf, sums: registers('f32') },
      using: {
        STEPS: sizes.steps,
        ROWS: groupRows,
        COLUMNS: of.columns,
        GATED: shape.gated,
        wait: handOn(shape, of).wait,
        release: handOn(shape, of).release,
      },
    },
    (g, { ring, part: { row, column, turn }, scales, sums }, u) => {
      const products = g.registers('f32', sums.length);
      let upper = g.load(scales.rows.at(scales.at.upper));
      let lower = g.load(scales.rows.at(scales.at.lower));
      let gates = g.load(scales.weights.at(scales.at.gates));
      let scaled = gates;
      if (u.GATED) scaled = g.load(scales.weights.at(scales.at.scaled));
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const stage = u.wait({ gates: ring.gates, step: turn + step });
        const rows = ring.rows.at(stage).rows(row, u.ROWS);
        const weights = ring.weights.at(stage).rows(column, u.COLUMNS);
        g.wgmma.fence();
        g.wgmma.multiply(products, rows, weights, true);
        g.wgmma.commit();
        // Of rows 0 and 8 of the thread, with gates (or all), and with what gates scale.
        const by = g.registers('f32', 4);
        by[0] = upper * gates;
        by[1] = lower * gates;
        by[2] = upper * scaled;
        by[3] = lower * scaled;
        if (step + 1 < u.STEPS) {
          upper = g.load(scales.rows.at(scales.at.upper + step + 1));
          lower = g.load(scales.rows.at(scales.at.lower + step + 1));
          gates = g.load(scales.weights.at(scales.at.gates + step + 1));
          scaled = gates;
          if (u.GATED) scaled = g.load(scales.weights.at(scales.at.scaled + step + 1));
        }
        g.wgmma.wait(0);
        if (g.laneId === 0) u.release({ gates: ring.gates, step: turn + step });
        for (const i of g.unroll(sums.length)) {
          if (u.GATED && i >= sums.length / 2)
            sums[i] = g.fma(products[i]!, by[i % 4 < 2 ? 2 : 3]!, sums[i]!);
          else sums[i] = g.fma(products[i]!, by[i % 4 < 2 ? 0 : 1]!, sums[i]!);
        }
      }
    },
  );
