/** const and let, and patterns. */
import type { Node, Pattern, VariableDeclaration, VariableDeclarator } from 'acorn';
import { anyValue } from './coerce.js';
import type { Context, Declared } from './context.js';
import { freeze, keep, letVariable } from './context.js';
import { evaluate } from './expressions.js';
import { named } from './members.js';
import { propertyName, unsupported, wording } from './syntax.js';
import { called, describe, expression, severalOf, type Value } from './values.js';

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
  if (node.id.type !== 'Identifier') {
    if (mutable) unsupported(ctx, node, 'let with a pattern', 'destructure with const');
    bind(ctx, node.id, evaluate(ctx, node.init), whole);
    return;
  }
  const { name } = node.id;
  const into: Declared = { name, mutable, node: whole };
  const value = evaluate(ctx, node.init, into);
  if (value.kind === 'void') {
    ctx.fail(node.init, 'HK404', `\`${ctx.text(node.init)}\` returns nothing`);
  }
  // Where an effect or memory is the whole initialiser, it has declared the author's variable already.
  const declared = into.variable !== undefined;
  ctx.declare(name, declared ? value : initial(ctx, node.init, whole, name, value, mutable));
}

function initial(ctx: Context, node: Node, whole: Node, name: string, value: Value, mutable: boolean): Value {
  if (!mutable) return keep(ctx, whole, name, value);
  const variable = letVariable(ctx, whole, name, anyValue(ctx, { node, value }), true);
  const shape = severalOf(value);
  return shape === undefined
    ? expression(variable)
    : { kind: 'expr', expr: variable, shape: called(name, shape) };
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
