/** Where rows lie in a message that has several of a token. */
import { device } from '../../../lang/index.js';
import { sumUpTo } from '../common/sum-up-to.js';

/** How many `rows` the lanes before this one have together; a warp. */
export const rowsBefore = device(
  { name: 'rows_before', params: { rows: 'u32' }, returns: 'u32', using: { sumUpTo } },
  (_, { rows }, { sumUpTo }) => sumUpTo({ value: rows }) - rows,
);
