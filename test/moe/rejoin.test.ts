/** Ranks that were left out of rounds and come back: the others keep their layers, windows and captured graphs. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { HeddleError, RankLostError, RankMaskedError, RepeatRoundsError } from '../../src/base/errors.js';
import type { PeerMemory } from '../../src/gpu/index.js';
import { SimDevice } from '../../src/gpu/sim/device.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel, type ExpertParallelOptions, emptyTensor } from '../../src/moe/index.js';
import { type Bits, reference } from '../../src/moe/layer/index.js';
import { TransferEngine } from '../../src/net/fabric/index.js';
import { onPassing } from '../../src/net/world/circle.js';
import { World } from '../../src/net/world/index.js';
import {
  compareCombined,
  expectedRound,
  layerOf,
  makeSources,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';
import { needing } from '../needs.js';
import { namedPoints } from '../net/world/falls.js';
import { joining } from '../net/world/joining.js';
import { maskableRounds, messages, tuned } from './maskable-rounds.js';

const shape = shapeOfRounds({ ranks: 4, experts: 8, topK: 3, maxTokens: 3, hidden: 16, dtype: 'bf16' });
const sourcesOf = (round: number) => makeSources(shape, shape.maxTokens, round);

/** A rank whose rounds are replays of a graph, if asked for, which it captures once. */
async function rounds(world: World, how: Partial<ExpertParallelOptions>, graph: boolean) {
  const { ep, stream, begin, read } = await maskableRounds(world, shape, how, graph);
  const round = async (n: number): Promise<Bits> => {
    begin(sourcesOf(n)[world.rank]!);
    await ep.synchronize(stream);
    return read();
  };
  return { ep, stream, round };
}

function requireRight(rank: number, n: number, out: readonly number[], bits: Bits, nodes: number): void {
  const left = reference.without(shape, sourcesOf(n), out);
  const expected = expectedRound(shape, left, true, nodes)[rank]!;
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
    for (const last = n + 1; n <= last; n++) requireRight(rank, n, out, await round(n), world.topology.nodes);
  };
  for (let time = 1; time <= times; time++) {
    await some([]);
    expect(await world.admit()).toEqual([]);
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
        came.push(...(await world.admit()));
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
  readonly nodes?: number;
  readonly graph?: boolean;
  readonly masked?: readonly number[];
  readonly times?: number;
  /** Whether the race detector looks on. */
  readonly checked?: true;
}

const cases: Readonly<Record<string, Case>> = {
  push: { how: tuned('push') },
  'pull, a graph': { how: tuned('pull'), graph: true, times: 2 },
  split: { how: { ...tuned('push'), split: true }, masked: [0] },
  'push, a graph, two at once': { how: tuned('push'), graph: true, masked: [1, 3] },
  'all but one': { how: tuned('push'), masked: [0, 1, 3] },
  'hybrid, on one node': { how: { family: 'hybrid' } },
  'hybrid, a graph': { how: { family: 'hybrid' }, nodes: 2, graph: true, times: 2, checked: true },
  'hybrid, one rail, split': { how: { family: 'hybrid', split: true }, nodes: 2, masked: [1, 3] },
  'hybrid, a node': { how: { family: 'hybrid' }, nodes: 2, masked: [2, 3] },
  'portable, a graph': { how: messages, graph: true },
  'hybrid, nodes of a rank, a graph': { how: { family: 'hybrid' }, nodes: 4, graph: true },
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

  it('has room for the windows of the others, where nothing is yet', async () => {
    await join({ family: 'one-sided' }, async ({ world }) => {
      const { bases } = await world.createWindow(64, 'window');
      const stream = world.device.createStream();
      stream.fill(bases[world.rank]!, 64, 1);
      await stream.synchronize();
      stream.fill(bases[1 - world.rank]!, 64, 1);
      await expect(stream.synchronize()).rejects.toThrow(/'window' of rank \d was freed/);
    });
  });

  it('creates its layers alone, of which no round begins', needing('libfabric'), async () => {
    await join({ family: 'hybrid' }, async (ep) => {
      const { world } = ep;
      expect(world.out).toBe(true);
      const inputs = { topkIds: [], topkWeights: [], payloads: {} } as never;
      expect(() => ep.dispatch(inputs, world.device.createStream())).toThrow(RankMaskedError);
      await expect(world.admit()).rejects.toThrow(RankMaskedError);
    });
  });
});

describe('ranks that meet at a rendezvous', () => {
  it.each([
    ['one', [2]],
    ['the one that hosts it, and another', [0, 3]],
  ])('rejoin: %s', async (_, masked) => {
    const how = { ...tuned('push'), waitMs: 5000 };
    const join = await joining({ ranks: 4, ranksHere: 4 });
    await join(0, (world) => leaveAndRejoin(world, { how, masked, graph: true, times: 2 }));
  });

  it('have opened their networks before they meet again', needing('tcp;ofi_rxm'), async () => {
    const opened = vi.spyOn(TransferEngine, 'open');
    const times: number[] = [];
    const join = await joining({ ranks: 3 });
    const program = async (world: World) => {
      const how = { family: 'hybrid', onLoss: 'mask' } as const;
      const ep = await ExpertParallel.create(world, layerOf({ ...shape, ranks: 3 }, how));
      await world.mask([2]).catch((error) => expect(error).toBeInstanceOf(RankMaskedError));
      if (world.out) await world.rejoin();
      while (world.masked.length > 0) {
        const before = opened.mock.calls.length;
        if ((await world.admit()).length > 0) times.push(opened.mock.calls.length - before);
        await new Promise(setImmediate);
      }
      await ep.dispose();
    };
    await Promise.all([0, 1, 2].map((rank) => join(rank, program)));
    // Three at first, two without the rank that is left out, and three.
    expect(opened).toHaveBeenCalledTimes(8);
    expect(times).toEqual([0, 0]);
    opened.mockRestore();
  });

  it('refuse who does not fit, and say why', needing('tcp;ofi_rxm'), async () => {
    const join = await joining({ ranks: 3 });
    const create = (world: World, maxTokens = shape.maxTokens) =>
      ExpertParallel.create(
        world,
        layerOf({ ...shape, ranks: 3, maxTokens }, { family: 'hybrid', onLoss: 'mask' }),
      );
    const refused = (rank: number, maxTokens: number, why: RegExp) =>
      join(
        rank,
        async (world) => {
          await create(world, maxTokens);
          const error: unknown = await world.rejoin().catch((thrown: unknown) => thrown);
          expect(error).toBeInstanceOf(RankMaskedError);
          expect(String((error as RankMaskedError).cause)).toMatch(why);
        },
        { rejoin: 'again' },
      );
    let done = false;
    const member = (rank: number) =>
      join(rank, async (world) => {
        await create(world);
        if (rank === 2) return; // which leaves, and nobody misses it
        await world.mask().catch(() => {});
        const isDone = async () =>
          (await world.allGather(Uint8Array.of(Number(done)), 'done')).some(([one]) => one === 1);
        while (!(await isDone())) {
          expect(await world.admit()).toEqual([]);
          expect(world.masked).toEqual([2]);
          await new Promise(setImmediate);
        }
      });
    const others = (async () => {
      await refused(2, shape.maxTokens + 1, /its nodes, or its layers, are not those of the others/);
      await refused(1, shape.maxTokens, /rank 1 takes part already/);
      done = true;
    })();
    await Promise.all([member(0), member(1), member(2), others]);
  });
});

describe('a new process in the place of a rank', () => {
  it.each(['push', 'pull'] as const)(
    'comes while another is left out, which comes later: %s',
    async (way) => {
      const sim = SimMachine.create({ ranks: 4, mode: 'checked', hostLines: false });
      let others = () => {};
      const done = new Promise<void>((resolve) => {
        others = resolve;
      });
      await World.local({ ranks: 4, device: 'sim', sim }, async (began) => {
        let world = began;
        let { round } = await rounds(world, tuned(way), true);
        const { rank } = world;
        const some = async (first: number, out: readonly number[]) => {
          for (let n = first; n < first + 2; n++) requireRight(rank, n, out, await round(n), 1);
        };
        const admit = async (one: number) => {
          for (let tries = 0; world.masked.includes(one); tries++) {
            if (tries === 1000) throw new Error(`rank ${one} does not come`);
            await world.admit();
            await new Promise(setImmediate);
          }
        };
        await some(1, []);
        if (rank === 1 || rank === 3) await expect(world.mask([1, 3])).rejects.toThrow(RankMaskedError);
        else await world.mask([1, 3]);
        if (rank === 1) {
          world = await world.startAnew();
          ({ round } = await rounds(world, tuned(way), false));
          await world.rejoin();
        }
        if (rank === 3) {
          await done;
          await world.rejoin();
        } else {
          await admit(1);
          await some(3, [3]).finally(others);
          await admit(3);
        }
        await some(5, []);
      });
      expect(sim.findings).toEqual([]);
    },
  );
});

describe('a new process whose windows cannot be mapped', () => {
  afterEach(() => void vi.restoreAllMocks());

  it.each([
    ['by one of the others', 'openWindow'],
    ['or that cannot map one of theirs', 'reserveWindow'],
  ] as const)('%s is refused, with the reason, and may come again', async (_, method) => {
    let [fails, refused] = [true, 0];
    const original = SimDevice.prototype[method] as (...given: unknown[]) => unknown;
    const failing = (memory: PeerMemory): PeerMemory => ({
      ...memory,
      map: async (handle) => {
        if (fails) {
          fails = false;
          throw new HeddleError('HEDDLE_OTHER_WINDOW', 'it does not fit');
        }
        await memory.map(handle);
      },
    });
    vi.spyOn(SimDevice.prototype, method).mockImplementation(function (this: SimDevice, ...given: unknown[]) {
      const memory = original.apply(this, given) as PeerMemory | Promise<PeerMemory>;
      return (memory instanceof Promise ? memory.then(failing) : failing(memory)) as never;
    });
    await World.local({ ranks: 4, device: 'sim', timeoutMs: 20_000 }, async (began) => {
      let world = began;
      let { round } = await rounds(world, tuned('push'), true);
      const { rank } = world;
      requireRight(rank, 1, [], await round(1), 1);
      if (rank === 1) {
        await expect(world.mask([1])).rejects.toThrow(RankMaskedError);
        world = await world.startAnew();
        ({ round } = await rounds(world, tuned('push'), false));
        const error = await world.rejoin().catch((thrown: RankMaskedError) => thrown);
        const { cause } = error as RankMaskedError;
        expect(`${cause} ${(cause as Error).cause}`).toMatch(/it does not fit/);
        refused++;
        await world.rejoin();
      } else {
        await world.mask([1]);
        for (let tries = 0; world.masked.length > 0; tries++) {
          if (tries === 1000) throw new Error('rank 1 does not come');
          await world.admit();
          await new Promise(setImmediate);
        }
      }
      requireRight(rank, 2, [], await round(2), 1);
    });
    expect(refused).toBe(1);
  });
});

describe('a rank that was left out, and lives, rejoins', () => {
  it.each(Object.entries(cases))('%s', async (_, of) => {
    const sim = SimMachine.create({ ranks: 4, mode: of.checked ? 'checked' : 'fast', hostLines: false });
    await World.local({ ranks: 4, nodes: of.nodes ?? 1, device: 'sim', sim }, (world) =>
      leaveAndRejoin(world, of),
    );
    expect(sim.findings).toEqual([]);
  });

  it('also where another layer of the world is gone, whose proxies ended with it', async () => {
    const how = { family: 'hybrid', onLoss: 'mask' } as const;
    await World.local({ ranks: 4, nodes: 2, device: 'sim' }, async (world) => {
      const gone = await ExpertParallel.create(world, layerOf(shape, how));
      await gone.dispose();
      await leaveAndRejoin(world, { how, nodes: 2 });
    });
  });
});

/** Rounds of which rank 1 is left out of the second, and waits to be admitted again until the fourth or until it is known to have fallen. */
async function comeAndGo(world: World, fell: () => boolean): Promise<void> {
  const { rank } = world;
  const { ep, stream, round } = await rounds(world, tuned('push'), false);
  let [n, left] = [1, false];
  for (;;) {
    try {
      // All go on from the same round, and know alike whether somebody fell.
      const all = await world.allGather(Uint8Array.of(n, Number(fell())), 'the round');
      n = Math.max(...all.map(([of = 0]) => of));
      if (n > 4) return;
      const leaves = n === 2 && !left;
      const waits = n === 3 && world.masked.includes(1) && all.every(([, gone]) => gone !== 1);
      if (leaves) left = true;
      if (leaves && rank === 1) {
        await expect(world.mask([1])).rejects.toThrow(RankMaskedError);
        n = 0;
        await world.rejoin();
      } else if (leaves) await world.mask([1]);
      else if (waits) await world.admit();
      else {
        const out = world.masked;
        requireRight(rank, n, out, await round(n), 1);
        n++;
      }
      await new Promise(setImmediate);
    } catch (error) {
      if (error instanceof RankLostError) await ep.synchronize(stream).catch(repeat);
      else repeat(error);
    }
  }
  function repeat(error: unknown): void {
    if (!(error instanceof RepeatRoundsError)) throw error;
    n = error.round;
  }
}

describe('where a rank falls while another rejoins', () => {
  afterEach(() => onPassing(null));

  it.each([
    ['one that takes part', 3],
    ['the one that rejoins', 1],
  ])('%s, at any step: the others go on, all alike', async (_, victim) => {
    let [steps, fell] = [0, true];
    const passed = new Set<string>();
    for (let last = 1; fell; last++) {
      const sim = SimMachine.create({ ranks: 4, seed: `${last}`, schedule: 'random' });
      const ended: number[] = [];
      [steps, fell] = [0, false];
      const world = World.local({ ranks: 4, device: 'sim', sim, timeoutMs: 20_000 }, async (world) => {
        const falls = new Promise<never>((_, reject) => {
          if (world.rank !== victim) return;
          let rejoins = false;
          onPassing((what, step) => {
            passed.add(`${what}, ${step}`);
            rejoins ||= what === 'rejoin';
            if (!rejoins || !['rejoin', 'rejoining', 'mask', 'nobody', 'taking in'].includes(what)) return;
            if (++steps !== last) return;
            fell = true;
            sim.kill(victim);
            reject(new HeddleError('HEDDLE_KILLED', 'it falls'));
          });
        });
        await Promise.race([comeAndGo(world, () => fell && victim === 1), falls]);
        ended.push(world.rank);
      });
      await world.catch((error: unknown) => expect(error).toMatchObject({ code: 'HEDDLE_KILLED' }));
      expect(ended.sort(), `step ${last} of ${steps}`).toEqual(
        [0, 1, 2, 3].filter((rank) => !fell || rank !== victim),
      );
    }
    expect(steps).toBeGreaterThan(7);
    const named = namedPoints().filter((point) => point.startsWith('rejoin, '));
    expect(named.length).toBeGreaterThan(1);
    expect([...passed]).toEqual(expect.arrayContaining(named));
  });
});
