import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { heddle } from '../../src/cli/program.js';
import { shippedCells } from '../../src/tools/plan/index.js';

let out = '';
let err = '';
beforeEach(() => {
  out = '';
  err = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    out += text;
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    err += text;
    return true;
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  process.exitCode = undefined;
});

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'heddle-plan-'));
});
afterAll(() => rmSync(folder, { recursive: true }));
const file = (name: string, value: unknown): string => {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify(value));
  return path;
};

type Charts = Readonly<
  Record<string, { readonly x: number[]; readonly series: { readonly values: number[] }[] }>
>;
const chartsOf = (page: string): Charts =>
  JSON.parse(/id="charts">(.*?)<\/script>/s.exec(readFileSync(page, 'utf8'))![1]!);

const p5en = ['plan', '--ep', '64', '--nodes', '8', '--machine', 'p5en', '--tokens', '128'];

describe('heddle plan', () => {
  it('says what EP64 on 8 × p5en costs, and whether rails would help', async () => {
    expect(await heddle(p5en)).toBe(0);
    expect(out).toMatch(/EP64 on 8 nodes of 8: H200 with EFA/);
    expect(out).toMatch(/^128 +hybrid \* +\d/m);
    expect(out).toMatch(/^\* hybrid: a prediction, no measurement/m);
    expect(out).toMatch(/rails: a row for each node +\d+ µs +−\d/);
  });

  it('says what more places for experts bring on skewed routes', async () => {
    expect(await heddle([...p5en, '--skew', '1', '--places', '320', '--family', 'hybrid'])).toBe(0);
    expect(out).toMatch(
      /busiest rank gets 1\.0\d × the mean of routes with experts in 320 places, 8\.\d\d ×/,
    );
    const [, placed, inOrder] = /^hybrid at 128 tokens: (\d+) µs, with experts in order (\d+) µs\.$/m.exec(
      out,
    )!;
    expect(Number(placed)).toBeLessThan(0.9 * Number(inOrder));
  });

  it('prints JSON, and writes a page', async () => {
    const page = join(folder, 'plan.html');
    expect(await heddle([...p5en, '--json', '--skew', '0.5', '--report', page])).toBe(0);
    const { answers, winners, question, version, units, advice } = JSON.parse(out);
    expect({ version, units }).toMatchObject({
      version: expect.stringMatching(/^\d/),
      units: { time: 'µs' },
    });
    expect(advice[0].changes[0]).toHaveProperty('after');
    expect(question).toMatchObject({
      machine: 'h200-efa',
      ranks: 64,
      dtype: 'fp8',
      combineDtype: 'bf16',
      layer: { hidden: 7168 },
      law: { kind: 'skewed', exponent: 0.5 },
    });
    expect(answers[0].phases[0]).toHaveProperty('traffic.busiest.network.bytes');
    expect(winners[0]).toHaveProperty('candidate');
    expect(readFileSync(page, 'utf8')).toContain('EP64 on h200-efa');
  });

  it('draws numbers of tokens from left to right, in whatever order they were given', async () => {
    const page = join(folder, 'order.html');
    const args = ['plan', '--ep', '8', '--machine', 'h200-nvlink', '--family', 'one-sided', '--report', page];
    expect(await heddle([...args, '--tokens', '128,1,8,1'])).toBe(0);
    const { tokens, cost } = chartsOf(page);
    expect([tokens!.x, cost!.x]).toEqual([
      [1, 8, 128],
      [1, 8, 128],
    ]);
    const [series] = tokens!.series;
    expect(series!.values).toEqual([...series!.values].sort((a, b) => a - b));
  });

  it('carries nothing by rails where ranks of several nodes hold the same tokens', async () => {
    const args = ['plan', '--ep', '16', '--tokens', '128', '--replicas'];
    expect(await heddle([...args, '8'])).toBe(0);
    expect(out).toMatch(/^128 +hybrid \*/m);
    expect(out).toMatch(/^128 +deepep_v1\/normal/m);
    out = '';
    expect(await heddle([...args, '16'])).toBe(0);
    expect(out).toMatch(/^128 +portable \*/m);
    expect(out).not.toMatch(/hybrid \*|deepep_v1\/normal|rails: a row/);
    expect(await heddle([...args, '16', '--family', 'hybrid'])).toBe(2);
    expect(err).toMatch(/--family is "hybrid"; it must be one that is known/);
  });

  it('writes a page where the router could not choose at some of the other EPs', async () => {
    const page = join(folder, 'kimi.html');
    const args = ['plan', '--model', 'kimi_k2', '--ep', '16', '--tokens', '8', '--report', page];
    expect(await heddle([...args, '--nodes-per-token', '1'])).toBe(0);
    // 384 experts are not shared evenly by more.
    expect(chartsOf(page).ranks!.x.at(-1)).toBe(128);
  });

  it('simulates messages', async () => {
    const args = ['plan', '--ep', '16', '--tokens', '8', '--family', 'hybrid', '--simulate', '--late', '100'];
    expect(await heddle(args)).toBe(0);
    expect(out).toMatch(/8 +hybrid +combine +\d/);
  });

  it.each([
    [['--model', 'gpt5'], /Allowed choices are deepseek_v3/],
    [['--machine', 'abacus'], /--machine is "abacus"; it must be one of h200-nvlink/],
    [['--machine', 'abacus.json'], /abacus\.json cannot be read/],
    [['--family', 'portabel'], /--family is "portabel".*hybrid, portable/],
    [['--ep', '63', '--nodes', '8'], /--ep is 63; it must be a multiple of nodes, 8/],
    [['--ep', '2048'], /'2048' is invalid. It must be an integer from 2 to 1024/],
    [['--tokens', '0'], /--tokens is "0"/],
    [['--skew', '11'], /'11' is invalid. It must be a number above 0, at most 10/],
    [['--skew', '1', '--perfect-router'], /cannot be used with/],
    [['--simulate', '--nodes-per-token', '4'], /routes is "uniform".*for --simulate, which draws them/],
    [['--late', '50'], /--late is 50; it must be 0 without --simulate/],
    [['--nodes-per-token', '99'], /--nodes-per-token is 99; it must be an integer from 1 to 8/],
    [['--places', '288'], /--places is 288; it must be given with skewed loads: add --skew or --loads/],
    [
      ['--places', '320', '--skew', '1', '--simulate'],
      /'--places <n>' cannot be used with option '--simulate'/,
    ],
    [['--dtype', 'int3'], /Allowed choices are .*nvfp4/],
  ])('refuses %j and says why', async (args, message) => {
    expect(await heddle(['plan', ...args])).toBe(2);
    expect(err).toMatch(message);
  });
});

describe('heddle plan calibrate', () => {
  it('fits cells, and what it writes is a machine', async () => {
    const cells = file(
      'cells.json',
      shippedCells()
        .filter(({ set }) => set === 'uccl_ll')
        .slice(0, 6),
    );
    const machine = join(folder, 'lab.json');
    expect(await heddle(['plan', 'calibrate', '--cells', cells, '--name', 'lab', '-o', machine])).toBe(0);
    expect(out).toMatch(/nic +\d.*µs a MB/);
    out = '';
    expect(await heddle(['plan', '--machine', machine, '--ep', '16', '--tokens', '128', '--json'])).toBe(0);
    expect(JSON.parse(out).question.machine).toBe('lab');
  });

  it('names what a cell lacks', async () => {
    const cells = file('lacking.json', [{ set: 'mine', us: 3 }]);
    expect(await heddle(['plan', 'calibrate', '--cells', cells])).toBe(2);
    expect(err).toMatch(/lacking\.json\[0\].*lib, mode, hw.*it has set, us/);
  });

  it('says which reports of heddle bench have no time of a phase alone', async () => {
    const report = {
      ...{ format: 'heddle-bench/1', unit: 'µs', machine: { gpus: ['NVIDIA H200'] } },
      workload: {
        ...{ router: { kind: 'uniform' }, dtype: 'bf16', combineDtype: 'bf16' },
        ...{ ranks: 2, hidden: 7168, topK: 8, experts: 256 },
      },
      points: [
        {
          tokens: 8,
          rows: [
            { subject: 'heddle', phase: 'both', time: 20 },
            { subject: 'stores', phase: 'dispatch', time: 5, physical: 300 },
          ],
        },
      ],
    };
    expect(await heddle(['plan', 'calibrate', '--bench', file('split.json', report)])).toBe(2);
    expect(err).toMatch(/--bench is .*split\.json.*without --split/);
  });

  it('needs something to fit', async () => {
    expect(await heddle(['plan', 'calibrate'])).toBe(2);
    expect(err).toMatch(/required option '--cells <file\.json>' or '--bench <file\.json>' not specified/);
  });
});

describe('heddle plan validate', () => {
  it('prints the table', async () => {
    expect(await heddle(['plan', 'validate'])).toBe(0);
    expect(out).toMatch(/one-sided on GB200.* %/);
    expect(out).toMatch(/deepep_v1 normal.*2\.\d+ ×/);
  });

  it('says nothing of errors where all cells are of machines that it does not know', async () => {
    const [cell] = shippedCells();
    const cells = file('elsewhere.json', [{ ...cell, hw: 'TPU' }]);
    expect(await heddle(['plan', 'validate', '--cells', cells])).toBe(0);
    expect(out).toMatch(/^the cells of the file, fitted on all that is shipped +0 +– +– +– /m);
    expect(out).toMatch(/^no shipped cells of its system on its machine: .* on TPU/m);
    expect(out).not.toMatch(/NaN|Infinity/);
  });

  it('predicts the cells of a file', async () => {
    const cells = file('one.json', shippedCells().slice(0, 1));
    expect(await heddle(['plan', 'validate', '--cells', cells, '--json'])).toBe(0);
    expect(JSON.parse(out).results[0].checks).toHaveLength(1);
  });
});

describe('heddle plan serve', () => {
  const args = ['plan', 'serve', '--machine', 'h200-nvlink', '--tokens-per-second'];

  it('prints who serves so many tokens with the fewest GPUs, and writes a page', async () => {
    const page = join(folder, 'serve.html');
    expect(await heddle([...args, '20000', '--report', page])).toBe(0);
    expect(out).toMatch(/^ +8 +8 +\d+ .*(memory|compute|network)/m);
    expect(readFileSync(page, 'utf8')).toContain('GPUs against waiting');
  });

  it('prints JSON', async () => {
    expect(await heddle([...args, '20000', '--json'])).toBe(0);
    expect(JSON.parse(out)).toMatchObject({
      version: expect.stringMatching(/^\d/),
      units: { latency: 'ms a token' },
      question: { model: 'deepseek_v3' },
      pareto: expect.arrayContaining([expect.objectContaining({ ep: 8 })]),
    });
  });

  it('refuses nonsense', async () => {
    expect(await heddle([...args, '0'])).toBe(2);
    expect(err).toMatch(/'0' is invalid. It must be a number above 0/);
  });
});
