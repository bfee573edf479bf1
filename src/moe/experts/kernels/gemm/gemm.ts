/**
 * Grouped GEMM: the rows of each expert times its weights, on the tensor cores. How many rows there are only the GPU
 * knows, so blocks stay and take tile after tile of those that there are, of all experts in turn; an expert without rows
 * costs nothing. Blocks that run at the same time have the same weights and different rows where they can.
 */
import { kernel } from '../../../../lang/index.js';
import { cutLast, endTiles } from './find.js';
import { gemmKit } from './kit.js';
import { fillTable } from './packed.js';
import { type GemmShape, type GemmTile, pieceOf } from './shape.js';
import { makeTile } from './tile.js';

export function gemmKernel(shape: GemmShape, tiling: GemmTile) {
  const kit = gemmKit(shape, tiling);
  const cutInto = (into: number) => makeTile(gemmKit(shape, pieceOf(tiling, into)));
  return kernel(
    {
      name: `experts_${shape.gated ? 'gate_up' : 'down'}${shape.packed ? '_mxfp4' : ''}`,
      maxThreads: kit.threads,
      params: { ...kit.planned, ...kit.pointers },
      using: {
        ...{ ...kit.u, cutLast: cutLast(kit), endTiles: endTiles(kit), makeTile: makeTile(kit), fillTable },
        ...{ makeHalf: cutInto(tiling.cuts === 4 ? 2 : tiling.cuts), makeQuarter: cutInto(tiling.cuts) },
      },
    },
    (g, { counts, offsets, routes, count, from, weights, to, scales, bias, weightScales }, u) => {
      const stages = g.shared('v16', u.STAGES * u.TILE_UNITS + u.TABLE_UNITS);
      /** [expert]: tiles of rows of it and those before. */
      const ends = g.shared('u32', u.EXPERTS);
      if (u.PACKED) u.fillTable({ table: stages.at(u.STAGES * u.TILE_UNITS) });
      g.awaitPrevious();
      g.releaseNext();
      if (g.warpId === 0) u.endTiles({ planned: { counts, offsets, count }, ends });
      g.barrier();
      const tiles = g.load(ends.at(u.EXPERTS - 1)) * u.ACROSS;
      const { whole, cuts } = u.cutLast({ tiles });
      const pieces = whole + (tiles - whole) * cuts;
      let expert = g.u32(0);
      let before = g.u32(0);
      for (let t = g.blockIdx.x; t < pieces; t += g.gridDim.x) {
        let share = g.u32(1);
        if (t >= whole) share = cuts;
        const tile = whole + (t - whole) / share;
        let end = g.load(ends.at(expert));
        while (tile >= end * u.ACROSS) {
          expert += 1;
          before = end;
          end = g.load(ends.at(expert));
        }
        let first = g.u32(0);
        let all = g.u32(0);
        if (count.length > 0) all = count[0]!;
        else {
          first = g.load(offsets[0]!.at(expert));
          all = g.load(counts[0]!.at(expert));
        }
        const within = tile - before * u.ACROSS;
        const skipped = (within % (end - before)) * u.ROWS;
        const across = within / (end - before);
        const pointers = { routes, from, scales, weights, to, bias, weightScales };
        const piece = across * share + ((t - whole) % share);
        const place = { expert, row: first + skipped, rows: all - skipped, across: piece };
        if (share === 1) u.makeTile({ stages, pointers, place });
        if (u.CUTS >= 2 && share === 2) u.makeHalf({ stages, pointers, place });
        if (u.CUTS >= 4 && share === 4) u.makeQuarter({ stages, pointers, place });
      }
    },
  );
}
