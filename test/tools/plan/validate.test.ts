import { describe, expect, it } from 'vitest';
import {
  disagreements,
  plot,
  shippedCells,
  splits,
  validate,
  validateCells,
} from '../../../src/tools/plan/index.js';

const results = validate();

describe('validation', () => {
  it.each(results.filter(({ goal }) => goal !== undefined))(
    '$name reaches its goal',
    ({ summary, goal, reached }) => {
      expect(summary.mean).toBeLessThanOrEqual(goal!.mean);
      expect(reached).toBe(true);
    },
  );

  it('ranges hold what they promise, nearly: 85 % of all held-out cells in 90 % ranges', () => {
    const checks = results.flatMap((one) => one.checks);
    const inside = checks.filter(
      ({ measured, predicted: { low, high } }) => measured >= low && measured <= high,
    );
    expect(inside.length / checks.length).toBeGreaterThan(0.85);
  });

  it('beats bytes over nominal bandwidth wherever a goal is set', () => {
    for (const { goal, summary } of results)
      if (goal !== undefined) expect(summary.mean).toBeLessThan(summary.bytesAlone / 2);
  });

  it('does not look at what it predicts', () => {
    const spoiled = shippedCells().map((cell) =>
      splits[0]!.of(cell) && splits[0]!.held(cell) ? { ...cell, us: cell.us! * 3 } : cell,
    );
    const predicted = (all: ReturnType<typeof validate>) =>
      all[0]!.checks.map((check) => check.predicted.time);
    expect(predicted(validate(spoiled))).toEqual(predicted(results));
    expect(validate(spoiled)[0]!.reached).toBe(false);
  });

  it('predicts other cells of what it knows, and names those of what it does not', () => {
    const one = shippedCells().find((cell) => cell.set === 'trtllm' && cell.ep === 32)!;
    const { result, unknown } = validateCells([
      { ...one, ep: 64 },
      { ...one, hw: 'TPU' },
    ]);
    expect(result.checks).toHaveLength(1);
    expect(result.checks[0]!.predicted.beyond).toEqual(['beyond the EP measured, 8 to 32']);
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
