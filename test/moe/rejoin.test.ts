/** Ranks that were left out of rounds and come back: the others keep their layers, windows and captured graphs. */
import { describe, expect, it } from 'vitest';
import { RankMaskedError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import {
  bytesOf,
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  readBits,
} from '../../src/moe/index.js';
import { type Bits, reference } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import {
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';

const launch = { blocks: 2, threads: 32, parts: 1, inFlight: 4, teams: 1 };
const tuned = (way: 'push' | 'pull' | 'bulk') => ({
  tuning: { dispatch: { ...launch, way: 'store' }, combine: { ...launch, way, ahead: 1 } },
});
const messages = (transport: 'windows' | 'proxy') => {
  const { blocks, threads, parts } = launch;
  const each = { blocks, threads, parts };
  return { family: 'portable', transport, tuning: { dispatch: each, combine: each } };
};

const shape = shapeOfRounds({ ranks: 4, experts: 8, topK: 3, maxTokens: 3, hidden: 16, dtype: 'bf16' });
const sourcesOf = (round: number) => makeSources(shape, shape.maxTokens, round);

/** A rank whose rounds are replays of a graph, if asked for, which it captures once. */
async function rounds(world: World, how: Partial<ExpertParallelOptions>, graph: boolean) {
  const ep = await ExpertParallel.create(world, layerOf(shape, { onLoss: 'mask', ...how }));
  const { device, rank } = world;
  const stream = device.createStream();
  const experts = await ExampleExperts.create(world, ep, stream, { blocks: 2, threads: 32 });
  const { dtype, hidden } = shape.output;
  const out = emptyTensor(device, dtype, [shape.maxTokens, hidden], 'out');
  const tensors = {
    topkIds: emptyTensor(device, 'i32', [shape.maxTokens, shape.topK], 'ids'),
    topkWeights: emptyTensor(device, 'f32', [shape.maxTokens, shape.topK], 'weights'),
    payloads: { x: emptyTensor(device, dtype, [shape.maxTokens, hidden], 'x') },
  };
  const enqueue = () => {
    ep.dispatch(tensors, stream);
    experts.run(stream);
    ep.combine(out, stream);
  };
  if (graph) stream.beginCapture();
  if (graph) enqueue();
  const captured = graph ? stream.endCapture() : null;
  const round = async (n: number): Promise<Bits> => {
    const { topkIds, topkWeights, payloads } = sourcesOf(n)[rank]!;
    stream.copyIn(tensors.topkIds.data, bytesOf(topkIds));
    stream.copyIn(tensors.topkWeights.data, bytesOf(topkWeights!));
    stream.copyIn(tensors.payloads.x.data, payloads.x!);
    if (captured) captured.launch(stream);
    else enqueue();
    await ep.synchronize(stream);
    return readBits(out, stream);
  };
  return { ep, stream, round };
}

function requireRight(rank: number, n: number, out: readonly number[], bits: Bits): void {
  const expected = expectedRound(shape, reference.without(shape, sourcesOf(n), out))[rank]!;
  const { different } = compareCombined(shape, rank, bits, expected);
  expect(different, `round ${n} of rank ${rank}, without ${out}`).toBe(0);
}

/** Two rounds of all, two without these ranks, and two of all again; as often. */
async function leaveAndRejoin(
  world: World,
  { how, graph = false, masked = [2], times = 1 }: Case,
): Promise<void> {
  const { rank } = world;
  const joined: (readonly number[])[] = [];
  world.onEvent((event) => event.kind === 'joined' && joined.push(event.joined));
  const { ep, stream, round } = await rounds(world, how, graph);
  let n = 1;
  const some = async (out: readonly number[]) => {
    for (const last = n + 1; n <= last; n++) requireRight(rank, n, out, await round(n));
  };
  for (let time = 1; time <= times; time++) {
    await some([]);
    expect(await world.takeIn()).toEqual([]);
    expect(world.out).toBe(false);
    if (masked.includes(rank)) {
      await expect(world.mask(masked)).rejects.toThrow(RankMaskedError);
      expect(world.out).toBe(true);
      expect(() => ep.combine(emptyTensor(world.device, 'bf16', [0, 16]), stream)).toThrow(RankMaskedError);
      n += 2;
      await world.rejoin();
    } else {
      await world.mask(masked);
      await some(masked);
      const came: number[] = [];
      for (let tries = 0; came.length < masked.length && tries < 10_000; tries++) {
        came.push(...(await world.takeIn()));
        await new Promise(setImmediate);
      }
      expect(came.sort()).toEqual(masked);
    }
    expect(world.out).toBe(false);
  }
  await some([]);
  expect(new Set(joined.flat())).toEqual(new Set(masked.includes(rank) ? [rank] : masked));
  await ep.dispose();
}

interface Case {
  readonly how: Partial<ExpertParallelOptions>;
  readonly graph?: boolean;
  readonly masked?: readonly number[];
  readonly times?: number;
  /** Whether the race detector looks on. */
  readonly checked?: true;
}

const cases: Readonly<Record<string, Case>> = {
  push: { how: tuned('push'), checked: true },
  'pull, a graph': { how: tuned('pull'), graph: true, times: 2 },
  'split copies': { how: { ...tuned('bulk'), split: true }, masked: [0] },
  'push, a graph, two at once': { how: tuned('push'), graph: true, masked: [1, 3] },
  'all but one': { how: tuned('push'), masked: [0, 1, 3] },
  'hybrid, on one node': { how: { family: 'hybrid' } },
  'portable, a graph': { how: messages('windows'), graph: true },
  'portable by proxy, a graph': { how: messages('proxy'), graph: true, checked: true },
};

describe('a process that takes the place of a rank', () => {
  const place = { rank: 0, ranks: 2, ranksHere: 2, address: '127.0.0.1:1', rejoin: 'again', environment: {} };
  const join = (
    how: Partial<ExpertParallelOptions>,
    then: (ep: ExpertParallel) => Promise<void> = async () => {},
  ) =>
    World.join({ ...place, device: 'sim' }, async (world) => {
      await then(
        await ExpertParallel.create(world, layerOf({ ...shape, ranks: 2 }, { onLoss: 'mask', ...how })),
      );
    });

  it('is told that it cannot have windows that others map', async () => {
    await expect(join({ family: 'one-sided' })).rejects.toThrow(/the others' kernels hold the addresses/);
  });

  it('creates its layers alone, of which no round begins', async () => {
    await join(messages('proxy'), async (ep) => {
      const { world } = ep;
      expect(world.out).toBe(true);
      const inputs = { topkIds: [], topkWeights: [], payloads: {} } as never;
      expect(() => ep.dispatch(inputs, world.device.createStream())).toThrow(RankMaskedError);
      await expect(world.takeIn()).rejects.toThrow(RankMaskedError);
      await expect(world.renew()).rejects.toThrow(RankMaskedError);
    });
  });
});

describe('a rank that was left out, and lives, rejoins', () => {
  it.each(Object.entries(cases))('%s', async (_, of) => {
    const sim = SimMachine.create({ ranks: 4, mode: of.checked ? 'checked' : 'fast' });
    await World.local({ ranks: 4, device: 'sim', sim }, (world) => leaveAndRejoin(world, of));
    expect(sim.findings).toEqual([]);
  });
});
