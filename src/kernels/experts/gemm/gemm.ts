/**
 * Grouped GEMM: the rows of each expert times its weights, on the tensor cores. How many rows there are only the GPU
 * knows, so blocks stay and take tile after tile of those that there are, of all experts in turn; an expert without rows
 * costs nothing. Blocks that run at the same time have the same weights and different rows where they can.
 */
import { kernel, pointer } from '../../../lang/index.js';
import { endTiles, findSources, findWeights, prefetchWeights } from './find.js';
import { beginTile, multiplyTile } from './multiply.js';
import { type GemmShape, type GemmTile, stageUnits, tileSizes } from './shape.js';
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
        from: pointer('bf16'),
        weights: pointer('bf16'),
        to: pointer('bf16'),
      },
      using: {
        EXPERTS: experts,
        ALL: rows === 'all',
        FEW: tile.few,
        ROWS: tile.rows,
        U: stageUnits,
        ACROSS: sizes.tilesAcross,
        MADE: sizes.made,
        STAGES_UNITS: tile.stages * sizes.tileUnits,
        SUMS: 2 * sizes.rowParts * sizes.columnParts,
        endTiles: endTiles(shape, tile),
        findSources: findSources(shape, sizes),
        findWeights: findWeights(shape, sizes),
        SOURCES: Math.ceil(sizes.rowUnits / sizes.threads),
        prefetchWeights: prefetchWeights(shape, tile, sizes),
        beginTile: beginTile(shape, tile, sizes),
        multiplyTile: multiplyTile(shape, tile, sizes),
        storeTile: storeTile(shape, tile, sizes),
      },
    },
    (g, { counts, offsets, routes, count, from, weights, to }, u) => {
      if (u.FEW) u.prefetchWeights({ weights: weights.as('v16') });
      g.awaitPrevious();
      g.releaseNext();
      const stages = g.shared('v16', u.STAGES_UNITS);
      /** [expert]: tiles of rows of it and those before. */
      const ends = g.shared('u32', u.EXPERTS);
      if (g.warpId === 0) u.endTiles({ counts, count, ends });
      g.barrier();
      const tiles = g.load(ends.at(u.EXPERTS - 1)) * u.ACROSS;
      const sources = g.registers('u32', u.SOURCES);
      const sums = g.registers('v16', u.SUMS);
      let expert = g.u32(0);
      let before = g.u32(0);
      // Of the last tile: its first row that goes out, how many there are from there on, its first element.
      let row = g.u32(0);
      let rows = g.u32(0);
      let element = g.u32(0);
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
        u.findSources({ routes, first: first + skipped, rows: all - skipped, sources });
        const column = u.findWeights({ expert, across, row: g.threadIdx.x / u.U }) + (g.threadIdx.x % u.U);
        const inputs = {
          from: from.as('v16'),
          weights: weights.as('v16'),
          sources,
          column,
          rows: all - skipped,
        };
        // The first stages of a tile are under way while the last one is stored.
        u.beginTile({ stages, inputs });
        u.storeTile({ to, row, rows, element, sums });
        u.multiplyTile({ stages, inputs, sums });
        row = first + skipped;
        rows = all - skipped;
        element = across * u.MADE;
      }
      u.storeTile({ to, row, rows, element, sums });
    },
  );
}
