/** Shaped fields: `.at(source, token, unit)` does the arithmetic, and the simulator holds it against the shape. */
import * as build from '../build.js';
import type { Expr } from '../ir.js';
import { byteSize } from '../types.js';
import type { Call } from './call.js';
import type { Shape, Value } from './values.js';

/** The element, or with fewer indices than dimensions the part of the field behind them. */
export function indexShape(call: Call, pointer: Expr, { of, extents }: Shape): Value {
  const names = extents.map((_, i) => of.field.dimensions[of.before + i] ?? `index${of.before + i}`);
  call.expect(names.map((name, i) => (i === 0 ? name : `${name}?`)).join(', '));
  const indices = call.args.map((_, i) => call.oneOf(i, 'u32', 'i32'));
  const indexed = extents.slice(0, indices.length);
  const rest = extents.slice(indices.length);
  const known = indices.every((index) => index.kind === 'const');
  for (const [i, index] of indices.entries()) {
    const extent = indexed[i]!;
    // A field of none is one that this specialisation has not: whatever mentions it does not run.
    if (index.kind !== 'const' || of.field.length === 0) continue;
    if (Number(index.value) < 0 || Number(index.value) >= extent) {
      const message = `${names[i]} is ${index.value}, but ${of.field.name} has ${extent} there`;
      call.fail('HK502', message, call.arg(i).node);
    }
  }
  const value = rowMajor(indices, indexed, rest);
  const checked = known && of.field.length > 0;
  const index: Expr = checked
    ? value
    : { kind: 'index', type: value.type, value, indices, extents: indexed, of };
  const expr: Expr = { kind: 'offset', type: pointer.type, pointer, index };
  if (rest.length === 0) return { kind: 'expr', expr };
  return { kind: 'expr', expr, shape: { of: { ...of, before: of.before + indices.length }, extents: rest } };
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

/** The same place, seen as elements of another type: the last dimension has more or fewer of them. */
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
  const last = Math.floor(bytes / byteSize[to]);
  return { kind: 'expr', expr, shape: { of, extents: [...extents.slice(0, -1), last] } };
}
