/** A warp group's sums: one stage after the other, as they come. */
import { device, pointer, record, registers } from '../../../../lang/index.js';
import type { HopperKit } from './kit.js';

/** A warp group's part of a stage, and the turn that the first stage has. */
const partOf = record({ row: 'u32', column: 'u32', turn: 'u32' });

/** bf16: the tensor cores add all stages up. While one is multiplied, the next is asked for: a stage is released a turn later. */
export const multiplyRows = (kit: HopperKit) =>
  device(
    { params: { ring: kit.at.ring, part: partOf, sums: registers('f32') }, using: kit.u },
    (g, { ring, part: { row, column, turn }, sums }, u) => {
      for (let step = g.u32(0); step < u.STEPS; step += 1) {
        const stage = u.wait({ gates: ring.gates, step: turn + step });
        const rows = ring.rows.at(stage).rows(row, u.ROWS);
        const weights = ring.weights.at(stage).rows(column, u.COLUMNS);
        g.wgmma.fence();
        g.wgmma.multiply(sums, rows, weights, step === 0);
        g.wgmma.commit();
        if (step > 0) {
          g.wgmma.wait(1);
          if (g.laneId === 0) u.release({ gates: ring.gates, step: turn + step - 1 });
        }
      }
      g.wgmma.wait(0);
      if (g.laneId === 0) u.release({ gates: ring.gates, step: turn + u.STEPS - 1 });
    },
  );

/** Where a thread's scales begin, one for every stage: of its two rows, of gates (or of all weights), and of what gates scale. */
export const scalePlaces = record({ upper: 'u32', lower: 'u32', gates: 'u32', scaled: 'u32' });
const scalesOf = record({ rows: pointer('f32'), weights: pointer('f32'), at: scalePlaces });

/** Starts a stage's products, when the stage has come. */
const startStage = (kit: HopperKit) =>
  device(
    { params: { ring: kit.at.ring, part: partOf, turn: 'u32', products: registers('f32') }, using: kit.u },
    (g, { ring, part: { row, column }, turn, products }, u) => {
      const stage = u.wait({ gates: ring.gates, step: turn });
      const rows = ring.rows.at(stage).rows(row, u.ROWS);
      const weights = ring.weights.at(stage).rows(column, u.COLUMNS);
      g.wgmma.fence();
      g.wgmma.multiply(products, rows, weights, true);
      g.wgmma.commit();
    },
  );

/** Adds a stage's products to the sums, times the scales of the stage: of the thread's two rows, of gates (or all), of what these scale. */
const addScaled = (kit: HopperKit) =>
  device(
    {
      params: { products: registers('f32'), scales: registers('f32'), sums: registers('f32') },
      using: kit.u,
    },
    (g, { products, scales, sums }, u) => {
      const by = g.registers('f32', 4);
      for (const i of g.unroll(4)) by[i] = scales[i % 2]! * scales[u.GATED && i >= 2 ? 3 : 2]!;
      for (const i of g.unroll(sums.length)) {
        if (u.GATED && i >= sums.length / 2) sums[i] = g.fma(products[i]!, by[i % 4 < 2 ? 2 : 3]!, sums[i]!);
        else sums[i] = g.fma(products[i]!, by[i % 4 < 2 ? 0 : 1]!, sums[i]!);
      }
    },
  );

/** Stages that follow each other without a pause: a divisor of all. */
const inARow = (steps: number): number => [8, 7, 6, 5, 4, 3, 2, 1].find((some) => steps % some === 0)!;

/**
 * e4m3: the tensor cores add up a stage, 128 elements, and the threads add that to their sums, times the scales of its rows and
 * weights. Products lie in two sets of registers: while one is scaled, the tensor cores fill the other. After some stages both
 * are done, because the compiler cannot follow registers that are under way from one turn of a loop to the next.
 */
export const multiplyScaled = (kit: HopperKit) =>
  device(
    {
      params: { ring: kit.at.ring, part: partOf, scales: scalesOf, sums: registers('f32') },
      using: {
        ...{ ...kit.u, IN_A_ROW: inARow(kit.stepsOfPart) },
        ...{ startStage: startStage(kit), addScaled: addScaled(kit) },
      },
    },
    (g, { ring, part, scales: { rows, weights, at }, sums }, u) => {
      for (const i of g.unroll(sums.length)) sums[i] = g.f32(0);
      const even = g.registers('f32', sums.length);
      const odd = g.registers('f32', sums.length);
      for (let base = g.u32(0); base < u.STEPS; base += u.IN_A_ROW) {
        const upper = rows.at(at.upper).at(base);
        const lower = rows.at(at.lower).at(base);
        const gates = weights.at(at.gates).at(base);
        const scaled = weights.at(at.scaled).at(base);
        const now = g.registers('f32', 4);
        for (const i of g.unroll(u.IN_A_ROW + 1)) {
          const before = g.registers('f32', 4);
          for (const s of g.unroll(4)) before[s] = now[s]!;
          const step = base + i;
          if (i < u.IN_A_ROW) {
            now[0] = g.load(upper.at(i));
            now[1] = g.load(lower.at(i));
            now[2] = g.load(gates.at(i));
            if (u.GATED) now[3] = g.load(scaled.at(i));
            u.startStage({ ring, part, turn: part.turn + step, products: i % 2 === 0 ? even : odd });
          }
          if (i > 0) {
            if (i < u.IN_A_ROW) g.wgmma.wait(1);
            else g.wgmma.wait(0);
            if (g.laneId === 0) u.release({ gates: ring.gates, step: part.turn + step - 1 });
            u.addScaled({ products: i % 2 === 0 ? odd : even, scales: before, sums });
          }
        }
      }
    },
  );
