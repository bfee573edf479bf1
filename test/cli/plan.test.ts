import { describe, expect, it } from 'vitest';
import { heddle } from '../../src/cli/program.js';
import { MoeLayer } from '../../src/moe/index.js';
import { err, forget, hear, out } from './said.js';

hear();

const p5en = ['plan', '--ep', '64', '--nodes', '8', '--machine', 'p5en', '--tokens', '128'];

describe('heddle plan', () => {
  it('says what EP64 on 8 × p5en costs', async () => {
    expect(await heddle(p5en)).toBe(0);
    expect(out).toMatch(/EP64 on 8 nodes of 8: H200 with EFA/);
    expect(out).toMatch(/^128 +hybrid \* +\d/m);
    expect(out).toMatch(/^\* hybrid: a prediction, no measurement/m);
  });

  it('prints JSON', async () => {
    expect(await heddle([...p5en, '--json', '--nodes-per-token', '4'])).toBe(0);
    const { answers, fastest, question, version, units } = JSON.parse(out);
    expect({ version, units }).toMatchObject({
      version: expect.stringMatching(/^\d/),
      units: { time: 'µs' },
    });
    expect(question).toMatchObject({
      machine: 'h200-efa',
      ranks: 64,
      dtype: 'fp8',
      combineDtype: 'bf16',
      layer: { hidden: 7168 },
      law: { kind: 'uniform', nodesAtMost: 4 },
    });
    expect(answers[0].phases[0]).toHaveProperty('traffic.busiest.network.bytes');
    expect(fastest[0].among[0]).toHaveProperty('candidate');
  });

  it('says what the layers of a model take over one set of buffers, and how many tokens fit', async () => {
    const args = ['plan', '--ep', '8', '--machine', 'h200-cx7', '--tokens', '512,4096', '--layers', '58'];
    expect(await heddle([...args, '--json'])).toBe(0);
    const { layers, rooms } = JSON.parse(out).model;
    expect(layers).toBe(58);
    for (const { room, most, memory } of rooms) {
      const capacity = room === 'any routes' ? {} : { capacity: 2 * 4096 * 8 };
      const of = { model: 'deepseek_v3', ranks: 8, rows: 'fp8', weights: 'fp8', layers: 58 } as const;
      const { bytes } = MoeLayer.memory({ ...of, ...capacity, maxTokens: 4096 });
      const [, { tokens, weights, buffers }] = memory;
      expect([tokens, weights + buffers]).toEqual([4096, bytes]);
      const all = (maxTokens: number): number =>
        MoeLayer.memory({ ...of, ...(capacity.capacity && { capacity: 16 * maxTokens }), maxTokens }).bytes;
      expect(all(most)).toBeLessThanOrEqual(141e9);
      expect(all(most + 1)).toBeGreaterThan(141e9);
    }
    forget();
    // Between nodes no round has so many tokens.
    expect(await heddle(['plan', '--ep', '64', '--tokens', '512,4096', '--layers', '58'])).toBe(0);
    expect(out).toMatch(/^4096 +– +– +–$/m);
    expect(out).toMatch(/Most tokens a rank that fit into the 141 GB of a GPU: \d+ with room for any routes/);
    forget();
    expect(await heddle([...args, '--dtype', 'mxfp8'])).toBe(2);
    expect(err).toMatch(/--dtype is "mxfp8"; it must be 'bf16' or 'fp8' with --layers/);
  });

  it('carries nothing by rails where ranks of several nodes hold the same tokens', async () => {
    const args = ['plan', '--ep', '16', '--tokens', '128', '--replicas'];
    expect(await heddle([...args, '8'])).toBe(0);
    expect(out).toMatch(/^128 +hybrid \*/m);
    expect(out).toMatch(/^128 +deepep_v1\/normal/m);
    forget();
    expect(await heddle([...args, '16'])).toBe(0);
    expect(out).not.toMatch(/hybrid \*|deepep_v1\/normal/);
    expect(await heddle([...args, '16', '--family', 'hybrid'])).toBe(2);
    expect(err).toMatch(/--family is "hybrid"; it must be one that is known/);
  });

  it.each([
    [['--model', 'gpt5'], /Allowed choices are deepseek_v3/],
    [['--machine', 'abacus'], /--machine is "abacus"; it must be one of h200-nvlink/],
    [['serve', '--tokens-per-second', '5'], /unknown option '--tokens-per-second'/],
    [['--replicas', '2', '--tokens', '3'], /--tokens is 3; it must be a multiple of replicas, 2/],
    [['--family', 'portabel'], /--family is "portabel".*hybrid/],
    [['--ep', '63', '--nodes', '8'], /--ep is 63; it must be a multiple of nodes, 8/],
    [['--tokens', '0'], /integers from 1 to/],
    [['--nodes-per-token', '2', '--perfect-router'], /cannot be used with/],
    [['--nodes-per-token', '99'], /--nodes-per-token is 99; it must be an integer from 1 to 8/],
    [['--dtype', 'int3'], /Allowed choices are .*nvfp4/],
  ])('refuses %j and says why', async (args, message) => {
    expect(await heddle(['plan', ...args])).toBe(2);
    expect(err).toMatch(message);
  });
});
