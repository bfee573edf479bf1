/** Each kind of value in each way to hold it is right, or refused. */
import { expect, test } from 'vitest';
import { cells, held, refusals, runCells } from './holding.js';

/** Of values that only the compiler knows: what a variable would hold. */
const asValue = ['let', 'let, assigned', '?:', 'select'];
const handedOn = ['passed', 'returned', 'returned to let', 'returned in two places'];
const elsewhere = ['object', 'array', 'item', ...handedOn];
const many = ['list of fields', 'registers', 'narrow registers', 'text', 'list', 'record'];
const expected: readonly (readonly [code: string, kinds: readonly string[], ways: readonly string[]])[] = [
  ['HK404', [...many, 'window', 'windows', 'tensorMap'], [...asValue, 'returned to let']],
  ['HK404', ['tile', 'device function', 'function of g', 'part of g', 'method'], asValue],
  ['HK602', ['new shared array'], [...asValue, ...elsewhere]],
  ['HK603', ['new registers'], [...asValue, ...elsewhere]],
  ['HK601', ['narrow load', 'narrow load, shared'], ['?:']],
  // A header says nothing of shapes: its pointers have one index.
  ['HK306', ['shaped field', 'view of a field'], handedOn],
  ['HK306', ['list of fields'], handedOn.filter((way) => way !== 'returned to let')],
  ['HK301', ['other shapes'], ['let, assigned', '?:', 'select']],
  ['HK301', ['a shape and none'], ['let, assigned']],
  // It becomes an i32.
  ['HK301', ['complement'], ['let', '?:', 'select']],
  ['HK607', ['constant', 'text'], ['returned in two places']],
];

test('what is refused', () => {
  const all = expected.flatMap(([code, kinds, ways]) =>
    kinds.flatMap((kind) => ways.map((way) => `${kind} by ${way}: ${code}`)),
  );
  expect(refusals).toEqual(all.sort());
  expect(held.length + all.length).toBe(cells.length);
});

test.each(['fast', 'checked'] as const)('what is accepted is right (%s)', async (mode) => {
  expect(await runCells(held, mode)).toEqual([]);
});
