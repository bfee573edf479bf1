/**
 * Hostile values at every place of a valid input. A parser either reads something valid or throws the error that is its own;
 * nothing else comes out of it, and nothing stays changed.
 */
import { inspect } from 'node:util';
import fc from 'fast-check';
import { expect } from 'vitest';

/** What may stand at a place of a JSON text. Some of it, read back, cannot be made a text or a number. */
const texts: readonly string[] = [
  ...[
    'null',
    'true',
    'false',
    '0',
    '-0',
    '-1',
    '1.5',
    '4294967296',
    '9007199254740993',
    '1e308',
    '1e999',
    '-1e999',
  ],
  ...[
    '""',
    '"x"',
    '"1"',
    '"0x10"',
    '"5n"',
    '"NaN"',
    '"__proto__"',
    '"constructor"',
    '"\\ud800"',
    '"\\u0000"',
  ],
  JSON.stringify('x'.repeat(3_000)),
  ...['[]', '[[]]', '[null]', '[1,1]', '[-1]', '["1"]', `${'['.repeat(5_000)}${']'.repeat(5_000)}`],
  ...[
    '{}',
    '{"toString":1,"valueOf":1}',
    '{"toString":null,"valueOf":{}}',
    '{"length":-1}',
    '{"length":1e999}',
  ],
  ...[
    '{"__proto__":{"polluted":1}}',
    '{"constructor":1}',
    '{"constructor":{"name":{}}}',
    '{"then":1}',
    '{"0":0}',
  ],
  `${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}`,
];

const refusing = (): never => {
  throw new TypeError('not to be asked');
};

/** What may stand where no JSON was. */
export const hostileValues: readonly unknown[] = [
  ...texts.map((text): unknown => JSON.parse(text)),
  ...[undefined, Number.NaN, 5n, Symbol('s'), () => 0, new Map(), new Uint8Array(3), Object.create(null)],
  { toString: refusing, valueOf: refusing },
  { [Symbol.toPrimitive]: refusing },
  new Proxy({}, { get: refusing, has: refusing, ownKeys: refusing }),
];

/** A place, as the names that lead there. */
type Place = readonly string[];

/** All of them; of a list those in its first two, which stand for the others. */
function placesOf(value: unknown): Place[] {
  if (typeof value !== 'object' || value === null) return [[]];
  const members = Object.entries(value).slice(0, Array.isArray(value) ? 2 : undefined);
  return [[], ...members.flatMap(([name, part]) => placesOf(part).map((place) => [name, ...place]))];
}

/** What becomes of the member at a place. */
type Edit = (member: (text: string) => string, good: string) => string;

const replace =
  (text: string): Edit =>
  (member) =>
    member(text);
const edits: readonly Edit[] = [
  ...texts.map(replace),
  () => '',
  (member, good) => `${member(good)},${member(good)}`,
  ...['null', '{"toString":1}'].map(
    (text): Edit =>
      (member, good) =>
        `${member(good)},${member(text)}`,
  ),
  (_, good) => `"__proto__":${good}`,
];

function edited(value: unknown, [name, ...rest]: Place, edit: Edit): string {
  if (name === undefined) return edit((text) => text, JSON.stringify(value));
  const listed = Array.isArray(value);
  const members = Object.entries(value as object).map(([key, part]) => {
    const member = (text: string) => (listed ? text : `${JSON.stringify(key)}:${text}`);
    if (key !== name) return member(JSON.stringify(part));
    return rest.length > 0 ? member(edited(part, rest, edit)) : edit(member, JSON.stringify(part));
  });
  const inside = members.filter((text) => text !== '').join(',');
  return listed ? `[${inside}]` : `{${inside}}`;
}

/** JSON texts of a value in which one thing is wrong, and some that are no JSON. */
export function* spoiltJson(valid: unknown): Generator<string> {
  for (const place of placesOf(valid)) for (const edit of edits) yield edited(valid, place, edit);
  const whole = JSON.stringify(valid);
  for (let i = 0; i < 16; i++) yield whole.slice(0, Math.floor((whole.length * i) / 16));
  yield* [`\ufeff${whole}`, `${whole}}`, `${whole}\0`, whole.replace('{', '{"__proto__":{"polluted":1},')];
}

/** Copies of an object with another value at one place. */
export function* spoiltObjects<T extends object>(valid: T): Generator<T> {
  for (const name of Object.keys(valid)) for (const value of hostileValues) yield { ...valid, [name]: value };
}

/** Copies of bytes of which some are others, are missing or are too many. */
export function* spoiltBytes(valid: Uint8Array): Generator<Uint8Array> {
  for (let length = 0; length < valid.length; length++) yield valid.slice(0, length);
  yield Uint8Array.of(...valid, 0);
  for (const [at, byte] of valid.entries())
    for (const other of [0, 1, 0x7f, 0x80, 0xff, byte ^ 1]) yield valid.with(at, other);
  const patterns = [Number.NaN, Number.POSITIVE_INFINITY, -1, 0, 0.5, 2 ** 53, 1e300];
  for (let at = 0; at + 8 <= valid.length; at += 8)
    for (const number of patterns) {
      const copy = valid.slice();
      new DataView(copy.buffer).setFloat64(at, number, true);
      yield copy;
    }
}

/**
 * Reads each input. `refusal` is the parser's own error; `expectValid` looks at what was read. Some must be read, and some refused:
 * else the inputs show nothing.
 */
export function readAll<I, T>(
  inputs: Iterable<I>,
  read: (input: I) => T,
  refusal: new (...args: never[]) => Error,
  expectValid: (value: T) => void,
): void {
  const count = { read: 0, refused: 0 };
  // Making stacks of errors would take most of the time.
  const { stackTraceLimit } = Error;
  for (const input of inputs) {
    Error.stackTraceLimit = 0;
    let value: T;
    try {
      value = read(input);
    } catch (error) {
      if (!(error instanceof refusal)) throw new Error(`another error for ${shown(input)}`, { cause: error });
      count.refused++;
      continue;
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
    try {
      expectValid(value);
    } catch (error) {
      throw new Error(`read as valid: ${shown(input)}`, { cause: error });
    }
    count.read++;
  }
  expect(count.read).toBeGreaterThan(0);
  expect(count.refused).toBeGreaterThan(0);
  expect(Reflect.get({}, 'polluted')).toBeUndefined();
}

const shown = (input: unknown): string =>
  inspect(input, { showProxy: true, depth: 3, maxStringLength: 500, maxArrayLength: 300 });

/** The same at places and with values that fast-check draws, several at once. */
export const drawnJson = (valid: unknown, seed: number, numRuns = 500): string[] => {
  const places = placesOf(valid);
  const wrong = fc.record({
    place: fc.constantFrom(...places),
    text: fc.json(),
  });
  return fc
    .sample(fc.array(wrong, { minLength: 1, maxLength: 3 }), { seed, numRuns })
    .map((all) =>
      all.reduce((text, { place, text: other }) => again(text, place, other), JSON.stringify(valid)),
    );
};

/** What was spoilt, spoilt once more, as far as the place is still there. */
function again(text: string, place: Place, other: string): string {
  const value: unknown = JSON.parse(text);
  let part = value;
  for (const [depth, name] of place.entries()) {
    if (typeof part !== 'object' || part === null || !Object.hasOwn(part, name))
      return edited(value, place.slice(0, depth), replace(other));
    part = Reflect.get(part, name);
  }
  return edited(value, place, replace(other));
}
