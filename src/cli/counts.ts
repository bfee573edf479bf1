/** Numbers among the arguments of a command. */
import { InvalidArgumentError } from 'commander';
import { integerIn } from '../errors/index.js';

/** What reads an integer from `least` to `most`. */
export const integerFrom =
  (least: number, most: number) =>
  (value: string): number => {
    const n = integerIn(value, least, most);
    if (n === null) throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
    return n;
  };

/** Of anything: whoever takes it knows its range. */
export const integer = integerFrom(0, 2 ** 32 - 1);

/** A list of numbers of tokens, rows or multiprocessors. */
export function integers(value: string): number[] {
  try {
    return value.split(',').map(integerFrom(1, 2 ** 20));
  } catch {
    throw new InvalidArgumentError('It must be integers from 1 to 1048576, like 1,8,128.');
  }
}

/** Any number at all. */
export function number(value: string): number {
  const n = Number(value);
  if (value.trim() === '' || !Number.isFinite(n)) throw new InvalidArgumentError('It must be a number.');
  return n;
}
