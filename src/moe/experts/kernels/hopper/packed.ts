/**
 * The grouped GEMM on Hopper (kernel.ts) of weights of MXFP4. Two warps of the first group bring rows, and one thread of another asks for weights.
 * These no launch writes: they are on their way before the rows that they meet are known to be there.
 */
import { kernel } from '../../../../lang/index.js';
import type { GemmShape } from '../gemm/shape.js';
import { bring } from './bring.js';
import { fetchUnits } from './fetch.js';
import { multiplyPackedUnits } from './held.js';
import { hopperThreads } from './kernel.js';
import { packedKit } from './packed-kit.js';
import { groups } from './shape.js';
import { findWork } from './units.js';

/** `most`: rows of an expert that a unit multiplies. */
export function packedGemmKernel(shape: GemmShape, most: number, kind: 'sim' | 'cuda') {
  const kit = packedKit(shape, most, kind);
  const { base } = kit;
  return kernel(
    {
      name: `experts_${shape.gated ? 'gate_up' : 'down'}_mxfp4_${shape.dtype}`,
      maxThreads: hopperThreads,
      params: {
        ...{ ...base.at.planned, ...base.at.sources.of, ...base.at.outputs.of },
        ...{ packed: kit.sources.of.weights, packedScales: kit.sources.of.scales },
      },
      using: {
        ...{ ...kit.u, STAGES: kit.stages, ROWS_TILE: base.rowsTile, FETCHES: kit.fetches },
        ...{ ROW_VECTORS: (kit.stages * base.rowsTile.bytes) / 16, UNITS: base.unitsAcross },
        ...{ PASSAGE: groups * kit.passage, KNOWN: base.knownPlan },
        ...{ PACKED_TILE: kit.packedTile, SCALES_TILE: kit.scalesTile, TILES: kit.fetches * kit.halves },
        ...{ findWork: findWork(base), bring: bring(base), fetchUnits: fetchUnits(kit) },
        multiplyPackedUnits: multiplyPackedUnits(kit),
      },
    },
    (g, p, u) => {
      const full = g.shared('u64', u.STAGES);
      const empty = g.shared('u64', u.STAGES);
      const packedFull = g.shared('u64', u.FETCHES);
      const packedEmpty = g.shared('u64', u.FETCHES);
      const rowStages = g.shared(u.ROWS_TILE, u.STAGES);
      const packedStages = g.shared(u.PACKED_TILE, u.TILES);
      const scaleStages = g.shared(u.SCALES_TILE, u.TILES);
      const ends = g.shared('u32', u.EXPERTS);
      const begins = g.shared('u32', u.EXPERTS);
      const counts = g.shared('u32', u.EXPERTS);
      const passage = g.shared('v16', u.PASSAGE);
      const gates = { full, empty };
      const packedGates = { full: packedFull, empty: packedEmpty };
      const ring = { rows: rowStages, weights: rowStages, gates };
      const packed = { weights: packedStages, scales: scaleStages, gates: packedGates };
      if (g.threadIdx.x === 0) {
        u.start({ gates });
        u.startPacked({ gates: packedGates });
        g.tensor.prefetch(p.packed[0]!);
        g.tensor.prefetch(p.packedScales[0]!);
        if (!u.GATHERED) g.tensor.prefetch(p.rows[0]!);
      }
      if (u.GATHERED) {
        // As in kernel.ts: rows that an expert lacks are multiplied all the same.
        for (let i = g.threadIdx.x; i < u.ROW_VECTORS; i += g.blockDim.x)
          g.store(rowStages.as('v16').at(i), g.pack('u32', [0, 0, 0, 0]));
      }
      if (!u.KNOWN) g.awaitPrevious();
      const planned = { counts: p.counts, offsets: p.offsets, count: p.count };
      if (g.warpId === 1) u.findWork({ planned, ends, begins, counts });
      g.barrier();
      const work = { ends, begins, counts, units: g.load(ends.at(u.EXPERTS - 1)) * u.UNITS };
      if (g.warpId < 4) {
        g.group.giveRegisters(88);
        if (g.warpId === 3) {
          if (g.laneId === 0)
            u.fetchUnits({ ring: packed, work, sources: { weights: p.packed, scales: p.packedScales } });
        } else if (g.warpId < 2) {
          if (u.KNOWN) g.awaitPrevious();
          g.releaseNext();
          const { weights, rows, routes, from } = p;
          u.bring({ ring, work, sources: { rows, routes, from, weights } });
        }
      } else {
        g.group.takeRegisters(208);
        // Whatever these threads write comes behind rows, which were awaited.
        const { rowScales, weightScales, bias, routes, to, toScales } = p;
        const outputs = { rowScales, weightScales, bias, routes, to, toScales };
        const group = g.warp.shuffle(g.warpId / 4, 0) - 1;
        u.multiplyPackedUnits({ ring, packed, work, outputs, passage, group });
      }
    },
  );
}
