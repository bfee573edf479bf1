/** The warp group that brings: stage after stage, the rows and weights of one unit after the other. */
import { device, list, pointer, registers } from '../../../../lang/index.js';
import { type HopperKit, placeOf, work } from './kit.js';
import { findUnit } from './units.js';

/** A unit, and the turn that its first stage has. */
const unitOf = ({ at: { ring, sources } }: HopperKit) =>
  ({ ring, work, sources, place: placeOf, turn: 'u32' }) as const;

/** All units of this block. Where the copy engine brings all, one thread asks it. */
export const bring = (kit: HopperKit) =>
  device(
    {
      params: { ring: kit.at.ring, work, sources: kit.at.sources },
      using: {
        ...{ ...kit.u, findUnit: findUnit(kit), tellOf: tellOf(kit) },
        bringUnit: (kit.u.GATHERED ? gatherUnit : bringUnit)(kit),
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
          turn += u.STEPS;
        }
        if (u.GATHERED) {
          g.async.wait(0);
          for (let late = g.min(turn, g.u32(u.LAG)); late > 0; late -= 1)
            u.tellOf({ ring, turn: turn - late });
        }
      }
    },
  );

/**
 * Asks for the weights of this block's first stages, which no launch writes. Each stage expects its rows too, and so is not full before
 * `bringUnit` has asked for them. One thread.
 */
export const askAhead = (kit: HopperKit) =>
  device(
    {
      params: { ring: kit.at.ring, work, weights: kit.at.weights },
      using: { STAGES: kit.ahead, findUnit: findUnit(kit), beginStage: beginStage(kit) },
    },
    (g, { ring, work, weights }, u) => {
      if (g.blockIdx.x < work.units) {
        const place = u.findUnit({ unit: g.blockIdx.x, ends: work.ends, expert: 0, before: 0 });
        for (let step = g.u32(0); step < u.STAGES; step += 1)
          u.beginStage({ ring, weights, place, step, turn: step });
      }
    },
  );

/** Rows in order: the copy engine brings them and the weights. */
const bringUnit = (kit: HopperKit) =>
  device(
    { params: unitOf(kit), using: { ...kit.u, AHEAD: kit.ahead, beginStage: beginStage(kit) } },
    (g, { ring, work, sources: { rows, weights }, place, turn }, u) => {
      const first = g.load(work.begins.at(place.expert)) + place.row;
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const now = turn + step;
        let stage = now;
        if (now >= u.AHEAD) stage = u.beginStage({ ring, weights, place, step, turn: now });
        const element = (place.step + step) * u.DEPTH;
        g.tensor.load(ring.rows.at(stage), rows[0]!, [first, element], ring.gates.full.at(stage));
      }
    },
  );

/** Waits until a stage is empty, says what it expects, and asks for its weights; returns it. One thread. */
const beginStage = (kit: HopperKit) =>
  device(
    {
      params: {
        ...{ ring: kit.at.ring, weights: kit.at.weights, place: placeOf },
        ...{ step: 'u32', turn: 'u32' },
      },
      returns: 'u32',
      using: {
        ...kit.u,
        BYTES: kit.rowsTile.bytes + kit.broughtBytes,
        askForWeights: askForWeights(kit),
      },
    },
    (g, { ring, weights, place, step, turn }, u) => {
      const stage = u.acquire({ gates: ring.gates, step: turn });
      g.mbarrier.expect(ring.gates.full.at(stage), u.BYTES);
      const row = place.expert * u.WEIGHT_ROWS + place.element;
      u.askForWeights({ ring, stage, weights, row, element: (place.step + step) * u.DEPTH });
      return stage;
    },
  );

/**
 * Rows that dispatch left: each thread copies one vector in eight of every sixteenth row. Behind the last row it copies the last one
 * again; sixteen rows of which there is none stay as they are, and nobody uses their sums.
 */
const gatherUnit = (kit: HopperKit) =>
  device(
    {
      params: unitOf(kit),
      using: {
        ...kit.u,
        ...{ WEIGHT_BYTES: kit.broughtBytes, VECTOR_ELEMENTS: kit.u.DEPTH / kit.u.VECTORS },
        ...{ PARTS: kit.rows / kit.u.APART, askForWeights: askForWeights(kit) },
        ...{ findSources: findSources(kit), tellOf: tellOf(kit) },
      },
    },
    (g, { ring, work, sources: { routes, from, weights }, place, turn }, u) => {
      const vector = g.threadIdx.x % u.VECTORS;
      const own = g.threadIdx.x / u.VECTORS;
      const there = g.load(work.counts.at(place.expert)) - place.row;
      const rows = g.registers('u32', u.PARTS);
      u.findSources({ routes, first: g.load(work.begins.at(place.expert)) + place.row, there, rows });
      const row = place.expert * u.WEIGHT_ROWS + place.element;
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const now = turn + step;
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
    },
  );

/** The first vector of each row that this thread copies. */
const findSources = ({ u: numbers, steps }: HopperKit) =>
  device(
    {
      params: {
        routes: list(pointer('i32'), 1),
        /** The plan's first row, and how many the expert has from it on. */
        ...{ first: 'u32', there: 'u32', rows: registers('u32') },
      },
      using: { ...numbers, ROW_VECTORS: steps * numbers.VECTORS },
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
const askForWeights = ({ at: { ring, weights }, u }: HopperKit) =>
  device(
    {
      /** `row`, `element`: of the tensor of weights. */
      params: { ring, stage: 'u32', weights, row: 'u32', element: 'u32' },
      using: u,
    },
    (g, { ring, stage, weights, row, element }, u) => {
      for (const box of g.unroll(u.BOXES)) {
        const to = ring.weights.at(stage).rows(box * u.BOX_ROWS, u.BOX_ROWS);
        let first = row + box * u.BOX_ROWS;
        if (u.GATED) first = row + (box % 2) * u.OUTPUTS + ((box - (box % 2)) / 2) * u.BOX_ROWS;
        g.tensor.load(to, weights[0]!, [first, element], ring.gates.full.at(stage));
      }
    },
  );

/** This thread's rows of a stage have come. They are ordinary writes, which the tensor cores see behind the fence. */
const tellOf = (kit: HopperKit) =>
  device({ params: { ring: kit.at.ring, turn: 'u32' }, using: kit.u }, (g, { ring, turn }, { commit }) => {
    g.proxyFence('shared');
    commit({ gates: ring.gates, step: turn });
  });
