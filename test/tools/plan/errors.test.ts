/** The numbers of `heddle plan`, beside the measurements that they were fitted to. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { errors } from '../../../scripts/plan/errors.js';
import { cells, fits, fitted, questions } from '../../../scripts/plan/fit.js';
import { measured, time } from '../../../src/tools/plan/index.js';

const results = resolve(import.meta.dirname, '../../../docs/results');

describe('the cells', () => {
  it('of GB200 by aiconfigurator are of a node of four GPUs', () => {
    const found = cells.filter(({ src }) => src.includes('aiconfigurator') && src.includes('GB200'));
    expect(found).toHaveLength(22);
    expect(new Set(found.map(({ ranks }) => ranks))).toEqual(new Set([4]));
  });

  it('say of Heddle what docs/results says', () => {
    interface Report {
      workload: { dtype: string };
      points: { tokens: number; rows: { subject: string; phase: string; time: number }[] }[];
    }
    const own = cells.filter(({ lib }) => lib === 'heddle');
    expect(own.length).toBe(29);
    for (const name of readdirSync(results).filter((one) => /^2026-11-21-4xh200-bench.*json$/.test(one))) {
      const { points }: Report = JSON.parse(readFileSync(join(results, name), 'utf8'));
      for (const { src, phase, tokens, us } of own.filter((cell) => cell.src.endsWith(name))) {
        const rows = points.find((point) => point.tokens === tokens)!.rows;
        const row = rows.find((one) => one.subject === 'heddle' && one.phase === phase)!;
        expect(us, `${src} ${phase} ${tokens}`).toBeCloseTo(row.time, 2);
      }
    }
  });
});

it('GB/s of a row for every node, the own one too, become microseconds', () => {
  let miss = 1;
  for (let i = 0; i < 8; i++) miss *= (128 - i) / (256 - i);
  const cell = cells.find(
    ({ lib, ranks, phase }) => lib === 'deepep_v2' && ranks === 16 && phase === 'dispatch',
  )!;
  expect(cell.us).toBeCloseTo((8192 * 2 * (1 - miss) * 7392) / 90_000, 6);
});

it('a fit of cells that the model made finds their times', () => {
  const truth = { floor: 20, lead: 12, nvlink: 3, latency: 30, doubling: 5, message: 0.02, nic: 22 };
  const made = cells
    .filter(({ source }) => source === 'deepep_v1/ll (aic_h100_ll)')
    .filter(({ phase }) => phase === 'dispatch')
    .map((cell) => ({ ...cell, us: time(truth, cell.work) }));
  const found = fitted(made, 'h200-cx7');
  for (const { us, work } of made) expect(time(found, work) / us).toBeCloseTo(1, 1);
});

it('the file of `heddle plan` is what the script makes of the cells', () => {
  const made = fits();
  expect(measured.map(({ src }) => src)).toEqual(made.map(({ src }) => src));
  for (const [i, one] of made.entries())
    for (const phase of ['dispatch', 'combine'] as const)
      for (const [name, value] of Object.entries(one[phase]))
        if (typeof value === 'number')
          expect(measured[i]![phase][name as 'floor'] / value, `${one.src} ${name}`).toBeCloseTo(1, 2);
        else expect(measured[i]![phase][name as 'ep']).toEqual(value);
});

it('ranges hold about nine of ten of the cells that a source’s others predict', () => {
  const asked = [...questions.map(({ name }) => name), 'all'];
  const found = errors().filter(({ name }) => asked.includes(name));
  expect(found).toHaveLength(5);
  for (const { name, inRange } of found) {
    expect(inRange, name).toBeGreaterThan(0.85);
    expect(inRange, name).toBeLessThan(0.95);
  }
});
