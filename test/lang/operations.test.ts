/** Every operation, whatever it is: what no type can tell. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Constant } from '../../src/lang/arithmetic.js';
import { operationNames, operations } from '../../src/lang/operations/index.js';
import { pureFunctions, pureNames } from '../../src/lang/operations/pure.js';
import type { Computed } from './cuda/every-operation.js';
import { edges } from './cuda/random-ir.js';

const page = readFileSync(new URL('../../docs/language.md', import.meta.url), 'utf8');
const rows = page.split('\n').filter((line) => line.startsWith('|'));

test.each([...operationNames, ...pureNames])('a table of docs/language.md has g.%s', (path) => {
  const [name, inner] = path.split('.');
  // Functions of a group share a row: `g.bulk.load`, `.store`, …
  const has = new RegExp(
    inner === undefined ? `\`g\\.${name}\\b` : `\`g\\.${name}\\..*\\.${inner}\\b|\`g\\.${path}\\b`,
  );
  expect(rows.filter((row) => has.test(row))).not.toEqual([]);
});

test.each(operationNames)('the mutants of %s change what it takes', (name) => {
  const { takes, options, weaker, misgiven = [] } = operations[name];
  for (const { operand } of misgiven) expect(Object.keys({ ...takes, ...options })).toContain(operand);
  const less = operationNames.find((other) => other === weaker?.op);
  expect(less).toBe(weaker?.op);
  if (less !== undefined) expect(Object.keys(operations[less].takes)).toEqual(Object.keys(takes));
});

describe.each(pureNames)('%s computes', (name) => {
  const { forms } = pureFunctions[name];
  test.each(Object.keys(forms) as Computed[])('a %s that fits a register of the simulator', (type) => {
    const compute = forms[type]!.compute as (...operands: Constant[]) => Constant;
    const fits = { i32: int, u32: int, u64: (x: Constant) => BigInt.asUintN(64, BigInt(x)), f32: round }[
      type
    ];
    const values = type === 'u32' ? edges.u32.map(int) : edges[type];
    for (const a of values)
      for (const b of values) {
        const result = compute(...[a, b, a].slice(0, compute.length));
        expect(result).toBe(fits(result));
      }
  });
});

const int = (x: Constant): number => Number(x) | 0;
const round = (x: Constant): number => Math.fround(Number(x));
