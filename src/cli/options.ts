/** The common options of several commands: numbers in their ranges, a layer, shapes of kernels, what is written. */
import { InvalidArgumentError } from 'commander';
import { ArgumentError, FileError, integerIn } from '../base/errors.js';
import { requireFolder, requireWritable } from '../base/files/index.js';
import { type FormatName, formatNames, limits, profiles } from '../moe/layer/index.js';
import type { ShapeKeys } from '../verify/kernels/index.js';
import { Option } from './commander.js';

/** A reader of an integer from `least` to `most`. */
export const integerFrom =
  (least: number, most: number) =>
  (value: string): number => {
    const n = integerIn(value, least, most);
    if (n === null) throw new InvalidArgumentError(`It must be an integer from ${least} to ${most}.`);
    return n;
  };

/** The powers of two times `from` that are below `to`, and `to`. */
export const doublings = (from: number, to: number): number[] =>
  from < to ? [from, ...doublings(2 * from, to)] : [to];

/** A reader of integers, each from `least` to `most`: `1,8,128`, or `1..128` for doublings. */
const integersFrom =
  (least: number, most: number) =>
  (value: string): number[] =>
    value.split(',').flatMap((part) => {
      const [from, to = from, ...more] = part
        .split('..')
        .map((one) => integerIn(one, least, most) ?? Number.NaN);
      if (more.length === 0 && from! <= to!) return doublings(from!, to!);
      throw new InvalidArgumentError(`It must be integers from ${least} to ${most}, like 1,8,128 or 1..128.`);
    });

/** A reader of any number that is at least `from`, or above `above`, and at most `to`. */
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
export const elements = integerFrom(1, limits.rowBytes / 2);
export const seed = integerFrom(0, 2 ** 32 - 1);
export const times = integerFrom(1, 1_000_000);
export const multiprocessors = { one: integerFrom(1, 1024), list: integersFrom(1, 1024) };
const skew = numberIn({ above: 0, to: 10 });

/** An option that takes one of a few words, `usual` where it is left out. */
export const choice = <
  const Usage extends string,
  const Word extends string,
  const Usual extends Word | undefined = undefined,
>(
  usage: Usage,
  summary: string,
  words: readonly Word[],
  usual?: Usual,
) => new Option(usage, summary).choices(words).default(usual as Usual);

export const profileOption = (summary: string, ...others: readonly string[]) =>
  choice('--profile <name>', summary, [...Object.keys(profiles), ...others], 'deepseek_v3');
export const dtypeOption = (usual: FormatName) =>
  choice('--dtype <format>', 'what dispatch carries', formatNames, usual);
export const combineDtypeOption = () =>
  choice('--combine-dtype <dtype>', 'what combine carries', ['bf16', 'f16', 'f32'], 'bf16');
export const deviceOption = (summary: string) => choice('--device <kind>', summary, ['cuda', 'sim'], 'cuda');
export const skewOption = () =>
  new Option('--skew <s>', 'the n-th most popular expert is chosen in proportion to n^-s').argParser(skew);

// These refuse a file or a folder that cannot be written before the work begins, which takes minutes.

export const requireOutputFile = (option: string, file: string | undefined): void =>
  refusing(option, file, 'a file', requireWritable);

export const requireOutputFolder = (option: string, folder: string | undefined): void =>
  refusing(option, folder, 'a folder', requireFolder);

function refusing(
  option: string,
  path: string | undefined,
  what: string,
  require: (path: string) => void,
): void {
  if (path === undefined) return;
  if (path === '') throw new ArgumentError(option, path, `the path of ${what}`);
  try {
    require(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    throw new ArgumentError(option, path, `${what} that can be written (${error.reason})`);
  }
}

/** The keys of `--shape`: `ranks=8,dtype=bf16`, each key once. */
export function parseShape(text: string): Record<string, number | string> {
  const shape = new Map<string, number | string>();
  for (const pair of text.split(',').filter((one) => one !== '')) {
    const [, key, value] = /^([\w.]+)=(.+)$/.exec(pair.trim()) ?? [];
    if (key === undefined || value === undefined)
      throw new ArgumentError('--shape', pair, 'key=value,key=value,…');
    const lower = key.toLowerCase();
    if (shape.has(lower))
      throw new ArgumentError('--shape', pair, `said once: ${lower} is ${shape.get(lower)} already`);
    shape.set(lower, Number.isNaN(Number(value)) ? value : Number(value));
  }
  return Object.fromEntries(shape);
}

/** The keys that shapes may have, for the help of commands that take one: each key once, then who takes which. */
export function shapeHelp(of: readonly { readonly name: string; readonly shape: ShapeKeys }[]): string {
  /** The defaults of each key, by the line that explains the key. */
  const defaults = new Map<string, Set<number | string | null>>();
  const takers = new Map<string, string[]>();
  for (const { name, shape } of of) {
    const names = Object.keys(shape).join(' ');
    takers.set(names, [...(takers.get(names) ?? []), name]);
    for (const [key, { knob, default: usual }] of Object.entries(shape)) {
      const meaning = `${key}: ${knob.summary}, ${valuesOf(knob)}`;
      defaults.set(meaning, (defaults.get(meaning) ?? new Set()).add(usual));
    }
  }
  const lines = Array.from(defaults, ([meaning, [usual, ...others]]) => {
    return `  ${meaning}${others.length > 0 || usual === null ? '' : ` (${usual})`}`;
  });
  const groups = Array.from(takers, ([names, who]) => `  ${who.join(', ')}:\n    ${names || 'nothing'}`);
  return `Keys of --shape, their values, and (defaults):\n${lines.join('\n')}\n\nKeys of each:\n${groups.join('\n')}`;
}

function valuesOf(knob: ShapeKeys[string]['knob']): string {
  if (knob.kind === 'choice') return knob.choices.join(' | ');
  const { min, max, multipleOf = 1 } = knob;
  return `${min} to ${max}${multipleOf === 1 ? '' : `, a multiple of ${multipleOf}`}`;
}

/** Whether an argument names a module rather than a kernel: names of kernels have neither a slash nor a dot. */
export const isModule = (name: string): boolean => /[/\\]|\.m?[jt]s$/.test(name);
