/** Shaped fields: `.at(source, token, unit)` does the arithmetic, and the simulator holds it against the shape. */
import * as build from '../build.js';
import { mostIndexed } from '../header.js';
import type { Expr } from '../ir.js';
import { rowsOf, showTile, swizzleOfIndex } from '../tile.js';
import { byteSize, type Field, type Tile } from '../types.js';
import type { Call } from './call.js';
import { expression, type MethodName, type Shape, type Value } from './values.js';

/** The element, or with fewer indices than dimensions the part of the field behind them. */
export function indexShape(call: Call, pointer: Expr, { of, extents }: Shape): Value {
  const { name, dimensions, length } = of.field;
  const names = extents.map((_, i) => dimensions[of.before + i] ?? `index${of.before + i}`);
  call.expect(names.map((name, i) => (i === 0 ? name : `${name}?`)).join(', '));
  const indices = call.args.map((_, i) => call.oneOf(i, 'u32', 'i32'));
  const indexed = extents.slice(0, indices.length);
  const rest = extents.slice(indices.length);
  const known = indices.every((index) => index.kind === 'const');
  // A field of none is one that this specialisation has not: whatever mentions it does not run.
  if (length > 0) requireIndices(call, indices, indexed, names, name);
  const value = rowMajor(indices, indexed, rest);
  const checked = known && length > 0;
  const index: Expr = checked
    ? value
    : { kind: 'index', type: value.type, value, indices, extents: indexed, of };
  const expr: Expr = { kind: 'offset', type: pointer.type, pointer, index };
  if (rest.length === 0) return { kind: 'expr', expr };
  return { kind: 'expr', expr, shape: { of: { ...of, before: of.before + indices.length }, extents: rest } };
}

/** Requires that indices which the compiler knows are within their dimensions. */
function requireIndices(
  call: Call,
  indices: readonly Expr[],
  extents: readonly number[],
  names: readonly string[],
  of: string,
): void {
  for (const [i, index] of indices.entries()) {
    const most = extents[i]! - 1;
    if (index.kind !== 'const' || (Number(index.value) >= 0 && Number(index.value) <= most)) continue;
    const message = `${names[i]} of ${of} is ${index.value}; it must be from 0 to ${most}`;
    call.fail('HK502', message, call.arg(i).node);
  }
}

/** The offset of an element, as u32: ((i · J + j) · K + k) times the elements of one such part. */
function rowMajor(indices: readonly Expr[], extents: readonly number[], rest: readonly number[]): Expr {
  const [first, ...others] = indices;
  if (first === undefined) return build.constant('u32', 0);
  if (others.length === 0 && rest.length === 0) return first;
  const times = (value: Expr, by: number): Expr => build.binary('*', value, build.constant('u32', by));
  const rows = others.reduce(
    (sum, index, i) => build.binary('+', times(sum, extents[i + 1]!), build.convert(build.u32, index)),
    build.convert(build.u32, first),
  );
  return times(
    rows,
    rest.reduce((product, extent) => product * extent, 1),
  );
}

/** A pointer to elements of another type. The last dimension of its shape has more or fewer of them. */
export function viewAs(call: Call, pointer: Expr, shape: Shape | undefined): Value {
  call.expect('type');
  const to = call.memoryName(0);
  if (pointer.type.kind !== 'pointer') return { kind: 'expr', expr: pointer };
  const { to: from, space, tile } = pointer.type;
  const expr: Expr =
    from === to && tile === undefined
      ? pointer
      : { kind: 'view', type: build.pointerType(to, space), pointer };
  if (shape === undefined) return { kind: 'expr', expr };
  const { of, extents } = shape;
  const bytes = extents.at(-1)! * byteSize[from];
  if (extents.length > 1 && bytes % byteSize[to] !== 0) {
    return call.fail('HK305', `a row of ${of.field.name} has ${bytes} bytes, which are no whole ${to}`);
  }
  const seen = [...extents.slice(0, -1), Math.floor(bytes / byteSize[to])];
  const elements = seen.reduce((product, extent) => product * extent, 1);
  if (seen.length > 1 && elements > mostIndexed) {
    const message = `${of.field.name} has ${elements} elements of ${to}, and an index counts to ${mostIndexed}; index it to a part first`;
    return call.fail('HK502', message);
  }
  return { kind: 'expr', expr, shape: { of, extents: seen } };
}

/** Tiles in shared memory: `.at(stage)`, `.element(row, column)` and `.rows(first, count)` do the arithmetic of their layout. */

/** The number of rows after which the pattern of a swizzle repeats. */
const patternRows = 8;

export function tileMethod(call: Call, pointer: Expr, tile: Tile, name: MethodName): Value {
  switch (name) {
    case 'at': {
      call.expect('index');
      return expression(moved(pointer, times(call.oneOf(0, 'u32', 'i32'), tile.rows * tile.columns)));
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
  requireIndices(call, indices, extents, dimensions, `the tile ${showTile(tile)}`);
  const [row, column] = indices.map((index) => build.convert(build.u32, index)) as [Expr, Expr];
  const value = swizzledIndex(build.binary('+', times(row, tile.columns), column), tile);
  const index = checked(tile, value, indices, dimensions, extents);
  const elements: Expr = { kind: 'view', type: build.pointerType(tile.type, 'shared'), pointer };
  return expression({ kind: 'offset', type: elements.type, pointer: elements, index });
}

const dimensions = ['row', 'column'];

/** An index of a tile's elements, whose parts checked mode compares with what they may be. */
function checked(
  tile: Tile,
  value: Expr,
  indices: readonly Expr[],
  dimensions: readonly string[],
  extents: readonly number[],
): Expr {
  if (indices.every(({ kind }) => kind === 'const')) return value;
  const { type, rows, columns } = tile;
  const length = rows * columns;
  const field: Field = { name: showTile(tile), type, length, shape: [rows, columns], dimensions, offset: 0 };
  return {
    ...{ kind: 'index', type: value.type, value, indices, extents },
    of: { layout: 'a tile', field, before: 0 },
  };
}

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
    const message = `rows of a tile are taken in multiples of ${patternRows}, after which a swizzle repeats`;
    return call.fail('HK502', message);
  }
  if (known < 0 || known + count > tile.rows)
    return call.fail(
      'HK502',
      `rows ${known} to ${known + count - 1} are not all of the ${tile.rows} of the tile`,
    );
  const start = build.convert(build.u32, first);
  const parts = [start, build.binary('%', start, build.constant('u32', patternRows))];
  const names = ['first row', `first row % ${patternRows}`];
  const index = checked(tile, times(start, tile.columns), parts, names, [tile.rows - count + 1, 1]);
  const there = moved(pointer, index);
  return expression({ kind: 'view', type: build.tileType(rowsOf(tile, count)), pointer: there });
}

/** An index that counts parts of so many elements, as one that counts elements; a negative one stays negative. */
const times = (index: Expr, by: number): Expr =>
  build.binary('*', index, build.convert(index.type, build.constant('u32', by)));

function moved(pointer: Expr, elements: Expr): Expr {
  if (elements.kind === 'const' && elements.value === 0) return pointer;
  return { kind: 'offset', type: pointer.type, pointer, index: elements };
}
