import { describe, expect, it } from 'vitest';
import { htmlReport } from '../../../src/cli/bench-page.js';
import { formatFinding, SimMachine } from '../../../src/gpu/sim/index.js';
import { World } from '../../../src/net/world/index.js';
import {
  columnsOf,
  detailLines,
  footnote,
  headOf,
  lineOf,
  measureOn,
  type Point,
  type RoundsPlan,
  roundBench,
  rowOf,
  runBenchmark,
} from '../../../src/tools/bench/index.js';
import { Crew } from '../../../src/tools/bench/timing.js';

const plan: RoundsPlan = {
  workload: {
    profile: 'custom',
    hidden: 64,
    experts: 8,
    topK: 2,
    ranks: 2,
    dtype: 'fp8',
    combineDtype: 'bf16',
    router: 'uniform',
    seed: 1,
  },
  nodes: 1,
  tokens: [1, 3],
  world: 'local',
  device: 'sim',
  iterations: 2,
  nccl: true,
  how: {},
  breakdown: true,
};

describe('a run on the simulator', () => {
  it('counts bytes and steps, and claims no microseconds', async () => {
    const events: string[] = [];
    const report = await runBenchmark(roundBench, plan, (event) => events.push(event.type));
    expect(report.unit).toBe('steps');
    expect(report.barrier).toBeNull();
    expect(report.points.map(({ tokens }) => tokens)).toEqual([1, 3]);
    expect(events.filter((type) => type === 'point')).toHaveLength(2);
    const point = report.points[1]!;
    expect(rowOf(point, 'heddle', 'both')!.time).toBeGreaterThan(rowOf(point, 'heddle', 'dispatch')!.time);
    expect(point.rows.map(({ subject }) => subject)).not.toContain('stores');
    expect(point.rows.every(({ physical }) => physical === null)).toBe(true);
    expect(point.bytes.dispatch.logical).toBe(3 * 2 * (64 + 4));
  });

  it('between nodes counts what crosses the network', async () => {
    const report = await runBenchmark(roundBench, {
      ...plan,
      workload: { ...plan.workload, ranks: 4 },
      ...{ nodes: 2, tokens: [3] },
    });
    const [{ bytes, network, tuning }] = report.points as [Point];
    const { between } = bytes;
    expect(between.rows).toBeGreaterThan(0);
    expect(between.rows).toBeLessThanOrEqual(3);
    expect(between).toMatchObject({ dispatch: between.rows * (64 + 4), combine: between.rows * 64 * 2 });
    expect(headOf(columnsOf(roundBench, report))).not.toContain('NVLink KB');
    // A message of dispatch has a header, and ids and weights of its chunk; rows are padded to 16 bytes.
    const routes = Math.ceil(((tuning.dispatch!.chunk as number) * 2 * 4) / 16) * 16;
    expect(network!.dispatch.bytes).toBe(
      network!.dispatch.messages * (16 + 2 * routes) + between.rows * (64 + 16),
    );
    expect(network!.combine.bytes).toBe(network!.combine.messages * 16 + between.rows * 64 * 2);
    expect([network!.dispatch.messages, network!.combine.messages]).toEqual([1, 1]);
    expect(headOf(columnsOf(roundBench, report))).toMatch(
      / messages a rank +network KB a rank +network rows a token$/,
    );
    expect(lineOf(columnsOf(roundBench, report), report.points[0]!)).toMatch(
      new RegExp(` ${(between.rows / 3).toFixed(2)}$`),
    );
    expect(htmlReport(report)).toContain('network rows a token');
  });

  it('measures rounds of placed experts too, here between nodes', async () => {
    const skewed = { ...plan.workload, ranks: 4, router: 'skewed', skew: 2 } as const;
    const report = await runBenchmark(roundBench, {
      ...plan,
      workload: skewed,
      ...{ nodes: 2, tokens: [32], places: 16 },
    });
    const [point] = report.points as [Point];
    expect(point.busiest!.plain).toBeGreaterThan(1.5);
    expect(point.busiest!.placed).toBeLessThan(1.2);
    expect(rowOf(point, 'heddle placed', 'both')!.time).toBeGreaterThan(0);
    expect(headOf(columnsOf(roundBench, report))).toMatch(/ placed steps +busiest +busiest placed$/);
    const shown = [point.busiest!.plain.toFixed(2), point.busiest!.placed.toFixed(2)];
    expect(lineOf(columnsOf(roundBench, report), point).trim().split(/ {2,}/).slice(-2)).toEqual(shown);
    expect(footnote(report)).toContain('Placed: experts in 16 places');
    expect(htmlReport(report)).toContain('Placed: experts in 16 places');
  });

  it.each([
    [7, 'places is 7; it must be at least 8'],
    [9, 'places is 9; it must be a multiple of the 2 ranks'],
  ])('refuses %i places of 8 experts on 2 ranks before anything starts', async (places, message) => {
    await expect(runBenchmark(roundBench, { ...plan, places })).rejects.toThrow(message);
  });

  it('shows who waits for whom', async () => {
    const report = await runBenchmark(roundBench, { ...plan, late: true, tokens: [2] });
    const [point] = report.points as [Point];
    for (const rows of [point.waits!.dispatch, point.waits!.combine])
      expect(rows.map((row) => row.map((time) => time > 0))).toEqual([
        [true, true],
        [true, true],
      ]);
    const waits = {
      dispatch: [
        [0.5, 7],
        [1, 0.25],
      ],
      combine: [
        [0.5, 1],
        [2, 0.25],
      ],
    };
    expect(detailLines(report, { ...point, waits }).split('\n')).toEqual([
      '    dispatch      for 0  for 1',
      '    rank 0 waits   0.50   7.00',
      '    rank 1 waits   1.00   0.25',
      '    combine       for 0  for 1',
      '    rank 0 waits   0.50   1.00',
      '    rank 1 waits   2.00   0.25',
      '    The others wait for rank 1 most: 8.00 steps a round, all of them together.',
    ]);
  });

  it('is free of races, and brings the right bytes', async () => {
    const machine = SimMachine.create({ ranks: 3, mode: 'checked', seed: '7' });
    const crew = new Crew();
    const points: Point[] = [];
    const ofThree = { ...plan, workload: { ...plan.workload, ranks: 3 }, tokens: [2] };
    await World.local({ ranks: 3, device: 'sim', sim: machine }, (world) =>
      measureOn(world, crew, roundBench, ofThree, (event) => {
        if (event.type === 'point') points.push(event.point);
      }),
    );
    expect(machine.findings.map(formatFinding)).toEqual([]);
    // Every rank came to the same results.
    expect(points).toHaveLength(3);
    expect(points[1]).toEqual(points[0]);
  });

  it('has no worlds of processes', async () => {
    await expect(runBenchmark(roundBench, { ...plan, world: 'processes' })).rejects.toThrow(
      /simulated GPUs live in one process/,
    );
  });
});
