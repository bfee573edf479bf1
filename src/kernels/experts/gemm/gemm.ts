/**
 * Grouped GEMM: the rows of each expert times its weights, on the tensor cores. How many rows there are only the GPU
 * knows, so blocks stay and take tile after tile of those that there are, of all experts in turn; an expert without rows
 * costs nothing. Blocks that run at the same time have the same weights and different rows where they can.
 */
import { device, kernel, pointer, registers } from '../../../lang/index.js';
import { sumUpTo } from '../sum-up-to.js';
import { type GemmShape, type GemmTile, stageUnits, type TileSizes, tileSizes } from './shape.js';
import { loadStage, multiplyStage, tileInputs } from './stages.js';
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
        ROWS: tile.rows,
        ACROSS: sizes.tilesAcross,
        MADE: sizes.made,
        STAGES_UNITS: tile.stages * sizes.tileUnits,
        SUMS: 2 * sizes.rowParts * sizes.columnParts,
        endTiles: endTiles(shape, tile),
        findSources: findSources(shape, tile, sizes),
        findWeights: findWeights(shape, sizes),
        SOURCES: Math.ceil(sizes.rowUnits / sizes.threads),
        multiply: multiply(shape, tile, sizes),
        storeTile: storeTile(shape, tile, sizes),
      },
    },
    (g, { counts, offsets, routes, count, from, weights, to }, u) => {
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
        let rows = count;
        if (!u.ALL) {
          first = g.load(offsets.at(expert));
          rows = g.load(counts.at(expert));
        }
        const within = t - before * u.ACROSS;
        const skipped = (within % (end - before)) * u.ROWS;
        const across = within / (end - before);
        const sources = g.registers('u32', u.SOURCES);
        u.findSources({ routes, first: first + skipped, rows: rows - skipped, sources });
        const sums = g.registers('v16', u.SUMS);
        const column = u.findWeights({ expert, across });
        const inputs = { from: from.as('v16'), weights: weights.as('v16'), sources, column };
        u.multiply({ stages, inputs, sums });
        u.storeTile({ to, row: first + skipped, rows: rows - skipped, element: across * u.MADE, sums });
      }
    },
  );
}

/** Counts tiles of rows, up to each expert. One warp. */
const endTiles = ({ rows, experts }: GemmShape, tile: GemmTile) =>
  device(
    {
      name: 'end_tiles',
      params: { counts: pointer('u32'), count: 'u32', ends: pointer('u32') },
      using: { EXPERTS: experts, ALL: rows === 'all', ROWS: tile.rows, sumUpTo },
    },
    (g, { counts, count, ends }, u) => {
      let before = g.u32(0);
      for (let base = g.u32(0); base < u.EXPERTS; base += 32) {
        const e = base + g.laneId;
        let rows = g.u32(0);
        if (e < u.EXPERTS) rows = u.ALL ? count : g.load(counts.at(e));
        const end = before + u.sumUpTo({ value: (rows + u.ROWS - 1) / u.ROWS });
        before = g.warp.shuffle(end, 31);
        if (e < u.EXPERTS) g.store(ends.at(e), end);
      }
    },
  );

/** The first vector of each row that this thread loads. Behind the last row it loads the last one again. */
const findSources = ({ rows, topK }: GemmShape, _: GemmTile, sizes: TileSizes) =>
  device(
    {
      name: 'find_sources',
      params: { routes: pointer('i32'), first: 'u32', rows: 'u32', sources: registers('u32') },
      using: {
        GATHERED: rows === 'gathered',
        K: topK,
        U: stageUnits,
        APART: sizes.rowsApart,
        INPUT_UNITS: sizes.inputUnits,
      },
    },
    (g, { routes, first, rows, sources }, u) => {
      for (const i of g.unroll(sources.length)) {
        let row = first + g.min(g.threadIdx.x / u.U + i * u.APART, rows - 1);
        if (u.GATHERED) row = g.u32(g.load(routes.at(row))) / u.K;
        sources[i] = row * u.INPUT_UNITS + (g.threadIdx.x % u.U);
      }
    },
  );

/** The first vector of the first row of weights that this thread loads. Of 16 rows in a tile 8 are gates. */
const findWeights = ({ outputs, gated }: GemmShape, { made, inputUnits }: TileSizes) =>
  device(
    {
      name: 'find_weights',
      params: { expert: 'u32', across: 'u32' },
      returns: 'u32',
      using: { GATED: gated, OUTPUTS: outputs, MADE: made, U: stageUnits, INPUT_UNITS: inputUnits },
    },
    (g, { expert, across }, u) => {
      const row = g.threadIdx.x / u.U;
      let column = expert * u.OUTPUTS + across * u.MADE + row;
      if (u.GATED) {
        const plane = 2 * expert + ((row / 8) % 2);
        column = plane * u.OUTPUTS + across * u.MADE + (row / 16) * 8 + (row % 8);
      }
      return column * u.INPUT_UNITS + (g.threadIdx.x % u.U);
    },
  );

/** The sums of a tile. While a stage is multiplied the others are loaded. */
const multiply = (shape: GemmShape, tile: GemmTile, sizes: TileSizes) =>
  device(
    {
      name: 'multiply',
      params: {
        stages: pointer('v16'),
        inputs: tileInputs,
        sums: registers('v16'),
      },
      using: {
        STEPS: sizes.steps,
        STAGES: tile.stages,
        UNITS: sizes.tileUnits,
        loadStage: loadStage(shape, tile, sizes),
        multiplyStage: multiplyStage(tile, sizes),
      },
    },
    (g, { stages, inputs, sums }, u) => {
      for (const step of g.unroll(u.STAGES - 1)) {
        if (step < u.STEPS) u.loadStage({ stage: stages.at(step * u.UNITS), inputs, step });
        g.async.commit();
      }
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        // What this thread has loaded is there, behind the barrier what others have; and the stage before has been read.
        g.async.wait(u.STAGES - 2);
        g.barrier();
        const next = step + u.STAGES - 1;
        if (next < u.STEPS)
          u.loadStage({ stage: stages.at((next % u.STAGES) * u.UNITS), inputs, step: next });
        g.async.commit();
        u.multiplyStage({ stage: stages.at((step % u.STAGES) * u.UNITS), sums });
      }
      g.barrier();
    },
  );
