/** Tiles in shared memory: `.at(stage)`, `.element(row, column)` and `.rows(first, count)` do the arithmetic of their layout. */
import * as build from '../build.js';
import type { Expr } from '../ir.js';
import { rowsOf, showTile, swizzleOfIndex } from '../tile.js';
import type { Field, Tile } from '../types.js';
import type { Call } from './call.js';
import { viewAs } from './shapes.js';
import { expression, type MethodName, type Value } from './values.js';

/** After so many rows the pattern of a swizzle repeats. */
const patternRows = 8;

export function tileMethod(call: Call, pointer: Expr, tile: Tile, name: MethodName): Value {
  switch (name) {
    case 'at': {
      call.expect('index');
      const index = build.convert(build.u32, call.oneOf(0, 'u32', 'i32'));
      return expression(moved(pointer, times(index, tile.rows * tile.columns)));
    }
    case 'element':
      return element(call, pointer, tile);
    case 'rows':
      return rows(call, pointer, tile);
    case 'as':
      return viewAs(call, pointer, undefined);
  }
}

function element(call: Call, pointer: Expr, tile: Tile): Value {
  call.expect('row, column');
  const indices = [call.oneOf(0, 'u32', 'i32'), call.oneOf(1, 'u32', 'i32')] as const;
  const extents = [tile.rows, tile.columns];
  for (const [i, index] of indices.entries()) {
    if (index.kind !== 'const' || (Number(index.value) >= 0 && Number(index.value) < extents[i]!)) continue;
    const message = `${dimensions[i]} is ${index.value}, but the tile ${showTile(tile)} has ${extents[i]}`;
    call.fail('HK502', message, call.arg(i).node);
  }
  const [row, column] = indices.map((index) => build.convert(build.u32, index)) as [Expr, Expr];
  const value = swizzledIndex(build.binary('+', times(row, tile.columns), column), tile);
  const known = indices.every((index) => index.kind === 'const');
  const index: Expr = known
    ? value
    : {
        kind: 'index',
        type: build.u32,
        value,
        indices,
        extents,
        of: { layout: 'a tile', field: fieldOf(tile), before: 0 },
      };
  const elements: Expr = { kind: 'view', type: build.pointerType(tile.type, 'shared'), pointer };
  return expression({ kind: 'offset', type: elements.type, pointer: elements, index });
}

const dimensions = ['row', 'column'];

/** As findings name an element. */
const fieldOf = (tile: Tile): Field => ({
  name: showTile(tile),
  type: tile.type,
  length: tile.rows * tile.columns,
  shape: [tile.rows, tile.columns],
  dimensions,
  offset: 0,
});

function swizzledIndex(index: Expr, tile: Tile): Expr {
  const pattern = swizzleOfIndex(tile);
  if (pattern === null) return index;
  const number = (of: number): Expr => build.constant('u32', of);
  const line = build.binary('>>', index, number(pattern.lines));
  const other = build.binary('<<', build.binary('&', line, number(pattern.mask)), number(pattern.piece));
  return build.binary('^', index, other);
}

function rows(call: Call, pointer: Expr, tile: Tile): Value {
  call.expect('first, count');
  const first = call.oneOf(0, 'u32', 'i32');
  const count = call.constant(1, 'the number of rows', tile.rows);
  const known = first.kind === 'const' ? Number(first.value) : 0;
  if (count === 0 || count % patternRows !== 0 || known % patternRows !== 0) {
    return call.fail(
      'HK502',
      `rows of a tile are taken in multiples of ${patternRows}, after which a swizzle repeats`,
    );
  }
  if (known < 0 || known + count > tile.rows)
    return call.fail(
      'HK502',
      `rows ${known} to ${known + count - 1} are not all of the ${tile.rows} of the tile`,
    );
  const there = moved(pointer, times(build.convert(build.u32, first), tile.columns));
  return expression({ kind: 'view', type: build.tileType(rowsOf(tile, count)), pointer: there });
}

const times = (index: Expr, by: number): Expr => build.binary('*', index, build.constant('u32', by));

function moved(pointer: Expr, elements: Expr): Expr {
  if (elements.kind === 'const' && elements.value === 0) return pointer;
  return { kind: 'offset', type: pointer.type, pointer, index: elements };
}
