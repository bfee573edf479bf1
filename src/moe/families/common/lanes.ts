/** Sums over the lanes of a warp. */
import { device } from '../../../lang/index.js';

/** The sum of the values of the lanes up to this one, its own included; a warp. */
export const sumUpTo = device({ params: { value: 'u32' }, returns: 'u32' }, (g, { value }) => {
  let sum = value;
  for (const step of g.unroll(5)) {
    const below = g.warp.shuffleUp(sum, 1 << step);
    if (g.laneId >= 1 << step) sum += below;
  }
  return sum;
});
