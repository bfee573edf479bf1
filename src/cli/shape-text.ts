import { ArgumentError } from '../errors/index.js';

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
