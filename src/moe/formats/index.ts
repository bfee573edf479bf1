/** How elements are stored, and how rows of them travel back. A format that rounds rows is a file of its own and a line below. */
import { e4m3 } from './e4m3.js';
import { type RowFormat, rows } from './format.js';
import { mxfp8 } from './mxfp8.js';

export * from './dtype.js';
export type { Rounding, RowFormat, RowShape } from './format.js';
export * from './scaled.js';
export * from './scales.js';

/** The formats of rows, by the names that users give. */
export const rowFormats = { rows, e4m3, mxfp8 } as const satisfies Readonly<Record<string, RowFormat>>;
export type RowFormatName = keyof typeof rowFormats;
export const rowFormatNames = Object.keys(rowFormats) as readonly RowFormatName[];

/** In which rows of such an output travel. */
export const formatOf = ({ wire = 'rows' }: { readonly wire?: RowFormatName }): RowFormat => rowFormats[wire];
