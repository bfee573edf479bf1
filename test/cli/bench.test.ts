import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { BenchReport, ExpertsReport, OverlapReport } from '../../src/bench/index.js';
import { heddle } from '../../src/cli/program.js';

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
afterEach(() => vi.restoreAllMocks());

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'heddle-bench-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const small = ['--profile', 'custom', '--hidden', '64', '--experts', '8', '--top-k', '2', '--ep', '2'];
const simulated = ['bench', '--device', 'sim', ...small, '--tokens', '1'];

describe('heddle bench', () => {
  it('says on a machine without the GPUs what it would need, with exit code 2', async () => {
    expect(await heddle(['bench', '--ep', '72'])).toBe(2);
    expect(err).toMatch(/^heddle: Measuring 72 ranks needs 72 NVIDIA GPUs.*this machine has.*heddle doctor/);
    expect(err).toContain('--device sim');
    expect(err.trim().split('\n')).toHaveLength(1);
    expect(out).toBe('');
  });

  it('prints a table, and writes results and page, on the simulator', async () => {
    const [json, html] = [join(folder, 'out.json'), join(folder, 'out.html')];
    expect(await heddle([...simulated, '--output-file', json, '--report', html, '--iter-stats'])).toBe(0);
    expect(out).toMatch(/custom: hidden 64, top-2 of 8 experts, ep 2/);
    expect(out).toMatch(/tokens dispatch steps/);
    const report = JSON.parse(readFileSync(json, 'utf8')) as BenchReport;
    expect(report.points.map(({ tokens }) => tokens)).toEqual([1]);
    expect(readFileSync(html, 'utf8')).toContain('Heddle bench: custom, EP2');
  });

  it.each(['--report', '--output-file'])(
    'refuses a %s that cannot be written before it measures',
    async (option) => {
      expect(await heddle([...simulated, option, join(folder, 'nowhere', 'out')])).toBe(2);
      expect(err).toMatch(
        new RegExp(`^heddle: ${option} is .*nowhere/out"; it must be a file that can be written .*ENOENT`),
      );
      expect(out).toBe('');
    },
  );

  it('keeps stdout for the results with --json', async () => {
    expect(await heddle([...simulated, '--json'])).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ format: 'heddle-bench/1', unit: 'steps' });
    expect(err).toContain('tokens dispatch steps');
  });

  it.each([
    [['--profile', 'gpt5'], /Allowed choices are deepseek_v3/],
    [['--dtype', 'int3'], /Allowed choices are .*nvfp4/],
    [['--tokens', '1,x'], /whole number/],
    [['--tokens', '0'], /1,8,128/],
    [['-b', '8', '-e', '4'], /end is 4/],
    [['-f', '1'], /factor is 1/],
    [['--skew', '1', '--perfect-router'], /cannot be used with/],
    [['--skew', '-1'], /skew is -1/],
    [['--profile', 'custom', '--hidden', '64'], /given with the profile 'custom'/],
    [['--device', 'sim', '--world', 'processes'], /live in one process/],
  ])('refuses %j and says why', async (args, message) => {
    expect(await heddle(['bench', ...args])).toBe(2);
    expect(err).toMatch(message);
  });
});

describe.each(['experts', 'gemm', 'layer', 'overlap'])('heddle bench %s', (what) => {
  it('says on a machine without the GPUs what it would need, and prints no table', async () => {
    const ep = what === 'layer' || what === 'overlap' ? ['--ep', '64'] : [];
    expect(await heddle(['bench', what, ...ep])).toBe(2);
    expect(err).toMatch(/^heddle: Measuring .* needs .*NVIDIA GPU/);
    expect(out).toBe('');
  });
});

describe('heddle tune', () => {
  it('says on a machine without the GPUs what it would need, with exit code 2', async () => {
    expect(await heddle(['tune', '--ep', '72', '-o', join(folder, 'tuning.json')])).toBe(2);
    expect(err).toMatch(/Measuring 72 ranks needs 72 NVIDIA GPUs/);
  });

  it('refuses budgets that are none', async () => {
    expect(await heddle(['tune', '--budget', '0'])).toBe(2);
    expect(err).toMatch(/whole number from 1/);
  });
});

describe('heddle bench experts', () => {
  const experts = ['bench', 'experts', '--profile', 'mixtral', '--ep', '2', '--tokens', '2'];

  it('tries the command on the simulator, and checks what the plan says', async () => {
    expect(await heddle([...experts, '--device', 'sim', '--alignment', '16', '--json'])).toBe(0);
    const report = JSON.parse(out) as ExpertsReport;
    expect(report).toMatchObject({ format: 'heddle-bench-experts/1', rows: { alignment: 16 } });
    const { routes, slots, expand, reduce } = report.points[0]!;
    const rowBytes = report.workload.hidden * 2;
    expect([expand.bytes, reduce.bytes]).toEqual(Array(2).fill((routes + slots) * rowBytes));
    expect(err).toMatch(/tokens +routes +plan µs/);
  });

  it('refuses an alignment that there is not', async () => {
    expect(await heddle([...experts, '--alignment', '32'])).toBe(2);
    expect(err).toContain('1, 16, 64, 128');
  });
});

describe('heddle bench overlap', () => {
  const overlap = ['bench', 'overlap', '--profile', 'mixtral', '--ep', '2', '--tokens', '1', '--inner', '64'];

  it('tries the command on the simulator: each alone, then both', async () => {
    expect(await heddle([...overlap, '--device', 'sim', '--dtype', 'bf16', '--json'])).toBe(0);
    const report = JSON.parse(out) as OverlapReport;
    expect(report).toMatchObject({ format: 'heddle-bench-overlap/1', inner: 64 });
    const { sms, round, mlp, both } = report.points[0]!;
    expect(sms).toBe(8);
    for (const { median } of [round, mlp]) expect(both.median).toBeGreaterThan(median);
  });

  it('refuses fewer multiprocessors than the phases need', async () => {
    expect(await heddle([...overlap, '--device', 'sim', '--sms', '1'])).toBe(2);
    expect(err).toContain('sms is 1');
  });
});
