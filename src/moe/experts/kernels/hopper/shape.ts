/**
 * A grouped GEMM on Hopper's tensor cores: its tiles, and who computes what. A block has three warp groups: one brings rows and
 * weights to a ring of stages in shared memory, two multiply. A block computes one unit at a time: some rows of an
 * expert times some rows of its weights.
 *
 * Why each synchronisation of the ring is enough: the copy engine's bytes complete on *full*, and a wait for it makes them known to the
 * tensor cores, which work in the same proxy. Rows that threads copied are ordinary writes: each of these threads fences before it
 * arrives. A warp arrives at *empty* behind a wait for its own products, so nobody reads the stage any more.
 */
import type { GemmShape } from '../gemm/shape.js';

/** Rows that a warp group multiplies: what one wgmma takes. */
export const groupRows = 64;
/** Bytes of a row that a stage holds: a swizzle's width. */
export const stageBytes = 128;
export const groupThreads = 128;
/** Sums of weights of MXFP4 come out divided by 2 to this power, so that larger scales are a bf16. */
export const packedShift = 32;
/** Warp groups that multiply. */
export const groups = 2;

export interface HopperTile {
  /**
   * What the two warp groups divide between them of a unit. `rows`: each has 64 rows of 128 and all columns, for experts with many rows;
   * `columns`: both have the same 64 rows, and each half of the columns.
   */
  readonly groupsDivide: 'rows' | 'columns';
  /** Rows of weights that a warp group multiplies in a unit: a multiple of 16, at most 256. */
  readonly columns: number;
  /** Products that a stage's weights are multiplied in, one after the other: where sums are scaled, registers do not hold all products at once. */
  readonly products: 1 | 2;
  readonly stages: number;
  /** Rows of a unit, where weights are the left factor: of MXFP4. */
  readonly rows?: number;
  /** Blocks that share a unit's inputs: where units are few, each multiplies a part, and another kernel adds the parts up (parts.ts). */
  readonly parts: number;
}

/** Elements of a row that goes out that a unit makes. */
export const madeBy = ({ groupsDivide, columns }: HopperTile, gated: boolean): number =>
  (columns / (gated ? 2 : 1)) * (groupsDivide === 'rows' ? 1 : groups);

/** Whether rows that go out are rounded to e4m3: those between the two GEMMs, unless what goes out are sums of parts. */
export const roundsRows = ({ dtype, gated }: GemmShape, { parts }: HopperTile): boolean =>
  dtype === 'e4m3' && gated && parts === 1;

/** Whether it adds biases to its sums: unless they are sums of parts, to which the kernel behind adds them. */
export const addsBias = ({ bias }: GemmShape, { parts }: HopperTile): boolean => bias && parts === 1;

/** Elements of a row that a stage holds. */
export const stageDepth = (dtype: GemmShape['dtype']): number => stageBytes / (dtype === 'e4m3' ? 1 : 2);
