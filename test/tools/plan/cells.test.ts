import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Cell, cellsOfBench, observe, parseCells, shippedCells } from '../../../src/tools/plan/index.js';

const results = resolve(import.meta.dirname, '../../../docs/results');
const cell = {
  set: 'mine',
  lib: 'deepep_v1',
  mode: 'll',
  hw: 'H100+CX7',
  fabric: 'cx7',
  ep: 16,
  domain: 8,
  tokens: 128,
  hidden: 7168,
  topk: 8,
  experts: 256,
  dtype: 'fp8',
  phase: 'dispatch',
  us: 100,
  gbps: null,
  gbps_def: null,
  src: 'a test',
  note: '',
};

describe('what is shipped', () => {
  const all = shippedCells();
  const published = all.filter(({ lib }) => lib !== 'heddle');

  it('has every published cell with its source', () => {
    expect(published).toHaveLength(410);
    expect(published.filter(({ src }) => src.length < 8)).toEqual([]);
    const one = published.find(
      (c) => c.set === 'trtllm' && c.ep === 32 && c.tokens === 128 && c.phase === 'combine',
    );
    expect(one).toMatchObject({ us: 41.1, hw: 'GB200', dtype: 'bf16', domain: 72 });
  });

  it('may be written to a file and read again', () => {
    expect(parseCells('all.json', JSON.stringify(all))).toEqual(all);
  });

  it('says of Heddle what docs/results says', () => {
    const bench = readdirSync(results).filter((name) => /^2026-11-21-4xh200-bench.*json$/.test(name));
    const measured = bench.flatMap((name) => cellsOfBench(name, readFileSync(join(results, name), 'utf8')));
    const own = all.filter(({ lib, phase }) => lib === 'heddle' && phase !== 'both');
    for (const { dtype, phase, tokens, us } of own) {
      const same = measured.find(
        (one) => one.dtype === dtype && one.phase === phase && one.tokens === tokens,
      );
      expect(us).toBeCloseTo(same!.us!, 2);
    }
    const rounds = JSON.parse(readFileSync(join(results, '2026-11-21-2xh200-rounds.json'), 'utf8'));
    const two = all.filter(({ lib, ep }) => lib === 'heddle' && ep === 2);
    expect(Object.fromEntries(two.map(({ tokens, us }) => [tokens, us]))).toEqual(rounds.heddle);
  });
});

describe('GB/s become microseconds', () => {
  const timed = (change: Partial<Cell>) =>
    observe(parseCells('f', JSON.stringify([{ ...cell, us: null, ...change }]))[0]!).us;

  it('of a row for every route', () => {
    const us = timed({ gbps: 50, gbps_def: 'per-rank algorithmic' });
    expect(us).toBeCloseTo((128 * 8 * 7392) / 50_000, 6);
  });

  it('of a row for every node, the own one too', () => {
    let miss = 1;
    for (let i = 0; i < 8; i++) miss *= (128 - i) / (256 - i);
    expect(timed({ gbps: 50, gbps_def: 'rdma' })).toBeCloseTo((128 * 2 * (1 - miss) * 7392) / 50_000, 6);
  });
});

describe('a file of cells', () => {
  const { topk: _, domain: __, ...lacking } = cell;
  it.each([
    ['{', /cells\.json is .*must be JSON/],
    ['[]', /a JSON list of at least one cell/],
    [
      JSON.stringify([cell, lacking]),
      /cells\.json\[1\].*a cell with domain, topk too; it has set, lib, mode/,
    ],
    [JSON.stringify([{ ...cell, us: undefined, gbps: undefined }]), /a cell with us too/],
    [JSON.stringify([{ ...cell, us: null }]), /cells\.json\[0\]\.us is null/],
    [JSON.stringify([{ ...cell, us: -3 }]), /cells\.json\[0\]\.us is -3/],
    [JSON.stringify([{ ...cell, us: null, gbps: 3, gbps_def: 'odd' }]), /one of rdma, nvlink, per-rank/],
    [
      JSON.stringify([{ ...cell, mode: 'psychic' }]),
      /mode is "psychic"; it must be one of 'one_sided', 'll', 'normal'/,
    ],
    [JSON.stringify([{ ...cell, dtype: 'int3' }]), /dtype is "int3"; it must be one of 'f32', 'bf16'/],
    [JSON.stringify([{ ...cell, phase: 'lunch' }]), /one of 'dispatch', 'combine', 'both'/],
    [JSON.stringify([{ ...cell, ep: 12 }]), /ep is 12; it must be at most its domain, 8, or a multiple/],
    [JSON.stringify([{ ...cell, topk: 300 }]), /topk is 300; it must be at most experts, 256/],
    [JSON.stringify([{ ...cell, tokens: 1.5 }]), /tokens is 1\.5; it must be an integer/],
  ])('%s is refused with a reason', (text, message) => {
    expect(() => parseCells('cells.json', text)).toThrow(message);
  });
});

describe('a report of heddle bench', () => {
  const report = JSON.parse(
    readFileSync(join(results, '2026-11-21-4xh200-bench-deepseek_v3-bf16.json'), 'utf8'),
  );
  it.each([
    [{ ...report, format: 'other' }, /format heddle-bench\/1/],
    [{ ...report, unit: 'steps' }, /steps of the simulator are no time/],
    [
      { ...report, workload: { ...report.workload, router: { kind: 'zipf' } } },
      /router is "zipf"; it must be uniform/,
    ],
    [
      { ...report, workload: { ...report.workload, replicas: 2 } },
      /^bench\.json\.workload\.replicas is 2; it must be 1$/,
    ],
  ])('that cannot calibrate is refused', (wrong, message) => {
    expect(() => cellsOfBench('bench.json', JSON.stringify(wrong))).toThrow(message);
  });
});
