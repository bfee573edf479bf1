/** What survivors see of a simulated SIGKILL, at every point of a round. test/on-gpus has the same with processes. */
import { describe, expect, it } from 'vitest';
import { RankLostError } from '../../src/base/errors.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import type { Tuning } from '../../src/moe/families/index.js';
import { ExpertParallel, type ExpertParallelOptions, emptyTensor, row } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { makeRoutes } from '../../src/verify/testing/index.js';

const ranks = 3;
const victim = 1;
const options = {
  experts: 6,
  topK: 3,
  maxTokens: 4,
  payloads: { x: row('bf16', 16) },
  output: { dtype: 'bf16', length: 16 },
} as const satisfies ExpertParallelOptions;

const spread = { blocks: 4, threads: 32, parts: 1, inFlight: 4, teams: 1 } as const;
const pull: Tuning = { dispatch: spread, combine: { ...spread, way: 'pull', ahead: 0 } };
const push: Tuning = { dispatch: spread, combine: { ...spread, way: 'push', ahead: 1 } };
const messages = { blocks: 4, threads: 32, parts: 1 } as const;
const portable = { family: 'portable', tuning: { dispatch: messages, combine: messages } } as const;
const rails = {
  family: 'hybrid',
  tuning: { dispatch: { blocks: 4, threads: 32, chunk: 2 }, combine: messages },
} as const;
type Way = Pick<
  ExpertParallelOptions,
  'family' | 'transport' | 'tuning' | 'combineFormat' | 'replicas' | 'split'
> & {
  readonly nodes?: number;
};
const ways: Record<string, Way> = {
  pull: { tuning: pull },
  push: { tuning: push },
  'push, as e4m3': { tuning: push, combineFormat: 'e4m3' },
  'push, split': { tuning: push, split: true },
  messages: portable,
  'messages, split': { ...portable, split: true },
  'messages, as e4m3': { ...portable, combineFormat: 'e4m3' },
  'rails between 3 nodes': { ...rails, nodes: 3 },
};

interface Brought {
  readonly topkIds: Int32Array;
  readonly topkWeights: Float32Array;
}
const nothing: Brought = { topkIds: new Int32Array(0), topkWeights: new Float32Array(0) };
const routes = options.maxTokens * options.topK;
/** To experts of ranks 0 and 2. */
const amongSurvivors: Brought = {
  topkIds: Int32Array.from({ length: routes }, (_, i) => [0, 4, 1][i % 3]!),
  topkWeights: new Float32Array(routes).fill(1),
};

/** One rank's layer, inputs and rounds. */
async function prepare(world: World, { nodes: _, ...way }: Way, brought?: Brought) {
  const ep = await ExpertParallel.create(world, { ...options, ...way });
  const stream = world.device.createStream();
  const { topkIds, topkWeights } = brought ?? makeRoutes(ep.shape, world.rank, options.maxTokens, 7);
  const tokens = topkIds.length / options.topK;
  const x = new Uint16Array(tokens * options.output.length).fill(0x3f80);
  const out = emptyTensor(world.device, 'bf16', [tokens, options.output.length]);
  const dispatch = () => {
    const inputs = { topkIds, topkWeights, payloads: { x } };
    const received = ep.split
      ? ep.dispatchRecv(ep.dispatchSend(inputs, stream), stream)
      : ep.dispatch(inputs, stream);
    stream.copy(received.output.data, received.payloads.x.data, received.output.bytes);
    return received;
  };
  const combine = () => {
    if (ep.split) ep.combineRecv(ep.combineSend(ep.received, stream), out, stream);
    else ep.combine(out, stream);
  };
  const ended = () => ep.synchronize(stream);
  const round = () => {
    dispatch();
    combine();
    return ended();
  };
  return { ep, stream, dispatch, combine, ended, round, out };
}

type Rank = Awaited<ReturnType<typeof prepare>>;

/** Runs survivors and a victim; resolves with what each survivor's calls threw. */
async function lose(
  way: Way,
  dies: (machine: SimMachine, rank: Rank) => Promise<void>,
  survives: (rank: Rank) => Promise<void>,
  machine = SimMachine.create({ ranks }),
): Promise<RankLostError[]> {
  const errors: RankLostError[] = [];
  const world = World.local({ ranks, nodes: way.nodes ?? 1, device: 'sim', sim: machine }, async (world) => {
    const rank = await prepare(world, way);
    for (let round = 0; round < 2; round++) {
      rank.dispatch();
      rank.combine();
    }
    await rank.ep.synchronize(rank.stream);
    await world.barrier('two rounds are done');
    if (world.rank === victim) await dies(machine, rank);
    const error = await survives(rank).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(RankLostError);
    errors.push(error);
    // The layer is of no use any more, and says why.
    expect(() => rank.dispatch()).toThrow(RankLostError);
    await expect(rank.ep.synchronize(rank.stream)).rejects.toThrow(RankLostError);
    await rank.ep.dispose();
  });
  await expect(world).rejects.toThrow('rank 1 of the simulated machine was killed');
  return errors;
}

/** How each survivor's error reads, and whether they agree. */
const summary = (errors: readonly RankLostError[]) =>
  errors.filter(Boolean).map(({ ranks, operation, epoch }) => `${ranks} ${operation} ${epoch}`);

/** Runs ranks of which some stay behind, or are late. What each throws, by rank; nobody leaves before all have given up. */
async function missing(
  way: Way,
  program: (rank: Rank, number: number) => Promise<unknown>,
  sim = SimMachine.create({ ranks }),
  brought: (rank: number) => Brought | undefined = () => undefined,
): Promise<RankLostError[]> {
  const errors: RankLostError[] = [];
  const nodes = way.nodes ?? 1;
  await World.local({ ranks: sim.ranks, nodes, device: 'sim', sim }, async (world) => {
    const rank = await prepare(world, way, brought(world.rank));
    await program(rank, world.rank).catch((error) => {
      errors[world.rank] = error;
    });
    await world.barrier('the others have given up');
    await rank.ep.dispose();
  });
  return errors;
}

const dies = async (machine: SimMachine, { ended }: Rank) => {
  machine.kill(victim);
  await ended();
};

for (const [n, [name, way]] of Object.entries(ways).entries()) {
  describe(`survivors of a killed rank, combine by ${name}`, () => {
    it('name what failed first, and wait no longer, however much more is enqueued', async () => {
      const machine = SimMachine.create({ ranks });
      const survives = async ({ dispatch, combine, ended }: Rank) => {
        for (let more = 0; more < 5; more++) {
          dispatch();
          combine();
        }
        await ended();
      };
      const errors = await lose(way, dies, survives, machine);
      expect(summary(errors)).toEqual(['1 dispatch 3', '1 dispatch 3']);
      expect(machine.statistics.timeLimits).toBe(1);
    });

    it.each(['dispatch', 'combine'] as const)(
      'name who does not come to %s, where nobody was killed',
      async (operation) => {
        const machine = SimMachine.create({ ranks });
        const comes = async (rank: Rank, number: number) => {
          if (operation === 'combine') {
            rank.dispatch();
            await rank.ended();
            await rank.ep.world.barrier('one stays behind');
          }
          if (number === victim) return;
          rank[operation]();
          await rank.ended();
        };
        const errors = await missing(way, comes, machine);
        expect(summary(errors)).toEqual([`1 ${operation} 1`, `1 ${operation} 1`]);
        expect(machine.statistics.timeLimits).toBe(1);
      },
    );

    it('name who still reads its slots, where they await nothing else of it', async () => {
      const machine = SimMachine.create({ ranks });
      const combines = async ({ dispatch, combine, ended }: Rank, number: number) => {
        dispatch();
        await ended();
        if (number === victim) return;
        combine();
        await ended();
      };
      const brought = (rank: number) => (rank === victim ? nothing : amongSurvivors);
      expect(summary(await missing(way, combines, machine, brought))).toEqual(['1 combine 1', '1 combine 1']);
      expect(machine.statistics.timeLimits).toBe(1);
    });

    it('fail at the next call when it is lost between rounds and they know', async () => {
      const errors = await lose(way, dies, async ({ ep, dispatch }) => {
        const { signal } = ep.world.circle;
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
        dispatch();
      });
      expect(summary(errors)).toEqual(['1 dispatch undefined', '1 dispatch undefined']);
      expect((errors[0]!.cause as RankLostError).ranks).toEqual([victim]);
    });

    // Into the victim's kernels, at points spread over a round, every second way at the points between: each survivor fails
    // somewhere in that round, or in the next if the victim had sent all that it needs.
    it.each(n % 2 === 0 ? [20, 120, 320, 700] : [60, 200, 500, 1000])(
      'fail by the next round when it dies %i steps into one',
      async (steps) => {
        const diesInside = async (machine: SimMachine, rank: Rank) => {
          rank.dispatch();
          rank.combine();
          machine.kill(victim, machine.statistics.steps + steps);
          await rank.ended();
        };
        const errors = await lose(way, diesInside, ({ round }) => round().then(round));
        for (const error of summary(errors)) expect(error).toMatch(/^1 (dispatch|combine) (3|4|undefined)$/);
      },
    );
  });
}

it('a rank whose program throws is lost to the others, and what it threw is what the world throws', async () => {
  const errors: RankLostError[] = [];
  const world = World.local({ ranks, device: 'sim' }, async (world) => {
    const { ep, stream, dispatch } = await prepare(world, ways.push!);
    if (world.rank !== victim) dispatch();
    await world.barrier('enqueued');
    if (world.rank === victim) throw new Error('rank 1 falls');
    const error: RankLostError = await ep.synchronize(stream).catch((thrown) => thrown);
    errors.push(error);
    await ep.dispose();
  });
  await expect(world).rejects.toThrow('rank 1 falls');
  expect(summary(errors)).toEqual(['1 dispatch 1', '1 dispatch 1']);
  expect(((errors[0]!.cause as RankLostError).cause as Error).message).toContain('rank 1 falls');
});

/** What each rank of a group brings. */
const everywhere: Brought = {
  topkIds: Int32Array.from({ length: routes }, (_, i) => i % options.experts),
  topkWeights: new Float32Array(routes).fill(1),
};

const handing: Record<string, Way> = { push: { tuning: push }, rails: { ...rails, nodes: 2 } };
const silent = Object.keys(handing).flatMap((name) => [0, 3].map((late) => [name, late] as const));

it.each(silent)(
  'by %s, rank %i, which hands on no sums, is named by the other of its group',
  async (name, late) => {
    const receives = async ({ ep, stream, dispatch, ended, out }: Rank, number: number) => {
      const sent = ep.combineSend(dispatch(), stream);
      await ended();
      await ep.world.barrier('sums are sent');
      if (number !== (late ^ 1)) return;
      ep.combineRecv(sent, out, stream);
      await ended();
    };
    const way = { ...handing[name]!, replicas: 2, split: true };
    const errors = await missing(way, receives, SimMachine.create({ ranks: 4 }), () => everywhere);
    expect(summary(errors)).toEqual([`${late} combine 1`]);
  },
);

/** To the first expert of the victim. */
const toVictim: Brought = {
  topkIds: Int32Array.of(2, -1, -1),
  topkWeights: Float32Array.of(1, 1, 1),
};

it('a scale that never comes is a loss, though the elements that it is for have come', async () => {
  const machine: SimMachine = SimMachine.create({
    ranks,
    mode: 'checked',
    // The victim dies between the two stores that a row of 16 elements takes.
    watch: (site) => ({
      access(_thread, { kind, order, bytes }, id) {
        const elements = kind === 'write' && order === 'relaxed' && bytes === 16;
        if (elements && site(id).where.includes('one-sided/scaled.ts')) machine.kill(victim);
      },
    }),
  });
  const errors: RankLostError[] = [];
  const world = World.local({ ranks, device: 'sim', sim: machine }, async (world) => {
    const rank = await prepare(world, ways['push, as e4m3']!, world.rank === 0 ? toVictim : nothing);
    rank.dispatch();
    rank.combine();
    const ended = rank.ep.synchronize(rank.stream);
    if (world.rank === 0) errors.push(await ended.then(() => null).catch((thrown) => thrown));
    else await ended;
  });
  await expect(world).rejects.toThrow('rank 1 of the simulated machine was killed');
  expect(errors[0]).toBeInstanceOf(RankLostError);
  expect(summary(errors)).toEqual(['1 combine 1']);
  expect(machine.statistics.timeLimits).toBe(1);
});

const sends: Record<string, Way> = {
  messages: portable,
  'messages over nvshmem': { ...portable, transport: 'nvshmem' },
  'rails between 3 nodes': ways['rails between 3 nodes']!,
};

it.each(Object.keys(sends))('who has given up writes nothing more to others: %s', async (name) => {
  const machine = SimMachine.create({ ranks });
  const { nodes = 1, ...way } = sends[name]!;
  let ended = (): void => {};
  const over = new Promise<void>((resolve) => {
    ended = resolve;
  });
  const seen: number[] = [];
  const world = World.local({ ranks, nodes, device: 'sim', sim: machine }, async (world) => {
    const ep = await ExpertParallel.create(world, { ...options, ...way });
    const stream = world.device.createStream();
    const { topkIds, topkWeights } = amongSurvivors;
    const out = emptyTensor(world.device, 'bf16', [options.maxTokens, options.output.length]);
    const round = (value: number) => {
      const x = new Uint16Array(options.maxTokens * options.output.length).fill(value);
      ep.dispatch({ topkIds, topkWeights, payloads: { x } }, stream);
      ep.combine(out, stream);
    };
    await world.barrier('all are there');
    if (world.rank === victim) {
      machine.kill(victim);
      await ep.synchronize(stream);
    }
    if (world.rank === 0) for (const value of [1, 2, 3]) round(value);
    else round(1);
    await expect(ep.synchronize(stream)).rejects.toBeInstanceOf(RankLostError);
    if (world.rank === 0) return ended();
    await over;
    await stream.synchronize();
    const { data, bytes } = ep.received.payloads.x;
    const rows = await stream.copyOut(data, bytes);
    seen.push(...new Uint16Array(rows.buffer, rows.byteOffset, bytes / 6)); // those of rank 0, one of three
  });
  await expect(world).rejects.toThrow('rank 1 of the simulated machine was killed');
  expect(new Set(seen)).toContain(1);
  expect(new Set(seen)).not.toContain(2);
  expect(new Set(seen)).not.toContain(3);
});

it.each(Object.keys(sends))(
  'who has given up in dispatch sends no sums, by which the one that was late is told: %s',
  async (name) => {
    const inTurn: unknown[] = [];
    const later = async ({ ep, round }: Rank, number: number) => {
      // Whose routes are still there in the next.
      await round();
      await ep.world.barrier('one stays behind');
      if (number !== victim) inTurn.push(await round().catch((error) => error));
      await ep.world.barrier('the others have given up');
      if (number === victim) inTurn.push(await round().catch((error) => error));
    };
    await missing(sends[name]!, later);
    for (const error of inTurn) expect(error).toBeInstanceOf(RankLostError);
    expect(inTurn).toMatchObject([
      { ranks: [victim], operation: 'dispatch', epoch: 2 },
      { ranks: [victim], operation: 'dispatch', epoch: 2 },
      { operation: 'combine', epoch: 2 },
    ]);
  },
);

/** Where a rank writes what it is about to send, in its own memory. */
const messagesMade = /portable\/tell-routes|hybrid\/pack-chunk/;

it.each(Object.keys(sends))(
  'who has given up writes no message of its next dispatch, as the last may still be on its way: %s',
  async (name) => {
    const late = 0; // whose number is that of no failure
    const lost = new Set<number>();
    const made = { before: 0, behind: 0 };
    const machine = SimMachine.create({
      ranks,
      mode: 'checked',
      watch: (site) => ({
        access(_thread, { kind }, id, { rank }) {
          const { where } = site(id);
          if (kind !== 'write') return;
          if (where.includes('common/waits')) lost.add(rank);
          else if (messagesMade.test(where)) made[lost.has(rank) ? 'behind' : 'before'] += 1;
        },
      }),
    });
    const twice = async ({ dispatch, combine, round }: Rank, number: number) => {
      if (number === late) return;
      dispatch();
      combine();
      await round();
    };
    const errors = await missing(sends[name]!, twice, machine);
    expect(summary(errors)).toEqual(['0 dispatch 1', '0 dispatch 1']);
    expect(made.before).toBeGreaterThan(0);
    expect(made.behind).toBe(0);
  },
);
