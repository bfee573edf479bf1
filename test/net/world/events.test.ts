/** What a world tells of itself: to listeners, and to a file. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { FileError, HeddleError, RankMaskedError } from '../../../src/base/errors.js';
import { heddle } from '../../../src/cli/program.js';
import { ExpertParallel, emptyTensor, MovingWeights } from '../../../src/moe/index.js';
import type { Placement } from '../../../src/moe/layer/index.js';
import { World, type WorldEvent } from '../../../src/net/world/index.js';
import { layerOf, shapeOfRounds } from '../../../src/verify/testing/index.js';
import { needing } from '../../needs.js';
import { temporaryFolder } from '../../temporary.js';
import { transpiled } from '../../tree.js';

let folder = '';
beforeEach(() => {
  folder = temporaryFolder(onTestFinished);
});
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  process.exitCode = undefined;
});

const shape = shapeOfRounds({ ranks: 3, experts: 3, topK: 1, maxTokens: 2, hidden: 8, dtype: 'bf16' });

/** Each record of a file, without the time and the process. */
function recordsOf(file: string) {
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => {
      const { timeUnixNano, attributes, ...record } = JSON.parse(line);
      expect(timeUnixNano).toMatch(/^\d{13}000000$/);
      const { 'process.pid': pid, ...rest } = attributes;
      expect(pid).toBeGreaterThan(0);
      return { ...record, ...rest };
    });
}

test('ranks that are left out, and come back, are told to listeners and to the file', async () => {
  const file = join(folder, 'events.jsonl');
  vi.stubEnv('HEDDLE_EVENTS', file);
  const heard: WorldEvent[][] = [[], [], []];
  await World.local({ ranks: 3, device: 'sim' }, async (world) => {
    const silent = world.onEvent(() => expect.unreachable());
    silent();
    world.onEvent((event) => heard[world.rank]!.push(event));
    await ExpertParallel.create(world, layerOf(shape, { onLoss: 'mask' }));
    if (world.rank === 1) {
      await expect(world.mask([1])).rejects.toThrow(RankMaskedError);
      return world.rejoin();
    }
    await world.mask([1]);
    while ((await world.admit()).length === 0) await new Promise(setImmediate);
  });
  const brief = heard.map((events) => events.map(({ time, ...event }) => event));
  const of = (rank: number) => [
    {
      rank,
      ranks: 3,
      kind: 'lost',
      lost: [1],
      why: expect.stringMatching(/^rank \d says: the program leaves it out$/),
    },
    { rank, ranks: 3, kind: 'masked', masked: [1] },
    { rank, ranks: 3, kind: 'joined', joined: [1] },
  ];
  expect(brief[0]).toEqual(of(0));
  expect(brief[2]).toEqual(of(2));
  expect(brief[1]!.slice(-2)).toEqual([
    { rank: 1, ranks: 3, kind: 'masked', masked: [1] },
    { rank: 1, ranks: 3, kind: 'joined', joined: [1] },
  ]);
  for (const [event] of heard) expect(Date.now() - event!.time.getTime()).toBeLessThan(60_000);
  const records = recordsOf(file);
  expect(records).toHaveLength(heard.flat().length);
  expect(records).toContainEqual({
    ...{ eventName: 'heddle.world.masked', severityNumber: 13, severityText: 'WARN' },
    ...{ 'heddle.rank': 2, 'heddle.ranks': 3, 'heddle.masked': [1] },
  });
  expect(records).toContainEqual({
    ...{ eventName: 'heddle.world.joined', severityNumber: 9, severityText: 'INFO' },
    ...{ 'heddle.rank': 2, 'heddle.ranks': 3, 'heddle.joined': [1] },
  });
});

test('a rank that is lost, by its number in the world, once', async () => {
  const heard: WorldEvent[] = [];
  const world = World.local({ ranks: 3, device: 'sim' }, async (world) => {
    await ExpertParallel.create(world, layerOf(shape, { onLoss: 'mask' }));
    if (world.rank === 0) throw new HeddleError('HEDDLE_FALLS', 'it falls');
    const all = new Promise<void>((resolve) => {
      world.onEvent((event) => {
        if (world.rank === 2 && heard.push(event) === 3) resolve();
      });
    });
    await expect(world.barrier()).rejects.toThrow();
    await world.mask();
    // The circle that is left numbers rank 1 anew.
    if (world.rank === 1) throw new HeddleError('HEDDLE_FALLS', 'it falls');
    await all;
  });
  await expect(world).rejects.toThrow('it falls');
  expect(heard).toMatchObject([
    { kind: 'lost', lost: [0] },
    { kind: 'masked', masked: [0] },
    { kind: 'lost', lost: [1] },
  ]);
});

test('ranks that are lost at once, in ascending order, in whatever order they came', async () => {
  const heard: WorldEvent[] = [];
  await World.local({ ranks: 3, device: 'sim' }, async (world) => {
    await ExpertParallel.create(world, layerOf(shape, { onLoss: 'mask' }));
    if (world.rank === 0) world.onEvent((event) => heard.push(event));
    for (const leave of [[1], [2, 1]]) {
      await world.mask(leave).catch(() => {});
      if (world.out) await world.rejoin();
      else while (world.masked.length > 0) await world.admit();
      await world.barrier();
    }
  });
  const lost = heard.flatMap((event) => (event.kind === 'lost' ? [event.lost] : []));
  expect(lost).toEqual([[1], [1, 2]]);
});

test('weights that move, and the placement behind that', async () => {
  const heard: WorldEvent[] = [];
  const now: Placement = { experts: 2, ranks: 2, places: [0, -1, 1, -1] };
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    if (world.rank === 1) world.onEvent((event) => heard.push(event));
    const weights = emptyTensor(world.device, 'f32', [2, 8]);
    const stream = world.device.createStream();
    const next = { ...now, places: [0, -1, 1, 0] };
    await new MovingWeights(world, [weights], now).relocate(now, next, () => {}, stream);
  });
  expect(heard).toMatchObject([
    { kind: 'moved', experts: 1, bytes: 32, rank: 1 },
    { kind: 'relocated', steps: 1 },
  ]);
});

test('a listener that throws stops nothing', async () => {
  const thrown: unknown[] = [];
  vi.spyOn(globalThis, 'queueMicrotask').mockImplementation((call) => {
    try {
      call();
    } catch (error) {
      thrown.push(error);
    }
  });
  await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    world.onEvent(() => {
      throw new Error('of the listener');
    });
    world.tell({ kind: 'joined', joined: [0] });
  });
  expect(thrown.map(String)).toEqual(['Error: of the listener']);
});

test('a file that cannot be written is refused when the world begins', async () => {
  vi.stubEnv('HEDDLE_EVENTS', folder);
  await expect(World.local({ ranks: 1, device: 'sim' }, async () => {})).rejects.toThrow(FileError);
});

test('heddle run: its ranks write to one file', needing('libfabric'), async () => {
  vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const events = join(folder, 'events.jsonl');
  vi.stubEnv('HEDDLE_EVENTS', events);
  const program = transpiled('test/net/world/programs/rejoin.ts');
  const flags = ['-n', '3', '--device', 'sim', '--nodes', '3', '--restart', '2', '--rejoin'];
  expect(await heddle(['run', ...flags, program])).toBe(0);
  const records = recordsOf(events);
  for (const rank of [0, 2]) {
    for (const kind of ['lost', 'masked', 'joined'])
      expect(records).toContainEqual(
        expect.objectContaining({
          ...{ eventName: `heddle.world.${kind}`, 'heddle.rank': rank, [`heddle.${kind}`]: [1] },
        }),
      );
  }
});
