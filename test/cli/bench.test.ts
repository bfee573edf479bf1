import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { heddle } from '../../src/cli/program.js';
import type { BenchReport, gemmBench, layerBench, modelBench } from '../../src/tools/bench/index.js';
import { temporaryFolder } from '../temporary.js';
import { err, hear, out } from './said.js';

type ReportOf<B extends { heading(report: never): string }> = Parameters<B['heading']>[0];

hear();

const folder = temporaryFolder();

/** A launch takes a round of the simulator's at least, of which there are a few in a measurement. */
const expectSteps = (...medians: readonly number[]): void => {
  for (const median of medians) {
    expect(median).toBeGreaterThan(100);
    expect(median * 4).toBeCloseTo(Math.round(median * 4), 6);
  }
};

const small = ['--profile', 'custom', '--hidden', '64', '--experts', '8', '--top-k', '2', '--ep', '2'];
const simulated = ['bench', '--device', 'sim', ...small, '--tokens', '1'];

it.each([
  [
    ['bench', '--ep', '72'],
    /^heddle: Measuring 72 ranks needs 72 NVIDIA GPUs.*this machine has.*heddle doctor.*--device sim.*\n$/,
  ],
  [['bench', 'gemm'], /^heddle: Measuring .* needs .*NVIDIA GPU/],
  [['bench', 'layer', '--ep', '64'], /^heddle: Measuring .* needs .*NVIDIA GPU/],
  [['tune', '--ep', '72', '-o', join(folder, 'tuning.json')], /Measuring 72 ranks needs 72 NVIDIA GPUs/],
])('%j says on a machine without the GPUs what it would need, and prints no table', async (args, needed) => {
  expect(await heddle(args)).toBe(2);
  expect(err).toMatch(needed);
  expect(out).toBe('');
});

describe('heddle bench', () => {
  it('prints a table, and writes results and page, on the simulator', async () => {
    const [json, html] = [join(folder, 'out.json'), join(folder, 'out.html')];
    expect(await heddle([...simulated, '--output-file', json, '--report', html, '--iter-stats'])).toBe(0);
    expect(out).toMatch(/custom: hidden 64, top-2 of 8 experts, ep 2/);
    expect(out).toMatch(/tokens +dispatch steps/);
    const report = JSON.parse(readFileSync(json, 'utf8')) as BenchReport;
    expect(report.points.map(({ tokens }) => tokens)).toEqual([1]);
    expect(readFileSync(html, 'utf8')).toContain('Heddle bench: custom, EP2');
  });

  it('keeps stdout for the results with --json', async () => {
    expect(await heddle([...simulated, '--json'])).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ format: 'heddle-bench/1', unit: 'steps' });
    expect(err).toMatch(/tokens +dispatch steps/);
  });

  it('begins with as many tokens as replicas share', async () => {
    expect(await heddle([...simulated.slice(0, -2), '--replicas', '2', '--end', '4', '--json'])).toBe(0);
    expect((JSON.parse(out) as BenchReport).points.map(({ tokens }) => tokens)).toEqual([2, 4]);
  });

  it.each([
    [['--profile', 'gpt5'], /Allowed choices are deepseek_v3/],
    [['--dtype', 'int3'], /Allowed choices are .*nvfp4/],
    [['--tokens', '1,x'], /integers from 1 to/],
    [['--tokens', '0'], /1,8,128/],
    [['-b', '8', '-e', '4'], /end is 4/],
    [['--replicas', '2', '--tokens', '2,3'], /--tokens is 3; it must be a multiple of replicas, 2, which/],
    [
      ['--tokens', '4', '--begin', '4'],
      /'--tokens <list>' cannot be used with option '-b, --begin <tokens>'/,
    ],
    [['--skew', '1', '--perfect-router'], /cannot be used with/],
    [
      ['--device', 'sim', '--profile', 'deepseek_v3', '--places', '257'],
      /--places is 257; it must be a multiple of the 4/,
    ],
    [['--skew', '-1'], /'-1' is invalid. It must be a number above 0, at most 10/],
    [['--profile', 'custom', '--hidden', '64'], /given with the profile 'custom'/],
    [['--device', 'sim', '--world', 'processes'], /live in one process/],
    [
      ['gemm', '--device', 'sim', '--sustained'],
      /--sustained is true; it must be left out: nothing here tells a GPU’s energy/,
    ],
  ])('refuses %j and says why', async (args, message) => {
    expect(await heddle(['bench', ...args])).toBe(2);
    expect(err).toMatch(message);
  });
});

it('heddle tune refuses budgets that are none', async () => {
  expect(await heddle(['tune', '--budget', '0'])).toBe(2);
  expect(err).toMatch(/an integer from 1 to/);
});

describe('heddle bench gemm', () => {
  it('tries the command on the simulator: what routes need, and what tiles add to it', async () => {
    const gemm = ['bench', 'gemm', '--profile', 'mixtral', '--device', 'sim', '--routes', 'uniform'];
    expect(await heddle([...gemm, '--experts', '3', '--rows', '5', '--json'])).toBe(0);
    const report = JSON.parse(out) as ReportOf<typeof gemmBench>;
    expect(report).toMatchObject({ format: 'heddle-bench-gemm/1', cublas: 'not on a simulated GPU' });
    const { counts, gateUp, down } = report.points[0]!;
    const rows = counts.reduce((sum, count) => sum + count, 0);
    // As the simulator's tiles have it: 16 rows at a time, of small experts, 64 by 64.
    const padded = counts.reduce((sum, count) => sum + 16 * Math.ceil(count / 16), 0);
    expect(padded).toBeGreaterThan(rows);
    expect([gateUp.usefulFlops, down.usefulFlops]).toEqual([2 * rows * 64 * 128, 2 * rows * 64 * 64]);
    expect([gateUp.paddedFlops.heddle, down.paddedFlops.heddle]).toEqual([
      2 * padded * 64 * 128,
      2 * padded * 64 * 64,
    ]);
    expect(report.unit).toBe('steps');
    expectSteps(gateUp.times.heddle!.median, down.times.heddle!.median);
    expect(err).toContain('mixtral: hidden 64, inner 64, 3 experts of a rank, bf16\n');
    expect(err).toMatch(/rows +GEMM +heddle steps.* grouped steps +of cuBLAS/);
    expect(err).not.toMatch(/µs|GB\/s|P\/s/);
  });
});

interface TraceEvent {
  readonly ph: 'M' | 'X' | 's' | 'f';
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
}

/** Each begins where the one before it has ended, or ends within that. */
function requireNested(spans: readonly TraceEvent[]): void {
  const around: TraceEvent[] = [];
  for (const span of spans) {
    const endOf = ({ ts, dur }: TraceEvent): number => ts + dur;
    while (around.length > 0 && endOf(around.at(-1)!) <= span.ts) around.pop();
    expect(span.dur).toBeGreaterThan(0);
    if (around.length > 0) expect(endOf(span)).toBeLessThanOrEqual(endOf(around.at(-1)!));
    around.push(span);
  }
}

/** The spans of each stream of each rank, by name, and how many arrows there are between them. */
function tracedIn(file: string): {
  readonly ranks: readonly (readonly string[])[][];
  readonly arrows: number;
} {
  const { traceEvents } = JSON.parse(readFileSync(file, 'utf8')) as { traceEvents: TraceEvent[] };
  const ranks: string[][][] = [];
  for (const { pid, tid } of traceEvents.filter(({ name }) => name === 'thread_name')) {
    const own = traceEvents.filter((span) => span.ph === 'X' && span.pid === pid && span.tid === tid);
    requireNested(own);
    ranks[pid] ??= [];
    ranks[pid]!.push(own.map(({ name }) => name));
  }
  return { ranks, arrows: traceEvents.filter(({ ph }) => ph === 's').length };
}

const ofRound = (family: string): readonly string[] =>
  ['dispatch', 'combine'].flatMap((call) => [call, `${family}_${call}_send`, `${family}_${call}_recv`]);

/** The paths of all members of a value; elements of lists are alike, and a family's knobs are its own. */
function keysOf(value: unknown, path = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((one) => keysOf(one, `${path}[]`));
  if (typeof value !== 'object' || value === null || path.endsWith('.tuning')) return [path];
  return Object.entries(value).flatMap(([key, one]) => keysOf(one, path === '' ? key : `${path}.${key}`));
}

describe('heddle bench --json', () => {
  const golden: Readonly<Record<string, readonly string[]>> = JSON.parse(
    readFileSync(join(import.meta.dirname, 'fixtures/bench-keys.json'), 'utf8'),
  );
  it.each(Object.entries(golden))('heddle bench %s has these keys', async (args, keys) => {
    expect(await heddle(['bench', ...args.split(' '), '--device', 'sim', '--json'])).toBe(0);
    expect([...new Set(keysOf(JSON.parse(out)))].sort()).toEqual(keys);
  });
});

describe('heddle bench --trace', () => {
  const mixtral = ['--profile', 'mixtral'];
  const whole = ['dispatch', 'one_sided_dispatch', 'combine', 'one_sided_combine'];
  const shared = ['shared', 'experts_gate_up', 'experts_down'];
  // A call, then what it launches.
  const batch = [
    ...['router', 'router_logits', 'router_choose', 'dispatchSend', 'one_sided_dispatch_send'],
    ...['dispatchRecv', 'one_sided_dispatch_recv', 'plan', 'experts_plan'],
    ...['experts', 'experts_gate_up', 'experts_down'],
    ...['combine', 'one_sided_combine_send', 'one_sided_combine_recv'],
  ];
  /** tools/bench/trace.test.ts has which spans arrows lead to. */
  it.each<[string[], number, readonly (readonly string[])[], number]>([
    [[...small, '--tokens', '1,2'], 2, [whole], 0],
    [[...small, '--tokens', '1', '--split', '--family', 'portable'], 2, [ofRound('portable')], 4],
    [[...small.slice(0, -1), '4', '--nodes', '2', '--tokens', '1'], 4, [ofRound('hybrid')], 24],
    [
      ['gemm', ...mixtral, '--experts', '2', '--rows', '2'],
      ...([1, [['gate, up: heddle', 'experts_gate_up', 'down: heddle', 'experts_down']], 0] as const),
    ],
    [['layer', '--ep', '2', '--experts', '2', '--tokens', '1,3'], 2, [shared, batch, shared, batch], 8],
  ])('%j: on the streams of each of %i ranks %j, and %i arrows', async (args, ranks, streams, arrows) => {
    const file = join(folder, 'trace.json');
    expect(await heddle(['bench', ...args, '--device', 'sim', '--trace', file])).toBe(0);
    expect(tracedIn(file)).toEqual({ ranks: Array(ranks).fill(streams), arrows });
  });
});

describe('heddle bench layer', () => {
  const layer = ['bench', 'layer', '--device', 'sim', '--ep', '2', '--experts', '2', '--tokens', '1,3'];

  it('measures each part, then the layer in each of its ways', async () => {
    expect(await heddle([...layer, '--json'])).toBe(0);
    const report = JSON.parse(out) as ReportOf<typeof layerBench>;
    expect(report).toMatchObject({
      format: 'heddle-bench-layer/1',
      ranks: 2,
      model: { name: 'deepseek_v3' },
    });
    const [one, three] = report.points;
    expect(Object.keys(three!.parts)).toEqual([
      ...['router', 'dispatch + combine', 'plan', 'experts', 'shared'],
    ]);
    expect(Object.keys(three!.ways)).toEqual(['in a row', 'beside', 'two chunks']);
    // A single token is not cut in two.
    expect(Object.keys(one!.ways)).toEqual(['in a row', 'beside']);
    expectSteps(...Object.values(three!.ways).map(({ median }) => median));
    expect(three).not.toHaveProperty('tokensPerSecond');
    // All four experts are every token's, and rank 0 has two of them.
    expect([three!.rows, three!.usefulFlops]).toEqual([12, 12 * 6 * 64 * 64]);
    expect(three!.paddedFlops).toBe(32 * 6 * 64 * 64);
    // Tokens add rows, not weights: both of its experts and the shared one are read either way.
    expect(three!.bounds).toEqual(one!.bounds);
    expect(three!.bounds).toMatchObject({ memory: expect.any(Number), tensorCores: null });
    // A slow machine is also told what is being measured.
    const [measured, note, , head] = err.split('\n').filter((line) => !line.startsWith('heddle: '));
    expect(note).toContain('figures are steps');
    expect(measured).toBe(
      'deepseek_v3: hidden 64, top-4 of 4 experts, ep 2; inner 64, rows bf16, weights bf16',
    );
    expect(head!.trim().split(/ {2,}/)).toEqual([
      ...['tokens', 'router', 'd + c', 'plan', 'experts', 'shared'],
      ...['in a row', 'beside', 'two', 'one-sided', 'NCCL', 'exposed'],
    ]);
  });

  it('says of another family what the one-sided would take, and of no shared expert nothing', async () => {
    const of = ['--profile', 'mixtral', '--family', 'portable', '--tokens', '2', '--json'];
    expect(await heddle([...layer.slice(0, -2), ...of])).toBe(0);
    const [point] = (JSON.parse(out) as ReportOf<typeof layerBench>).points;
    expect(point).toMatchObject({ family: 'portable', why: 'asked for' });
    expect(Object.keys(point!.ways)).toEqual(['in a row', 'two chunks', 'one-sided, in a row']);
    expect(Object.keys(point!.parts)).not.toContain('shared');
  });

  it('measures rows that travel as fp8', async () => {
    const of = ['1', '--profile', 'mixtral', '--rows', 'fp8', '--json'];
    expect(await heddle([...layer.slice(0, -1), ...of])).toBe(0);
    const { points, model } = JSON.parse(out) as ReportOf<typeof layerBench>;
    expect(model.hidden).toBe(128);
    expect(points[0]!.parts['dispatch + combine']!.median).toBeGreaterThan(0);
  });
});

it('heddle bench model compares layers over one set with a layer of its own', async () => {
  const flags = ['--device', 'sim', '--ep', '2', '--layers', '2', '--tokens', '3', '--json'];
  expect(await heddle(['bench', 'model', ...flags, '--max-tokens', '2', '--rounds', '2'])).toBe(0);
  const { points, layers } = JSON.parse(out) as ReportOf<typeof modelBench>;
  expect(layers).toBe(2);
  expect(points).toHaveLength(1);
  const { tokens, chunks, own, shared, overOwn } = points[0]!;
  expect({ tokens, chunks }).toEqual({ tokens: 3, chunks: 2 });
  expect(overOwn).toBe(shared.median / own.median);
});
