/** What a layer takes of a rank's memory: the same before it exists, while it exists, and where it is refused. */
import { describe, expect, it } from 'vitest';
import { ArgumentError } from '../../src/base/errors.js';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  fp8,
  type MemoryOptions,
  mxfp8,
  row,
} from '../../src/moe/index.js';
import { type LocalWorldOptions, World } from '../../src/net/world/index.js';

const options: ExpertParallelOptions = {
  experts: 12,
  topK: 3,
  maxTokens: 5,
  payloads: { x: row('bf16', 40), scales: row('u8', 3) },
  output: row('bf16', 40),
};
const ranks = 3;
const slots = ranks * options.maxTokens;
const variants: Record<string, Partial<ExpertParallelOptions>> = {
  plain: {},
  'weights in combine': { weighting: 'plan' },
  'e4m3 back': { combineFormat: 'e4m3', output: row('bf16', 48) },
  'e4m3 back, weights in combine': { combineFormat: 'e4m3', weighting: 'plan', output: row('bf16', 48) },
  'rows that are pulled': { output: row('bf16', 7) },
  'no weights, but counts': { weights: false, counts: true },
  'split phases': { split: true },
  'rows that dispatch rounds, two in flight': { payloads: { x: fp8('bf16', 128) }, rounds: 2 },
};

describe('ExpertParallel.memory', () => {
  /** Bytes of the GPU and of the host that each rank takes for a layer, and its memory as the layer says it. */
  const taken = (on: LocalWorldOptions, of: ExpertParallelOptions) =>
    World.local(on, async (world) => {
      const { device } = world;
      const sum = { bytes: 0, hostBytes: 0 };
      const { createWindow } = world;
      const { allocate, allocateWire } = device;
      world.createWindow = (bytes, ...rest) => {
        sum.bytes += bytes;
        return createWindow.call(world, bytes, ...rest);
      };
      device.allocate = (bytes, purpose) => {
        sum.bytes += bytes;
        return allocate.call(device, bytes, purpose);
      };
      device.allocateWire = (shape, ...rest) => {
        const ofHost = shape.side === 'host' ? shape.bytes : shape.front;
        sum.hostBytes += ofHost;
        sum.bytes += shape.bytes - ofHost;
        return allocateWire.call(device, shape, ...rest);
      };
      const ep = await ExpertParallel.create(world, of);
      await ep.dispose();
      return { sum, said: ep.memory };
    });

  it.each(Object.entries(variants))('says what create takes: %s', async (_, variant) => {
    const of = { ...options, ...variant };
    const said = ExpertParallel.memory({ ...of, ranks, device: 'sim' });
    const sum = { bytes: said.bytes, hostBytes: 0 };
    expect(await taken({ ranks, device: 'sim' }, of)).toEqual(new Array(ranks).fill({ sum, said }));
  });

  it.each([
    { family: 'hybrid', wires: 'host' },
    { family: 'hybrid', wires: 'gpu' },
  ] as const)(
    'says what create takes of the GPU and of the host between nodes: $family, messages in memory of the $wires',
    async ({ family, wires }) => {
      const given = { ...options, family };
      const before = ExpertParallel.memory({ ...given, ranks: 4, nodes: 2, device: 'sim' });
      const all = await taken({ ranks: 4, nodes: 2, device: 'sim', fabric: { wires } }, given);
      const { bytes, hostBytes, parts } = all[0]!.said;
      expect(all.map(({ sum }) => sum)).toEqual(new Array(4).fill({ bytes, hostBytes }));
      expect(hostBytes).toBeGreaterThan(0);
      expect(bytes + hostBytes).toBe(before.bytes + before.hostBytes);
      if (wires === 'host') expect(all[0]!.said).toEqual(before);
      else expect(hostBytes).toBeLessThan(before.hostBytes / 2);
      expect(parts.filter(({ host }) => host).reduce((sum, part) => sum + part.bytes, 0)).toBe(hostBytes);
      expect(ExpertParallel.memory({ ...options, ranks: 4, device: 'sim' }).hostBytes).toBe(0);
    },
  );

  const bytesOf = (change: Partial<MemoryOptions>, name: string | null): number | undefined =>
    ExpertParallel.memory({ ...options, ranks, ...change }).parts.find(({ section }) => section === name)
      ?.bytes;
  const lines = (bytes: number): number => Math.ceil(bytes / 128) * 128;

  it('names what it is for, sections as the window has them', () => {
    expect(bytesOf({}, 'payloads_0')).toBe(lines(slots * 80));
    expect(bytesOf({}, 'payloads_1')).toBe(lines(slots * 3));
    expect(bytesOf({}, 'output')).toBe(lines(slots * 80));
    expect(bytesOf({}, 'returned')).toBe(lines(slots * 80));
    expect(bytesOf({}, 'experts')).toBe(lines(slots * 3 * 4));
    expect(bytesOf({ weights: false }, 'weights')).toBeUndefined();
    expect(bytesOf({ output: row('bf16', 7) }, 'returned')).toBeUndefined();
    expect(bytesOf({}, null)).toBeUndefined();
  });

  it.each([
    ['one-sided', {}, 0],
    ['portable', {}, 256 * (4096 + 128)],
    ['hybrid', { nodes: 2 }, 0],
  ] as const)(
    'rows that dispatch rounds wait in a window of %s %j: %i bytes more than rounded ones that are brought',
    (family, on, more) => {
      const of = { ...options, ...on, family, ranks: 4, maxTokens: 256 };
      const bytes = (payloads: MemoryOptions['payloads']) => {
        const { bytes, hostBytes } = ExpertParallel.memory({ ...of, payloads });
        return bytes + hostBytes;
      };
      const brought = bytes({ x: row('e4m3', 4096), xScales: row('f32', 32) });
      expect(bytes({ x: fp8('bf16', 4096) })).toBe(brought + more);
      expect(bytes({ x: mxfp8('bf16', 4096) })).toBe(brought + more);
    },
  );

  it.each([1, 3])('a refusal names the most tokens that fit: %i replicas', async (replicas) => {
    const of = { ...options, replicas, maxTokens: 9000 };
    const memoryBytes = 1_000_000;
    const errors = await World.local({ ranks, device: 'sim' }, (world) => {
      Object.defineProperty(world.device, 'memoryBytes', { value: memoryBytes });
      return ExpertParallel.create(world, of).catch((error: unknown) => error);
    });
    const [, named] = /at most (\d+) on the/.exec(String(errors[0]))!;
    const taken = (maxTokens: number) =>
      ExpertParallel.memory({ ...of, maxTokens, ranks, device: 'sim' }).bytes;
    expect(taken(Number(named))).toBeLessThanOrEqual(memoryBytes);
    expect(taken(Number(named) + replicas)).toBeGreaterThan(memoryBytes);
  });

  it('parts add up', () => {
    const { bytes, parts } = ExpertParallel.memory({ ...options, ranks, weighting: 'plan' });
    expect(parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(bytes);
    expect(parts.every((part) => part.bytes > 0)).toBe(true);
  });

  it('is what create refuses by', async () => {
    const large = { ...options, maxTokens: 2 ** 20, payloads: { x: row('u8', 2 ** 16 - 16) } };
    const { bytes } = ExpertParallel.memory({ ...large, ranks: 1, device: 'sim' });
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const refused = ExpertParallel.create(world, large);
      await expect(refused).rejects.toThrow(`would take ${(bytes / 2 ** 30).toFixed(1)} GiB of`);
    });
  });

  it.each([
    ['ranks', { ranks: 0 }],
    ['ranks', { ranks: 73 }],
    ['nodes', { nodes: 2 }],
    ['device', { device: 'tpu' }],
    ['split', { split: 1 }],
    ['maxTokens', { maxTokens: 0 }],
    ['maxTokens', { ranks: 1, maxTokens: 2 ** 20, payloads: { x: row('u8', 2 ** 16) } }],
    ['family', { family: 'other' }],
    ['waitMs', { waitMs: 0 }],
    ['rounds', { rounds: 3 }],
    ['options.maxtokens', { maxtokens: 4 }],
  ])('refuses %s', (argument, wrong) => {
    const call = () => ExpertParallel.memory({ ...options, ranks, ...wrong } as never);
    expect(call).toThrow(ArgumentError);
    expect(call).toThrow(new RegExp(`^${argument} is `));
  });
});
