import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { oneSidedWindow } from '../../../src/moe/families/one-sided/window.js';
import {
  advice,
  bulkNetwork,
  type Cell,
  candidates,
  ceilingOfBench,
  cellsOfBench,
  hits,
  knownFrom,
  knownMachine,
  lawFrom,
  machineFrom,
  machineOf,
  named,
  networkOfBench,
  parseMachine,
  placeOn,
  plan,
  planPage,
  planText,
  type Question,
  ranked,
  tokensFrom,
  winners,
} from '../../../src/tools/plan/index.js';

const results = resolve(import.meta.dirname, '../../../docs/results');
const read = (name: string) => readFileSync(join(results, name), 'utf8');
const layer = { hidden: 7168, experts: 256, topK: 8 };

function question(machine: string, ranks: number, change: Partial<Question> = {}): Question {
  const known = knownMachine(machine);
  return {
    model: 'deepseek_v3',
    layer,
    known,
    place: placeOn(known, ranks),
    tokens: [1, 128, 4096],
    law: { kind: 'uniform' },
    dtype: 'fp8',
    combineDtype: 'bf16',
    replicas: 1,
    ...change,
  };
}

describe('EP64 on 8 × p5en', () => {
  const q = question('p5en', 64);
  const asked = candidates(q.known, q.place);
  const answers = plan(q, asked);

  it('says of what was never measured that it was not', () => {
    for (const name of ['hybrid', 'portable']) {
      const found = answers.filter(({ candidate }) => candidate === name);
      expect(found).toHaveLength(3);
      for (const { beyond } of found)
        expect(beyond[0]).toBe('a prediction, no measurement of it enters the model');
    }
  });

  it('ranges hold the middle, and both phases add up', () => {
    for (const { time, low, high, phases } of answers) {
      expect(low).toBeLessThan(time);
      expect(high).toBeGreaterThan(time);
      expect(phases.reduce((sum, phase) => sum + phase.time, 0)).toBeCloseTo(time, 9);
    }
  });

  it('answers whether rails would help', () => {
    const garden = asked.find(({ name }) => name === 'pplx-garden/hybrid')!;
    const rails = advice(q, garden, 128).find(({ what }) => what.startsWith('rails'))!;
    expect(rails.after).toBeLessThan(0.85 * rails.before);
    // What is done already is no advice.
    const hybrid = asked.find(({ name }) => name === 'hybrid')!;
    expect(advice(q, hybrid, 128).filter(({ what }) => what.startsWith('rails'))).toEqual([]);
  });

  it('fits on a page that loads nothing', () => {
    const page = planPage(q, asked, answers);
    expect(page).toMatch(/^<!doctype html>/);
    expect(page).not.toMatch(/<(script|img|link)[^>]+(src|href)=/);
    const charts = JSON.parse(/id="charts">(.*?)<\/script>/.exec(page)![1]!);
    expect(charts.ranks.x.at(-1)).toBe(1024);
    expect(Object.keys(charts)).toEqual(['tokens', 'cost', 'ranks']);
    type Line = { colour: string; values: (number | null)[]; band: ([number, number] | null)[] };
    for (const { x, series } of Object.values<{ x: number[]; series: Line[] }>(charts)) {
      expect(new Set(series.map(({ colour }) => colour)).size).toBe(series.length);
      for (const { values, band } of series) {
        expect(values).toHaveLength(x.length);
        for (const [i, one] of values.entries()) {
          if (one === null) continue;
          expect(band[i]![0]).toBeLessThan(one);
          expect(band[i]![1]).toBeGreaterThan(one);
        }
      }
    }
  });
});

it('lines of one chart have colours of their own, where most systems were measured too', () => {
  const q = question('h200-cx7', 16, { tokens: [128] });
  const asked = candidates(q.known, q.place);
  const page = planPage(q, asked, plan(q, asked));
  const { tokens } = JSON.parse(/id="charts">(.*?)<\/script>/.exec(page)![1]!);
  const colours = tokens.series.map(({ colour }: { colour: string }) => colour);
  expect(colours.length).toBeGreaterThan(8);
  expect(new Set(colours).size).toBe(colours.length);
});

describe('the fastest', () => {
  it.each([
    ['h200-cx7', 1024],
    ['p5en', 64],
    ['gb200', 64],
  ] as const)('is never slower at its worst than another at its worst: %s, EP%i', (machine, ep) => {
    const q = question(machine, ep);
    const answers = plan(q, candidates(q.known, q.place));
    for (const tokens of q.tokens) {
      const all = answers.filter((one) => one.tokens === tokens && one.fits);
      const [first] = ranked(all);
      for (const other of all) expect(other.high).toBeGreaterThanOrEqual(first!.high);
    }
  });

  it('is said to be a prediction, beside the first that was measured', () => {
    const q = question('gb200', 64, { tokens: [1], dtype: 'bf16' });
    const asked = candidates(q.known, q.place);
    const answers = plan(q, asked);
    const [winner] = winners(answers);
    expect(winner).toMatchObject({ candidate: 'one-sided', predicted: true });
    expect(winner!.instead).toMatchObject({ candidate: 'trtllm/one_sided' });
    expect(planText(q, asked, answers)).toMatch(
      /one-sided \(not certain: ranges overlap; not measured here; the fastest that was is trtllm\/one_sided \[1\], \d/,
    );
  });

  it('fits into the GPU', () => {
    const q = question('h200-cx7', 1024, { tokens: [4096] });
    const asked = candidates(q.known, q.place);
    const answers = plan(q, asked);
    const hybrid = answers.find(({ candidate }) => candidate === 'hybrid')!;
    expect(hybrid.memory).toBeGreaterThan(141e9);
    expect(hybrid.fits).toBe(false);
    expect(ranked(answers)).not.toContain(hybrid);
    expect(planText(q, asked, answers)).toContain('! does not fit into the 141 GB of a GPU');
  });
});

describe('Heddle’s families beyond a node', () => {
  const hybridOn = (machine: object, tokens: number) => {
    const known = parseMachine(
      'mine.json',
      JSON.stringify({ perNode: 8, nvlink: 450, memory: 141, ...machine }),
    );
    const q = question('p5en', 16, { known, place: placeOn(known, 16), tokens: [tokens] });
    return plan(q, named(candidates(known, q.place), 'hybrid'))[0]!;
  };

  it('are as slow as the NIC is', () => {
    const [slow, fast] = [12.5, 50].map((nic) => hybridOn({ nic }, 4096));
    expect(slow!.time / fast!.time).toBeGreaterThan(3);
  });

  it('wait for the network’s beginning too: one token takes no less than the network that they share', () => {
    const q = question('h200-cx7', 16, { tokens: [1] });
    const [hybrid] = plan(q, named(candidates(q.known, q.place), 'hybrid'));
    for (const { phase, time } of hybrid!.phases) {
      const { lead, latency, doubling } = bulkNetwork(q.known).fits[phase]!.parameters;
      expect(time).toBeGreaterThan(lead + latency + doubling);
    }
  });
});

it('DeepEP’s low latency takes two rounds’ places to send from and to receive in', () => {
  const q = question('h200-cx7', 8, { tokens: [128] });
  const [found] = plan(q, named(candidates(q.known, q.place), 'deepep_v1/ll'));
  expect(found!.memory! / 1e9).toBeCloseTo(1.88, 2);
});

it('is bound by the floor where halving that helps most', () => {
  for (const tokens of [1, 4096]) {
    const q = question('gb200', 64, { tokens: [tokens] });
    const asked = named(candidates(q.known, q.place), 'one-sided');
    const [first] = advice(q, asked[0]!, tokens);
    const bounds = plan(q, asked)[0]!.phases.map(({ bound }) => bound);
    expect(bounds).toEqual(tokens === 1 ? ['floor', 'floor'] : ['NVLink', 'NVLink']);
    expect(first!.what).toMatch(tokens === 1 ? /^half the floor/ : /^twice the NVLink/);
  }
});

describe('machines', () => {
  it('are those that people rent, and any that a small file describes', () => {
    for (const name of ['b300', 'gb300', 'h20', 'h800', 'mi355x']) {
      const known = knownMachine(name);
      const place = placeOn(known, 2 * known.machine.perNode);
      expect(candidates(known, place).map((one) => one.name)).toEqual(
        expect.arrayContaining(['portable', 'hybrid']),
      );
    }
    expect(machineOf({ hw: 'H200 p5en+EFA', fabric: 'efa' })!.name).toBe('h200-efa');
    expect(knownMachine('H200 p5en+EFA').machine.name).toBe('h200-efa');
    expect(placeOn(knownMachine('gb200'), 144)).toEqual({ ranks: 144, perNode: 72 });
  });

  it('a description says what it lacks', () => {
    const text = JSON.stringify({ perNode: 8, nvlink: 450, nic: 25 });
    expect(() => parseMachine('mine.json', text)).toThrow(/mine\.json\.memory is undefined.*above 0/);
    const odd = JSON.stringify({ perNode: 8, nvlink: 450, nic: 25, memory: 80, fabric: 'tin' });
    expect(() => parseMachine('mine.json', odd)).toThrow(/fabric is "tin"; it must be one of 'cx7', 'efa'/);
  });
});

describe('one node', () => {
  it('is one-sided’s, and its memory is the window’s', () => {
    const q = question('h200-nvlink', 8, { dtype: 'bf16', tokens: [128] });
    const [only] = plan(q, named(candidates(q.known, q.place), 'one-sided'));
    const launch = { blocks: 8, threads: 256, parts: 1, inFlight: 1, teams: 1 };
    const window = oneSidedWindow({
      ranks: 8,
      experts: 256,
      topK: 8,
      maxTokens: 128,
      payloads: [{ name: 'x', rowBytes: 14_336 }],
      output: { dtype: 'bf16', hidden: 7168 },
      weights: true,
      counts: false,
      weigh: null,
      split: false,
      dispatch: { ...launch, way: 'store' },
      combine: { ...launch, way: 'push', ahead: 0 },
    });
    expect(only!.memory! / window.bytes).toBeCloseTo(1, 2);
  });

  it('replicas share slots', () => {
    const memory = (replicas: number) => {
      const q = question('h200-nvlink', 8, { replicas, tokens: [128] });
      return plan(q, named(candidates(q.known, q.place), 'one-sided'))[0]!.memory!;
    };
    expect(memory(4)).toBeCloseTo(memory(1) / 4, 6);
  });
});

describe('what does not fit is refused', () => {
  const p5en = knownMachine('p5en');
  it.each([
    [() => knownMachine('cray-1'), /machine is "cray-1"; it must be one of h200-nvlink.*p5en.*calibrate/],
    [() => placeOn(p5en, 60, 8), /ep is 60; it must be a multiple of nodes, 8/],
    [() => placeOn(p5en, 64, 4), /nodes is 4; it must be at least 8: a node of h200-efa has 8 GPUs/],
    [() => placeOn(knownMachine('h200-nvlink'), 16), /nodes is 2; it must be 1: h200-nvlink has no network/],
    [
      () => named(candidates(p5en, placeOn(p5en, 16)), 'magic'),
      /family is "magic".*hybrid, portable, pplx-garden/,
    ],
    [
      () => hits({ ...layer, experts: 384 }, { ranks: 512, perNode: 8 }, { kind: 'uniform' }),
      /ep is 512.*at most 384/,
    ],
    [() => plan(question('p5en', 16, { replicas: 3 }), []), /replicas is 3; it must be a divisor of ep, 16/],
    [() => tokensFrom('0'), /tokens is "0"/],
    [() => tokensFrom('9..3'), /a range \(1\.\.4096\)/],
    [() => lawFrom('loads.json', '"many"'), /loads\.json is "many".*counts.*routes/],
    [
      () => hits(layer, { ranks: 8, perNode: 8 }, lawFrom('l', '[1,2,3]')),
      /as many as there are experts, 256/,
    ],
    [
      () => hits(layer, { ranks: 8, perNode: 8 }, lawFrom('l', '[[1,999,2,3,4,5,6,7]]')),
      /loads\[0\]\[1\] is 999/,
    ],
    [() => hits(layer, { ranks: 8, perNode: 8 }, lawFrom('l', '[[1,2]]')), /loads\[0\] is .* 8 experts/],
    [
      () => parseMachine('m.json', '{"format":"heddle-machine/1"}'),
      /what heddle plan calibrate wrote, or perNode/,
    ],
  ])('%s', (wrong, message) => {
    expect(wrong).toThrow(message);
  });
});

it('tokens come as a list or a range', () => {
  expect(tokensFrom('1..12')).toEqual([1, 2, 4, 8, 12]);
  expect(tokensFrom('128')).toEqual([128]);
  expect(tokensFrom('3,5')).toEqual([3, 5]);
});

it('measured routes are counted as they are', () => {
  const shape = { hidden: 8, experts: 4, topK: 2 };
  const found = hits(shape, { ranks: 4, perNode: 2 }, lawFrom('l', '[[0,1],[0,3]]'));
  expect([...found.ranks]).toEqual([1, 0.5, 0, 0.5]);
  expect([...found.nodes]).toEqual([1, 0.5]);
});

describe('a machine of one’s own', () => {
  const cells = cellsOfBench('bench.json', read('2026-11-21-4xh200-bench-deepseek_v3-bf16.json'));
  const mine = machineFrom(cells, {
    name: 'lab',
    nic: 1,
    network: networkOfBench('fabric.json', read('fabric-tcp.json')),
  });

  it('comes back from its file, and predicts what it was fitted to', () => {
    const known = parseMachine('lab.json', JSON.stringify(mine));
    const q = question('h200-nvlink', 4, { known, place: placeOn(known, 4), dtype: 'bf16', tokens: [128] });
    const [only] = plan(q, candidates(known, q.place));
    expect(
      only!.phases[0]!.time / cells.find((c) => c.tokens === 128 && c.phase === 'dispatch')!.us!,
    ).toBeCloseTo(1, 1);
  });

  it('knows from plain stores what large rounds cost, where only small ones were measured', () => {
    const stores = ceilingOfBench('bench.json', read('2026-11-21-4xh200-bench-deepseek_v3-bf16.json'));
    const small = cells.filter(({ tokens }) => tokens <= 16);
    const large = cells.find(({ tokens, phase }) => tokens === 4096 && phase === 'dispatch')!.us!;
    const [off, offWithout] = [{ stores }, {}].map((facts) => {
      const known = knownFrom(machineFrom(small, { name: 'lab', ...facts }));
      const place = placeOn(known, 4);
      const q = question('h200-nvlink', 4, { known, place, dtype: 'bf16', tokens: [4096] });
      const [only] = plan(q, candidates(known, place));
      const { time, low, high } = only!.phases[0]!;
      return { error: Math.abs(time / large - 1), width: high / low };
    });
    expect(off!.error).toBeLessThan(0.08);
    expect(off!.width).toBeLessThan(offWithout!.width);
  });

  it('is planned with as others measured it, where its own cells are of whole rounds only', () => {
    const whole = cells.map((cell): Cell => ({ ...cell, phase: 'both' }));
    const known = knownFrom(machineFrom(whole, { name: 'lab' }));
    const [first] = candidates(known, placeOn(known, 4));
    expect(first!.basis('dispatch').fit.seen.length).toBeGreaterThan(0);
  });

  it('has the network that was measured', () => {
    const known = parseMachine('lab.json', JSON.stringify(mine));
    const q = question('p5en', 16, { known, place: placeOn(known, 16), tokens: [4096] });
    const [hybrid] = plan(q, named(candidates(known, q.place), 'hybrid'));
    const { bytes } = hybrid!.phases[0]!.traffic.network;
    // tcp;ofi_rxm moved 6 GB/s.
    expect(hybrid!.phases[0]!.parts.network.bytes).toBeCloseTo(bytes / 6040, -3);
    expect(hybrid!.beyond).toContain('network as heddle fabric bench on tcp;ofi_rxm');
  });

  it('answers to its NIC', () => {
    const [slow, fast] = [12.5, 50].map((nic) => {
      const known = knownFrom(machineFrom(cells, { name: 'lab', nic }));
      const q = question('p5en', 16, { known, place: placeOn(known, 16), tokens: [4096] });
      return plan(q, named(candidates(known, q.place), 'hybrid'))[0]!.time;
    });
    expect(slow! / fast!).toBeGreaterThan(3);
  });

  it('has the network that any of its cells is of, and the NICs that its file says', () => {
    const inside: Cell = { ...cells[0]!, hw: 'H200' };
    const beyond: Cell = { ...inside, hw: 'H200 p5en', fabric: 'efa', ep: 16 };
    for (const all of [
      [inside, beyond],
      [beyond, inside],
    ]) {
      const lab = machineFrom(all, { name: 'lab' });
      expect(lab).toMatchObject({ nvlink: 450, nic: 50, memory: 141, fabric: 'efa' });
      expect(bulkNetwork(knownFrom(lab)).fabric).toBe('efa');
      expect(placeOn(knownFrom(lab), 16)).toEqual({ ranks: 16, perNode: 8 });
    }
    const known = parseMachine('lab.json', JSON.stringify({ ...mine, network: undefined, fabric: 'efa' }));
    expect(bulkNetwork(known).fabric).toBe('efa');
  });

  it('needs the figures of its network', () => {
    const some = JSON.stringify({ figures: [{ provider: 'tcp', what: 'other', heddle: 1 }] });
    expect(() => networkOfBench('fabric.json', some)).toThrow(/latency of an 8-byte write/);
  });
});
