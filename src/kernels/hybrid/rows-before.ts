/** Where rows lie in a message that has several of a token. */
import { device } from '../../lang/index.js';

/** How many `rows` the lanes before this one have together; a warp. */
export const rowsBefore = device(
  { name: 'rows_before', params: { rows: 'u32' }, returns: 'u32' },
  (g, { rows }) => {
    let sum = rows;
    for (const level of g.unroll(5)) {
      const before = g.warp.shuffleUp(sum, 1 << level);
      if (g.laneId >= 1 << level) sum += before;
    }
    return sum - rows;
  },
);
