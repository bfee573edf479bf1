/** Every operation, whatever it is: what no type can tell. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Constant } from '../../src/lang/arithmetic.js';
import { builtins, intrinsics } from '../../src/lang/lower/intrinsics.js';
import { operationNames, operations } from '../../src/lang/operations/index.js';
import { pureFunctions, pureNames } from '../../src/lang/operations/pure.js';
import { edges } from './cuda/edges.js';
import type { Computed } from './cuda/every-operation.js';

test('the table of docs/language.md has a place for each function and builtin of g, and for no other', () => {
  const page = readFileSync(new URL('../../docs/language.md', import.meta.url), 'utf8');
  const [, table = ''] = /## What a thread can do\n[^|]*((?:\|.*\n)+)/.exec(page)!;
  let group = '';
  const paths = [...table.matchAll(/`(g)?\.([\w.]+)/g)].map(([, g, path]) => {
    // Functions of a group share a row: `g.bulk.load`, `.store`, …
    if (g === undefined) return `${group}${path}`;
    group = path!.replace(/\w+$/, '');
    return path!;
  });
  // Those of networks have a table beside the twins in which they stand.
  const known = [...Object.keys(intrinsics), ...Object.keys(builtins), 'unroll'];
  expect([...new Set(paths)].sort()).toEqual(known.filter((path) => !path.startsWith('network.')).sort());
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
