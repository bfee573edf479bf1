/**
 * The kinds of values that an expression can have while a body is lowered. Only `expr` exists at run time; everything else is known to
 * the compiler and is gone from the IR.
 */
import type { Node } from 'acorn';
import type { HeldName } from '../arithmetic.js';
import { showType } from '../build.js';
import type { DeviceDefinition } from '../definition.js';
import type { Expr, Shaped, Variable } from '../ir.js';
import { showTile } from '../tile.js';
import type { Layout, Tile } from '../types.js';

export type Value =
  /** `shape`: of the field, or the rest of one, that a pointer points to. */
  | { readonly kind: 'expr'; readonly expr: Expr; readonly shape?: Shape }
  /**
   * A number without a width: it takes the type of what it meets. `complement`: made by ~, so a negative value
   * stands for the same bits of an unsigned type.
   */
  | { readonly kind: 'literal'; readonly value: number | bigint; readonly complement?: true }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'list'; readonly items: readonly Value[]; readonly what: string }
  | {
      readonly kind: 'record';
      readonly entries: ReadonlyMap<string, Value>;
      readonly what: string;
      /** Places of its entries, if they were written. */
      readonly nodes?: ReadonlyMap<string, Node>;
    }
  | {
      readonly kind: 'registers';
      readonly variable: Variable;
      readonly of: HeldName;
      readonly length: number;
    }
  /** A parameter that no variable can hold: `peers()`, `tensorMap()`. */
  | { readonly kind: 'handle'; readonly variable: Variable }
  /** `win.at(rank)`: one rank's window. */
  | { readonly kind: 'window'; readonly variable: Variable; readonly layout: Layout; readonly rank: Expr }
  /** The result of tile(), known when the kernel is made. */
  | { readonly kind: 'tile'; readonly tile: Tile }
  /** `g` ('') or one of its parts ('warp', 'threadIdx'). */
  | { readonly kind: 'gpu'; readonly path: string }
  /** A function of `g`, by its path: 'load', 'warp.ballot'. */
  | { readonly kind: 'intrinsic'; readonly name: string }
  /** `pointer.at`, `tiles.element`, `win.at` …, not called yet. */
  | { readonly kind: 'method'; readonly of: Value; readonly name: MethodName }
  | { readonly kind: 'device'; readonly definition: DeviceDefinition; readonly name: string }
  | { readonly kind: 'void' };

export interface Argument {
  readonly node: Node;
  readonly value: Value;
}

export const pointerMethods = ['at', 'as'] as const;
export const tileMethods = ['at', 'element', 'rows', 'as'] as const;
export type MethodName = (typeof tileMethods)[number];

/** The dimensions that are left to index. */
export interface Shape {
  readonly of: Shaped;
  readonly extents: readonly number[];
}

/** The shape of a value that has several dimensions. Without a shape of one dimension an element is where it is with it. */
export const severalOf = (value: Value): Shape | undefined =>
  value.kind === 'expr' && value.shape !== undefined && value.shape.extents.length > 1
    ? value.shape
    : undefined;

/** The shape of what is the field, or the part of one, only by that name. */
export function called(name: string, { of: { layout, field, before }, extents }: Shape): Shape {
  const dimensions = field.dimensions.slice(before);
  return { of: { layout, field: { ...field, name, dimensions }, before: 0 }, extents };
}

export const expression = (expr: Expr): Value => ({ kind: 'expr', expr });

export function describe(value: Value): string {
  switch (value.kind) {
    case 'literal':
      return `the constant ${value.value}`;
    case 'string':
      return `the text '${value.value}'`;
    case 'list':
    case 'record':
      return value.what;
    case 'registers':
      return `the register array ${value.variable.name}`;
    case 'handle':
      return `the ${value.variable.type.kind === 'peers' ? 'windows' : 'tensor'} ${value.variable.name}`;
    case 'window':
      return `a window of ${value.variable.name}`;
    case 'tile':
      return `the tile ${showTile(value.tile)}`;
    case 'gpu':
      return value.path === '' ? 'g' : `g.${value.path}`;
    case 'intrinsic':
      return `the function g.${value.name}`;
    case 'method':
      return `the function ${value.name}`;
    case 'device':
      return `the device function ${value.name}`;
    case 'void':
      return 'nothing (the function returns no value)';
    case 'expr':
      return 'a value';
  }
}

/** The type of a run-time value, or what else it is. */
export const shown = (value: Value): string =>
  value.kind === 'expr' ? showType(value.expr.type) : describe(value);
