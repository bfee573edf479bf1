/**
 * Grouped GEMM on Hopper: the rows of each expert times its weights. How many rows there are only the GPU knows, so blocks stay and
 * take unit after unit of those that there are; an expert without rows costs nothing.
 *
 * A block's first warp group brings what the other two multiply, through a ring of stages (ring.ts says why that is safe).
 */
import { kernel, list, pointer, tensorMap } from '../../../../lang/index.js';
import { bringGathered, bringTiles } from './bring.js';
import { multiplyUnits } from './compute.js';
import { handOn } from './ring.js';
import { groups, groupThreads, type HopperShape, type HopperTile, hopperSizes } from './shape.js';
import { warpVectors } from './store.js';
import { findWork } from './units.js';

/** Of a thread: who brings needs few, and leaves the others theirs. */
const registers = { bringing: 40, multiplying: 232 };

export const hopperThreads = (1 + groups) * groupThreads;

/** What both kernels below are made of. */
function parts(shape: HopperShape, of: HopperTile) {
  const { rows, experts, gated, dtype } = shape;
  const sizes = hopperSizes(shape, of);
  const [all, scaled] = [rows === 'all' ? 1 : 0, dtype === 'e4m3' ? 1 : 0];
  return {
    name: `experts_${gated ? 'gate_up' : 'down'}_${dtype}`,
    sizes,
    params: {
      /** [expert] of a plan: rows of each, and where they begin. */
      counts: list(pointer('u32'), 1 - all),
      offsets: list(pointer('u32'), 1 - all),
      /** [expert][out][in] */
      weights: tensorMap(sizes.boxTile),
      /** Of e4m3: a scale for every 128 elements of a row, and for every 128 × 128 weights. */
      rowScales: list(pointer('f32'), scaled),
      weightScales: list(pointer('f32'), scaled),
      /** Rows that go out, in the order of the plan: bf16; between two GEMMs of e4m3 they are e4m3 with scales too. */
      to: pointer('v16'),
      toScales: list(pointer('f32'), gated ? scaled : 0),
    },
    using: {
      EXPERTS: experts,
      STAGES: of.stages,
      ROWS_TILE: sizes.rowsTile,
      WEIGHTS_TILE: sizes.weightsTile,
      ACROSS: sizes.unitsAcross,
      PASSAGE: groups * 4 * warpVectors,
      PEAKS: groups * 64,
      start: handOn(shape, of).start,
      GIVEN: registers.bringing,
      TAKEN: registers.multiplying,
      findWork: findWork(shape, sizes),
      multiplyUnits: multiplyUnits(shape, of, sizes),
    },
  };
}

/** Rows that lie in the order of a plan, or all of one expert. */
export function tiledGemmKernel(shape: HopperShape, of: HopperTile) {
  const { name, sizes, params, using } = parts(shape, of);
  return kernel(
    {
      name,
      maxThreads: hopperThreads,
      params: {
        ...params,
        /** How many rows there are, where one expert has all. */
        count: list('u32', shape.rows === 'all' ? 1 : 0),
        rows: tensorMap(sizes.rowsTile),
      },
      using: { ...using, bring: bringTiles(shape, of, sizes) },
    },
    (g, { counts, offsets, count, weights, rows, rowScales, weightScales, to, toScales }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const full = g.shared('u64', u.STAGES);
      const empty = g.shared('u64', u.STAGES);
      const rowStages = g.shared(u.ROWS_TILE, u.STAGES);
      const weightStages = g.shared(u.WEIGHTS_TILE, u.STAGES);
      const gates = { full, empty };
      const ring = { rows: rowStages, weights: weightStages, gates };
      const ends = g.shared('u32', u.EXPERTS);
      const begins = g.shared('u32', u.EXPERTS);
      const counted = g.shared('u32', u.EXPERTS);
      const passage = g.shared('v16', u.PASSAGE);
      const peaks = g.shared('u32', u.PEAKS);
      if (g.threadIdx.x === 0) u.start({ gates });
      if (g.warpId === 1) u.findWork({ planned: { counts, offsets }, count, ends, begins, counts: counted });
      g.barrier();
      const work = { ends, begins, counts: counted, units: g.load(ends.at(u.EXPERTS - 1)) * u.ACROSS };
      if (g.warpId < 4) {
        g.group.giveRegisters(u.GIVEN);
        u.bring({ ring, work, rows, weights });
      } else {
        g.group.takeRegisters(u.TAKEN);
        const outputs = { rowScales, weightScales, routes: [], to, toScales };
        u.multiplyUnits({ ring, work, outputs, passage, peaks, group: g.warpId / 4 - 1 });
      }
    },
  );
}

/** Rows that dispatch left: the plan's routes find them. */
export function gatheredGemmKernel(shape: HopperShape, of: HopperTile) {
  const { name, sizes, params, using } = parts(shape, of);
  return kernel(
    {
      name,
      maxThreads: hopperThreads,
      params: {
        ...params,
        /** [row]: its route. */
        routes: list(pointer('i32'), 1),
        /** [slot][vector] */
        from: pointer('v16'),
      },
      using: {
        ...using,
        ROW_VECTORS: (of.stages * sizes.rowsTile.bytes) / 16,
        bring: bringGathered(shape, of, sizes),
      },
    },
    (g, { counts, offsets, weights, rowScales, weightScales, to, toScales, routes, from }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const full = g.shared('u64', u.STAGES);
      const empty = g.shared('u64', u.STAGES);
      const rowStages = g.shared(u.ROWS_TILE, u.STAGES);
      const weightStages = g.shared(u.WEIGHTS_TILE, u.STAGES);
      const gates = { full, empty };
      const ring = { rows: rowStages, weights: weightStages, gates };
      const ends = g.shared('u32', u.EXPERTS);
      const begins = g.shared('u32', u.EXPERTS);
      const counted = g.shared('u32', u.EXPERTS);
      const passage = g.shared('v16', u.PASSAGE);
      const peaks = g.shared('u32', u.PEAKS);
      if (g.threadIdx.x === 0) u.start({ gates });
      if (g.warpId === 1)
        u.findWork({ planned: { counts, offsets }, count: [], ends, begins, counts: counted });
      // Rows that an expert lacks are multiplied all the same: so that they are numbers, the first are zeros.
      for (let i = g.threadIdx.x; i < u.ROW_VECTORS; i += g.blockDim.x)
        g.store(ring.rows.as('v16').at(i), g.pack('u32', [0, 0, 0, 0]));
      g.proxyFence('shared');
      g.barrier();
      const work = { ends, begins, counts: counted, units: g.load(ends.at(u.EXPERTS - 1)) * u.ACROSS };
      if (g.warpId < 4) {
        g.group.giveRegisters(u.GIVEN);
        u.bring({ ring, work, routes: routes[0]!, from, weights });
      } else {
        g.group.takeRegisters(u.TAKEN);
        const outputs = { rowScales, weightScales, routes, to, toScales };
        u.multiplyUnits({ ring, work, outputs, passage, peaks, group: g.warpId / 4 - 1 });
      }
    },
  );
}
