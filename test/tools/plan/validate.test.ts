import { describe, expect, it } from 'vitest';
import {
  between,
  disagreements,
  fitCells,
  goals,
  nominalOf,
  observe,
  originOf,
  plot,
  predict,
  shippedCells,
  validate,
  validateCells,
} from '../../../src/tools/plan/index.js';

/** That at most so many of `cells` happen, each with probability p. */
function atMost(most: number, cells: number, p: number): number {
  let [one, sum] = [(1 - p) ** cells, 0];
  for (let n = 0; n <= most; n++) {
    sum += one;
    one *= ((cells - n) / (n + 1)) * (p / (1 - p));
  }
  return sum;
}

const results = validate();
const called = (name: string) => results.find((one) => one.name === name)!;

describe('validation', () => {
  it.each(results.filter(({ goal }) => goal !== undefined))(
    '$name reaches its goal',
    ({ summary, goal, reached }) => {
      expect(summary.mean).toBeLessThanOrEqual(goal!.mean);
      expect(reached).toBe(true);
    },
  );

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

  it.each(results.filter(({ name }) => name.startsWith('of ')))(
    '$name: its ranges hold 0.85 of its cells, and no more than ranges of 0.95 would',
    ({ summary: { cells, inRange } }) => {
      const held = Math.round(inRange * cells);
      expect(inRange, `${held} of ${cells}`).toBeGreaterThanOrEqual(0.85);
      expect(atMost(cells - held, cells, 0.05), `${held} of ${cells}`).toBeGreaterThan(0.05);
    },
  );

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

  it('beats bytes over nominal bandwidth wherever a goal is set', () => {
    for (const { goal, summary } of results)
      if (goal !== undefined) expect(summary.mean).toBeLessThan(summary.bytesAlone / 2);
  });

  it('does not look at what it predicts', () => {
    const [first] = goals;
    const held = (cell: Parameters<NonNullable<typeof first>['of']>[0]) =>
      first!.of(cell) && first!.parts[0]!(cell);
    const spoiled = validate(
      shippedCells().map((cell) => (held(cell) ? { ...cell, us: cell.us! * 3 } : cell)),
    );
    const predicted = (all: typeof results) => all[0]!.checks.map((check) => check.predicted.time);
    expect(predicted(spoiled)).toEqual(predicted(results));
    expect(spoiled[0]!.reached).toBe(false);
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
  const cells = shippedCells();
  const held = disagreements().flatMap(({ figures, lib, mode }) =>
    figures.flatMap(({ src, us }) => {
      const cell = cells.find((one) => one.src === src && observe(one).us === us)!;
      const all = cells.filter((one) => originOf(one) === originOf(cell) && one.phase === cell.phase);
      const fit = fitCells(all.map(observe), nominalOf(cell));
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

it('a plot has a dot for every held-out cell', () => {
  const svg = plot(results[0]!);
  expect(svg.match(/<circle /g)).toHaveLength(results[0]!.checks.length);
  expect(svg).toMatch(/^<svg .*<\/svg>\n$/s);
});
