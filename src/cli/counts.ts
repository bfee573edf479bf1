/** Numbers among the arguments of a command: each option says its own range, and refuses by it. */
import { InvalidArgumentError } from 'commander';
import { integerIn } from '../base/errors.js';
import { limits } from '../moe/layer/index.js';

/** What reads an integer from `least` to `most`. */
export const integerFrom =
  (least: number, most: number) =>
  (value: string): number => {
    const n = integerIn(value, least, most);
    if (n === null) throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
    return n;
  };

/** What reads integers, each from `least` to `most`. */
export const integersFrom =
  (least: number, most: number) =>
  (value: string): number[] => {
    const all = value.split(',').map((one) => integerIn(one, least, most));
    const found = all.filter((one) => one !== null);
    if (found.length < all.length)
      throw new InvalidArgumentError(`It must be integers from ${least} to ${most}, like 1,8,128.`);
    return found;
  };

/** What reads any number that is at least `from`, or above `above`, and at most `to`. */
export const numberIn =
  (range: ({ readonly from: number } | { readonly above: number }) & { readonly to?: number }) =>
  (value: string): number => {
    const { to } = range;
    const [holds, least] =
      'from' in range
        ? [(n: number) => n >= range.from, `at least ${range.from}`]
        : [(n: number) => n > range.above, `above ${range.above}`];
    const n = Number(value);
    if (value.trim() === '' || !Number.isFinite(n) || !holds(n) || n > (to ?? n)) {
      const most = to === undefined ? '' : `, at most ${to}`;
      throw new InvalidArgumentError(`It must be a number ${least}${most}.`);
    }
    return n;
  };

export const ranks = integerFrom(1, limits.ranks);
export const experts = integerFrom(1, limits.experts);
export const routes = integerFrom(1, limits.topK);
export const tokens = integerFrom(1, limits.maxTokens);
/** Numbers of tokens, or of rows. */
export const listOfTokens = integersFrom(1, limits.maxTokens);
/** Elements of a row. */
export const elements = integerFrom(1, limits.rowBytes / 2);
export const seed = integerFrom(0, 2 ** 32 - 1);
/** How often something is done. */
export const times = integerFrom(1, 1_000_000);
export const multiprocessors = { one: integerFrom(1, 1024), list: integersFrom(1, 1024) };
/** From one number of tokens to the next. */
export const stepFactor = numberIn({ above: 1, to: 1024 });
export const skew = numberIn({ above: 0, to: 10 });
