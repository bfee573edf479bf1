/** Compile-time values, as bodies see them. */
import * as build from '../build.js';
import { deviceDefinition } from '../definition.js';
import type { Using } from '../kernel.js';
import { isTile } from '../tile.js';
import { expression, type Value } from './values.js';

export function usingValue(value: Using, what: string): Value {
  if (typeof value === 'number' || typeof value === 'bigint') return { kind: 'literal', value };
  if (typeof value === 'boolean') return expression(build.boolean(value));
  if (typeof value === 'string') return { kind: 'string', value };
  if (isTile(value)) return { kind: 'tile', tile: value };
  const definition = deviceDefinition(value);
  if (definition !== undefined) {
    return {
      kind: 'device',
      definition,
      name: definition.named ? definition.name : what.replace(/^.*\./, ''),
    };
  }
  if (Array.isArray(value)) {
    return { kind: 'list', items: value.map((item, i) => usingValue(item, `${what}[${i}]`)), what };
  }
  const entries = Object.entries(value).map(
    ([key, item]) => [key, usingValue(item, `${what}.${key}`)] as const,
  );
  return { kind: 'record', entries: new Map(entries), what };
}
