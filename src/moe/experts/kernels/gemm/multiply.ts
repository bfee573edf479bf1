/** A tile's sums: its stages are loaded ahead, each while those before are multiplied. */
import { device, pointer, registers } from '../../../../lang/index.js';
import { putRows, tileInputs } from './rows.js';
import { type GemmShape, type GemmTile, stageUnits, type TileSizes } from './shape.js';
import { loadParts, loadStage, multiplyParts } from './stages.js';

export const multiplyTile = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      params: { stages: pointer('v16'), inputs: tileInputs(shape), sums: registers('v16') },
      using: {
        STEPS: sizes.steps,
        STAGES: tile.stages,
        UNITS: sizes.tileUnits,
        PARTS: stageUnits / 2,
        ROW_PARTS: sizes.rowParts,
        COLUMN_PARTS: sizes.columnParts,
        E4M3: shape.dtype === 'e4m3',
        // There are no arrays of none.
        HELD: shape.dtype === 'e4m3' ? sizes.sources : 1,
        loadStage: loadStage(shape, tile, sizes),
        putRows: putRows(tile, sizes),
        loadParts: loadParts(tile, sizes),
        multiplyParts: multiplyParts(tile, sizes),
      },
    },
    (g, { stages, inputs, sums }, u) => {
      const vectors = g.registers('v16', u.HELD);
      const scales = g.registers('f32', u.HELD);
      const held = { vectors, scales };
      const { rows } = inputs;
      for (const step of g.unroll(u.STAGES - 1)) {
        const stage = stages.at(step * u.UNITS);
        if (step < u.STEPS) {
          u.loadStage({ stage, inputs, step, held });
          if (u.E4M3) u.putRows({ stage, rows, held });
        }
        g.async.commit();
      }
      const a = g.registers('v16', 2 * u.ROW_PARTS);
      const b = g.registers('v16', 2 * u.COLUMN_PARTS);
      const parts = { a, b, rows };
      g.async.wait(u.STAGES - 2);
      g.barrier();
      u.loadParts({ stage: stages, k: 0, parts });
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const stage = stages.at((step % u.STAGES) * u.UNITS);
        for (const k of g.unroll(u.PARTS)) {
          if (k + 1 < u.PARTS) u.loadParts({ stage, k: k + 1, parts });
          else {
            // This thread's loads of the next stage are there; behind the barrier those of others are too, and
            // this stage has been read.
            if (u.E4M3) {
              const later = step + u.STAGES - 1;
              if (later < u.STEPS) u.putRows({ stage: stages.at((later % u.STAGES) * u.UNITS), rows, held });
            }
            g.async.wait(u.STAGES - 2);
            g.barrier();
            if (step + 1 < u.STEPS)
              u.loadParts({ stage: stages.at(((step + 1) % u.STAGES) * u.UNITS), k: 0, parts });
          }
          if (k === 0) {
            const later = step + u.STAGES - 1;
            if (later < u.STEPS)
              u.loadStage({ stage: stages.at((later % u.STAGES) * u.UNITS), inputs, step: later, held });
            g.async.commit();
          }
          u.multiplyParts({ k, parts, sums });
        }
      }
    },
  );
