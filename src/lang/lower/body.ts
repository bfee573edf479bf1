/** The body of a kernel or of a device function: its three parameters, then its statements. */
import type { Definition } from '../definition.js';
import { type ParsedBody, parseBody } from '../parse.js';
import type { Context } from './context.js';
import { bind } from './declarations.js';
import { lowerExpressionBody, lowerStatements } from './statements.js';
import { usingValue } from './using.js';
import type { Value } from './values.js';

/** Returns true when control never comes out at the end. */
export function lowerBody(ctx: Context, definition: Definition, params: ReadonlyMap<string, Value>): boolean {
  const parsed = parseBody(definition.source);
  const { parameters, body } = parsed;
  checkUsing(ctx, definition, parsed);
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

function checkUsing(ctx: Context, definition: Definition, { parameters, mentioned }: ParsedBody): void {
  if (mentioned === 'all') return;
  const unused = Object.keys(definition.using).filter((name) => !mentioned.includes(name));
  if (unused.length === 0) return;
  const [are, them] = unused.length === 1 ? ['is', 'it'] : ['are', 'them'];
  const message = `${unused.join(', ')} in \`using\` ${are} never mentioned by this body; remove ${them} from its header`;
  ctx.module.report('HK204', message, definition.source, parameters[2] ?? { start: 0, end: 1 });
}
