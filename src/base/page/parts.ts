import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

export interface Series {
  readonly label: string;
  /** A custom property of the page's style. */
  readonly colour: string;
  readonly line: boolean;
  readonly dash?: readonly number[];
  readonly width: number;
  readonly points: number;
  readonly values: readonly (number | null)[];
}

export interface Chart {
  readonly x: readonly number[];
  /** What x is. */
  readonly label: string;
  /** Whether y is logarithmic; x always is. */
  readonly log: boolean;
  readonly unit: string;
  readonly series: readonly Series[];
}

/** Text as it may stand in HTML. */
export function text(value: string): string {
  return value.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]!);
}

/** JSON that may stand inside a script element. */
export const json = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

/** A file of the charting library, as it is installed. */
export function uplot(file: string): string {
  const folder = dirname(createRequire(import.meta.url).resolve('uplot'));
  return readFileSync(join(folder, file), 'utf8');
}
