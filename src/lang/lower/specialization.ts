/** The compile-time values as one short, stable text. */
import { deviceDefinition } from '../definition.js';
import type { Using } from '../kernel.js';

/** `EP=8, flags={counts:true}`. Device functions show what they were made with. */
export function describeUsing(using: { readonly [name: string]: Using }): string {
  return Object.entries(using)
    .map(([name, value]) => `${name}=${describe(value)}`)
    .join(', ');
}

function describe(value: Using): string {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value !== 'object' && typeof value !== 'function') return String(value);
  const definition = deviceDefinition(value);
  if (definition !== undefined) return `(${describeUsing(definition.using)})`;
  if (Array.isArray(value)) return `[${value.map(describe).join(',')}]`;
  const entries = Object.entries(value).map(([key, item]) => `${key}:${describe(item)}`);
  return `{${entries.join(',')}}`;
}
