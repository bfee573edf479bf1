import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import {
  type BenchReport,
  columnsOf,
  detailLines,
  headOf,
  htmlReport,
  lineOf,
  type Point,
  type Row,
  roundBench,
  rowOf,
} from '../../../src/tools/bench/index.js';

const report = JSON.parse(
  readFileSync(join(import.meta.dirname, 'fixtures/report.json'), 'utf8'),
) as BenchReport;

const embedded = (page: string, id: string): unknown =>
  JSON.parse(new RegExp(`id="${id}">(.*?)</script>`).exec(page)![1]!);

describe('the HTML report', () => {
  const page = htmlReport(report);

  it('is one well-formed page that loads nothing', () => {
    expect(page).toMatch(/^<!doctype html>/);
    expect(page).not.toMatch(/<(script|img|link)[^>]+(src|href)=/);
    for (const tag of [
      'html',
      'head',
      'body',
      'table',
      'thead',
      'tbody',
      'figure',
      'script',
      'details',
      'dl',
      'ul',
    ]) {
      const opened = page.match(new RegExp(`<${tag}[ >]`, 'g'))?.length ?? 0;
      expect(page.match(new RegExp(`</${tag}>`, 'g'))?.length, tag).toBe(opened);
    }
  });

  it('holds every time of the run, the machine, the date and the commit', () => {
    for (const point of report.points) {
      for (const { time } of point.rows) expect(page).toContain(`>${shown(time)}</td>`);
    }
    for (const text of ['4 × NVIDIA H200', '2026-11-20', '0123456789ab', 'NCCL 2.28.7', 'made up'])
      expect(page).toContain(text);
  });

  it('shows a round between nodes beside the network alone', () => {
    const [point] = report.points as [Point];
    const row = (subject: Row['subject'], time: number, ofCeiling: number | null): Row => {
      const rest = { spread: null, derived: null, physical: null, logical: null, overNccl: null };
      return { subject, phase: 'both', time, ofCeiling, ...rest };
    };
    const sent = { messages: 4, bytes: 2500 };
    const between = { rows: 12, dispatch: 1, combine: 1 };
    const apart: BenchReport = {
      ...report,
      method: { ...report.method, nodes: 2 },
      points: [
        {
          ...{ ...point, tokens: 8, bytes: { ...point.bytes, between } },
          network: { dispatch: sent, combine: sent },
          wires: 'in host memory (why not)',
          rows: [row('heddle', 55, 0.8), row('network', 44, null)],
        },
      ],
    };
    const columns = (line: string) => line.trim().split(/ {2,}/);
    expect(columns(headOf(columnsOf(roundBench, apart)))).toEqual([
      ...['tokens', 'both µs', 'p10–p90', 'network µs', '× network'],
      ...['messages a rank', 'network KB a rank', 'network rows a token'],
    ]);
    expect(columns(lineOf(columnsOf(roundBench, apart), apart.points[0]!))).toEqual([
      '8',
      '55.00',
      '–',
      '44.00',
      '1.25',
      '8.0',
      '5.0',
      '1.50',
    ]);
    const other = htmlReport(apart);
    for (const text of ['× network', '>1.25</td>', 'The network alone:', 'ceiling: the network alone'])
      expect(other).toContain(text);
    for (const text of ['NCCL sparse, µs', 'data-chart="bandwidth"']) expect(other).not.toContain(text);
  });

  it.each([240, 400, 1100])('labels ticks that have room, in %i pixels', (width) => {
    const [point] = report.points;
    const tokens = Array.from({ length: 13 }, (_, i) => 2 ** i);
    const swept = htmlReport({ ...report, points: tokens.map((n) => ({ ...point!, tokens: n })) });
    const { latency } = embedded(swept, 'charts') as Record<string, { x: number[] }>;
    const [axis] = axesOf(swept);
    const valToPos = (v: number): number => (Math.log2(v) / Math.log2(latency!.x.at(-1)!)) * width;
    const filtered = axis!.filter({ valToPos }, latency!.x);
    const labels = axis!.values({}, filtered);
    expect(labels).toHaveLength(latency!.x.length);
    expect(labels[0]).toBe('1');
    // At 1,100 pixels all have room, at 400 some have none.
    expect(labels.includes('')).toBe(width < 1000);
    expect(labels.filter((label) => label !== '' && !/^\d+$/.test(label))).toEqual([]);
    const shown = latency!.x.filter((_, i) => labels[i] !== '');
    const half = (v: number): number => 4 * String(v).length;
    for (const [i, v] of shown.slice(1).entries()) {
      const before = shown[i]!;
      expect(valToPos(v) - half(v)).toBeGreaterThan(valToPos(before) + half(before));
    }
  });

  it('carries its results and the series of its charts', () => {
    expect(embedded(page, 'results')).toEqual(report);
    const { latency, bandwidth } = embedded(page, 'charts') as Record<
      string,
      { x: number[]; series: { label: string; values: (number | null)[] }[] }
    >;
    expect(latency!.x).toEqual(report.points.map(({ tokens }) => tokens));
    const values = (label: string) => latency!.series.find((series) => series.label === label)?.values;
    expect(values('Heddle, both')).toEqual(report.points.map((p) => rowOf(p, 'heddle', 'both')!.time));
    expect(bandwidth!.series.map(({ label }) => label)).toContain('plain loads');
  });

  it('draws points from left to right, in whatever order they were measured', () => {
    const backwards = htmlReport({ ...report, points: [...report.points].reverse() });
    expect(embedded(backwards, 'charts')).toEqual(embedded(page, 'charts'));
  });

  it('draws no ceilings that nobody measured', () => {
    const { points } = report;
    const other: BenchReport = {
      ...report,
      points: points.map((p) => ({ ...p, rows: p.rows.filter(({ subject }) => subject === 'heddle') })),
    };
    const { latency } = embedded(htmlReport(other), 'charts') as Record<
      string,
      { series: { label: string }[] }
    >;
    expect(latency!.series.map(({ label }) => label)).toEqual(['Heddle, both', 'Heddle, dispatch']);
  });

  it('shows who waits for whom where that was counted', () => {
    expect(page).not.toContain('Who waits for whom');
    const waits = {
      dispatch: [
        [0.5, 7],
        [1, 0.25],
      ],
      combine: [
        [2, 0.25],
        [3, 4],
      ],
    };
    const late = htmlReport({ ...report, points: [{ ...report.points[0]!, waits }] });
    expect(late).toContain('<h2>Who waits for whom</h2>');
    expect(late).toMatch(/tokens, dispatch<.*rank 0 waits<.*0\.50<.*7\.00</s);
    expect(late).toMatch(/tokens, combine<.*rank 0 waits<.*2\.00<.*0\.25</s);
  });

  it('says of a simulated run that its steps are no time, and draws none', () => {
    const simulated = htmlReport({ ...report, unit: 'steps' });
    expect(simulated).toContain('say nothing about the time of a GPU');
    expect(simulated).not.toContain('data-chart="latency"');
  });

  it('cannot be broken by text from outside', () => {
    const hostile = htmlReport({ ...report, notes: ['</script><script>alert(1)</script>'] });
    expect(hostile).not.toContain('<script>alert');
    expect(embedded(hostile, 'results')).toMatchObject({ notes: ['</script><script>alert(1)</script>'] });
  });
});

describe('the printed table', () => {
  it('has its cells under their heads', () => {
    const head = headOf(columnsOf(roundBench, report));
    for (const point of report.points) {
      const line = lineOf(columnsOf(roundBench, report), point);
      expect(line).toHaveLength(head.length);
      expect(line.slice(0, 6).trim()).toBe(String(point.tokens));
      expect(line).toContain(shown(rowOf(point, 'heddle', 'both')!.time));
    }
  });

  it('names the spread of every measurement, and what was calculated', () => {
    const lines = detailLines(report, report.points[0]!, true);
    expect(lines).toMatch(/^ {4}what +phase +median, µs +min +p10 +p90 +max/m);
    expect(lines).toMatch(/nccl sparse +both( +\d+\.\d+){5}/);
    expect(lines).toMatch(/heddle +combine \(both − dispatch\) +\d+\.\d+ +–/);
  });

  it('shows spills of kernels', () => {
    const point = report.points[0]!;
    expect(detailLines(report, point)).toMatch(/dispatch .* 0$/m);
    const spilling = point.kernels!.map((k) => ({ ...k, facts: { ...k.facts!, localBytes: 64 } }));
    expect(detailLines(report, { ...point, kernels: spilling })).toMatch(/dispatch .* 64$/m);
  });
});

function shown(time: number): string {
  return time >= 1000 ? time.toFixed(0) : time >= 100 ? time.toFixed(1) : time.toFixed(2);
}

interface Axis {
  filter(plot: { valToPos(value: number): number }, all: readonly number[]): (number | null)[];
  values(plot: object, all: readonly (number | null)[]): string[];
}

/** The axes that the page's own script gives to the charting library, for its first chart. */
function axesOf(page: string): readonly Axis[] {
  const script = page.slice(page.lastIndexOf('<script>') + '<script>'.length, page.lastIndexOf('</script>'));
  const charts: { readonly axes: readonly Axis[] }[] = [];
  const place = { clientWidth: 0 };
  const figure = { dataset: { chart: 'latency' }, querySelector: () => place };
  const document = {
    documentElement: {},
    getElementById: () => ({ textContent: JSON.stringify(embedded(page, 'charts')) }),
    querySelectorAll: () => [figure],
  };
  const observer = class {
    observe(): void {}
  };
  runInNewContext(script, {
    document,
    uPlot: class {
      constructor(options: { readonly axes: readonly Axis[] }) {
        charts.push(options);
      }
    },
    ResizeObserver: observer,
  });
  return charts[0]!.axes;
}
