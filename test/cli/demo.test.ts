import { afterEach, describe, expect, it, vi } from 'vitest';
import type { ChangesResult } from '../../src/cli/demo-changes.js';
import { networkText } from '../../src/cli/demo-rounds.js';
import { changesText } from '../../src/cli/print-changes.js';
import { type DemoResult, demoText } from '../../src/cli/print-demo.js';
import { limits, traffic } from '../../src/moe/layer/index.js';
import { makeAllRoutes, shapeOfRounds } from '../../src/verify/testing/index.js';
import { demo } from './demo.js';

const plain = (_: unknown, text: string) => text;

const shape = shapeOfRounds({ ranks: 2, experts: 4, topK: 2, maxTokens: 3, hidden: 8, dtype: 'bf16' });

const result: DemoResult = {
  shape,
  nodes: 1,
  simulated: true,
  about: ['rows of 8 bf16; dispatch, experts, combine: twice, in 0.5 s'],
  says: {
    right: 'every bit as in the reference',
    repeatable: 'the second run gave the same bits',
    notRepeatable: 'the second run gave other bits',
  },
  traffic: traffic(shape, makeAllRoutes(shape, 3, 1)),
  comparison: { compared: 48, different: 0, maxAbsError: 0 },
  bitwiseRepeatable: true,
  picture: 'One round',
  spans: [0, 1].flatMap((rank) => [
    { rank, track: 0, name: 'dispatch', depth: 0, start: 0, end: 50 + rank },
    { rank, track: 0, name: 'experts', depth: 0, start: 50 + rank, end: 60 },
    { rank, track: 0, name: 'combine', depth: 0, start: 60, end: 100 },
  ]),
  seconds: 0.5,
};

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

  it('draws each stream of a rank as a line', () => {
    const spans = result.spans.flatMap((span) => [span, { ...span, track: 1, start: 10, end: 100 }]);
    const lines = demoText({ ...result, spans }, plain, 60).split('\n');
    expect(lines.filter((line) => line.includes('│')).map((line) => line.slice(2, 8))).toEqual([
      ...['rank 0', '      ', 'rank 1', '      '],
    ]);
  });

  it('draws whole ranks only, and says how many there are besides', () => {
    const spans = Array.from({ length: 8 * 3 }, (_, line) => ({
      ...{ rank: Math.floor(line / 3), track: line % 3, name: 'experts', depth: 0, start: 0, end: 10 },
    }));
    const lines = demoText({ ...result, spans }, plain, 60).split('\n');
    expect(lines.filter((line) => line.includes('│'))).toHaveLength(5 * 3);
    expect(lines).toContain('  and 3 more');
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
    const wrong = {
      compared: 1e6,
      different: 2e5,
      maxAbsError: 1,
      first: 'rank 1: out[0, 3] is 1, expected 2',
    };
    for (const comparison of [result.comparison, wrong]) {
      const lines = demoText({ ...result, comparison }, plain, columns).split('\n');
      // Figures stand in columns of their own, which no terminal makes narrower.
      const prose = lines.filter((line) => !/ (bytes|kB|MB)( |$)/.test(line));
      for (const line of prose) expect(line.length, line).toBeLessThanOrEqual(columns);
      for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(Math.max(columns, 37));
    }
  });

  it('says what is wrong', () => {
    const first = 'rank 1: out[0, 3] is 1, expected 2';
    const comparison = { compared: 48, different: 2, maxAbsError: 1, first };
    const text = demoText({ ...result, comparison, bitwiseRepeatable: false }, plain, 80);
    expect(text).toContain('✗ wrong: 2 of 48 values differ, by up to 1');
    expect(text).toContain(first);
    expect(text).toContain('✗ not repeatable');
  });

  it('says what lay between nodes, and what crossed it', () => {
    const moved = traffic(shape, makeAllRoutes(shape, 3, 1), 2);
    const text = demoText({ ...result, nodes: 2, traffic: moved }, plain, 200);
    expect(text).toContain('2 simulated GPUs on 2 nodes, 3 tokens each');
    expect(networkText(2, true, null)).toContain("the simulated machine's network, both times");
    expect(networkText(2, true, 'tcp;ofi_rxm')).toContain('then libfabric (tcp;ofi_rxm) between 2 processes');
    expect(networkText(2, false, 'shm')).toBe('libfabric (shm)');
    expect(text).toContain(`Between nodes ${moved.between.rows} rows crossed the network each way`);
    expect(demoText(result, plain, 200)).not.toContain('nodes');
  });

  it('does without tokens, and without a timeline', () => {
    const none = { ...result, traffic: traffic(shape, makeAllRoutes(shape, 0, 1)), spans: [] };
    expect(demoText(none, plain, 80)).toContain('0 tokens, 0 routes');
  });
});

describe('the summary of changes', () => {
  const stretch = { from: 1, to: 4, lost: [], places: [0, -1, 1, 0], routes: [6, 2], dropped: 0 };
  const changed: ChangesResult = {
    ...{ shape: shapeOfRounds({ ranks: 2, experts: 2, topK: 1, maxTokens: 1, hidden: 8, dtype: 'bf16' }) },
    ...{ placesOfRank: 2, moved: { experts: 1, rounds: 3 }, repeated: [9], seconds: 1 },
    stretches: [
      stretch,
      { ...stretch, from: 8, to: 8, places: [0, 1, 1, 0], routes: [1, 1] },
      { ...stretch, from: 9, to: 12, lost: [1], places: [0, 1, -1, -1], routes: [4, 0], dropped: 5 },
    ],
    comparison: { compared: 10, different: 0, maxAbsError: 0 },
  };

  it.each([40, 79, 120])('keeps within %i columns', (columns) => {
    for (const line of changesText(changed, plain, columns).split('\n'))
      expect(line.length, line).toBeLessThanOrEqual(columns);
  });

  it('says what was wrong, and what was dropped', () => {
    const comparison = { compared: 10, different: 3, maxAbsError: 1, first: 'rank 0: out[0, 0] is 1' };
    const text = changesText({ ...changed, comparison }, plain, 200);
    expect(text).toContain('✗ wrong: 3 of 10 values differ');
    expect(text).toContain('the busiest rank got 1.50 × the mean, and gets 1.00 ×');
    expect(text).toContain(
      'rank 1 stopped, round 9 began anew without it, in the same world; 5 routes had no expert',
    );
    expect(text).toMatch(/rank 0 +0 · +0 1 +0 1\n +rank 1 +1 0 +1 0 +stopped\n/);
    expect(text).toContain('busiest  1.50 ×       1.00 ×       1.00 ×');
  });
});

describe('heddle demo', () => {
  afterEach(() => {
    vi.restoreAllMocks();
    vi.unstubAllEnvs();
    process.exitCode = undefined;
  });

  it('prints exactly the documented figures as JSON, and progress beside it', async () => {
    const sizes = ['--ranks', '3', '--tokens', '4', '--hidden', '33', '--experts', '10', '--topk', '2'];
    const { code, out, err } = await demo(
      '--device',
      'sim',
      ...sizes,
      '--dtype',
      'f32',
      '--seed',
      '5',
      '--json',
    );
    expect(code).toBe(0);
    const { seconds, ...figures } = JSON.parse(out);
    const of = shapeOfRounds({ ranks: 3, experts: 10, topK: 2, maxTokens: 4, hidden: 33, dtype: 'f32' });
    const { dispatch, combine, withoutDedup } = traffic(of, makeAllRoutes(of, 4, 5));
    expect(figures).toEqual({
      ranks: 3,
      nodes: 1,
      network: null,
      tokens: 4,
      hidden: 33,
      experts: 10,
      topK: 2,
      maxAbsError: 0,
      bitwiseRepeatable: true,
      bytes: { dispatch, combine, withoutDedup, betweenNodes: 0 },
    });
    expect(seconds).toBeGreaterThan(0);
    expect(err).toMatch(/^heddle demo: 4 tokens for each of 3 simulated GPUs …\n/);
  });

  const layer = ['--layer', '--device', 'sim', '--ranks', '2', '--experts', '6', '--topk', '2'];
  const small = [...layer, '--hidden', '64', '--tokens', '3', '--seed', '5'];

  it('runs a whole layer, and prints its figures as JSON', async () => {
    const { code, out, err } = await demo(...small, '--json');
    expect(code).toBe(0);
    const { seconds, maxAbsError, bytes, ...figures } = JSON.parse(out);
    expect(figures).toEqual({
      ...{ ranks: 2, nodes: 1, tokens: 3, hidden: 64, experts: 6, topK: 2, inner: 64, family: 'one-sided' },
      why: '2 ranks of one node: ranks that share NVLink store into each other’s windows',
      bitwiseRepeatable: true,
    });
    // Rounded to bf16 on the way, so not plain code's bits, but near them.
    expect(maxAbsError).toBeGreaterThan(0);
    expect(maxAbsError).toBeLessThan(0.1);
    expect(bytes.dispatch).toBeLessThan(bytes.withoutDedup / 2);
    expect(seconds).toBeGreaterThan(0);
    expect(err).toContain('heddle demo: the same again, in two micro-batches …');
  });

  it('shows a whole layer: who carries it, that it is right, and the streams of each rank', async () => {
    const { code, out } = await demo(...small);
    expect(code).toBe(0);
    expect(out).toContain('2 simulated GPUs, 3 tokens each, top 2 of 6 experts');
    expect(out).toContain('carried by one-sided: 2 ranks of one node');
    expect(out).toMatch(/✓ right: 384 values, as plain code makes them, but for rounding/);
    expect(out).toContain('✓ repeatable: in two micro-batches the bits are the same');
    const bars = out.split('\n').filter((line) => line.includes('│'));
    // Of each rank two micro-batches, and the shared expert.
    expect(bars).toHaveLength(6);
    expect(out).toContain('  a rank’s first line is its shared expert, each other line a micro-batch\n');
    for (const mark of ['░', '█', '▒', '▓', '▚']) expect(bars.join(''), mark).toContain(mark);
  });

  it('carries a layer’s rows to the experts as fp8', async () => {
    const { code, out } = await demo(...layer, '--hidden', '128', '--tokens', '3', '--dtype', 'fp8');
    expect(code, out).toBe(0);
    expect(out.replace(/\s+/g, ' ')).toContain(
      'rows of 128: fp8 out, bf16 back; experts with an inner width of 128 and fp8 weights; one shared expert',
    );
    expect(out).toMatch(/✓ right: 768 values, as plain code makes them/);
  });

  it('carries a layer between nodes, and says who does', async () => {
    const { code, out } = await demo(...small, '--nodes', '2');
    expect(code).toBe(0);
    expect(out).toContain('2 simulated GPUs on 2 nodes');
    expect(out).toContain('carried by hybrid: ');
  });

  it('cuts no single token in two', async () => {
    const { code, out } = await demo(...layer, '--hidden', '64', '--tokens', '1');
    expect(code).toBe(0);
    expect(out).toContain('✓ repeatable: with the shared expert beside the others the bits are the same');
  });

  it.each([
    ['--hidden', '96', '--hidden is 96; it must be a multiple of 64 with --layer and rows of bf16'],
    ['--dtype', 'f32', '--dtype is "f32"; it must be bf16 or fp8 with --layer'],
    ['--experts', '1025', '--experts is 1025; it must be an integer from 1 to 1024'],
    ['--topk', '17', '--topk is 17; it must be at most --experts, 16'],
    ['--tokens', '900000', '--tokens is 900000; it must be at most'],
  ])('refuses a layer with %s %s', async (option, value, message) => {
    const { code, err } = await demo('--layer', option, value);
    expect(code).toBe(2);
    expect(err).toContain(message);
  });

  const changing = [
    '--device',
    'sim',
    '--ranks',
    '4',
    '--experts',
    '8',
    '--topk',
    '2',
    '--tokens',
    '6',
    '--hidden',
    '8',
  ];

  it('moves experts, loses a rank, and goes on: every round is right, and the figures say who had what', async () => {
    const { code, out, err } = await demo(...changing, '--rebalance', '--lose', '1', '--json');
    expect(code, err).toBe(0);
    const { stretches, seconds, moved, repeated, ...figures } = JSON.parse(out);
    expect(figures).toEqual({
      ...{ ranks: 4, tokens: 6, hidden: 8, experts: 8, topK: 2, placesOfRank: 4, maxAbsError: 0 },
    });
    expect(stretches).toHaveLength(3);
    const [before, after, left] = stretches;
    expect(before.places).toEqual([0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1, -1]);
    expect(after.places).not.toContain(-1);
    expect(after.busiest).toBeLessThan(before.busiest);
    expect(moved.experts).toBeGreaterThan(3);
    expect(left.lost).toHaveLength(1);
    for (const [place, expert] of left.places.entries())
      expect(expert).toBe(left.lost.includes(Math.floor(place / 4)) ? -1 : after.places[place]);
    expect([before.from, before.to, after.to, left.to]).toEqual([1, 4, left.from - 1, 15]);
    // What came, and what was dropped, is what ranks that lived brought.
    for (const { routes, dropped, from, to, lost } of stretches)
      expect(routes.reduce((a: number, b: number) => a + b) + dropped).toBe(
        (to - from + 1) * (4 - lost.length) * 12,
      );
    expect(repeated.every((round: number) => round === left.from)).toBe(true);
  });

  it('drops no route where every expert lives twice, and shows who had which', async () => {
    const { code, out } = await demo(...changing, '--lose', '1');
    expect(code, out).toBe(0);
    expect(out).toMatch(/✓ right: [\d,]+ values, every bit as in the reference \(largest error 0\)/);
    expect(out).toMatch(/✓ went on: rank \d stopped, (round \d began anew without it|between two rounds)/);
    expect(out.replace(/\s+/g, ' ')).toContain('in the same world; no route was dropped');
    const ranks = out.split('\n').filter((line) => /^ {2}rank \d/.test(line));
    expect(ranks).toHaveLength(4);
    expect(ranks.filter((line) => line.endsWith('stopped'))).toHaveLength(1);
  });

  it.each([
    [['--lose', '4', '--ranks', '4'], '--lose is 4; it must be less than --ranks, 4'],
    [['--lose', '1', '--nodes', '2'], "'--lose <n>' cannot be used with option '--nodes <n>'"],
    [['--rebalance', '--layer'], "'--rebalance' cannot be used with option '--layer'"],
    [['--lose', '1', '--device', 'cuda'], '--device is "cuda"; it must be auto or sim with'],
    [['--join', '--device', 'cuda'], '--device is "cuda"; it must be auto or sim with'],
    [
      ['--device', 'cuda', '--ranks', '72'],
      /^heddle: 72 ranks need a GPU each, and this machine has \d+\. heddle demo --device sim simulates them/,
    ],
    [['--join', '--lose', '1'], "'--join' cannot be used with option '--lose <n>'"],
    [['--join', '--tokens', '4'], "'--join' cannot be used with option '--tokens <n>'"],
    [
      ['--rebalance', '--experts', `${limits.experts}`],
      `--experts is ${limits.experts}; it must be an integer from 1 to`,
    ],
  ])('refuses %s', async (options, message) => {
    const { code, err } = await demo(...options);
    expect(code).toBe(2);
    expect(err).toMatch(message);
  });

  it.each([
    ['--nodes', '3', '--nodes is 3; it must be a divisor of 8'],
    ['--ranks', '0', "'0' is invalid. It must be an integer from 1 to 72"],
    ['--ranks', '73', "'73' is invalid. It must be an integer from 1 to 72"],
    ['--tokens', '-1', "'-1' is invalid. It must be an integer from 1 to"],
    ['--tokens', '900000', '--tokens is 900000'],
    ['--hidden', '0', "'0' is invalid. It must be an integer from 1 to"],
    ['--topk', '33', "'33' is invalid. It must be an integer from 1 to 32"],
    ['--experts', '4', '--topk is 8; it must be at most --experts, 4'],
    ['--dtype', 'f64', '--dtype is "f64"'],
    ['--dtype', 'fp8', '--dtype is "fp8"; it must be one of bf16, f16, f32; with --layer also fp8'],
    ['--device', 'tpu', '--device is "tpu"'],
    ['--seed', 'x', "argument 'x' is invalid"],
  ])('refuses %s %s', async (option, value, message) => {
    const { code, err } = await demo(option, value);
    expect(code).toBe(2);
    expect(err).toContain(message);
  });
});
