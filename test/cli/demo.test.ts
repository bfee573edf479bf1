import { describe, expect, it } from 'vitest';
import type { DemoResult } from '../../src/cli/demo-rounds.js';
import { demoText } from '../../src/cli/print-demo.js';
import { heddle } from '../../src/cli/program.js';
import { traffic } from '../../src/moe/layer/index.js';
import { makeAllRoutes, shapeOfRounds } from '../../src/verify/testing/index.js';
import { err, hear, out } from './said.js';

const plain = (_: unknown, text: string) => text;

const shape = shapeOfRounds({ ranks: 2, experts: 4, topK: 2, maxTokens: 3, hidden: 8, dtype: 'bf16' });

const result: DemoResult = {
  shape,
  simulated: true,
  traffic: traffic(shape, makeAllRoutes(shape, 3, 1)),
  comparison: { compared: 48, different: 0, maxAbsError: 0 },
  bitwiseRepeatable: true,
  spans: [0, 1].flatMap((rank) => [
    { rank, track: 0, name: 'dispatch', depth: 0, start: 0, end: 50 + rank },
    { rank, track: 0, name: 'experts', depth: 0, start: 50 + rank, end: 60 },
    { rank, track: 0, name: 'combine', depth: 0, start: 60, end: 100 },
  ]),
  seconds: 0.5,
};

const first = 'rank 1: out[0, 3] is 1, expected 2';

describe('the summary', () => {
  it('says what moved, what deduplication saved, how right it is', () => {
    const text = demoText(result, plain, 80);
    const { rows, routes, dispatch, withoutDedup } = result.traffic;
    expect(text).toContain('2 simulated GPUs, 3 tokens each, top 2 of 4 experts');
    expect(text).toContain('✓ right: 48 values, every bit as in the reference (largest error 0)');
    expect(text).toContain('✓ repeatable: the second run gave the same bits');
    expect(text).toMatch(new RegExp(`dispatch +${dispatch} bytes`));
    expect(text).toMatch(new RegExp(`without deduplication +${withoutDedup} bytes`));
    expect(text).toContain(`6 tokens, ${routes} routes, but ${rows} rows each way`);
    expect(text).toContain(`saved ${((1 - rows / routes) * 100).toFixed(0)} %`);
  });

  it('draws a round, each rank a line, in as many columns as there are', () => {
    const lines = demoText(result, plain, 60).split('\n');
    const bars = lines.filter((line) => line.includes('│'));
    expect(bars.map((bar) => bar.length)).toEqual([59, 59]);
    for (const bar of bars) expect(bar).toMatch(/^ {2}rank \d │█+▒+▓+$/);
    expect(bars[0]!.indexOf('▓')).toBe(bars[1]!.indexOf('▓'));
    expect(bars[1]!.indexOf('▒')).toBeGreaterThanOrEqual(bars[0]!.indexOf('▒'));
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(90);
  });

  it('draws sixteen ranks at most, and says how many there are besides', () => {
    const spans = Array.from({ length: 20 }, (_, rank) => ({ ...result.spans[1]!, rank }));
    const lines = demoText({ ...result, spans }, plain, 60).split('\n');
    expect(lines.filter((line) => line.includes('│'))).toHaveLength(16);
    expect(lines).toContain('  and 4 more');
  });

  it('says below the picture’s name what marks mean, where there is no room beside it', () => {
    const shown = (columns: number) => {
      const lines = demoText(result, plain, columns).split('\n');
      const at = lines.findIndex((line) => line.startsWith('One round'));
      return lines.slice(at, at + 3);
    };
    expect(shown(52)[0]).toBe('One round   ██ dispatch  ▒▒ experts  ▓▓ combine');
    expect(shown(40)).toEqual([
      'One round',
      '  ██ dispatch  ▒▒ experts  ▓▓ combine',
      expect.stringContaining('│'),
    ]);
    expect(shown(30).slice(1)).toEqual(['  ██ dispatch  ▒▒ experts', '  ▓▓ combine']);
  });

  it.each([40, 52, 79, 120])('keeps within %i columns', (columns) => {
    const wrong = { compared: 1e6, different: 2e5, maxAbsError: 1, first };
    for (const comparison of [result.comparison, wrong]) {
      const lines = demoText({ ...result, comparison }, plain, columns).split('\n');
      // Figures stand in columns of their own, which no terminal makes narrower.
      const prose = lines.filter((line) => !/ (bytes|kB|MB)( |$)/.test(line));
      for (const line of prose) expect(line.length, line).toBeLessThanOrEqual(columns);
      for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(Math.max(columns, 37));
    }
  });

  it('says what is wrong', () => {
    const comparison = { compared: 48, different: 2, maxAbsError: 1, first };
    const text = demoText({ ...result, comparison, bitwiseRepeatable: false }, plain, 80);
    expect(text).toContain('✗ wrong: 2 of 48 values differ, by up to 1');
    expect(text).toContain(first);
    expect(text).toContain('✗ not repeatable');
  });

  it('does without tokens, and without a timeline', () => {
    const none = { ...result, traffic: traffic(shape, makeAllRoutes(shape, 0, 1)), spans: [] };
    expect(demoText(none, plain, 80)).toContain('0 tokens, 0 routes');
  });
});

describe('heddle demo', () => {
  hear();

  it('prints exactly the documented figures as JSON, and progress beside it', async () => {
    const sizes = ['--ranks', '3', '--tokens', '4', '--hidden', '33', '--experts', '10', '--topk', '2'];
    const how = ['--device', 'sim', '--dtype', 'f32', '--seed', '5', '--json'];
    expect(await heddle(['demo', ...sizes, ...how])).toBe(0);
    const { seconds, ...figures } = JSON.parse(out);
    const of = shapeOfRounds({ ranks: 3, experts: 10, topK: 2, maxTokens: 4, hidden: 33, dtype: 'f32' });
    const { dispatch, combine, withoutDedup } = traffic(of, makeAllRoutes(of, 4, 5));
    expect(figures).toEqual({
      ranks: 3,
      tokens: 4,
      hidden: 33,
      experts: 10,
      topK: 2,
      maxAbsError: 0,
      bitwiseRepeatable: true,
      bytes: { dispatch, combine, withoutDedup },
    });
    expect(seconds).toBeGreaterThan(0);
    expect(err).toMatch(/^heddle demo: 4 tokens for each of 3 simulated GPUs …\n/);
  });

  it('says how to do without GPUs that are not there', async () => {
    expect(await heddle(['demo', '--device', 'cuda', '--ranks', '72'])).toBe(2);
    expect(err).toMatch(
      /^heddle: 72 ranks need a GPU each, and this machine has \d+\. heddle demo --device sim simulates them/,
    );
  });

  it.each([
    ['--layer', '', "unknown option '--layer'"],
    ['--tokens', '900000', '--tokens is 900000'],
    ['--hidden', '0', "'0' is invalid. It must be an integer from 1 to"],
    ['--topk', '33', "'33' is invalid. It must be an integer from 1 to 32"],
    ['--experts', '4', '--topk is 8; it must be at most --experts, 4'],
    ['--dtype', 'fp8', "'fp8' is invalid. Allowed choices are bf16, f16, f32."],
    ['--device', 'tpu', "'tpu' is invalid. Allowed choices are auto, sim, cuda."],
    ['--seed', 'x', "argument 'x' is invalid"],
  ])('refuses %s %s', async (option, value, message) => {
    expect(await heddle(['demo', option, value])).toBe(2);
    expect(err).toContain(message);
  });
});
