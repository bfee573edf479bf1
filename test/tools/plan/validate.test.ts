import { describe, expect, it } from 'vitest';
import {
  disagreements,
  goals,
  plot,
  shippedCells,
  validate,
  validateCells,
} from '../../../src/tools/plan/index.js';

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
    'another source: all',
    'all',
  ])('%s: ranges of 90 %% hold 85 to 95 %% of what was not fitted', (name) => {
    const { inRange, cells } = called(name).summary;
    expect(cells).toBeGreaterThan(50);
    expect(inRange).toBeGreaterThan(0.85);
    expect(inRange).toBeLessThan(0.95);
  });

  it('beyond EP32 is no worse than half of the last step again', () => {
    const far = called('EP64 and more from EP32 and less: all');
    expect(far.summary.mean).toBeLessThan(far.summary.rule! + 0.001);
    const dispatch = far.checks.filter(({ cell }) => cell.phase === 'dispatch');
    const mean = (errors: readonly number[]) =>
      errors.reduce((sum, e) => sum + Math.abs(e), 0) / errors.length;
    expect(mean(dispatch.map(({ error }) => error))).toBeLessThan(0.1);
  });

  it('a fit does not lose to what is believed before, but where a source’s figures fall as its ranks grow', () => {
    const lost = results
      .filter(({ name }) => !name.startsWith('another source'))
      .filter(({ summary }) => summary.mean > summary.prior)
      .map(({ name }) => name);
    expect(lost).toEqual(['each EP from the others: uccl/normal (uccl_normal)']);
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
      { ...one, hw: 'TPU' },
    ]);
    expect(result.checks).toHaveLength(1);
    expect(result.checks[0]!.predicted.beyond).toEqual(['beyond the EP measured, 8 to 64']);
    expect(unknown.map(({ hw }) => hw)).toEqual(['TPU']);
  });
});

it('sources that disagree twofold about one kernel are found', () => {
  const [worst] = disagreements();
  expect(worst!.system).toBe('deepep_v1 normal');
  expect(worst!.ratio).toBeGreaterThan(2);
  expect(new Set(worst!.figures.map(({ src }) => src)).size).toBe(2);
});

it('a plot has a dot for every held-out cell', () => {
  const svg = plot(results[0]!);
  expect(svg.match(/<circle /g)).toHaveLength(results[0]!.checks.length);
  expect(svg).toMatch(/^<svg .*<\/svg>\n$/s);
});
