/** Rows as e4m3 with an f32 for every 128 elements: a power of two, or NaN (docs/semantics.md). */
import { device } from '../../lang/index.js';
import { laneValues, scaleWord } from './format.js';
import { exponentFor, largestOf, scaled } from './scaled.js';
import { scaleBlock } from './scales.js';

const narrow = device(
  { params: laneValues, returns: 'u32', using: { largestOf: largestOf(scaleBlock), exponentFor } },
  (g, { values }, u) => {
    const largest = u.largestOf({ values });
    const exponent = u.exponentFor({ largest });
    const inverse = g.bits('f32', (254 - exponent) << 23);
    for (const n of g.unroll(16)) values[n]! *= inverse;
    // An infinity or a NaN makes all of its block NaN, never plausible numbers.
    return largest < 0x7f800000 ? exponent << 23 : g.u32(0x7fc00000);
  },
);

const scaleOf = device({ params: scaleWord, returns: 'f32' }, (g, { word }) => g.bits('f32', word));

export const e4m3 = scaled({ block: scaleBlock, scale: 'f32' }, { narrow, scaleOf });
