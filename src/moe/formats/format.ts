/** The description of a format of rows. Families, the reference and the count of bytes ask it; none knows its name. */
import { type DeviceFunction, registers } from '../../lang/index.js';
import { dtypes, type RowDtype } from './dtype.js';

/** A row before it travels. */
export interface RowShape {
  readonly dtype: RowDtype;
  readonly hidden: number;
}

/** How a partial row of combine travels. */
export interface RowFormat {
  /** The length of a row is a multiple of so many elements. */
  readonly multiple: number;
  /** The most threads of a block that adds such rows up: with more, the sums would not fit in registers. */
  readonly mostThreads: number;
  /** Bytes of a row on its way. */
  bytes(row: RowShape): number;
  /** The type in which a sum waits to travel. A sum that will be rounded is f32, so that it is rounded once. */
  sums(dtype: RowDtype): RowDtype;
  /** How many neighbouring 16-byte vectors of a row of sums stay in one part; 1 where rows may be cut anywhere. */
  together(dtype: RowDtype): number;
  /** The value of a row after it has travelled: the reference of what kernels do. */
  arrives(row: Float32Array): Float32Array;
  /** How kernels round a row; null where rows travel as they lie. Then a rank's own rows stay, and peers may load theirs. */
  readonly rounding: Rounding | null;
}

/** 16 values of a lane. */
export const laneValues = { values: registers('f32', 16) } as const;
/** The knowledge that 8 neighbouring lanes have of their scales. */
export const scaleWord = { word: 'u32' } as const;

/** How kernels round rows to e4m3 with scales, a stretch of 512 elements at a time (scaled.ts). */
export interface Rounding {
  /**
   * Divides a lane's values by their scale, so that they fit e4m3. Returns the word that holds the scales of the 128 values of
   * 8 neighbouring lanes; it is never all ones. All lanes of the warp take part.
   */
  readonly narrow: DeviceFunction<typeof laneValues, 'u32'>;
  /** A lane's scale, from that word. */
  readonly scaleOf: DeviceFunction<typeof scaleWord, 'f32'>;
}

/** A format that rounds rows to e4m3 with scales. */
export interface ScaledFormat extends RowFormat {
  readonly rounding: Rounding;
  /** Elements that share a scale. */
  readonly block: number;
  /** The type of a scale. Those of 128 elements fill a word. */
  readonly scale: 'f32' | 'u8';
}

/** Rows that travel as they lie. */
export const rows: RowFormat = {
  multiple: 1,
  mostThreads: 1024,
  bytes: ({ dtype, hidden }) => hidden * dtypes[dtype].size,
  sums: (dtype) => dtype,
  together: () => 1,
  arrives: (row) => row,
  rounding: null,
};
