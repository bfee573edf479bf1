/** A tile's sums: its stages are loaded ahead, each while those before are multiplied. */
import { device, pointer, registers } from '../../../lang/index.js';
import { type GemmShape, type GemmTile, stageUnits, type TileSizes } from './shape.js';
import { loadParts, loadStage, multiplyParts, tileInputs } from './stages.js';

/** Starts the loads of all stages but one. */
export const beginTile = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      name: 'begin_tile',
      params: { stages: pointer('v16'), inputs: tileInputs },
      using: {
        STEPS: sizes.steps,
        STAGES: tile.stages,
        UNITS: sizes.tileUnits,
        loadStage: loadStage(shape, tile, sizes),
      },
    },
    (g, { stages, inputs }, u) => {
      for (const step of g.unroll(u.STAGES - 1)) {
        if (step < u.STEPS) u.loadStage({ stage: stages.at(step * u.UNITS), inputs, step });
        g.async.commit();
      }
    },
  );

/** The sums of a tile whose loads have begun. While a stage is multiplied the others are loaded. */
export const multiplyTile = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      name: 'multiply_tile',
      params: { stages: pointer('v16'), inputs: tileInputs, sums: registers('v16') },
      using: {
        STEPS: sizes.steps,
        STAGES: tile.stages,
        UNITS: sizes.tileUnits,
        PARTS: stageUnits / 2,
        ROW_PARTS: sizes.rowParts,
        COLUMN_PARTS: sizes.columnParts,
        loadStage: loadStage(shape, tile, sizes),
        loadParts: loadParts(tile, sizes),
        multiplyParts: multiplyParts(tile, sizes),
      },
    },
    (g, { stages, inputs, sums }, u) => {
      for (const i of g.unroll(sums.length)) sums[i] = g.pack('u32', [0, 0, 0, 0]);
      const a = g.registers('v16', 2 * u.ROW_PARTS);
      const b = g.registers('v16', 2 * u.COLUMN_PARTS);
      const parts = { a, b, rows: inputs.rows };
      g.async.wait(u.STAGES - 2);
      g.barrier();
      u.loadParts({ stage: stages, k: 0, parts });
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const stage = stages.at((step % u.STAGES) * u.UNITS);
        for (const k of g.unroll(u.PARTS)) {
          if (k + 1 < u.PARTS) u.loadParts({ stage, k: k + 1, parts });
          else {
            // What this thread has loaded of the next stage is there; behind the barrier what others have is too, and
            // this stage has been read.
            g.async.wait(u.STAGES - 2);
            g.barrier();
            if (step + 1 < u.STEPS)
              u.loadParts({ stage: stages.at(((step + 1) % u.STAGES) * u.UNITS), k: 0, parts });
          }
          if (k === 0) {
            const later = step + u.STAGES - 1;
            if (later < u.STEPS)
              u.loadStage({ stage: stages.at((later % u.STAGES) * u.UNITS), inputs, step: later });
            g.async.commit();
          }
          u.multiplyParts({ k, parts, sums });
        }
      }
    },
  );
