/** Where a tile's sums go: rounded to bf16, of gates and what they scale the product. */
import { device, pointer, registers } from '../../../../lang/index.js';
import type { GemmShape, GemmTile, TileSizes } from './shape.js';
import { silu } from './swiglu.js';

/**
 * Stores the rows that there are. A lane has elements 2 · (lane % 4) and the next of rows lane / 4 and 8 more of each
 * 16 × 8 sums; where weights are gated, those of a gate and of what it scales are neighbours.
 */
export const storeTile = (
  { outputs, gated }: GemmShape,
  tile: GemmTile,
  { rowParts, columnParts }: TileSizes,
) =>
  device(
    {
      params: {
        to: pointer('bf16'),
        /** Of the tile: its first row that goes out, how many there are, and its first element. */
        row: 'u32',
        rows: 'u32',
        element: 'u32',
        sums: registers('v16'),
      },
      using: {
        OUTPUTS: outputs,
        GATED: gated,
        ROW_PARTS: rowParts,
        COLUMN_PARTS: columnParts,
        MADE: gated ? 8 : 16,
        WARP_COLUMNS: tile.warpColumns,
        silu,
      },
    },
    (g, { to, row, rows, element, sums }, u) => {
      const first = (g.warpId / u.WARP_COLUMNS) * (16 * u.ROW_PARTS) + g.laneId / 4;
      const column = (g.warpId % u.WARP_COLUMNS) * (u.MADE * u.COLUMN_PARTS) + 2 * (g.laneId % 4);
      for (const m of g.unroll(u.ROW_PARTS)) {
        for (const n of g.unroll(u.COLUMN_PARTS)) {
          const i = 2 * (m * u.COLUMN_PARTS + n);
          const made = g.registers('f32', 8);
          for (const e of g.unroll(4)) {
            made[e] = g.lane(sums[i]!, 'f32', e);
            made[4 + e] = g.lane(sums[i + 1]!, 'f32', e);
            if (u.GATED) made[e] = u.silu({ x: made[e]! }) * made[4 + e]!;
          }
          const pairs = g.pack('bf16', made);
          for (const lower of g.unroll(2)) {
            const at = first + 16 * m + 8 * lower;
            if (at < rows) {
              const place = to.at((row + at) * u.OUTPUTS + element + column + u.MADE * n).as('u32');
              g.store(place, g.lane(pairs, 'u32', lower));
              if (!u.GATED) g.store(place.at(4), g.lane(pairs, 'u32', 2 + lower));
            }
          }
        }
      }
    },
  );
