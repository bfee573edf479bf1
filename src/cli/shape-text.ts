import { ArgumentError } from '../base/errors.js';
import type { ShapeKey } from '../verify/kernels/index.js';

/** What `--shape` says: `ranks=8,dtype=bf16`, each key once. */
export function parseShape(text: string): Record<string, number | string> {
  const shape = new Map<string, number | string>();
  for (const pair of text.split(',').filter((one) => one !== '')) {
    const [, key, value] = /^([\w.]+)=(.+)$/.exec(pair.trim()) ?? [];
    if (key === undefined || value === undefined)
      throw new ArgumentError('--shape', pair, 'key=value,key=value,…');
    const lower = key.toLowerCase();
    if (shape.has(lower))
      throw new ArgumentError('--shape', pair, `said once: ${lower} is ${shape.get(lower)} already`);
    shape.set(lower, Number.isNaN(Number(value)) ? value : Number(value));
  }
  return Object.fromEntries(shape);
}

/** What shapes may say, for the help of commands that take one: each key once, then who takes which. */
export function shapeHelp(
  of: readonly { readonly name: string; readonly shape: readonly ShapeKey[] }[],
): string {
  const keys = new Map<string, ShapeKey[]>();
  const takers = new Map<string, string[]>();
  for (const { name, shape } of of) {
    const names = shape.map((key) => key.name).join(' ');
    takers.set(names, [...(takers.get(names) ?? []), name]);
    for (const key of shape) {
      const meaning = `${key.name}: ${key.knob.summary}, ${valuesOf(key)}`;
      keys.set(meaning, [...(keys.get(meaning) ?? []), key]);
    }
  }
  const lines = Array.from(keys, ([meaning, [key, ...same]]) => {
    const usual = key!.otherwise !== null && same.every(({ otherwise }) => otherwise === key!.otherwise);
    return `  ${meaning}${usual ? ` (${key!.otherwise})` : ''}`;
  });
  const groups = Array.from(takers, ([names, who]) => `  ${who.join(', ')}:\n    ${names || 'nothing'}`);
  return `Keys of --shape, the values that they take, and what they are unless said:\n${lines.join('\n')}\n\nKeys of each:\n${groups.join('\n')}`;
}

function valuesOf({ knob }: ShapeKey): string {
  if (knob.kind === 'choice') return knob.choices.join(' | ');
  const { min, max, multipleOf = 1 } = knob;
  return `${min} to ${max}${multipleOf === 1 ? '' : `, a multiple of ${multipleOf}`}`;
}
