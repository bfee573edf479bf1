/**
 * A grouped GEMM on Hopper's tensor cores: its tiles, and who computes what. A block has three warp groups: one brings rows and
 * weights to a ring of stages in shared memory, two multiply. A block computes one unit at a time: some rows of an
 * expert times some rows of its weights.
 */
import { pipeline, pointer, record, tile, tiles } from '../../../../lang/index.js';
import type { GemmShape } from '../gemm/shape.js';

/** Rows that a warp group multiplies: what one wgmma takes. */
export const groupRows = 64;
/** Bytes of a row that a stage holds: a swizzle's width. */
const stageBytes = 128;
export const groupThreads = 128;
/** Warp groups that multiply. */
export const groups = 2;

export interface HopperTile {
  /**
   * How the two warp groups share a unit: `rows`: each has 64 rows of 128 and all columns, for experts with many rows;
   * `columns`: both have the same 64 rows, and each half of the columns.
   */
  readonly split: 'rows' | 'columns';
  /** Rows of weights that a warp group multiplies at a time: a multiple of 16, at most 256. */
  readonly columns: number;
  /** How often a unit goes through all of the inputs, each time with as many other rows of weights. */
  readonly passes: number;
  readonly stages: number;
  /** Blocks that share a unit's inputs: where units are few, each multiplies a part, and another kernel adds the parts up (parts.ts). */
  readonly parts: number;
}

/** Elements of a row that goes out that a unit makes. */
export const madeBy = ({ split, columns, passes }: HopperTile, gated: boolean): number =>
  passes * (columns / (gated ? 2 : 1)) * (split === 'rows' ? 1 : groups);

/** Whether rows that go out are rounded to e4m3: those between the two GEMMs, unless what goes out are sums of parts. */
export const roundsRows = ({ dtype, gated }: GemmShape, { parts }: HopperTile): boolean =>
  dtype === 'e4m3' && gated && parts === 1;

/** Whether it adds biases to its sums: unless they are sums of parts, to which the kernel behind adds them. */
export const addsBias = ({ bias }: GemmShape, { parts }: HopperTile): boolean => bias && parts === 1;

/** Elements of a row that a stage holds. */
export const stageDepth = (dtype: GemmShape['dtype']): number => stageBytes / (dtype === 'e4m3' ? 1 : 2);

/** Numbers that follow, for the kernel's parts. */
export function hopperSizes(shape: GemmShape, of: HopperTile) {
  const { dtype, inputs, outputs, gated } = shape;
  const dispatched = shape.rows !== 'sorted';
  const rowGroups = of.split === 'rows' ? groups : 1;
  const columnGroups = groups / rowGroups;
  const depth = stageDepth(dtype);
  /** Rows of weights that one box brings: those of a warp group, or its gates, or what these scale. */
  const boxRows = of.columns / (gated ? 2 : 1);
  const madeInPass = columnGroups * boxRows;
  const made = madeBy(of, gated);
  const rows = rowGroups * groupRows;
  const steps = inputs / depth;
  const stepsOfPart = steps / of.parts;
  const rowsTile = tile(dtype, [rows, depth], { swizzle: stageBytes });
  const weightsTile = tile(dtype, [columnGroups * of.columns, depth], { swizzle: stageBytes });
  return {
    rows,
    columnGroups,
    boxRows,
    boxes: columnGroups * (gated ? 2 : 1),
    /** Elements of a row that goes out that a unit makes. */
    made,
    unitsAcross: outputs / made,
    /** 16-byte vectors of a row in a stage, stages of a row, and those that a block multiplies of it. */
    stageVectors: stageBytes / 16,
    steps,
    stepsOfPart,
    /**
     * So many stages of weights are on their way before the rows that they meet are known to be there: in the second GEMM, whose launch knows
     * the plan when it begins.
     */
    ahead: gated || dispatched ? 0 : Math.min(of.stages, stepsOfPart),
    rowsTile,
    weightsTile,
    boxTile: tile(dtype, [boxRows, depth], { swizzle: stageBytes }),
    /** Values that both ways of bringing a stage need. */
    bringing: {
      WEIGHT_ROWS: outputs * (gated ? 2 : 1),
      MADE_IN_PASS: madeInPass,
      STEPS: stepsOfPart,
      DEPTH: depth,
    },
    /** f32 registers of a thread that hold a warp group's sums. */
    sums: of.columns / 2,
    /** Values that wait in shared memory for the last pass: a row that goes out rounded needs all for its scale. */
    kept: roundsRows(shape, of) ? (of.passes - 1) * (of.columns / 4) * groups * groupThreads : 0,
  };
}
export type HopperSizes = ReturnType<typeof hopperSizes>;

/**
 * The ring of stages between the warp group that brings and those that multiply.
 *
 * Why each synchronisation is enough: the copy engine's bytes complete on *full*, and a wait for it makes them known to the tensor
 * cores, which work in the same proxy. Rows that threads copied are ordinary writes: each of these threads fences before it
 * arrives. A warp arrives at *empty* behind a wait for its own products, so nobody reads the stage any more.
 *
 * How stages are handed on: a warp arrives at *empty*; at *full* who asks the copy engine, and threads that copy rows themselves.
 */
export const handOn = ({ rows }: GemmShape, { stages }: HopperTile) =>
  pipeline({
    stages,
    fills: 1 + (rows === 'gathered' ? groupThreads : 0),
    empties: (groups * groupThreads) / 32,
  });

export const gates = record({ full: pointer('u64'), empty: pointer('u64') });

export const ringOf = (sizes: HopperSizes) =>
  record({ rows: tiles(sizes.rowsTile), weights: tiles(sizes.weightsTile), gates });
