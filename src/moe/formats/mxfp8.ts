/**
 * Rows as OCP's MXFP8: e4m3 with a ue8m0 for every 32 elements. A ue8m0 is the exponent of an f32, so its bits shifted by 23
 * are the scale as an f32. Four of them fill the word of 8 lanes.
 */
import { device } from '../../lang/index.js';
import { laneValues, scaleWord } from './format.js';
import { exponentFor, largestOf, scaled } from './scaled.js';

const block = 32;

const narrow = device(
  { params: laneValues, returns: 'u32', using: { largestOf: largestOf(block), exponentFor } },
  (g, { values }, u) => {
    const largest = u.largestOf({ values });
    const exponent = u.exponentFor({ largest });
    // A block with an infinity or a NaN becomes NaN in all of its elements. So its scale need not be NaN, and no word
    // of scales is all ones.
    const inverse = g.bits('f32', largest < 0x7f800000 ? (254 - exponent) << 23 : g.u32(0x7fc00000));
    for (const n of g.unroll(16)) values[n]! *= inverse;
    let word = exponent << (8 * ((g.laneId % 8) / 2));
    for (const by of g.unroll(2)) word |= g.warp.shuffleXor(word, 2 << by);
    return word;
  },
);

const scaleOf = device({ params: scaleWord, returns: 'f32' }, (g, { word }) =>
  g.bits('f32', ((word >>> (8 * ((g.laneId % 8) / 2))) & 0xff) << 23),
);

export const mxfp8 = scaled({ block, scale: 'u8' }, { narrow, scaleOf });
