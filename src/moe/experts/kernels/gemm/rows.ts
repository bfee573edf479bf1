/**
 * A tile's rows on their way into a stage. As bf16 they are copied there while others are multiplied. As e4m3 they pass through
 * registers: loaded when a step begins, and at its end multiplied by their scales, rounded to bf16 and stored.
 */
import { device, pointer } from '../../../../lang/index.js';
import { scaleBlock } from '../../../layer/index.js';
import type { GemmKit } from './kit.js';

/** Whether a thread loads the i-th of its rows: sixteen are loaded at a time where they are few, as they are multiplied. */
const takesRow = ({ u }: GemmKit) =>
  device({ params: { i: 'u32', rows: 'u32' }, returns: 'bool', using: u }, (g, { i, rows }, u) => {
    const row = i * u.ROWS_APART + g.threadIdx.x / u.ROW_VECTORS;
    return (!u.SOME || row < u.ROWS) && (!u.FEW || row / 16 < (rows + 15) / 16);
  });

/** Starts the loads of the rows of a stage. Vector v of row r lies at place v ^ (r % 8). */
export const fetchRows = (kit: GemmKit) =>
  device(
    {
      params: { stage: pointer('v16'), inputs: kit.inputs, step: 'u32', held: kit.held },
      using: { ...kit.u, PER_SCALE: scaleBlock / 16, takesRow: takesRow(kit) },
    },
    (g, { stage, inputs: { from, scales, sources, rows }, step, held }, u) => {
      const row = g.threadIdx.x / u.U;
      const at = stage.at(row * u.U + ((g.threadIdx.x % u.U) ^ (row % 8)));
      const further = step * u.ROW_VECTORS;
      for (const i of g.unroll(sources.length)) {
        if (u.takesRow({ i: g.u32(i), rows })) {
          const source = sources[i]! + further;
          if (scales.length > 0) {
            held.vectors[i] = g.load(from.at(source));
            held.scales[i] = g.load(scales[0]!.at(source / u.PER_SCALE));
          } else g.async.load(at.at(i * u.THREADS), from.at(source));
        }
      }
    },
  );

/** Puts what was fetched of e4m3 into its stage, as bf16. */
export const putRows = (kit: GemmKit) =>
  device(
    {
      params: { stage: pointer('v16'), rows: 'u32', held: kit.held },
      using: { ...kit.u, takesRow: takesRow(kit) },
    },
    (g, { stage, rows, held }, u) => {
      const row = g.threadIdx.x / u.ROW_VECTORS;
      const first = 2 * (g.threadIdx.x % u.ROW_VECTORS);
      for (const i of g.unroll(held.vectors.length)) {
        if (u.takesRow({ i: g.u32(i), rows })) {
          for (const half of g.unroll(2)) {
            const values = g.registers('f32', 8);
            for (const lane of g.unroll(8))
              values[lane] = g.f32(g.lane(held.vectors[i]!, 'e4m3', 8 * half + lane)) * held.scales[i]!;
            const place = (row + i * u.ROWS_APART) * u.U + ((first + half) ^ (row % 8));
            g.store(stage.at(place), g.pack('bf16', values));
          }
        }
      }
    },
  );
