/** All that the parts of a grouped GEMM on Hopper are made of: its shape, its tile, their parameters, and what they may ask for. */
import { list, pipeline, pointer, record, tensorMap, tile, tiles } from '../../../../lang/index.js';
import { plannedOf } from '../gemm/kit.js';
import type { GemmShape } from '../gemm/shape.js';
import {
  addsBias,
  groupRows,
  groups,
  groupThreads,
  type HopperTile,
  madeBy,
  roundsRows,
  stageBytes,
  stageDepth,
} from './shape.js';

/** Stages that a thread's own copies may be under way before it waits for the first of them. */
const underWay = 2;

/** The list of work, in shared memory: for each expert tiles of rows up to it, its first row and how many it has. */
export const work = record({
  ...{ ends: pointer('u32'), begins: pointer('u32'), counts: pointer('u32'), units: 'u32' },
});

/** Where a unit lies. */
export const placeOf = record({
  expert: 'u32',
  /** Tiles of rows of the experts before. */
  before: 'u32',
  /** Its first row, counted from the expert's first; its first element of the rows that go out. */
  ...{ row: 'u32', element: 'u32' },
  /** The first stage of its inputs, and which part of them it is. */
  ...{ step: 'u32', part: 'u32' },
});

/** Rows that go out: those of the tensor, from a warp's first on; those of the expert that are left; the first element. */
export const outPlace = record({ row: 'u32', left: 'u32', element: 'u32' });

const gates = record({ full: pointer('u64'), empty: pointer('u64') });

export type HopperKit = ReturnType<typeof hopperKit>;

export function hopperKit(shape: GemmShape, of: HopperTile) {
  const { dtype, experts, inputs, outputs: made, gated, topK } = shape;
  const packed = shape.packed ? 1 : 0;
  const gathered = shape.rows === 'gathered' ? 1 : 0;
  const columnGroups = of.groupsDivide === 'rows' ? 1 : groups;
  const { rows = (groups / columnGroups) * groupRows } = of;
  const depth = stageDepth(dtype);
  /** Threads that copy rows, where they are gathered. */
  const bringers = groupThreads / (shape.packed ? 2 : 1);
  /** Rows of weights that one box brings: those of a warp group, or its gates, or what these scale. */
  const boxRows = of.columns / (gated ? 2 : 1);
  const steps = inputs / depth;
  const stepsOfPart = steps / of.parts;
  const tileOf = (height: number) => tile(dtype, [height, depth], { swizzle: stageBytes });
  const rowsTile = tileOf(rows);
  // Weights of MXFP4 have a ring of their own.
  const weightsTile = packed ? rowsTile : tileOf(columnGroups * of.columns);
  const weights = list(tensorMap(tileOf(boxRows)), 1 - packed);
  const ring = record({ rows: tiles(rowsTile), weights: tiles(weightsTile), gates });
  const routes = list(pointer('i32'), gathered);
  const knownPlan = !gated && shape.rows === 'sorted';
  return {
    ...{ shape, of, rowsTile, weightsTile, rows, columnGroups, boxRows, steps, stepsOfPart },
    /** Bytes of weights of a stage that the copy engine brings there: none, where threads unpack them. */
    broughtBytes: packed ? 0 : weightsTile.bytes,
    /** Elements of a row that goes out that a unit makes, and how many units make one. */
    ...{ made: madeBy(of, gated), unitsAcross: Math.ceil(made / madeBy(of, gated)) },
    /**
     * So many stages of weights are on their way before the rows that they meet are known to be there: in the second GEMM, whose launch
     * knows the plan when it begins.
     */
    ahead: !knownPlan || packed ? 0 : Math.min(of.stages, stepsOfPart),
    /** Whether the launch knows the plan when it begins: it is the second. */
    knownPlan,
    /** f32 registers of a thread that hold a warp group's sums. */
    sums: of.columns / 2,
    /** Parameters, which several parts have alike. */
    at: {
      ...{ planned: plannedOf(shape), ring, work, weights, outputs: outputsOf(shape, of) },
      /** Where rows and weights come from: rows in order; or those that dispatch left, [slot][vector], which [row] its route finds. */
      sources: record({
        ...{ rows: list(tensorMap(rowsTile), 1 - gathered), routes, from: list(pointer('v16'), gathered) },
        /** [expert][out][in] */
        weights,
      }),
    },
    /** What parts ask for under the same name. */
    u: {
      ...{ GATHERED: gathered === 1, GATED: gated, EXPERTS: experts, K: topK, OUTPUTS: made },
      ...{ HALVES: gated ? 2 : 1, WEIGHT_ROWS: made * (gated ? 2 : 1) },
      ...{ COLUMNS: of.columns, ROWS: groupRows, THREADS: groups * groupThreads, SHARED: columnGroups > 1 },
      /** Rows of weights: boxes that bring them, and rows of each. */
      ...{ BOXES: packed ? 0 : columnGroups * (gated ? 2 : 1), BOX_ROWS: boxRows },
      /** Stages of a unit; elements and 16-byte vectors of a row in a stage. */
      ...{ STEPS: stepsOfPart, DEPTH: depth, VECTORS: stageBytes / 16 },
      /** Rows between those of which a thread that gathers copies a vector; its copies under way. */
      ...{ APART: bringers / (stageBytes / 16), LAG: Math.min(underWay, of.stages - 2) },
      /**
       * How stages are handed on: a warp arrives at *empty*; at *full* who asks the copy engine, and threads that copy rows themselves.
       * shape.ts says why that is safe.
       */
      ...pipeline({
        stages: of.stages,
        fills: 1 + gathered * bringers,
        empties: (groups * groupThreads) / 32,
      }),
    },
  };
}

/** What a tile's sums become, and what they need for it. */
function outputsOf(shape: GemmShape, of: HopperTile) {
  const scaled = shape.dtype === 'e4m3' ? 1 : 0;
  return record({
    /** Scales of e4m3: one for every 128 elements of a row, and for every 128 × 128 weights. */
    rowScales: list(pointer('f32'), scaled),
    weightScales: list(pointer('f32'), scaled),
    /** [expert][out] */
    bias: list(pointer('bf16'), addsBias(shape, of) ? 1 : 0),
    /** [row] of a plan, where rows are gathered. */
    routes: list(pointer('i32'), shape.rows === 'gathered' ? 1 : 0),
    /**
     * Rows that go out, in the order of the plan: bf16; between two GEMMs of e4m3 they are e4m3 with scales too. Where blocks share
     * a unit, [row][part] f32 sums.
     */
    to: pointer('v16'),
    toScales: list(pointer('f32'), roundsRows(shape, of) ? 1 : 0),
  });
}
