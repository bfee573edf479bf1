import { describe, expect, it } from 'vitest';
import {
  between,
  type Cell,
  type Check,
  calibrate,
  disagreements,
  observe,
  originOf,
  predict,
  type SplitResult,
  shippedCells,
  splits,
  summarise,
  validate,
  validateCells,
  validateSplit,
} from '../../../src/tools/plan/index.js';

const results = validate();
const called = (name: string) => results.find((one) => one.name === name)!;

describe('validation', () => {
  it.each([
    { name: 'one-sided on GB200: EP8, EP16 → EP32', mean: 0.06, within12: 0.9 },
    { name: 'pplx-garden hybrid, ConnectX-7 and EFA: EP8, EP16 → EP32', mean: 0.05, within12: 0 },
    { name: 'DeepEP low latency, ConnectX-7: EP8, EP32 → EP16', mean: 0.08, within12: 0 },
    { name: 'Heddle on H200: EP4 → EP2', mean: 0.08, within12: 0 },
    { name: 'Heddle on H200: EP2 → EP4', mean: 0.08, within12: 0 },
  ])('$name is at most $mean off in the mean, and by far better than bytes alone', (goal) => {
    const { summary } = called(goal.name);
    expect(summary.mean).toBeLessThanOrEqual(goal.mean);
    expect(summary.within12).toBeGreaterThanOrEqual(goal.within12);
    expect(summary.mean).toBeLessThan(summary.bytesAlone / 2);
  });

  it.each([
    'every other number of tokens, either way: all',
    'few tokens from many, many from few: all',
    'each EP from the others: all',
    'EP64 and more from EP32 and less: all',
    'no cell of its source: all',
    'all that a source’s other cells answer',
  ])('%s: ranges hold 0.85 to 0.95 of what was not fitted', (name) => {
    const { inRange, cells } = called(name).summary;
    expect(cells).toBeGreaterThan(50);
    expect(inRange).toBeGreaterThan(0.85);
    expect(inRange).toBeLessThan(0.95);
  });

  const bySource = results.filter(({ name }) => name.startsWith('of '));
  it.each(bySource.filter(({ summary }) => summary.cells >= 20))(
    '$name: ranges hold 0.85 to 0.95 of its cells',
    ({ summary: { cells, within, holds } }) => {
      expect(within / cells, `${within} of ${cells}`).toBeGreaterThanOrEqual(0.85);
      expect(within / cells, `${within} of ${cells}`).toBeLessThanOrEqual(0.95);
      expect(holds).toBe(true);
    },
  );

  it.each(bySource.filter(({ summary }) => summary.cells < 20))(
    '$name: its few cells are within as ranges of 0.85 to 0.95 would have it',
    ({ summary: { possible, holds } }) => {
      expect(possible[0]).toBeLessThan(0.95);
      expect(possible[1]).toBeGreaterThan(0.85);
      expect(holds).toBeNull();
    },
  );

  it('judges ranges by 20 cells or more, and fewer by what chance allows', () => {
    expect(bySource.filter(({ summary }) => summary.cells >= 20)).toHaveLength(7);
    const [{ checks }] = bySource.filter(({ summary }) => summary.cells > 200) as [SplitResult];
    const [hit, miss] = [true, false].map((inside) =>
      checks.find(({ measured, predicted: { low, high } }) => measured > low === inside && measured < high),
    );
    const of = (hits: number, misses: number) =>
      summarise([...new Array<Check>(hits).fill(hit!), ...new Array<Check>(misses).fill(miss!)]);
    expect(of(18, 2)).toMatchObject({ within: 18, holds: true });
    expect(of(20, 0).holds).toBe(false);
    expect(of(16, 4).holds).toBe(false);
    expect(of(10, 0).holds).toBeNull();
    expect(of(4, 6).holds).toBe(false);
    // The bounds of Clopper and Pearson.
    expect(of(10, 0).possible[0]).toBeCloseTo(0.05 ** (1 / 10), 6);
    expect(of(10, 0).possible[1]).toBe(1);
    expect(of(0, 7).possible[1]).toBeCloseTo(1 - 0.05 ** (1 / 7), 6);
    expect(of(9, 1).possible[0]).toBeCloseTo(0.6058, 4);
  });

  it('beyond EP32 is no worse than half of the last step again, in sum and by source', () => {
    const far = results.filter(({ name }) => name.startsWith('EP64 and more from EP32 and less'));
    expect(far.length).toBeGreaterThan(8);
    for (const { name, summary } of far)
      expect(summary.besideRule!, name).toBeLessThan(summary.rule! + 0.005);
    const { checks } = called('EP64 and more from EP32 and less: all');
    const dispatch = checks.filter(({ cell }) => cell.phase === 'dispatch');
    const mean = (errors: readonly number[]) =>
      errors.reduce((sum, e) => sum + Math.abs(e), 0) / errors.length;
    expect(mean(dispatch.map(({ error }) => error))).toBeLessThan(0.1);
  });

  it('no fit loses to what is believed before, of whatever it is asked', () => {
    const lost = results.filter(({ summary }) => summary.mean > summary.prior + 1e-9);
    expect(lost.map(({ name }) => name)).toEqual([]);
  });

  it('does not look at what it predicts, nor do its ranges', () => {
    for (const [i, split] of splits.entries()) {
      const held = (cell: Cell) => split.of(cell) && split.parts[0]!(cell);
      const spoiled = validateSplit(
        split,
        shippedCells().map((cell) => (held(cell) ? { ...cell, us: cell.us! * 3 } : cell)),
      );
      const predicted = ({ checks }: SplitResult) => checks.map(({ predicted: one }) => one);
      expect(predicted(spoiled)).toEqual(predicted(results[i]!));
      expect(spoiled.summary.mean).toBeGreaterThan(0.5);
    }
  });

  it('predicts other cells of what it knows, and names those of what it does not', () => {
    const one = shippedCells().find((cell) => cell.set === 'trtllm' && cell.ep === 64)!;
    const { result, unknown } = validateCells([
      { ...one, ep: 72 },
      { ...one, set: 'mine' },
      { ...one, hw: 'TPU' },
    ]);
    expect(result.checks.map(({ predicted }) => predicted.beyond)).toEqual([
      ['beyond the EP measured, 8 to 64'],
      ['no cell of its source'],
    ]);
    expect(unknown.map(({ hw }) => hw)).toEqual(['TPU']);
  });
});

it('sources that disagree twofold about one kernel are found', () => {
  const [worst] = disagreements();
  expect(worst).toMatchObject({ lib: 'deepep_v1', mode: 'normal' });
  expect(worst!.ratio).toBeGreaterThan(2);
  expect(new Set(worst!.figures.map(({ src }) => src)).size).toBe(2);
});

it('a range of one source holds most of what another measured of the same', () => {
  const [cells, fits] = [shippedCells(), calibrate(shippedCells())];
  const held = disagreements().flatMap(({ figures, lib, mode }) =>
    figures.flatMap(({ src, us }) => {
      const cell = cells.find((one) => one.src === src && observe(one).us === us)!;
      const fit = fits.find((one) => originOf(one) === originOf(cell))!.fits[cell.phase]!;
      const { work } = observe(cell);
      const { low, high } = predict(
        { fit, assumes: [], elsewhere: between({ lib, mode }) },
        work,
        cell.tokens,
      );
      return figures.filter((one) => one.src !== src).map((one) => one.us > low && one.us < high);
    }),
  );
  expect(held.length).toBeGreaterThan(20);
  expect(held.filter(Boolean).length / held.length).toBeGreaterThan(0.85);
});
