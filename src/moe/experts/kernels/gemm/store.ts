/** Where a tile's sums go. Biases are added, the activation makes one of each gate and what it scales, and rows of bf16 are stored. */
import { device, pointer, registers } from '../../../../lang/index.js';
import type { GemmKit } from './kit.js';
import { clamp, silu } from './swiglu.js';

/** Adds the biases of an expert from an element on. Which sums a lane has, `storeTile` says. */
export const addBiases = ({ shape: { outputs, gated }, u: numbers }: GemmKit) =>
  device(
    {
      params: { bias: pointer('bf16'), expert: 'u32', element: 'u32', sums: registers('v16') },
      using: { ...numbers, WEIGHT_ROWS: outputs * (gated ? 2 : 1) },
    },
    (g, { bias, expert, element, sums }, u) => {
      const column = (g.warpId % u.WARP_COLUMNS) * (u.MADE_OF_16 * u.COLUMN_PARTS) + 2 * (g.laneId % 4);
      const own = bias.at(expert * u.WEIGHT_ROWS + element + column);
      for (const n of g.unroll(u.COLUMN_PARTS)) {
        for (const half of g.unroll(2)) {
          const pair = g.load(own.at(u.MADE_OF_16 * n + u.HALVES_APART * half).as('u32'));
          for (const m of g.unroll(u.ROW_PARTS)) {
            const i = 2 * (m * u.COLUMN_PARTS + n) + half;
            const four = g.registers('f32', 4);
            for (const e of g.unroll(4))
              four[e] =
                g.lane(sums[i]!, 'f32', e) + g.bits('f32', e % 2 === 0 ? pair << 16 : pair & 0xffff0000);
            sums[i] = g.pack('f32', four);
          }
        }
      }
    },
  );

/**
 * Stores the rows that there are. A lane has elements 2 · (lane % 4) and the next of rows lane / 4 and 8 more of each
 * 16 × 8 sums; where weights are gated, those of a gate and of what it scales are neighbours.
 */
export const storeTile = (kit: GemmKit) =>
  device(
    {
      params: {
        to: pointer('bf16'),
        /** The tile's first row that goes out, how many there are, and its first element. */
        ...{ row: 'u32', rows: 'u32', element: 'u32' },
        sums: registers('v16'),
      },
      using: { ...kit.u, CLAMPED: kit.shape.activation === 'clamped-swiglu', clamp, silu },
    },
    (g, { to, row, rows, element, sums }, u) => {
      const first = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS) + g.laneId / 4;
      const column = (g.warpId % u.WARP_COLUMNS) * (u.MADE_OF_16 * u.COLUMN_PARTS) + 2 * (g.laneId % 4);
      for (const m of g.unroll(u.ROW_PARTS)) {
        for (const n of g.unroll(u.COLUMN_PARTS)) {
          const i = 2 * (m * u.COLUMN_PARTS + n);
          const made = g.registers('f32', 8);
          for (const e of g.unroll(4)) {
            made[e] = g.lane(sums[i]!, 'f32', e);
            made[4 + e] = g.lane(sums[i + 1]!, 'f32', e);
            if (u.GATED && u.CLAMPED) u.clamp({ values: made, gate: e, up: 4 + e });
            if (u.GATED) made[e] = u.silu({ x: made[e]! }) * made[4 + e]!;
          }
          const pairs = g.pack('bf16', made);
          for (const lower of g.unroll(2)) {
            const at = first + 16 * m + 8 * lower;
            if (at < rows) {
              const place = to.at((row + at) * u.OUTPUTS + element + column + u.MADE_OF_16 * n).as('u32');
              g.store(place, g.lane(pairs, 'u32', lower));
              if (!u.GATED) g.store(place.at(4), g.lane(pairs, 'u32', 2 + lower));
            }
          }
        }
      }
    },
  );
