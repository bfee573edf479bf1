/** A tile's sums: its stages are loaded ahead, each while those before are multiplied. */
import { device, pointer, registers } from '../../../../lang/index.js';
import type { GemmKit } from './kit.js';
import { putRows } from './rows.js';
import { loadParts, loadStage, multiplyParts } from './stages.js';

export const multiplyTile = (kit: GemmKit) =>
  device(
    {
      params: { stages: pointer('v16'), inputs: kit.inputs, sums: registers('v16') },
      using: {
        ...kit.u,
        // There are no arrays of none.
        HELD: kit.u.E4M3 ? kit.u.SOURCES : 1,
        ...{ loadStage: loadStage(kit), putRows: putRows(kit) },
        ...{ loadParts: loadParts(kit), multiplyParts: multiplyParts(kit) },
      },
    },
    (g, { stages, inputs, sums }, u) => {
      const vectors = g.registers('v16', u.HELD);
      const scales = g.registers('f32', u.HELD);
      const held = { vectors, scales };
      const { rows } = inputs;
      for (const step of g.unroll(u.STAGES - 1)) {
        const stage = stages.at(step * u.TILE_UNITS);
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
        const stage = stages.at((step % u.STAGES) * u.TILE_UNITS);
        for (const k of g.unroll(u.U / 2)) {
          if (k + 1 < u.U / 2) u.loadParts({ stage, k: k + 1, parts });
          else {
            // This thread's loads of the next stage are there; behind the barrier those of others are too, and
            // this stage has been read.
            if (u.E4M3) {
              const later = step + u.STAGES - 1;
              if (later < u.STEPS)
                u.putRows({ stage: stages.at((later % u.STAGES) * u.TILE_UNITS), rows, held });
            }
            g.async.wait(u.STAGES - 2);
            g.barrier();
            if (step + 1 < u.STEPS)
              u.loadParts({ stage: stages.at(((step + 1) % u.STAGES) * u.TILE_UNITS), k: 0, parts });
          }
          if (k === 0) {
            const later = step + u.STAGES - 1;
            if (later < u.STEPS)
              u.loadStage({ stage: stages.at((later % u.STAGES) * u.TILE_UNITS), inputs, step: later, held });
            g.async.commit();
          }
          u.multiplyParts({ k, parts, sums });
        }
      }
    },
  );
