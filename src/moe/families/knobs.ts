/**
 * Options of a family's kernels: how they are spread over a GPU, which way rows take. Each is said once, in
 * the family's table, and serves `--shape`, the checks of tunings, the files that keep them, and `heddle tune`.
 */
import { ArgumentError, requireInteger, requireOneOf } from '../../base/errors.js';

/** A number of something. */
export interface Count {
  readonly kind: 'count';
  readonly summary: string;
  readonly min: number;
  readonly max: number;
  /** 1 if left out. */
  readonly multipleOf?: number;
  readonly tries: Tries<number>;
}

/** One of a few words. */
export interface Choice<C extends string = string> {
  readonly kind: 'choice';
  readonly summary: string;
  readonly choices: readonly C[];
  readonly tries: Tries<C>;
}

export type Knob = Count | Choice;

/** The values that a search tries for so many tokens, from what the knobs of the same phase are set to now. */
export type Tries<V> = (
  tokens: number,
  now: Readonly<Record<string, number | string>>,
  multiprocessors: number,
) => readonly V[];

/** [phase][knob] */
export type KnobTable = Readonly<Record<string, Readonly<Record<string, Knob>>>>;

export type KnobValues<T extends KnobTable> = {
  readonly [P in keyof T]: {
    readonly [K in keyof T[P]]: T[P][K] extends Choice<infer C> ? C : number;
  };
};

/** A value for every knob of some family. */
export type Tuning = Readonly<Record<string, Readonly<Record<string, number | string>>>>;

export const count = (
  summary: string,
  [min, max]: readonly [number, number],
  tries: Tries<number>,
  multipleOf = 1,
): Count => ({ kind: 'count', summary, min, max, multipleOf, tries });

/** Numbers of blocks that suit a GPU: half of its multiprocessors have one, each has one, one or two, two. */
export const blocksTried = (multiprocessors: number): number[] =>
  [0.5, 1, 1.5, 2].map((each) => Math.floor(each * multiprocessors));

export const choice = <const C extends string>(
  summary: string,
  choices: readonly C[],
  tries: Tries<C> = () => choices,
): Choice<C> => ({ kind: 'choice', summary, choices, tries });

/** Requires a value for every knob, in its range, and nothing else. `name`: what the argument is called. */
export function requireKnobs<T extends KnobTable>(
  table: T,
  tuning: unknown,
  name = 'tuning',
): asserts tuning is KnobValues<T> {
  const phases = requireEntries(name, tuning, Object.keys(table));
  for (const [phase, knobs] of Object.entries(table)) {
    const values = requireEntries(`${name}.${phase}`, phases[phase], Object.keys(knobs));
    for (const [key, knob] of Object.entries(knobs))
      requireKnob(knob, values[key], `${name}.${phase}.${key}`);
  }
}

/** Requires a value that this knob can have. */
export function requireKnob(knob: Knob, value: unknown, name: string): number | string {
  if (knob.kind === 'choice') return requireOneOf(name, value, knob.choices);
  const { min, max, multipleOf = 1 } = knob;
  const number = requireInteger(name, value, min, max);
  if (number % multipleOf !== 0) throw new ArgumentError(name, value, `a multiple of ${multipleOf}`);
  return number;
}

function requireEntries(name: string, value: unknown, keys: readonly string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ArgumentError(name, value, `an object of ${keys.join(', ')}`);
  const stranger = Object.keys(value).find((key) => !keys.includes(key));
  if (stranger !== undefined) {
    const possible = `absent: it has ${keys.join(', ')}`;
    throw new ArgumentError(`${name}.${stranger}`, Reflect.get(value, stranger), possible);
  }
  return value as Record<string, unknown>;
}
