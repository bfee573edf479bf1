/** const and let, patterns, shared memory and registers. */
import type { CallExpression, Node, Pattern, VariableDeclaration, VariableDeclarator } from 'acorn';
import * as build from '../build.js';
import { heldName, registerNames } from '../header.js';
import type { IrType, Tile } from '../types.js';
import { Call } from './call.js';
import { anyValue, constantText } from './coerce.js';
import type { Context, Declared } from './context.js';
import { freeze, keep, letVariable } from './context.js';
import { evaluate } from './expressions.js';
import { named } from './members.js';
import { propertyName, unsupported, wording } from './syntax.js';
import { describe, expression, type Value } from './values.js';

const mostRegisters = 256;

export function declaration(ctx: Context, node: VariableDeclaration): void {
  if (node.kind !== 'const' && node.kind !== 'let') {
    unsupported(ctx, node, node.kind, 'declare with const or let');
  }
  for (const declarator of node.declarations) {
    const whole = node.declarations.length === 1 ? node : declarator;
    if (!ctx.recover(() => declare(ctx, declarator, node.kind === 'let', whole))) {
      for (const name of names(declarator.id)) ctx.declare(name, { kind: 'poison' });
    }
  }
}

function names(pattern: Pattern): string[] {
  switch (pattern.type) {
    case 'Identifier':
      return [pattern.name];
    case 'ObjectPattern':
      return pattern.properties.flatMap((one) => names(one.type === 'Property' ? one.value : one));
    case 'ArrayPattern':
      return pattern.elements.flatMap((one) => (one === null ? [] : names(one)));
    case 'AssignmentPattern':
      return names(pattern.left);
    case 'RestElement':
      return names(pattern.argument);
    default:
      return [];
  }
}

function declare(ctx: Context, node: VariableDeclarator, mutable: boolean, whole: Node): void {
  if (!node.init) {
    unsupported(ctx, node, 'a variable without a first value', 'its type comes from its value');
  }
  if (node.init.type === 'CallExpression' && node.init.callee.type !== 'Super') {
    const callee = evaluate(ctx, node.init.callee);
    if (callee.kind === 'intrinsic' && (callee.name === 'shared' || callee.name === 'registers')) {
      declareMemory(ctx, node, node.init, callee.name, mutable, whole);
      return;
    }
  }
  if (node.id.type !== 'Identifier') {
    if (mutable) unsupported(ctx, node, 'let with a pattern', 'destructure with const');
    bind(ctx, node.id, evaluate(ctx, node.init), whole);
    return;
  }
  const { name } = node.id;
  const into: Declared = { name, mutable };
  const value = evaluate(ctx, node.init, into);
  if (value.kind === 'void') {
    ctx.fail(node.init, 'HK404', `\`${ctx.text(node.init)}\` returns nothing`);
  }
  // Where an effect is the whole initialiser, its statement has declared the author's variable already.
  const declared = into.variable !== undefined;
  ctx.declare(name, declared ? value : initial(ctx, node.init, whole, name, value, mutable));
}

function initial(ctx: Context, node: Node, whole: Node, name: string, value: Value, mutable: boolean): Value {
  if (!mutable) return keep(ctx, whole, name, value);
  return letVariable(ctx, whole, name, anyValue(ctx, node, value), true);
}

/** Binds the names of a pattern to (parts of) a value. */
export function bind(ctx: Context, pattern: Pattern, value: Value, whole: Node): void {
  switch (pattern.type) {
    case 'Identifier':
      ctx.declare(pattern.name, freeze(ctx, whole, pattern.name, value));
      return;
    case 'ObjectPattern':
      for (const property of pattern.properties) {
        if (property.type !== 'Property') unsupported(ctx, property, 'a rest pattern');
        if (property.computed) unsupported(ctx, property, 'a computed property');
        bind(ctx, property.value, named(ctx, property, value, propertyName(ctx, property.key)), whole);
      }
      return;
    case 'ArrayPattern':
      if (value.kind !== 'list') ctx.fail(pattern, 'HK404', `${describe(value)} is not a list`);
      pattern.elements.forEach((element, i) => {
        if (element === null) return;
        const item = value.items[i];
        if (item === undefined)
          ctx.fail(element, 'HK502', `${value.what} has only ${value.items.length} items`);
        else bind(ctx, element, item, whole);
      });
      return;
    case 'AssignmentPattern':
      unsupported(ctx, pattern, 'a default value');
      break;
    default:
      unsupported(ctx, pattern, wording(pattern.type));
  }
}

function declareMemory(
  ctx: Context,
  node: VariableDeclarator,
  init: CallExpression,
  kind: 'shared' | 'registers',
  mutable: boolean,
  whole: Node,
): void {
  const code = kind === 'shared' ? 'HK602' : 'HK603';
  if (node.id.type !== 'Identifier' || mutable) {
    ctx.fail(node, code, `declare it as const name = g.${kind}(type, length)`);
  }
  const { name } = node.id;
  const args = init.arguments.map((argument) => ({ node: argument, value: evaluate(ctx, argument) }));
  const call = new Call(ctx, init, `g.${kind}`, args, undefined);
  if (kind === 'shared') {
    const { value: of } = call.arg(0);
    const [type, length] = of.kind === 'tile' ? sharedTiles(call, of.tile) : sharedElements(call);
    const variable = ctx.variable(name, type);
    ctx.module.shared.push({ variable, length, span: ctx.span(whole) });
    ctx.declare(name, expression(ctx.read(variable)));
    return;
  }
  call.expect('type, length, fill?');
  const { node: typeNode, value: type } = call.arg(0);
  const of = heldName(constantText(ctx, typeNode, type, 'the type of registers', registerNames));
  const length = positive(call, 1, mostRegisters);
  const fill = call.has(2) ? call.as(2, build.valueType(of)) : build.zero(of);
  const variable = ctx.variable(name, { kind: 'registers', of, length }, true);
  ctx.emit({ kind: 'registers', span: ctx.span(whole), variable, fill });
  ctx.declare(name, { kind: 'registers', variable, of, length });
}

function sharedTiles(call: Call, tile: Tile): readonly [IrType, number] {
  call.expect('tile, count?');
  const count = call.has(1) ? positive(call, 1, 2 ** 20) : 1;
  return [build.tileType(tile), count * tile.rows * tile.columns];
}

function sharedElements(call: Call): readonly [IrType, number] {
  call.expect('type, length');
  return [build.pointerType(call.memoryName(0), 'shared'), positive(call, 1, 2 ** 20)];
}

function positive(call: Call, index: number, max: number): number {
  const length = call.constant(index, 'the length', max);
  return length > 0
    ? length
    : call.fail('HK502', 'the length is 0; it must be at least 1', call.arg(index).node);
}
