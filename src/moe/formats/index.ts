/** How elements are stored, and how rows of them travel. A format that rounds rows is a file of its own and a line below. */
import { e4m3 } from './e4m3.js';
import { type RowFormat, rows, type ScaledFormat } from './format.js';
import { mxfp8 } from './mxfp8.js';

export * from './dtype.js';
export type { Rounding, RowFormat, RowShape, ScaledFormat } from './format.js';
export * from './scaled.js';
export * from './scales.js';

/** Formats that round, by the names that users give. Combine brings rows back in them, and dispatch makes them of rows of bf16. */
export const scaledFormats = { e4m3, mxfp8 } as const satisfies Readonly<Record<string, ScaledFormat>>;
export type ScaledFormatName = keyof typeof scaledFormats;
export const scaledFormatNames = Object.keys(scaledFormats) as readonly ScaledFormatName[];

export const rowFormats = { rows, ...scaledFormats } as const satisfies Readonly<Record<string, RowFormat>>;
export type RowFormatName = keyof typeof rowFormats;
export const rowFormatNames = Object.keys(rowFormats) as readonly RowFormatName[];

/** In which rows of such an output travel. */
export const formatOf = ({ combineFormat: name }: { readonly combineFormat?: RowFormatName }): RowFormat =>
  rowFormats[name ?? 'rows'];
