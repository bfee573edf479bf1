/**
 * Grouped GEMM on Hopper: the rows of each expert times its weights. How many rows there are only the GPU knows, so blocks stay and
 * take unit after unit of those that there are; an expert without rows costs nothing.
 *
 * A block's first warp group brings what the other two multiply, through a ring of stages (shape.ts says why that is safe).
 */
import { kernel, list, tensorMap, tile } from '../../../../lang/index.js';
import type { GemmShape } from '../gemm/shape.js';
import { askAhead, bring } from './bring.js';
import { multiplyUnits } from './compute.js';
import { hopperKit } from './kit.js';
import { groups, groupThreads, type HopperTile } from './shape.js';
import { warpVectors } from './store.js';
import { findWork } from './units.js';

/** Registers of a thread: those that bring need few, fewest where the copy engine does it all; they leave the others theirs. */
const registersOf = ({ rows }: GemmShape) =>
  rows === 'gathered' ? { bringing: 40, multiplying: 232 } : { bringing: 24, multiplying: 240 };

/** Weights of MXFP4 have a kernel of their own (packed.ts). */
const none = list(tensorMap(tile('u8', [8, 16], { swizzle: 0 })), 0);
const noPacked = { packed: none, packedScales: none };

export const hopperThreads = (1 + groups) * groupThreads;

export function hopperGemmKernel(shape: GemmShape, of: HopperTile) {
  const kit = hopperKit(shape, of);
  const { bringing, multiplying } = registersOf(shape);
  return kernel(
    {
      name: `experts_${shape.gated ? 'gate_up' : 'down'}_${shape.dtype}`,
      maxThreads: hopperThreads,
      params: { ...kit.at.planned, ...kit.at.sources.of, ...kit.at.outputs.of, ...noPacked },
      using: {
        ...{ ...kit.u, STAGES: of.stages, ROWS_TILE: kit.rowsTile, WEIGHTS_TILE: kit.weightsTile },
        ...{ ROW_VECTORS: (of.stages * kit.rowsTile.bytes) / 16, UNITS: kit.unitsAcross * of.parts },
        ...{ PASSAGE: groups * 4 * warpVectors, PEAKS: groups * 64 },
        ...{ GIVEN: bringing, TAKEN: multiplying, AHEAD: kit.ahead > 0, findWork: findWork(kit) },
        ...{ askAhead: askAhead(kit), bring: bring(kit), multiplyUnits: multiplyUnits(kit) },
      },
    },
    (g, p, u) => {
      const full = g.shared('u64', u.STAGES);
      const empty = g.shared('u64', u.STAGES);
      const rowStages = g.shared(u.ROWS_TILE, u.STAGES);
      const weightStages = g.shared(u.WEIGHTS_TILE, u.STAGES);
      const ends = g.shared('u32', u.EXPERTS);
      const begins = g.shared('u32', u.EXPERTS);
      const counts = g.shared('u32', u.EXPERTS);
      const passage = g.shared('v16', u.PASSAGE);
      const peaks = g.shared('u32', u.PEAKS);
      const gates = { full, empty };
      const ring = { rows: rowStages, weights: weightStages, gates };
      if (g.threadIdx.x === 0) {
        u.start({ gates });
        g.tensor.prefetch(p.weights[0]!);
        if (!u.GATHERED) g.tensor.prefetch(p.rows[0]!);
      }
      if (u.GATHERED) {
        // Rows that an expert lacks are multiplied all the same: so that they are numbers, the first are zeros. The tensor cores see them
        // behind the fences of those who bring a stage.
        for (let i = g.threadIdx.x; i < u.ROW_VECTORS; i += g.blockDim.x)
          g.store(rowStages.as('v16').at(i), g.pack('u32', [0, 0, 0, 0]));
      }
      // So far nothing of this block is known to others: it may be done while the launch before still runs.
      if (!u.AHEAD) g.awaitPrevious();
      const planned = { counts: p.counts, offsets: p.offsets, count: p.count };
      if (g.warpId === 1) u.findWork({ planned, ends, begins, counts });
      g.barrier();
      const work = { ends, begins, counts, units: g.load(ends.at(u.EXPERTS - 1)) * u.UNITS };
      const { weights, rows, routes, from } = p;
      if (u.AHEAD) {
        if (g.threadIdx.x === 0) u.askAhead({ ring, work, weights });
        g.awaitPrevious();
      }
      g.releaseNext();
      if (g.warpId < 4) {
        g.group.giveRegisters(u.GIVEN);
        u.bring({ ring, work, sources: { rows, routes, from, weights } });
      } else {
        g.group.takeRegisters(u.TAKEN);
        const { rowScales, weightScales, bias, routes, to, toScales } = p;
        const outputs = { rowScales, weightScales, bias, routes, to, toScales };
        // A lane's number tells the compiler that all lanes of a warp have the same.
        const group = g.warp.shuffle(g.warpId / 4, 0) - 1;
        u.multiplyUnits({ ring, work, outputs, passage, peaks, group });
      }
    },
  );
}
