/** Whole layers: the experts' GEMMs, what bounds a layer, and who serves so many tokens a second with the fewest GPUs. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { profile } from '../../../src/moe/layer/index.js';
import {
  type Demand,
  fitGemms,
  gemmTables,
  gemmWork,
  knownMachine,
  pareto,
  servePage,
  serveText,
  services,
} from '../../../src/tools/plan/index.js';

const layer = profile('deepseek_v3');
const gemm = (name: string) => fitGemms(gemmTables.find((one) => one.name === name)!);
const demand = (change: Partial<Demand> = {}): Demand => ({
  model: 'deepseek_v3',
  layer,
  known: knownMachine('h200-nvlink'),
  tokensPerSecond: 100_000,
  law: { kind: 'uniform' },
  gemm: gemm('deepgemm-fp8'),
  rest: 0,
  ...change,
});

describe('the experts’ GEMMs', () => {
  it.each(gemmTables)('$name: a roofline of two figures meets every measured shape within 10 %', (table) => {
    const fit = fitGemms(table);
    for (const [experts, rows, gateUp, down] of table.cells) {
      const { time } = fit.of(gemmWork(layer, table.bytes, experts, experts * rows));
      expect(Math.abs(time / (gateUp + down) - 1)).toBeLessThan(0.1);
    }
  });

  it('are as docs/results has them', () => {
    const file = '../../../docs/results/2026-11-23-h200-experts.md';
    const [, bf16, fp8] = readFileSync(resolve(import.meta.dirname, file), 'utf8').split(
      /^\| rows an expert .*$/m,
    );
    const rows = (text: string) =>
      [...text.split('\n\n')[0]!.matchAll(/^\| (\d.*) \|$/gm)].map(([, line]) => line!.split(' | '));
    const cells = (name: string) =>
      gemmTables.find((one) => one.name === name)!.cells.filter(([experts]) => experts === 16);
    const expected = (text: string, gateUp: number, down: number) =>
      rows(text)
        .filter(([n]) => /^\d+$/.test(n!))
        .map((row) => [16, Number(row[0]), Number(row[gateUp]), Number(row[down])]);
    expect(cells('heddle-bf16')).toEqual(expected(bf16!, 1, 3));
    expect(cells('cublas-bf16')).toEqual(expected(bf16!, 2, 4));
    expect(cells('heddle-fp8')).toEqual(expected(fp8!, 1, 4));
    expect(cells('heddle-fp8')).toHaveLength(6);
  });

  it('are never faster than reading the weights or multiplying alone', () => {
    const fit = gemm('cublas-bf16');
    for (const rows of [1, 64, 4096]) {
      const { time, memory, compute } = fit.of(gemmWork(layer, 2, 8, 8 * rows));
      expect(time).toBeGreaterThan(Math.max(memory, compute));
    }
  });
});

describe('serving on one node', () => {
  const all = services(demand());

  it('reads weights where batches are small, and multiplies where they are large', () => {
    expect(all.map(({ ep }) => ep)).not.toContain(2);
    const of = (tokens: number) => all.find((one) => one.ep === 8 && one.tokens === tokens)!;
    expect(of(16).bound).toBe('memory');
    expect(of(1024).parts.compute).toBeGreaterThan(of(1024).parts.memory);
  });

  it('takes whole instances, enough of them', () => {
    for (const { gpus, ep, tokens, latency } of all) {
      expect(gpus % ep).toBe(0);
      const perSecond = (gpus * tokens * 1000) / latency;
      expect(perSecond).toBeGreaterThan(0.999 * 100_000);
      expect(((gpus - ep) * tokens * 1000) / latency).toBeLessThan(100_000);
    }
  });

  it('Pareto: no other is better in both, and every other is beaten by one', () => {
    const best = pareto(all);
    for (const one of best)
      for (const other of all) expect(other.gpus <= one.gpus && other.latency < one.latency).toBe(false);
    for (const one of all)
      expect(best.some((other) => other.gpus <= one.gpus && other.latency <= one.latency)).toBe(true);
  });

  it('all else of a layer makes it slower by that much', () => {
    const [without] = all;
    const [beside] = services(demand({ rest: 60 }));
    expect(beside!.layer - without!.layer).toBeCloseTo(60, 9);
  });

  it('has a note for each that carries rows beyond what was measured', () => {
    const text = serveText(demand(), all);
    const starred = [...new Set([...text.matchAll(/(\S+) \*$/gm)].map(([, carrier]) => carrier))];
    expect(starred).not.toEqual([]);
    const notes = [...text.matchAll(/^\* (\S+): .+/gm)].map(([, carrier]) => carrier);
    expect(notes).toEqual(starred);
  });

  it('a family that is asked for has the EPs that it can carry', () => {
    const known = knownMachine('h200-cx7');
    const eps = (family: string) => new Set(services(demand({ known, family })).map(({ ep }) => ep));
    expect([...eps('one-sided')]).toEqual([8]);
    expect([...eps('hybrid')]).toEqual([16, 32, 64, 128, 256]);
    expect(() => eps('nobody')).toThrow(/family is "nobody".*one-sided.*hybrid/);
  });

  it('a page holds every point of the table, and says its sources', () => {
    const html = servePage(demand(), all);
    const { pareto: chart } = JSON.parse(/id="charts">(.*?)<\/script>/.exec(html)![1]!);
    const values = chart.series[0].values.filter((one: number | null) => one !== null);
    expect(values).toEqual(pareto(all).map(({ latency }) => latency));
    expect(html).toContain('DeepGEMM 54e2261');
    expect(html).not.toMatch(/<(script|img|link)[^>]+(src|href)=/);
  });
});

it('places for experts gain where loads are skewed and multiplying bounds, and nothing where they are even', () => {
  const at = (exponent: number | null) => {
    const law =
      exponent === null ? ({ kind: 'uniform' } as const) : ({ kind: 'skewed', exponent, seed: 1 } as const);
    return services(demand({ law })).find((one) => one.ep === 8 && one.tokens === 1024)!;
  };
  expect(at(null)).toMatchObject({ placed: 0 });
  const { placed, busiest } = at(0.8);
  expect(placed).toBeGreaterThan(0.1);
  expect(busiest[0]).toBeGreaterThan(1.5);
  expect(busiest[1]).toBeLessThan(1.02);
});

it('says that no EP holds a model, and that GEMMs were measured on H200 only', () => {
  const big = demand({ gemm: gemm('heddle-bf16') });
  expect(serveText(big, services(big))).toMatch(/No EP of this machine holds the model/);
  expect(() => services(demand({ known: knownMachine('b300') }))).toThrow(
    /machine is "b300-cx8"; it must be one with the GPU that the GEMMs were measured on, h200/,
  );
});
