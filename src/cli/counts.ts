/** Whole numbers among the arguments of a command. */
import { InvalidArgumentError } from 'commander';

export function integer(value: string): number {
  if (!/^\d+$/.test(value) || Number(value) > 2 ** 32 - 1)
    throw new InvalidArgumentError('It must be a whole number.');
  return Number(value);
}

export function integers(value: string): number[] {
  const list = value.split(',').map(integer);
  if (list.some((n) => n < 1 || n > 2 ** 20))
    throw new InvalidArgumentError('It must be numbers from 1 to 1048576, like 1,8,128.');
  return list;
}
