/** Syntax that the language does not have, and names in syntax. */
import type { Expression, Node } from 'acorn';
import type { Context } from './context.js';

/** 'ThisExpression' → 'this expression' */
export const wording = (type: string): string => type.replace(/(?!^)([A-Z])/g, ' $1').toLowerCase();

export function unsupported(ctx: Context, node: Node, what: string, advice?: string): never {
  return ctx.fail(
    node,
    'HK102',
    `the kernel language does not have this: ${what}${advice === undefined ? '' : `; ${advice}`}`,
  );
}

export function propertyName(ctx: Context, key: Node): string {
  const node = key as Expression;
  if (node.type === 'Identifier') return node.name;
  if (node.type === 'Literal' && typeof node.value === 'string') return node.value;
  return unsupported(ctx, key, 'this kind of property name');
}
