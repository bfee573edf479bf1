/** `of.key` and `of[key]`. */
import type { MemberExpression, Node } from 'acorn';
import * as build from '../build.js';
import { findField } from '../header.js';
import type { Expr } from '../ir.js';
import { showTile } from '../tile.js';
import type { Tile } from '../types.js';
import { constantInteger } from './coerce.js';
import type { Context } from './context.js';
import { builtins, groups, intrinsics, unroll } from './intrinsics.js';
import { habit, suggest } from './syntax.js';
import {
  describe,
  expression,
  type MethodName,
  pointerMethods,
  shown,
  tileMethods,
  type Value,
} from './values.js';

/** `of.key` */
export function named(ctx: Context, node: Node, of: Value, key: string): Value {
  switch (of.kind) {
    case 'record': {
      const entry = of.entries.get(key);
      return entry ?? missing(ctx, node, of.what, key, [...of.entries.keys()]);
    }
    case 'list':
      if (key === 'length') return { kind: 'literal', value: of.items.length };
      return missing(ctx, node, of.what, key, ['length']);
    case 'registers':
      if (key === 'length') return { kind: 'literal', value: of.length };
      return missing(ctx, node, describe(of), key, ['length']);
    case 'gpu':
      return gpuMember(ctx, node, of.path === '' ? key : `${of.path}.${key}`);
    case 'handle': {
      const { type, name } = of.variable;
      if (type.kind === 'tensorMap') {
        if (key === 'rank') return { kind: 'literal', value: type.rank };
        return missing(ctx, node, build.showType(type), key, ['rank']);
      }
      if (key === 'at') return { kind: 'method', of, name: 'at' };
      return ctx.fail(node, 'HK402', `say which rank's window: ${name}.at(rank).${key}`);
    }
    case 'window':
      return windowField(ctx, node, of, key);
    case 'tile':
      return tileMember(ctx, node, of.tile, key);
    case 'expr': {
      const { type } = of.expr;
      const methods: readonly MethodName[] =
        type.kind !== 'pointer' ? [] : type.tile === undefined ? pointerMethods : tileMethods;
      const name = methods.find((method) => method === key);
      if (name !== undefined) return { kind: 'method', of, name };
      return missing(ctx, node, build.showType(type), key, methods);
    }
    default:
      return missing(ctx, node, describe(of), key, []);
  }
}

/** The facts about a tile that a kernel may know. */
function tileMember(ctx: Context, node: Node, tile: Tile, key: string): Value {
  const { type, rows, columns, swizzle, bytes, alignment } = tile;
  const numbers: Readonly<Record<string, number>> = { rows, columns, swizzle, bytes, alignment };
  if (key === 'type') return { kind: 'string', value: type };
  if (Object.hasOwn(numbers, key)) return { kind: 'literal', value: numbers[key]! };
  return missing(ctx, node, `the tile ${showTile(tile)}`, key, ['type', ...Object.keys(numbers)]);
}

function missing(ctx: Context, node: Node, what: string, key: string, known: readonly string[]): never {
  const has = known.length === 0 ? '' : `; it has ${known.slice(0, 12).join(', ')}`;
  return ctx.fail(node, 'HK402', `${what} has no member ${key}${suggest(key, known)}${has}`);
}

function gpuMember(ctx: Context, node: Node, path: string): Value {
  const builtin = Object.hasOwn(builtins, path) ? builtins[path] : undefined;
  if (builtin !== undefined) return expression({ kind: 'builtin', type: build.u32, name: builtin });
  if (groups.has(path)) return { kind: 'gpu', path };
  if (Object.hasOwn(intrinsics, path) || path === unroll) return { kind: 'intrinsic', name: path };
  const known = [...Object.keys(intrinsics), ...Object.keys(builtins), unroll];
  const advice = habit(path) || suggest(path, known) || '; docs/language.md lists what a thread can do';
  return ctx.fail(node, 'HK401', `there is no g.${path}${advice}`);
}

function windowField(ctx: Context, node: Node, of: Value & { kind: 'window' }, key: string): Value {
  const { variable, layout, rank } = of;
  const address = (name: string): Value | undefined => {
    const field = findField(layout, name);
    if (field === undefined) return undefined;
    const type = build.pointerType(field.type, 'global');
    const of = { layout: layout.name, field, before: 0 };
    const expr: Expr = { kind: 'field', type, window: variable, rank, field };
    return { kind: 'expr', expr, shape: { of, extents: field.shape } };
  };
  const single = address(key);
  if (single !== undefined) return single;
  const items: Value[] = [];
  for (let item = address(`${key}_0`); item !== undefined; item = address(`${key}_${items.length}`)) {
    items.push(item);
  }
  if (items.length > 0) return { kind: 'list', items, what: `the fields ${layout.name}.${key}` };
  const known = [...new Set(layout.fields.map((field) => field.name.replace(/_\d+$/, '')))];
  return missing(ctx, node, `the layout ${layout.name}`, key, known);
}

/** `of[key]` with a key that is not text */
export function indexed(ctx: Context, node: MemberExpression, of: Value, key: Value): Value {
  if (of.kind === 'list') {
    const index = constantInteger(
      ctx,
      { node: node.property, value: key },
      `the index into ${of.what}`,
      of.items.length - 1,
    );
    return of.items[index]!;
  }
  if (of.kind === 'registers') {
    return expression({
      kind: 'register',
      type: build.valueType(of.of),
      array: of.variable,
      index: registerIndex(ctx, node.property, of, key),
    });
  }
  const advice =
    of.kind === 'expr' && of.expr.type.kind === 'pointer' ? '; write g.load(pointer.at(index))' : '';
  return ctx.fail(node, 'HK402', `${shown(of)} has no elements${advice}`);
}

export function registerIndex(
  ctx: Context,
  node: Node,
  of: Value & { kind: 'registers' },
  key: Value,
): number {
  if (key.kind === 'expr' && key.expr.kind !== 'const') {
    const message = `registers have no addresses, so the index into ${of.variable.name} must be a constant; loop with g.unroll`;
    return ctx.fail(node, 'HK501', message);
  }
  return constantInteger(ctx, { node, value: key }, `the index into ${of.variable.name}`, of.length - 1);
}
