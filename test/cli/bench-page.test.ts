import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { htmlReport } from '../../src/cli/bench-page.js';
import { figure } from '../../src/cli/page.js';
import {
  type BenchReport,
  columnsOf,
  detailLines,
  headOf,
  lineOf,
  type Point,
  type Row,
  roundBench,
  rowOf,
} from '../../src/tools/bench/index.js';

const report = JSON.parse(
  readFileSync(join(import.meta.dirname, 'fixtures/report.json'), 'utf8'),
) as BenchReport;

const embedded = (page: string, id: string): unknown =>
  JSON.parse(new RegExp(`id="${id}">(.*?)</script>`).exec(page)![1]!);

describe('the HTML report', () => {
  const page = htmlReport(report);

  it('is one well-formed page that loads and runs nothing', () => {
    expect(page).toMatch(/^<!doctype html>/);
    expect(page).not.toMatch(/<(img|link)|<script(?! type="application\/json")/);
    for (const tag of [
      'html',
      'head',
      'body',
      'table',
      'thead',
      'tbody',
      'figure',
      'svg',
      'script',
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
    for (const text of ['NCCL sparse, µs', 'Bandwidth']) expect(other).not.toContain(text);
  });

  it('labels ticks that have room', () => {
    const x = Array.from({ length: 100 }, (_, i) => 1 + 40 * i);
    const series = [{ label: 'one', colour: 'heddle', width: 1, values: x }];
    const drawn = figure('', { x, label: '', log: true, unit: 'µs', series });
    const labels = [...drawn.matchAll(/<text x="([\d.]+)" y="392" text-anchor="middle">(\d+)</g)].map(
      ([, at, label]) => ({ at: Number(at), half: 4 * label!.length, label }),
    );
    expect(labels[0]!.label).toBe('1');
    expect(labels.length).toBeGreaterThan(5);
    expect(labels.length).toBeLessThan(x.length);
    for (const [i, { at, half }] of labels.slice(1).entries())
      expect(at - half).toBeGreaterThan(labels[i]!.at + labels[i]!.half);
    expect(drawn.match(/text-anchor="end">\d+</g)!.map((tick) => /\d+/.exec(tick)![0])).toEqual([
      ...['1', '2', '5', '10', '20', '50', '100', '200', '500', '1000', '2000'],
    ]);
  });

  const legendOf = (drawn: string) => [...drawn.matchAll(/<\/b>([^<]+)</g)].map(([, label]) => label);

  it('carries its results, and draws every point of a line at its time', () => {
    expect(embedded(page, 'results')).toEqual(report);
    for (const point of report.points) {
      const { time } = rowOf(point, 'heddle', 'both')!;
      expect(page).toContain(`Heddle, both, ${point.tokens}: ${time.toPrecision(3)} µs a round`);
    }
    expect(legendOf(page)).toContain('plain loads');
    const [, up] = /<polyline points="([^"]+)" stroke="var\(--heddle\)"/.exec(page)!;
    const places = up!.split(' ').map((place) => place.split(',').map(Number));
    const times = report.points.map((point) => rowOf(point, 'heddle', 'both')!.time);
    // To the right are more tokens, and higher are longer times.
    expect(places).toHaveLength(times.length);
    for (const [i, [x, y]] of places.slice(1).entries()) {
      expect(x).toBeGreaterThan(places[i]![0]!);
      expect(Math.sign(places[i]![1]! - y!)).toBe(Math.sign(times[i + 1]! - times[i]!));
    }
  });

  it('draws points from left to right, in whatever order they were measured', () => {
    const backwards = htmlReport({ ...report, points: [...report.points].reverse() });
    const drawn = /<figure>.*<\/figure>/s;
    expect(drawn.exec(backwards)![0]).toBe(drawn.exec(page)![0]);
  });

  it('draws no ceilings that nobody measured', () => {
    const { points } = report;
    const other: BenchReport = {
      ...report,
      points: points.map((p) => ({ ...p, rows: p.rows.filter(({ subject }) => subject === 'heddle') })),
    };
    expect(new Set(legendOf(htmlReport(other)))).toEqual(new Set(['Heddle, both', 'Heddle, dispatch']));
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
    expect(simulated).not.toContain('<svg');
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
