/** Worlds that lose ranks, and go on without them. test/suite/cases.ts has rounds that leave ranks out. */
import { afterEach, describe, expect, it } from 'vitest';
import { HeddleError, RankMaskedError, RepeatRoundsError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { ExpertParallel, type ExpertParallelOptions, readBits, roundsInside } from '../../src/moe/index.js';
import { type Bits, reference } from '../../src/moe/layer/index.js';
import { onPassing } from '../../src/net/world/circle.js';
import { World } from '../../src/net/world/index.js';
import {
  compareCombined,
  expectedRound,
  layerOf,
  makeSources,
  random,
  shapeOfRounds,
} from '../../src/verify/testing/index.js';
import { needing } from '../needs.js';
import { namedPoints } from '../net/world/falls.js';
import { joining } from '../net/world/joining.js';
import { isLoss, maskableRounds, messages, tuned } from './maskable-rounds.js';

/** For each way; by hand some hundreds. */
const storms = Number(process.env.HEDDLE_TEST_STORMS ?? 5);

/** Messages of two tokens, each a chunk, so that a rank has two. */
const rails = {
  family: 'hybrid',
  tuning: {
    dispatch: { blocks: 2, threads: 32, chunk: 2 },
    combine: { blocks: 2, threads: 32, parts: 1 },
  },
};

/** What a rank had of each round. */
interface Told {
  readonly out: Map<number, Bits>;
  /** Of each round, who was left out. */
  readonly masked: Map<number, readonly number[]>;
}

const small = shapeOfRounds({ ranks: 4, experts: 8, topK: 3, maxTokens: 3, hidden: 16, dtype: 'bf16' });
const rounds = 4;
const sourcesOf = (round: number) => makeSources(small, small.maxTokens, round);

/** All rounds, a synchronize behind each, or behind each replay of a graph; repeated where the layer says so. */
async function persist(
  world: World,
  how: Partial<ExpertParallelOptions>,
  graph: boolean,
  falls?: number,
): Promise<Told> {
  const { ep, stream, captured, begin, read } = await maskableRounds(world, small, how, graph);
  const told: Told = { out: new Map(), masked: new Map() };
  for (let round = 1; ; round++) {
    try {
      if (round > rounds) {
        // Nobody leaves before all know that nothing is repeated.
        if (await world.barrier('the rounds are done').then(() => true, isLoss)) break;
      } else {
        if (round === falls) throw new HeddleError('HEDDLE_KILLED', 'it falls');
        told.masked.set(round, world.masked);
        begin(sourcesOf(round)[world.rank]!);
      }
      await ep.synchronize(stream);
      if (round <= rounds) told.out.set(round, await read());
      else round = rounds;
    } catch (error) {
      if (!(error instanceof RepeatRoundsError)) throw error;
      round = error.round - 1;
    }
  }
  captured?.dispose();
  return told;
}

/** What every rank had that came to the end of its rounds: the same as the others left out, and right, with rows added up on each of `nodes`. */
function requireRight(told: readonly Told[], nodes = 1): void {
  const first = told.find((one) => one !== undefined)!;
  for (const [rank, one] of told.entries()) {
    for (let round = 1; round <= rounds && one !== undefined; round++) {
      const out = first.masked.get(round)!;
      expect(one.masked.get(round)).toEqual(out);
      const left = reference.without(small, sourcesOf(round), out);
      const expected = expectedRound(small, left, true, nodes)[rank]!;
      const { different } = compareCombined(small, rank, one.out.get(round)!, expected);
      expect(different, `round ${round} of rank ${rank}, without ${out}`).toBe(0);
    }
  }
}

type Way = Partial<ExpertParallelOptions> & { readonly graph?: boolean; readonly nodes?: number };

/** Runs rounds on four ranks while some fall; what those had that came to the end, which must be right. */
async function storm(
  sim: SimMachine,
  { graph = false, nodes = 1, ...how }: Way,
  fall: (worlds: readonly World[]) => Promise<never> = () => new Promise(() => {}),
): Promise<Told[]> {
  const told: Told[] = [];
  const worlds: World[] = [];
  const world = World.local({ ranks: 4, nodes, device: 'sim', sim }, async (world) => {
    worlds[world.rank] = world;
    const rest = persist(world, how, graph);
    told[world.rank] = await (world.rank === 3 ? Promise.race([rest, fall(worlds)]) : rest);
  });
  await world.catch((error: unknown) => expect(error).toMatchObject({ code: 'HEDDLE_KILLED' }));
  requireRight(told, nodes);
  return told;
}

const ends = (told: readonly Told[]) => [0, 1, 2, 3].filter((rank) => told[rank] !== undefined);

describe("a world that loses ranks, of layers with onLoss: 'mask'", () => {
  afterEach(() => onPassing(null));

  const ways: Readonly<Record<string, Way>> = {
    push: tuned('push'),
    pull: tuned('pull'),
    split: { ...tuned('push'), split: true },
    'a graph': { ...tuned('push'), graph: true },
    'portable, a graph': { ...messages, graph: true },
    hybrid: { ...rails, nodes: 2 },
    'hybrid, a graph': { ...rails, nodes: 2, graph: true, split: true },
  };

  it.each(Object.entries(ways))('%s: goes on alike on all ranks that are left', async (name, how) => {
    let fallen = 0;
    for (let seed = 0; seed < storms; seed++) {
      const victims = seed % 3 === 2 ? [1, 3] : [seed % 4];
      const sim = SimMachine.create({ ranks: 4, seed: `${name} ${seed}`, schedule: 'random' });
      for (const victim of victims) sim.kill(victim, random(seed, name.length).below(6000));
      const left = ends(await storm(sim, how));
      expect(left).toEqual(expect.arrayContaining([0, 1, 2, 3].filter((rank) => !victims.includes(rank))));
      if (left.length < 4) fallen++;
    }
    expect(fallen).toBeGreaterThan(storms / 3);
  });

  it.each([
    ['push', tuned('push')],
    ['hybrid', { ...rails, nodes: 2 }],
  ])('%s: goes on where a second rank falls at any step of the agreement', async (_, how) => {
    let steps = 1;
    const passed = new Set<string>();
    for (let last = 1; steps >= last; last++) {
      const sim = SimMachine.create({ ranks: 4, seed: `${last}`, schedule: 'random' });
      sim.kill(1, 2500);
      steps = 0;
      const told = await storm(sim, how, () => {
        return new Promise((_, reject) => {
          onPassing((what, step) => {
            passed.add(`${what}, ${step}`);
            if (what !== 'mask' && what !== 'regroup') return;
            steps++;
            if (steps !== last) return;
            sim.kill(3);
            reject(new HeddleError('HEDDLE_KILLED', 'it falls'));
          });
        });
      });
      expect(ends(told)).toEqual(steps < last ? [0, 2, 3] : [0, 2]);
    }
    expect(steps).toBeGreaterThan(12);
    const named = namedPoints().filter((point) => point.startsWith('mask, '));
    expect(named).toHaveLength(3);
    expect([...passed]).toEqual(expect.arrayContaining(named));
  });

  /** Ranks of a process that meet as those of several do, each a node of its own or all one, of which one falls. */
  async function meeting(how: Partial<ExpertParallelOptions>, nodes: 1 | 4) {
    const told: Told[] = [];
    const join = await joining({ ranks: 4, ranksHere: 4 / nodes });
    const program = async (world: World) => {
      told[world.rank] = await persist(world, how, true, world.rank === 1 ? 2 : undefined);
    };
    const joined = await Promise.allSettled(Array.from({ length: nodes }, (_, rank) => join(rank, program)));
    const failed = joined.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
    expect(failed).toEqual([expect.stringContaining('it falls')]);
    requireRight(told, nodes);
    expect(ends(told)).toEqual([0, 2, 3]);
    expect(told[0]!.masked.get(rounds)).toEqual([1]);
  }

  it('goes on where ranks meet at a rendezvous', () => meeting({ ...tuned('push'), waitMs: 300 }, 1));

  it('goes on alone where its last partner has left in order', needing('tcp;ofi_rxm'), async () => {
    const pair = shapeOfRounds({ ranks: 2, experts: 4, topK: 2, maxTokens: 2, hidden: 16, dtype: 'bf16' });
    const sources = makeSources(pair, 2, 1);
    const join = await joining({ ranks: 2 });
    const roundsOf = (world: World) => maskableRounds(world, pair, { ...rails, waitMs: 3000 }, false);
    const leaves = join(1, async (world) => {
      const { ep, stream, begin } = await roundsOf(world);
      begin(sources[1]!);
      await ep.synchronize(stream);
    });
    await join(0, async (world) => {
      const { ep, stream, begin, read } = await roundsOf(world);
      begin(sources[0]!);
      await ep.synchronize(stream);
      await leaves;
      begin(sources[0]!);
      await expect(ep.synchronize(stream)).rejects.toMatchObject({ name: 'RepeatRoundsError', ranks: [1] });
      expect([world.out, world.masked]).toEqual([false, [1]]);
      begin(sources[0]!);
      await ep.synchronize(stream);
      const [expected] = expectedRound(pair, reference.without(pair, sources, [1]), true, 2);
      expect(compareCombined(pair, 0, await read(), expected!)).toMatchObject({ different: 0 });
    });
  });

  it('goes on where messages cross libfabric', needing('tcp;ofi_rxm'), () =>
    meeting({ ...rails, waitMs: 3000 }, 4),
  );
});

it('hybrid: a rank that stood still, and does not know that it is out, forwards nothing to those that left it out', async () => {
  const stream = (world: World) => world.device.createStream();
  let forwarded = (): void => {};
  const late = new Promise<void>((resolve) => {
    forwarded = resolve;
  });
  await World.local({ ranks: 4, nodes: 2, device: 'sim' }, async (world) => {
    const ep = await ExpertParallel.create(world, layerOf(small, { onLoss: 'mask', split: true, ...rails }));
    const on = stream(world);
    const { topkIds, topkWeights, payloads } = sourcesOf(1)[world.rank]!;
    const sent = ep.dispatchSend({ topkIds, topkWeights: topkWeights!, payloads }, on);
    const { experts } = ep.dispatchRecv(sent, on);
    await ep.synchronize(on);
    const routes = async () => (await readBits(experts, on)).filter((id) => id >>> 31 === 0).length;
    // What rank 3 sends to this node comes by way of rank 1.
    if (world.rank === 0) expect(await routes()).toBeGreaterThan(0);
    await world.mask([1]).catch((error) => expect(error).toBeInstanceOf(RankMaskedError));
    if (world.rank === 1) {
      const { loaded } = roundsInside(ep)[0]!;
      loaded.leaveOut([], on);
      for (const step of loaded.steps.dispatchRecv) step.launch(on);
      await on.synchronize();
      expect(await loaded.failure(on)).toBeNull();
      forwarded();
    }
    await late;
    if (world.rank === 0) expect(await routes()).toBe(0);
  });
});

describe('what cannot be left out', () => {
  const local = (program: (world: World) => Promise<unknown>) =>
    World.local({ ranks: 4, device: 'sim' }, program);
  const create = (world: World, how: Partial<ExpertParallelOptions>) =>
    ExpertParallel.create(world, layerOf(small, { onLoss: 'mask', ...how }));

  it('ranks over NVSHMEM, which ends with all of them', async () => {
    await expect(
      local((world) => create(world, { family: 'portable', transport: 'nvshmem' })),
    ).rejects.toThrow("it must be 'throw' over NVSHMEM");
  });

  it.each([
    ['one-sided', 1],
    ['portable', 1],
    ['hybrid', 2],
  ])('ranks that share tokens, of %s on %s nodes', async (family, nodes) => {
    const shape = { ...layerOf(small, { onLoss: 'mask', family }), replicas: 2, maxTokens: 4 };
    const created = World.local({ ranks: 4, nodes, device: 'sim' }, (world) =>
      ExpertParallel.create(world, shape),
    );
    await expect(created).rejects.toThrow('share tokens (replicas)');
  });

  it('ranks of a world with a layer that needs them all', async () => {
    await local(async (world) => {
      await create(world, {});
      await create(world, { onLoss: 'throw' });
      await world.barrier();
      expect(() => world.mask([1])).toThrow(expect.objectContaining({ code: 'HEDDLE_NO_MASKS' }));
      await world.barrier();
    });
  });

  it('and where some are, only layers with masks are made; the rank that is out is told so', async () => {
    await local(async (world) => {
      const ep = await create(world, {});
      if (world.rank === 2) {
        await expect(world.mask([2])).rejects.toThrow(RankMaskedError);
        await expect(ep.synchronize(world.device.createStream())).rejects.toThrow(RankMaskedError);
        return;
      }
      await world.mask([2]);
      await world.mask([2]); // once more has no effect
      expect(world.masked).toEqual([2]);
      expect((await world.allGather(Uint8Array.of(world.rank), 'who')).map(([rank]) => rank)).toEqual([
        0,
        1,
        undefined,
        3,
      ]);
      const throwing = create(world, { onLoss: 'throw' });
      await expect(throwing).rejects.toMatchObject({ code: 'HEDDLE_WORLD_MASKED' });
      await create(world, {});
    });
  });
});
