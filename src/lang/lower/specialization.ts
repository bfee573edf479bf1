/** The compile-time values as one short, stable text. */
import { deviceDefinition } from '../definition.js';
import type { Using } from '../kernel.js';
import { isTile, showTile } from '../tile.js';

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
