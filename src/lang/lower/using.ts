/** Compile-time values: as bodies see them, and as text. */
import * as build from '../build.js';
import { deviceDefinition } from '../definition.js';
import type { Using } from '../kernel.js';
import { isTile, showTile } from '../tile.js';
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

/** `EP=8, flags={counts:true}`. Device functions are left out: what they were made with shows in the code. */
export function describeUsing(using: { readonly [name: string]: Using }): string {
  return Object.entries(using)
    .filter(([, value]) => !isCode(value))
    .map(([name, value]) => `${name}=${describe(value)}`)
    .join(', ');
}

function describe(value: Using): string {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value !== 'object' && typeof value !== 'function') return String(value);
  if (isTile(value)) return showTile(value);
  if (Array.isArray(value)) return `[${value.map(describe).join(',')}]`;
  const entries = Object.entries(value).map(([key, item]) => `${key}:${describe(item)}`);
  return `{${entries.join(',')}}`;
}

/** A device function, or several in an array or an object. */
const isCode = (value: Using): boolean =>
  deviceDefinition(value) !== undefined ||
  (typeof value === 'object' && value !== null && Object.values(value).some(isCode));
