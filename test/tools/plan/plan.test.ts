import { describe, expect, it } from 'vitest';
import { listOfTokens } from '../../../src/cli/options.js';
import { planText } from '../../../src/cli/print-plan.js';
import { oneSidedWindow } from '../../../src/moe/families/one-sided/window.js';
import {
  candidates,
  fastest,
  hits,
  machineNamed,
  measured,
  named,
  placeOn,
  plan,
  type Question,
} from '../../../src/tools/plan/index.js';
import { deepSeek } from '../../moe/families/target.js';

const layer = { hidden: 7168, experts: 256, topK: 8 };

function question(name: string, ranks: number, change: Partial<Question> = {}): Question {
  const machine = machineNamed(name);
  return {
    model: 'deepseek_v3',
    layer,
    machine,
    place: placeOn(machine, ranks),
    tokens: [1, 128, 4096],
    law: { kind: 'uniform' },
    dtype: 'fp8',
    combineDtype: 'bf16',
    replicas: 1,
    ...change,
  };
}

const candidatesOf = ({ machine, place, replicas }: Question) => candidates(machine, place, replicas);
const answersOf = (q: Question, family?: string) => plan(q, named(candidatesOf(q), family));

describe('EP64 on 8 × p5en', () => {
  const answers = answersOf(question('p5en', 64));

  it('says of what was never measured that it was not', () => {
    const found = answers.filter(({ candidate }) => candidate === 'hybrid');
    expect(found).toHaveLength(3);
    for (const { beyond } of found)
      expect(beyond[0]).toBe('a prediction, no measurement of it enters the model');
  });

  it('ranges hold the middle, and both phases add up', () => {
    for (const { time, low, high, phases } of answers) {
      expect(low).toBeLessThan(time);
      expect(high).toBeGreaterThan(time);
      expect(phases.reduce((sum, phase) => sum + phase.time, 0)).toBeCloseTo(time, 9);
    }
  });

  it('predicts libraries only where they were measured as they run there, inside a node or beyond', () => {
    expect(candidatesOf(question('h200-cx7', 8)).map(({ name }) => name)).not.toContain('pplx-kernels/ibgda');
    expect(candidatesOf(question('h200-cx7', 16)).map(({ name }) => name)).toContain('pplx-kernels/ibgda');
    expect(candidatesOf(question('gb200', 144)).map(({ name }) => name)).toEqual(['hybrid']);
  });
});

describe('the fastest', () => {
  const of = (candidate: string, low: number, high: number, fits = true) => ({
    ...answersOf(question('h200-nvlink', 4, { tokens: [1] }), 'one-sided')[0]!,
    ...{ candidate, low, high, fits },
  });
  const among = (...answers: Parameters<typeof fastest>[0]) =>
    fastest(answers).map(({ among }) => among.map(({ candidate }) => candidate));

  it('is one whose range ends before all others begin', () => {
    expect(among(of('a', 1, 2), of('b', 2.1, 3), of('c', 4, 5))).toEqual([['a']]);
  });

  it('is not named where ranges overlap', () => {
    expect(among(of('a', 1, 3), of('b', 2, 4), of('c', 3.1, 5))).toEqual([['a', 'b']]);
    const q = question('p5en', 64, { tokens: [128] });
    expect(planText(q, answersOf(q))).toMatch(
      /Fastest:\n {2}from 128 tokens {2}not certain, ranges overlap: hybrid, pplx-garden/,
    );
  });

  it('fits into the GPU', () => {
    expect(among(of('large', 1, 2, false), of('slow', 5, 6))).toEqual([['slow']]);
    const q = question('h200-cx7', 1024, { tokens: [4096] });
    const answers = answersOf(q);
    const hybrid = answers.find(({ candidate }) => candidate === 'hybrid')!;
    expect(hybrid.memory).toBeGreaterThan(141e9);
    expect(hybrid.fits).toBe(false);
    expect(planText(q, answers)).toContain('! does not fit into the 141 GB of a GPU');
  });

  it('is said once for all numbers of tokens that it holds for', () => {
    const [first] = answersOf(question('h200-nvlink', 8, { tokens: [1] }), 'one-sided');
    const at = (tokens: number, candidate: string) => ({ ...first!, tokens, candidate });
    expect(fastest([at(1, 'a'), at(8, 'a'), at(2, 'a'), at(16, 'b')]).map(({ from }) => from)).toEqual([
      1, 16,
    ]);
  });
});

describe('Heddle’s families beyond a node', () => {
  it('are as slow as the NIC is', () => {
    const [cx7, cx8] = ['b200-cx7', 'b300-cx8'].map((machine) => {
      const q = question(machine, 16, { tokens: [4096] });
      return answersOf(q, 'hybrid')[0]!.time;
    });
    expect(cx7! / cx8!).toBeGreaterThan(1.6);
  });

  it('wait for the network’s beginning too: one token takes no less than the network that they share', () => {
    const [hybrid] = answersOf(question('h200-cx7', 16, { tokens: [1] }), 'hybrid');
    const network = measured.find(({ lib, machine }) => lib === 'pplx-garden' && machine === 'h200-cx7')!;
    for (const { phase, time } of hybrid!.phases) {
      const { lead, latency, doubling } = network[phase];
      expect(time).toBeGreaterThan(lead + latency + doubling);
    }
  });
});

describe('ranges', () => {
  const width = (q: Question, family: string) => {
    const [answer] = answersOf(q, family);
    return answer!.high / answer!.low;
  };

  it('grow beyond the ranks and the tokens that were measured, and say so', () => {
    const q = (ranks: number, tokens = 128) => question('h200-cx7', ranks, { tokens: [tokens] });
    expect(width(q(128), 'pplx-garden/hybrid')).toBeGreaterThan(1.1 * width(q(64), 'pplx-garden/hybrid'));
    expect(width(q(64, 1), 'pplx-garden/hybrid')).toBeGreaterThan(1.1 * width(q(64), 'pplx-garden/hybrid'));
    expect(answersOf(q(128, 1), 'pplx-garden/hybrid')[0]!.beyond).toEqual([
      'beyond the EP measured, 8 to 64',
      'beyond the tokens measured, 128 to 4096',
    ]);
  });

  it('are narrower where Heddle was measured than on another GPU', () => {
    const q = (machine: string) => question(machine, 4, { tokens: [128] });
    expect(width(q('h200-nvlink'), 'one-sided')).toBeLessThan(0.8 * width(q('h100-nvlink'), 'one-sided'));
  });

  it('of TensorRT-LLM say that it was measured with a perfect router, where another one is asked about', () => {
    const beyond = (kind: 'uniform' | 'perfect') =>
      answersOf(question('gb200', 8, { tokens: [128], law: { kind } }), 'trtllm/one_sided')[0]!.beyond;
    expect(beyond('uniform')).toEqual(['measured with a perfect router only']);
    expect(beyond('perfect')).toEqual([]);
  });
});

it('DeepEP’s low latency takes two rounds’ places to send from and to receive in', () => {
  const [found] = answersOf(question('h200-cx7', 8, { tokens: [128] }), 'deepep_v1/ll');
  expect(found!.memory! / 1e9).toBeCloseTo(1.88, 2);
});

it('a round is bound by its floor where it is small, by NVLink where it is large', () => {
  const [small, , large] = answersOf(question('gb200', 64), 'one-sided');
  expect(small!.phases.map(({ bound }) => bound)).toEqual(['floor', 'floor']);
  expect(large!.phases.map(({ bound }) => bound)).toEqual(['NVLink', 'NVLink']);
});

it('the machines are those that people rent', () => {
  for (const name of ['b300', 'gb300', 'h20', 'h800']) {
    const machine = machineNamed(name);
    const place = placeOn(machine, 2 * machine.perNode);
    expect(candidates(machine, place).map((one) => one.name)).toContain('hybrid');
  }
  expect(placeOn(machineNamed('gb200'), 144)).toEqual({ ranks: 144, perNode: 72 });
});

describe('one node', () => {
  it('is one-sided’s, and its memory is the window’s', () => {
    const q = question('h200-nvlink', 8, { dtype: 'bf16', tokens: [128] });
    const [only] = answersOf(q, 'one-sided');
    const launch = { blocks: 8, threads: 256, parts: 1, inFlight: 1, teams: 1 };
    const window = oneSidedWindow({
      ...deepSeek,
      payloads: [{ name: 'x', rowBytes: 14_336 }],
      weigh: null,
      split: false,
      ...{ room: 0, copied: false },
      dispatch: { ...launch },
      combine: { ...launch, way: 'push', ahead: 0 },
    });
    expect(only!.memory! / window.bytes).toBeCloseTo(1, 2);
  });

  it('replicas share slots', () => {
    const memory = (replicas: number) => {
      const q = question('h200-nvlink', 8, { replicas, tokens: [128] });
      return answersOf(q, 'one-sided')[0]!.memory!;
    };
    expect(memory(4)).toBeCloseTo(memory(1) / 4, 6);
  });
});

describe('what does not fit is refused', () => {
  const p5en = machineNamed('p5en');
  it.each([
    [() => machineNamed('mi300x-cx7'), /machine is "mi300x-cx7"; it must be one of h200-nvlink.*p5en/],
    [() => placeOn(p5en, 60, 8), /ep is 60; it must be a multiple of nodes, 8/],
    [() => placeOn(p5en, 64, 4), /nodes is 4; it must be at least 8: a node of h200-efa has 8 GPUs/],
    [() => placeOn(machineNamed('h200-nvlink'), 16), /nodes is 2; it must be 1: h200-nvlink has no network/],
    [() => named(candidates(p5en, placeOn(p5en, 16)), 'magic'), /family is "magic".*hybrid, pplx-garden/],
    [
      () => hits({ ...layer, experts: 384 }, { ranks: 512, perNode: 8 }, { kind: 'uniform' }),
      /ep is 512.*at most 384/,
    ],
    [() => plan(question('p5en', 16, { replicas: 3 }), []), /replicas is 3; it must be a divisor of ep, 16/],
    [
      () => plan(question('p5en', 16, { replicas: 2, tokens: [8, 3] }), []),
      /tokens is 3; it must be a multiple of replicas, 2/,
    ],
    [() => listOfTokens('0'), /integers from 1 to/],
    [() => listOfTokens('9..3'), /like 1,8,128 or 1\.\.128/],
    [() => listOfTokens('1..2..3'), /integers from 1 to/],
  ])('%s', (wrong, message) => {
    expect(wrong).toThrow(message);
  });
});

it('tokens come as a list or a range', () => {
  expect(listOfTokens('1..12')).toEqual([1, 2, 4, 8, 12]);
  expect(listOfTokens('128')).toEqual([128]);
  expect(listOfTokens('3,5')).toEqual([3, 5]);
});
