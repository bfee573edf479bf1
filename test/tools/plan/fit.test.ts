/** Fits of cells that the model made itself, so that the truth is known. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type Cell,
  fitCells,
  fitSource,
  leastSquares,
  observe,
  type Parameters,
  parameterNames,
  predict,
  shippedCells,
  time,
} from '../../../src/tools/plan/index.js';

const nominal = { nvlink: 450, nic: 50 };
const shape = shippedCells().find((cell) => cell.set === 'aic_h100_ll')!;
const grid = (eps: readonly number[], tokens: readonly number[]): Cell[] =>
  eps.flatMap((ep) => tokens.map((n) => ({ ...shape, ep, tokens: n })));
const sizes = [1, 8, 32, 128, 512, 2048];

const truths = fc.record({
  floor: fc.double({ min: 8, max: 40, noNaN: true }),
  lead: fc.double({ min: 5, max: 20, noNaN: true }),
  nvlink: fc.double({ min: 2, max: 6, noNaN: true }),
  latency: fc.double({ min: 5, max: 60, noNaN: true }),
  doubling: fc.double({ min: 1, max: 10, noNaN: true }),
  message: fc.constant(0.02),
  nic: fc.double({ min: 18, max: 30, noNaN: true }),
});

/** Cells as the model would have measured them, off by up to 2 % either way. */
const made = (truth: Parameters, cells: readonly Cell[]) =>
  cells.map((cell, i) => {
    const { work } = observe({ ...cell, us: 1 });
    return { cell, work, us: time(truth, work) * (1 + 0.02 * Math.sin(7 * i)) };
  });

describe('a fit', () => {
  it('predicts what lies between what it has seen, within its range mostly', () => {
    let [inside, all] = [0, 0];
    fc.assert(
      fc.property(truths, (truth) => {
        const fit = fitCells(made(truth, grid([8, 16, 64], sizes)), nominal);
        for (const { cell, work, us } of made(truth, grid([32], sizes))) {
          const found = predict({ fit, assumes: [] }, work, cell.tokens);
          expect(Math.abs(found.time / us - 1)).toBeLessThan(0.1);
          all++;
          if (us >= found.low && us <= found.high) inside++;
        }
      }),
      { seed: 11, numRuns: 25 },
    );
    expect(inside / all).toBeGreaterThan(0.9);
  });

  it('has positive parameters only, whatever the cells say', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0.1, max: 1e5, noNaN: true }), { minLength: 6, maxLength: 6 }),
        (times) => {
          const cells = made({ ...fitCells([], nominal).parameters }, grid([16], sizes)).map((one, i) => ({
            ...one,
            us: times[i]!,
          }));
          const { parameters } = fitCells(cells, nominal);
          for (const name of parameterNames) expect(parameters[name]).toBeGreaterThan(0);
        },
      ),
      { seed: 12, numRuns: 25 },
    );
  });

  it('knows less from fewer cells', () => {
    const truth = fitCells([], nominal).parameters;
    const width = (cells: readonly Cell[]) => {
      const { work } = observe({ ...shape, ep: 64, tokens: 128, us: 1 });
      const { low, high } = predict({ fit: fitCells(made(truth, cells), nominal), assumes: [] }, work, 128);
      return high / low;
    };
    expect(width(grid([8], [128]))).toBeGreaterThan(width(grid([8, 16, 32], sizes)));
  });

  it('does not take cells that its parameters follow for a source that scatters little', () => {
    const truth = fitCells([], nominal).parameters;
    const [few, many] = [[1, 2048], sizes].map((tokens) => {
      const { scatter, width } = fitCells(made(truth, grid([8, 16], tokens)), nominal);
      return scatter * width;
    });
    expect(few!).toBeGreaterThan(1.2 * many!);
  });

  it('of a source with few cells is as wide as usual, with many as wide as those that are left out need', () => {
    const truth = fitCells([], nominal).parameters;
    expect(fitCells([], nominal)).toMatchObject({ scatter: 0.2, width: 2.92 });
    const [one] = made(truth, grid([8], [128]));
    expect(fitCells([one!], nominal).width).toBeCloseTo(2.92);
    const all = made(truth, grid([8, 16, 64], sizes));
    // Cells that follow the model are missed by less than their deviations; every third is off by half now.
    const wild = all.map((cell, i) => (i % 3 === 0 ? { ...cell, us: 1.5 * cell.us } : cell));
    const [calm, rough] = [all, wild].map((cells) => fitCells(cells, nominal));
    expect(calm!.width).toBeLessThan(1.645);
    expect(rough!.scatter * rough!.width).toBeGreaterThan(3 * calm!.scatter * calm!.width);
  });

  it('knows from all phases and machines of a source how much that source scatters', () => {
    const truth = fitCells([], nominal).parameters;
    const part = (tokens: readonly number[]) => ({ observations: made(truth, grid([8], tokens)), nominal });
    const [alone] = fitSource([part([1, 128])]);
    const [beside, other] = fitSource([part([1, 128]), part(sizes)]);
    expect(beside!.scatter).toBeLessThan(0.7 * alone!.scatter);
    expect([beside!.scatter, beside!.width]).toEqual([other!.scatter, other!.width]);
    expect(beside!.parameters).not.toEqual(other!.parameters);
  });

  it('says when it extrapolates, and beyond what', () => {
    const fit = fitCells(made(fitCells([], nominal).parameters, grid([8], [1, 128])), nominal);
    const at = (ep: number, tokens: number) =>
      predict({ fit, assumes: [] }, observe({ ...shape, ep, tokens, us: 1 }).work, tokens);
    expect(at(8, 32).beyond).toEqual([]);
    expect(at(8, 4096).beyond).toEqual(['beyond the tokens measured, 1 to 128']);
    expect(at(16, 32).beyond).toEqual(['beyond the EP measured, 8', 'nothing measured crossed the network']);
    const wide = at(16, 32);
    expect(wide.high / wide.low).toBeGreaterThan(at(8, 32).high / at(8, 32).low);
  });
});

describe('beyond the EP that was measured', () => {
  const cells = [16, 32].map((ep, i) => ({ ...shape, ep, tokens: 128, us: [100, 140][i]! }));
  const fit = fitCells(cells.map(observe), nominal);
  const at = (ep: number) => {
    const { work } = observe({ ...shape, ep, tokens: 128, us: 1 });
    return predict({ fit, assumes: [] }, work, 128);
  };

  it('each doubling adds half of what the last one added', () => {
    expect(at(64).time / 160).toBeCloseTo(1, 1);
    expect(at(128).time / 170).toBeCloseTo(1, 1);
  });

  it('ranges grow with the distance, and hold more where another harness measured', () => {
    const width = ({ low, high }: { low: number; high: number }) => high / low;
    expect(width(at(64))).toBeGreaterThan(1.1 * width(at(32)));
    expect(width(at(256))).toBeGreaterThan(width(at(64)));
    const { work } = observe(cells[1]!);
    const elsewhere = predict({ fit, assumes: [], elsewhere: 0.2 }, work, 128);
    expect(width(elsewhere)).toBeGreaterThan(1.3 * width(at(32)));
  });
});

it('least squares finds the bottom of a curved valley', () => {
  const { at } = leastSquares(([x, y]) => [10 * (y! - x! ** 2), 1 - x!], [-1.2, 1]);
  expect(at[0]).toBeCloseTo(1, 5);
  expect(at[1]).toBeCloseTo(1, 5);
});
