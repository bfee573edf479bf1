/**
 * Grouped GEMM: the rows of each expert times its weights, on the tensor cores. How many rows there are only the GPU
 * knows, so blocks stay and take tile after tile of those that there are, of all experts in turn; an expert without rows
 * costs nothing. Blocks that run at the same time have the same weights and different rows where they can.
 */
import { kernel, pointer } from '../../../lang/index.js';
import { endTiles, findSources, findWeights } from './find.js';
import { multiplyTile } from './multiply.js';
import { type GemmShape, type GemmTile, tileSizes } from './shape.js';
import { storeTile } from './store.js';

export function gemmKernel(shape: GemmShape, tile: GemmTile) {
  const { rows, experts, gated } = shape;
  const sizes = tileSizes(shape, tile);
  return kernel(
    {
      name: gated ? 'experts_gate_up' : 'experts_down',
      maxThreads: sizes.threads,
      params: {
        /** [expert]: rows of each, and where they begin; with `all` nobody looks. */
        counts: pointer('u32'),
        offsets: pointer('u32'),
        /** [row]: its route. */
        routes: pointer('i32'),
        /** With `all`. */
        count: 'u32',
        /** Rows that come in; [expert][out][in]; rows that go out, in the order of the plan. */
        from: pointer('v16'),
        weights: pointer('bf16'),
        to: pointer('bf16'),
        /** Of rows as e4m3, one for every 128 elements; otherwise nobody looks. */
        scales: pointer('f32'),
      },
      using: {
        EXPERTS: experts,
        ALL: rows === 'all',
        ROWS: tile.rows,
        ACROSS: sizes.tilesAcross,
        MADE: sizes.made,
        STAGES_UNITS: tile.stages * sizes.tileUnits,
        SUMS: 2 * sizes.rowParts * sizes.columnParts,
        endTiles: endTiles(shape, tile),
        findSources: findSources(shape, sizes),
        findWeights: findWeights(shape, sizes),
        SOURCES: sizes.sources,
        multiplyTile: multiplyTile(shape, tile, sizes),
        storeTile: storeTile(shape, tile, sizes),
      },
    },
    (g, { counts, offsets, routes, count, from, weights, to, scales }, u) => {
      g.awaitPrevious();
      g.releaseNext();
      const stages = g.shared('v16', u.STAGES_UNITS);
      /** [expert]: tiles of rows of it and those before. */
      const ends = g.shared('u32', u.EXPERTS);
      if (g.warpId === 0) u.endTiles({ counts, count, ends });
      g.barrier();
      const tiles = g.load(ends.at(u.EXPERTS - 1)) * u.ACROSS;
      let expert = g.u32(0);
      let before = g.u32(0);
      for (let t = g.blockIdx.x; t < tiles; t += g.gridDim.x) {
        let end = g.load(ends.at(expert));
        while (t >= end * u.ACROSS) {
          expert += 1;
          before = end;
          end = g.load(ends.at(expert));
        }
        let first = g.u32(0);
        let all = count;
        if (!u.ALL) {
          first = g.load(offsets.at(expert));
          all = g.load(counts.at(expert));
        }
        const within = t - before * u.ACROSS;
        const skipped = (within % (end - before)) * u.ROWS;
        const across = within / (end - before);
        const [row, rows] = [first + skipped, all - skipped];
        const sources = g.registers('u32', u.SOURCES);
        u.findSources({ routes, row, rows, sources });
        const column = u.findWeights({ expert, across });
        const sums = g.registers('v16', u.SUMS);
        const inputs = { from, scales, weights: weights.as('v16'), sources, column, rows };
        u.multiplyTile({ stages, inputs, sums });
        u.storeTile({ to, row, rows, element: across * u.MADE, sums });
      }
    },
  );
}
