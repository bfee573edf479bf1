/** Products of matrices that a warp holds together, as `mma` deals them to its lanes. */
import { bf16ToF32, f16ToF32 } from '../../index.js';
import { type LaneMeeting, laneWords } from './lanes.js';

const word = new Int32Array(1);
const float = new Float32Array(word.buffer);

const read = { bf16: bf16ToF32, f16: f16ToF32 } as const;

/**
 * sum += a · b for a of 16 × k, and b of k × 8, whose columns lie as rows. Products are added one by one, from the first on, and
 * rounded to f32 each time: in which order GPUs add them nobody promises.
 */
export function multiplyTile(type: keyof typeof read, k: 8 | 16): NonNullable<LaneMeeting['complete']> {
  const half = read[type];
  const [ofA, ofB] = [k / 4, k / 8];
  return (words, first) => {
    const a = new Float32Array(16 * k);
    const b = new Float32Array(8 * k);
    for (let lane = 0; lane < 32; lane++) {
      const at = laneWords * (first + lane);
      const [row, column] = [lane >> 2, 2 * (lane & 3)];
      for (let i = 0; i < ofA; i++) {
        const to = k * (row + 8 * (i & 1)) + column + 8 * (i >> 1);
        a[to] = half(words[at + i]! & 0xffff);
        a[to + 1] = half(words[at + i]! >>> 16);
      }
      for (let i = 0; i < ofB; i++) {
        const to = k * row + column + 8 * i;
        b[to] = half(words[at + ofA + i]! & 0xffff);
        b[to + 1] = half(words[at + ofA + i]! >>> 16);
      }
    }
    for (let lane = 0; lane < 32; lane++) {
      const at = laneWords * (first + lane);
      const [row, column] = [lane >> 2, 2 * (lane & 3)];
      const results = [0, 0, 0, 0];
      for (let i = 0; i < 4; i++) {
        const [left, right] = [k * (row + 8 * (i >> 1)), k * (column + (i & 1))];
        word[0] = words[at + ofA + ofB + i]!;
        for (let n = 0; n < k; n++) float[0]! += a[left + n]! * b[right + n]!;
        results[i] = word[0]!;
      }
      for (let i = 0; i < 4; i++) words[at + i] = results[i]!;
    }
  };
}
