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

/**
 * Where a thread's scales begin, one for every stage: of its two rows; of the weights that the first half of its sums is made of; and of those
 * that the other is: what gates scale, or simply the rows of weights behind.
 */
export const scalePlaces = record({ upper: 'u32', lower: 'u32', half: 'u32', other: 'u32' });
const scalesOf = record({ rows: pointer('f32'), weights: pointer('f32'), at: scalePlaces });

/** Starts a product of a stage that has come. */
const startProduct = (kit: HopperKit) =>
  device(
    {
      params: {
        ...{ ring: kit.at.ring, part: partOf, stage: 'u32', product: 'u32' },
        products: registers('f32'),
      },
      using: { ...kit.u, COLUMNS: kit.of.columns / kit.of.products },
    },
    (g, { ring, part: { row, column }, stage, product, products }, u) => {
      const rows = ring.rows.at(stage).rows(row, u.ROWS);
      const weights = ring.weights.at(stage).rows(column + product * u.COLUMNS, u.COLUMNS);
      g.wgmma.fence();
      g.wgmma.multiply(products, rows, weights, true);
      g.wgmma.commit();
    },
  );

/** Whether the other half of the sums has scales of its own. */
const hasTwo = (kit: HopperKit): boolean => kit.u.GATED || kit.of.products === 2;

/** The products of a stage's scales: of the thread's two rows with those of a half of the sums, and of the other. */
const findFactors = (kit: HopperKit) =>
  device(
    { params: { scales: registers('f32'), by: registers('f32') }, using: { TWO: hasTwo(kit) } },
    (g, { scales, by }, u) => {
      for (const i of g.unroll(4)) by[i] = scales[i % 2]! * scales[u.TWO && i >= 2 ? 3 : 2]!;
    },
  );

/** Adds products to sums, from one of these on, times the stage's factors. */
const addScaled = (kit: HopperKit) =>
  device(
    {
      params: {
        ...{ products: registers('f32'), by: registers('f32') },
        ...{ sums: registers('f32'), from: 'u32' },
      },
      using: { TWO: hasTwo(kit) },
    },
    (g, { products, by, sums, from }, u) => {
      for (const i of g.unroll(products.length)) {
        const lower = i % 4 < 2 ? 0 : 1;
        if (u.TWO && from + i >= sums.length / 2)
          sums[from + i] = g.fma(products[i]!, by[2 + lower]!, sums[from + i]!);
        else sums[from + i] = g.fma(products[i]!, by[lower]!, sums[from + i]!);
      }
    },
  );

/** Loads the scales of stage `base + i`. */
const loadScales = (kit: HopperKit) =>
  device(
    {
      params: { scales: scalesOf, base: 'u32', i: 'u32', now: registers('f32') },
      using: { TWO: hasTwo(kit) },
    },
    (g, { scales: { rows, weights, at }, base, i, now }, u) => {
      now[0] = g.load(rows.at(at.upper).at(base).at(i));
      now[1] = g.load(rows.at(at.lower).at(base).at(i));
      now[2] = g.load(weights.at(at.half).at(base).at(i));
      if (u.TWO) now[3] = g.load(weights.at(at.other).at(base).at(i));
    },
  );

/** Stages that follow each other without a pause: a divisor of all. */
const inARow = (steps: number): number => [8, 7, 6, 5, 4, 3, 2, 1].find((some) => steps % some === 0)!;

/**
 * e4m3: the tensor cores add up a stage, 128 elements, and the threads add that to their sums, times the scales of its rows and
 * weights.
 */
export const multiplyScaled = (kit: HopperKit) =>
  (kit.of.products === 1 ? multiplyNarrow : multiplyWide)(kit);

const scaledParams = (kit: HopperKit) => ({
  ...{ ring: kit.at.ring, part: partOf, scales: scalesOf, sums: registers('f32') },
});

/**
 * A stage's sums are one product. Products lie in two sets of registers: while one is scaled, the tensor cores fill the other. After some
 * stages both are done, because the compiler cannot follow registers that are under way from one turn of a loop to the next.
 */
const multiplyNarrow = (kit: HopperKit) =>
  device(
    {
      params: scaledParams(kit),
      using: {
        ...{ ...kit.u, IN_A_ROW: inARow(kit.stepsOfPart), loadScales: loadScales(kit) },
        ...{ startProduct: startProduct(kit), findFactors: findFactors(kit), addScaled: addScaled(kit) },
      },
    },
    (g, { ring, part, scales, sums }, u) => {
      for (const i of g.unroll(sums.length)) sums[i] = g.f32(0);
      const even = g.registers('f32', sums.length);
      const odd = g.registers('f32', sums.length);
      for (let base = g.u32(0); base < u.STEPS; base += u.IN_A_ROW) {
        const now = g.registers('f32', 4);
        for (const i of g.unroll(u.IN_A_ROW + 1)) {
          const before = g.registers('f32', 4);
          for (const s of g.unroll(4)) before[s] = now[s]!;
          const turn = part.turn + base + i;
          if (i < u.IN_A_ROW) {
            u.loadScales({ scales, base, i, now });
            const stage = u.wait({ gates: ring.gates, step: turn });
            u.startProduct({ ring, part, stage, product: 0, products: i % 2 === 0 ? even : odd });
          }
          if (i > 0) {
            if (i < u.IN_A_ROW) g.wgmma.wait(1);
            else g.wgmma.wait(0);
            if (g.laneId === 0) u.release({ gates: ring.gates, step: turn - 1 });
            const by = g.registers('f32', 4);
            u.findFactors({ scales: before, by });
            u.addScaled({ products: i % 2 === 0 ? odd : even, by, sums, from: 0 });
          }
        }
      }
    },
  );

/**
 * A stage's sums are two products, one after the other in the same registers: rows are brought once for twice as many weights. While
 * one warp group scales, the other has the tensor cores. Scales are loaded a stage ahead, so that no product waits for them. In the first GEMM the wait
 * for a stage lies beside the product before, too; the second is slower so (docs/results/2026-11-27-h200-clusters.md).
 */
const multiplyWide = (kit: HopperKit) =>
  device(
    {
      params: scaledParams(kit),
      using: {
        ...{ ...kit.u, BESIDE: kit.u.GATED, LAST: kit.stepsOfPart - 1, loadScales: loadScales(kit) },
        // Where all units begin at the ring's first stage, their turns are multiples of its stages, and the compiler knows each stage's place.
        ...{ IN_A_ROW: kit.stepsOfPart % kit.of.stages === 0 ? kit.of.stages : 1 },
        ...{ startProduct: startProduct(kit), findFactors: findFactors(kit), addScaled: addScaled(kit) },
      },
    },
    (g, { ring, part, scales, sums }, u) => {
      for (const i of g.unroll(sums.length)) sums[i] = g.f32(0);
      const products = g.registers('f32', sums.length / 2);
      const next = g.registers('f32', 4);
      const begin = (part.turn / u.IN_A_ROW) * u.IN_A_ROW;
      u.loadScales({ scales, base: 0, i: 0, now: next });
      if (u.BESIDE) u.wait({ gates: ring.gates, step: begin });
      for (let base = g.u32(0); base < u.STEPS; base += u.IN_A_ROW) {
        for (const i of g.unroll(u.IN_A_ROW)) {
          const now = g.registers('f32', 4);
          const by = g.registers('f32', 4);
          for (const s of g.unroll(4)) now[s] = next[s]!;
          const turn = begin + base + i;
          const stage = turn % u.stages;
          if (!u.BESIDE) u.wait({ gates: ring.gates, step: turn });
          for (const half of g.unroll(2)) {
            g.wgmma.hold(sums);
            u.startProduct({ ring, part, stage, product: half, products });
            if (half === 0) {
              if (u.BESIDE) u.findFactors({ scales: now, by });
              u.loadScales({ scales, base: g.min(base + i + 1, g.u32(u.LAST)), i: 0, now: next });
            } else if (u.BESIDE && base + i < u.LAST) u.wait({ gates: ring.gates, step: turn + 1 });
            g.wgmma.wait(0);
            if (half === 1 && g.laneId === 0) u.release({ gates: ring.gates, step: turn });
            if (!u.BESIDE) u.findFactors({ scales: now, by });
            u.addScaled({ products, by, sums, from: half * products.length });
          }
        }
      }
    },
  );
