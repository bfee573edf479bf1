/** The warp group that brings: stage after stage, the rows and weights of one unit after the other. */
import { device, list, pointer, record, registers, tensorMap } from '../../../../lang/index.js';
import type { GemmShape } from '../gemm/shape.js';
import { groupThreads, type HopperSizes, type HopperTile, handOn, ringOf } from './shape.js';
import { findUnit, placeOf, work } from './units.js';

/** Stages that a thread's own copies may be under way before it waits for the first of them. */
const underWay = 2;

/** Where rows and weights come from: rows in order; or those that dispatch left, [slot][vector], which [row] its route finds. */
export const sourcesOf = ({ rows }: GemmShape, sizes: HopperSizes) => {
  const gathered = rows === 'gathered' ? 1 : 0;
  return record({
    rows: list(tensorMap(sizes.rowsTile), 1 - gathered),
    routes: list(pointer('i32'), gathered),
    from: list(pointer('v16'), gathered),
    /** [expert][out][in] */
    weights: tensorMap(sizes.boxTile),
  });
};

/** A unit, and the turn that its first stage has. */
const unitOf = (shape: GemmShape, sizes: HopperSizes) =>
  ({ ring: ringOf(sizes), work, sources: sourcesOf(shape, sizes), place: placeOf, turn: 'u32' }) as const;

/** All units of this block. Where the copy engine brings all, one thread asks it. */
export const bring = (shape: GemmShape, of: HopperTile, sizes: HopperSizes) => {
  const gathered = shape.rows === 'gathered';
  return device(
    {
      params: { ring: ringOf(sizes), work, sources: sourcesOf(shape, sizes) },
      using: {
        GATHERED: gathered,
        STAGES_OF_UNIT: of.passes * sizes.stepsOfPart,
        LAG: underWay,
        findUnit: findUnit(sizes, of),
        bringUnit: (gathered ? gatherUnit : bringUnit)(shape, of, sizes),
        tellOf: tellOf(shape, of, sizes),
      },
    },
    (g, { ring, work, sources }, u) => {
      if (u.GATHERED || g.threadIdx.x === 0) {
        let turn = g.u32(0);
        let expert = g.u32(0);
        let before = g.u32(0);
        for (let unit = g.blockIdx.x; unit < work.units; unit += g.gridDim.x) {
          const place = u.findUnit({ unit, ends: work.ends, expert, before });
          expert = place.expert;
          before = place.before;
          u.bringUnit({ ring, work, sources, place, turn });
          turn += u.STAGES_OF_UNIT;
        }
        if (u.GATHERED) {
          g.async.wait(0);
          for (let late = g.min(turn, g.u32(u.LAG)); late > 0; late -= 1)
            u.tellOf({ ring, turn: turn - late });
        }
      }
    },
  );
};

/**
 * Asks for the weights of this block's first stages, which no launch writes. Each stage expects its rows too, and so is not full before
 * `bringUnit` has asked for them. One thread.
 */
export const askAhead = (shape: GemmShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      params: { ring: ringOf(sizes), work, weights: tensorMap(sizes.boxTile) },
      using: {
        STAGES: sizes.ahead,
        findUnit: findUnit(sizes, of),
        beginStage: beginStage(shape, of, sizes),
      },
    },
    (g, { ring, work, weights }, u) => {
      if (g.blockIdx.x < work.units) {
        const place = u.findUnit({ unit: g.blockIdx.x, ends: work.ends, expert: 0, before: 0 });
        for (let step = g.u32(0); step < u.STAGES; step += 1)
          u.beginStage({ ring, weights, place, pass: 0, step, turn: step });
      }
    },
  );

/** Rows in order: the copy engine brings them and the weights. */
const bringUnit = (shape: GemmShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      params: unitOf(shape, sizes),
      using: {
        PASSES: of.passes,
        STEPS: sizes.bringing.STEPS,
        DEPTH: sizes.bringing.DEPTH,
        AHEAD: sizes.ahead,
        beginStage: beginStage(shape, of, sizes),
      },
    },
    (g, { ring, work, sources: { rows, weights }, place, turn }, u) => {
      const first = g.load(work.begins.at(place.expert)) + place.row;
      for (const pass of g.unroll(u.PASSES)) {
        for (let step = g.u32(0); step < u.STEPS; step += 1) {
          const now = turn + pass * u.STEPS + step;
          let stage = now;
          if (now >= u.AHEAD) stage = u.beginStage({ ring, weights, place, pass, step, turn: now });
          const element = (place.step + step) * u.DEPTH;
          g.tensor.load(ring.rows.at(stage), rows[0]!, [first, element], ring.gates.full.at(stage));
        }
      }
    },
  );

/** Waits until a stage is empty, says what it expects, and asks for its weights; returns it. One thread. */
const beginStage = (shape: GemmShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      params: {
        ring: ringOf(sizes),
        weights: tensorMap(sizes.boxTile),
        place: placeOf,
        pass: 'u32',
        step: 'u32',
        turn: 'u32',
      },
      returns: 'u32',
      using: {
        WEIGHT_ROWS: sizes.bringing.WEIGHT_ROWS,
        MADE_IN_PASS: sizes.bringing.MADE_IN_PASS,
        DEPTH: sizes.bringing.DEPTH,
        BYTES: sizes.rowsTile.bytes + sizes.weightsTile.bytes,
        acquire: handOn(shape, of).acquire,
        askForWeights: askForWeights(shape, sizes),
      },
    },
    (g, { ring, weights, place, pass, step, turn }, u) => {
      const stage = u.acquire({ gates: ring.gates, step: turn });
      g.mbarrier.expect(ring.gates.full.at(stage), u.BYTES);
      const row = place.expert * u.WEIGHT_ROWS + place.element + pass * u.MADE_IN_PASS;
      u.askForWeights({ ring, stage, weights, row, element: (place.step + step) * u.DEPTH });
      return stage;
    },
  );

/**
 * Rows that dispatch left: each thread copies one vector in eight of every sixteenth row. Behind the last row it copies the last one
 * again; sixteen rows of which there is none stay as they are, and nobody uses their sums.
 */
const gatherUnit = (shape: GemmShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      params: unitOf(shape, sizes),
      using: {
        ...sizes.bringing,
        PASSES: of.passes,
        LAG: underWay,
        WEIGHT_BYTES: sizes.weightsTile.bytes,
        VECTOR_ELEMENTS: sizes.bringing.DEPTH / sizes.stageVectors,
        VECTORS: sizes.stageVectors,
        PARTS: sizes.rows / (groupThreads / sizes.stageVectors),
        APART: groupThreads / sizes.stageVectors,
        acquire: handOn(shape, of).acquire,
        askForWeights: askForWeights(shape, sizes),
        findSources: findSources(shape, sizes),
        tellOf: tellOf(shape, of, sizes),
      },
    },
    (g, { ring, work, sources: { routes, from, weights }, place, turn }, u) => {
      const vector = g.threadIdx.x % u.VECTORS;
      const own = g.threadIdx.x / u.VECTORS;
      const there = g.load(work.counts.at(place.expert)) - place.row;
      const rows = g.registers('u32', u.PARTS);
      u.findSources({ routes, first: g.load(work.begins.at(place.expert)) + place.row, there, rows });
      for (const pass of g.unroll(u.PASSES)) {
        const row = place.expert * u.WEIGHT_ROWS + place.element + pass * u.MADE_IN_PASS;
        for (let step = g.u32(0); step < u.STEPS; step += 1) {
          const now = turn + pass * u.STEPS + step;
          const stage = u.acquire({ gates: ring.gates, step: now });
          if (g.threadIdx.x === 0) {
            g.mbarrier.expect(ring.gates.full.at(stage), u.WEIGHT_BYTES);
            u.askForWeights({ ring, stage, weights, row, element: (place.step + step) * u.DEPTH });
          }
          for (const i of g.unroll(u.PARTS)) {
            if (i * u.APART < there) {
              const to = ring.rows.at(stage).element(own + i * u.APART, vector * u.VECTOR_ELEMENTS);
              g.async.load(to.as('v16'), from[0]!.at(rows[i]! + (place.step + step) * u.VECTORS));
            }
          }
          g.async.commit();
          if (now >= u.LAG) {
            g.async.wait(u.LAG);
            u.tellOf({ ring, turn: now - u.LAG });
          }
        }
      }
    },
  );

/** The first vector of each row that this thread copies. */
const findSources = ({ topK }: GemmShape, { steps, stageVectors }: HopperSizes) =>
  device(
    {
      params: {
        routes: list(pointer('i32'), 1),
        /** Of the plan; and how many the expert has from it on. */
        first: 'u32',
        there: 'u32',
        rows: registers('u32'),
      },
      using: {
        K: topK,
        VECTORS: stageVectors,
        APART: groupThreads / stageVectors,
        ROW_VECTORS: steps * stageVectors,
      },
    },
    (g, { routes, first, there, rows }, u) => {
      for (const i of g.unroll(rows.length)) {
        const row = g.min(g.threadIdx.x / u.VECTORS + i * u.APART, there - 1);
        const route = g.load(routes[0]!.at(first + row));
        rows[i] = (g.u32(route) / u.K) * u.ROW_VECTORS + (g.threadIdx.x % u.VECTORS);
      }
    },
  );

/** Asks the copy engine for the weights of a stage: a box for each warp group, or one of gates and one of what they scale. One thread. */
const askForWeights = ({ gated, outputs }: GemmShape, sizes: HopperSizes) =>
  device(
    {
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

/** This thread's rows of a stage have come. They are ordinary writes, which the tensor cores see behind the fence. */
const tellOf = (shape: GemmShape, of: HopperTile, sizes: HopperSizes) =>
  device(
    {
      params: { ring: ringOf(sizes), turn: 'u32' },
      using: { commit: handOn(shape, of).commit },
    },
    (g, { ring, turn }, { commit }) => {
      g.proxyFence('shared');
      commit({ gates: ring.gates, step: turn });
    },
  );
