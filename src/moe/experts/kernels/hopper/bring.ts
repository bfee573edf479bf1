/** The warp group that brings: stage after stage, the rows and weights of one unit after the other. */
import { device, pointer, tensorMap } from '../../../../lang/index.js';
import { handOn, ringOf } from './ring.js';
import { groupThreads, type HopperShape, type HopperSizes, type HopperTile } from './shape.js';
import { findUnit, work } from './units.js';

/** Stages that a thread's own copies may be under way before it waits for the first of them. */
const underWay = 2;

/** Asks the copy engine for the weights of a stage: a box for each warp group, or one of gates and one of what they scale. One thread. */
const askForWeights = ({ gated, outputs }: HopperShape, sizes: HopperSizes) =>
  device(
    {
      name: 'ask_for_weights',
      params: {
        ring: ringOf(sizes),
        stage: 'u32',
        weights: tensorMap(sizes.boxTile),
        /** Of the tensor of weights. */
        row: 'u32',
        element: 'u32',
      },
      using: { BOXES: sizes.boxes, BOX_ROWS: sizes.boxRows, GATED: gated, OUTPUTS: outputs },
    },
    (g, { ring, stage, weights, row, element }, u) => {
      for (const box of g.unroll(u.BOXES)) {
        const to = ring.weights.at(stage).rows(box * u.BOX_ROWS, u.BOX_ROWS);
        let first = row + box * u.BOX_ROWS;
        if (u.GATED) first = row + (box % 2) * u.OUTPUTS + ((box - (box % 2)) / 2) * u.BOX_ROWS;
        g.tensor.load(to, weights, [first, element], ring.gates.full.at(stage));
      }
    },
  );

/** Rows in the order of the plan, or of one expert: the copy engine brings them too. One thread does it all. */
export const bringTiles = (shape: HopperShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      name: 'bring_tiles',
      params: {
        ring: ringOf(sizes),
        work,
        rows: tensorMap(sizes.rowsTile),
        weights: tensorMap(sizes.boxTile),
      },
      using: {
        ...sizes.bringing,
        acquire: handOn(shape, of).acquire,
        PASSES: of.passes,
        STAGE_BYTES: sizes.rowsTile.bytes + sizes.weightsTile.bytes,
        askForWeights: askForWeights(shape, sizes),
        findUnit: findUnit(sizes),
      },
    },
    (g, { ring, work: { ends, begins, units }, rows, weights }, u) => {
      if (g.threadIdx.x === 0) {
        let turn = g.u32(0);
        let expert = g.u32(0);
        let before = g.u32(0);
        for (let unit = g.blockIdx.x; unit < units; unit += g.gridDim.x) {
          const place = u.findUnit({ unit, ends, expert, before });
          expert = place.expert;
          before = place.before;
          const first = g.load(begins.at(expert)) + place.row;
          for (const pass of g.unroll(u.PASSES)) {
            const weightRow = expert * u.WEIGHT_ROWS + place.element + pass * u.MADE_IN_PASS;
            for (let step = g.u32(0); step < u.STEPS; step += 1) {
              const stage = u.acquire({ gates: ring.gates, step: turn });
              g.mbarrier.expect(ring.gates.full.at(stage), u.STAGE_BYTES);
              const element = step * u.DEPTH;
              g.tensor.load(ring.rows.at(stage), rows, [first, element], ring.gates.full.at(stage));
              u.askForWeights({ ring, stage, weights, row: weightRow, element });
              turn += 1;
            }
          }
        }
      }
    },
  );

/**
 * Rows that dispatch left, found by the plan's routes: each thread copies one vector in eight of every sixteenth row. Behind the
 * last row it copies the last one again; sixteen rows of which there is none stay as they are, and nobody uses their sums.
 */
export const bringGathered = (shape: HopperShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      name: 'bring_gathered',
      params: {
        ring: ringOf(sizes),
        work,
        routes: pointer('i32'),
        /** [slot][vector] */
        from: pointer('v16'),
        weights: tensorMap(sizes.boxTile),
      },
      using: {
        ...sizes.bringing,
        acquire: handOn(shape, of).acquire,
        PASSES: of.passes,
        LAG: underWay,
        WEIGHT_BYTES: sizes.weightsTile.bytes,
        VECTOR_ELEMENTS: sizes.bringing.DEPTH / sizes.stageVectors,
        K: shape.topK,
        VECTORS: sizes.stageVectors,
        PARTS: sizes.rows / (groupThreads / sizes.stageVectors),
        APART: groupThreads / sizes.stageVectors,
        ROW_VECTORS: sizes.steps * sizes.stageVectors,
        askForWeights: askForWeights(shape, sizes),
        findUnit: findUnit(sizes),
        tellOf: tellOf(shape, of, sizes),
      },
    },
    (g, { ring, work: { ends, begins, counts, units }, routes, from, weights }, u) => {
      const vector = g.threadIdx.x % u.VECTORS;
      const own = g.threadIdx.x / u.VECTORS;
      let turn = g.u32(0);
      let expert = g.u32(0);
      let before = g.u32(0);
      for (let unit = g.blockIdx.x; unit < units; unit += g.gridDim.x) {
        const place = u.findUnit({ unit, ends, expert, before });
        expert = place.expert;
        before = place.before;
        const there = g.load(counts.at(expert)) - place.row;
        const first = g.load(begins.at(expert)) + place.row;
        const sources = g.registers('u32', u.PARTS);
        for (const i of g.unroll(u.PARTS)) {
          const route = g.load(routes.at(first + g.min(own + i * u.APART, there - 1)));
          sources[i] = (g.u32(route) / u.K) * u.ROW_VECTORS + vector;
        }
        for (const pass of g.unroll(u.PASSES)) {
          const weightRow = expert * u.WEIGHT_ROWS + place.element + pass * u.MADE_IN_PASS;
          for (let step = g.u32(0); step < u.STEPS; step += 1) {
            const stage = u.acquire({ gates: ring.gates, step: turn });
            if (g.threadIdx.x === 0) {
              g.mbarrier.expect(ring.gates.full.at(stage), u.WEIGHT_BYTES);
              u.askForWeights({ ring, stage, weights, row: weightRow, element: step * u.DEPTH });
            }
            for (const i of g.unroll(u.PARTS)) {
              if (i * u.APART < there) {
                const to = ring.rows.at(stage).element(own + i * u.APART, vector * u.VECTOR_ELEMENTS);
                g.async.load(to.as('v16'), from.at(sources[i]! + step * u.VECTORS));
              }
            }
            g.async.commit();
            if (turn >= u.LAG) {
              g.async.wait(u.LAG);
              u.tellOf({ ring, turn: turn - u.LAG });
            }
            turn += 1;
          }
        }
      }
      g.async.wait(0);
      for (let late = g.min(turn, g.u32(u.LAG)); late > 0; late -= 1) u.tellOf({ ring, turn: turn - late });
    },
  );

/** This thread's rows of a stage have come. They are ordinary writes, which the tensor cores see behind the fence. */
const tellOf = (shape: HopperShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      name: 'tell_of',
      params: { ring: ringOf(sizes), turn: 'u32' },
      using: { commit: handOn(shape, of).commit },
    },
    (g, { ring, turn }, { commit }) => {
      g.proxyFence('shared');
      commit({ gates: ring.gates, step: turn });
    },
  );
