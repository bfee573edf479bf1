import { device, peers } from '../../lang/index.js';
import { dtypes, scaleBlock } from '../../layer/index.js';
import { type OneSidedShape, type OneSidedWindow, partialDtype, returnedRowBytes } from './window.js';

/**
 * A row as e4m3 in `returned`: `units` vectors of 16 elements, then an f32 scale for every 8 of them. A warp works on
 * a stretch of 32 units: 16 elements and a sum a lane, and 8 lanes share a scale.
 */
export function e4m3Row(shape: OneSidedShape) {
  const { hidden } = shape.output;
  const stretches = Math.ceil(hidden / (32 * 16));
  return {
    UNITS: hidden / 16,
    SCALES: Math.ceil(hidden / scaleBlock),
    STRETCHES: stretches,
    PART_STRETCHES: Math.ceil(stretches / shape.combine.parts),
    ROW_VECTORS: returnedRowBytes(shape) / 16,
    /** Where the scales begin, and how long a row is, in scales. */
    FIRST_SCALE: hidden / 4,
    ROW_WORDS: returnedRowBytes(shape) / 4,
  };
}

/**
 * push.ts's `pushPiece` for rows that travel as e4m3, to all sources, this rank among them: what stays at home is
 * rounded like the rest. No vector of elements and no scale is ever EMPTY (window.ts): NaN becomes 0x7f in the one and
 * 0x7fc00000 in the other, and scales are positive. So each vector and each scale says by itself that it has come.
 */
export function pushE4m3(shape: OneSidedShape, window: OneSidedWindow) {
  const bytes = dtypes[partialDtype(shape)].size;
  return device(
    {
      name: 'push_e4m3',
      params: { win: peers(window), piece: 'u32', epoch: 'u32' },
      using: {
        ...e4m3Row(shape),
        RANKS: shape.ranks,
        MAX_TOKENS: shape.maxTokens,
        SLOTS: shape.ranks * shape.maxTokens,
        PARTS: shape.combine.parts,
        DTYPE: partialDtype(shape),
        /** The vectors that hold 16 elements, and the elements in each. */
        VECTORS: bytes,
        LANES: 16 / bytes,
      },
    },
    (g, { win, piece, epoch }, u) => {
      const mine = win.at(g.rank);
      const token = piece / u.PARTS;
      const part = piece % u.PARTS;
      const end = g.min((part + 1) * u.PART_STRETCHES, g.u32(u.STRETCHES));

      // Ranks start with different peers, so that no window is everybody's first.
      for (let other = 1; other <= u.RANKS; other += 1) {
        const source = (g.rank + other) % u.RANKS;
        const slot = source * u.MAX_TOKENS + token;
        if (g.load(mine.present.at((epoch % 2) * u.SLOTS + slot)) !== 0) {
          const home = g.rank * u.MAX_TOKENS + token;
          for (
            let stretch = part * u.PART_STRETCHES + g.warpId;
            stretch < end;
            stretch += g.blockDim.x / 32
          ) {
            const i = stretch * 32 + g.laneId;
            const row = g.registers('v16', u.VECTORS);
            if (i < u.UNITS) {
              const from = mine.output.as('v16').at((slot * u.UNITS + i) * u.VECTORS);
              for (const v of g.unroll(u.VECTORS)) row[v] = g.load(from.at(v), { cache: 'stream' });
            }
            const values = g.registers('f32', 16);
            // Bits of magnitudes compare as the magnitudes do.
            let largest = g.u32(0);
            for (const v of g.unroll(u.VECTORS)) {
              for (const lane of g.unroll(u.LANES)) {
                const value = g.f32(g.lane(row[v]!, u.DTYPE, lane));
                values[v * u.LANES + lane] = value;
                largest = g.max(largest, g.bits('u32', value) & 0x7fffffff);
              }
            }
            for (const by of g.unroll(3)) largest = g.max(largest, g.warp.shuffleXor(largest, 1 << by));

            // The smallest power of two that brings the largest magnitude to 448 = 1.75 · 2^8 or less: the addition
            // carries into the exponent where the mantissa exceeds 1.75. Dividing by it is multiplying by 2^-it, exactly.
            const exponent = g.max((largest + 0x1fffff) >> 23, g.u32(9)) - 8;
            const inverse = g.bits('f32', (254 - exponent) << 23);
            for (const n of g.unroll(16)) values[n]! *= inverse;
            if (i < u.UNITS) {
              const { returned } = win.at(source);
              g.store(returned.as('v16').at(home * u.ROW_VECTORS + i), g.pack('e4m3', values), {
                order: 'relaxed',
                scope: 'sys',
              });
              if (g.laneId % 8 === 0) {
                // An infinity or a NaN makes all of its block NaN, never plausible numbers.
                const scale = largest < 0x7f800000 ? exponent << 23 : 0x7fc00000;
                const to = returned.as('u32').at(home * u.ROW_WORDS + u.FIRST_SCALE + i / 8);
                g.store(to, scale, { order: 'relaxed', scope: 'sys' });
              }
            }
          }
        }
      }
    },
  );
}
