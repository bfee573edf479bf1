/** The body of a kernel or of a device function: its three parameters, then its statements. */
import type { Definition } from '../definition.js';
import type { Context } from './context.js';
import { bind } from './declarations.js';
import { lowerExpressionBody, lowerStatements } from './statements.js';
import { usingValue } from './using.js';
import type { Value } from './values.js';

/** Returns true when control never comes out at the end. */
export function lowerBody(ctx: Context, definition: Definition, params: ReadonlyMap<string, Value>): boolean {
  const { parameters, body } = ctx.module.parsed(definition.source);
  const values: readonly Value[] = [
    { kind: 'gpu', path: '' },
    { kind: 'record', entries: params, what: 'params' },
    usingValue(definition.using, 'using'),
  ];
  for (const [i, pattern] of parameters.entries()) bind(ctx, pattern, values[i]!, pattern);
  return 'statements' in body
    ? lowerStatements(ctx, body.statements)
    : lowerExpressionBody(ctx, body.expression);
}
