/** Worlds of processes whose GPUs are simulated. */
import { describe, expect, it } from 'vitest';
import { pass } from '../../../examples/ring.js';
import { ArgumentError, RankLostError, RankMaskedError } from '../../../src/base/errors.js';
import { reference } from '../../../src/moe/layer/index.js';
import { type JoinWorldOptions, World } from '../../../src/net/world/index.js';
import {
  compareCombined,
  expectedRound,
  makeSources,
  shapeOfRounds,
} from '../../../src/verify/testing/index.js';
import { maskableRounds } from '../../moe/maskable-rounds.js';
import { describeOver, needing } from '../../needs.js';
import { transpiled } from '../../tree.js';
import { freePort } from './circles.js';
import { joining, onLoopback } from './joining.js';
import { launched } from './launched.js';

/** Joins as `processes` would that are `ranksHere` ranks each; what their programs returned, or why they failed. */
async function join<T>(
  processes: number,
  ranksHere: number,
  program: (world: World) => Promise<T>,
): Promise<PromiseSettledResult<T[]>[]> {
  const joinAs = await joining({ ranks: processes * ranksHere, ranksHere });
  return Promise.allSettled(Array.from({ length: processes }, (_, i) => joinAs(i * ranksHere, program)));
}

const values = <T>(results: readonly PromiseSettledResult<T[]>[]): T[][] =>
  results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });

describe('a process that simulates several GPUs', () => {
  it('is a node of the world: its windows are shared, and all ranks meet', async () => {
    const results = await join(2, 3, async (world) => {
      const { topology, rank, device } = world;
      const window = await world.createWindow(16, 'window');
      const stream = device.createStream();
      for (const base of window.bases) stream.fill(base + window.rank, 1, 10 + rank);
      await stream.synchronize();
      await world.barrier();
      const { node, localRank, localRanks } = topology;
      return [node, localRank, localRanks, ...(await stream.copyOut(window.own.address, 4))];
    });
    expect(values(results)).toEqual([
      [0, 1, 2].map((rank) => [0, rank, 3, 10, 11, 12, 0]),
      [0, 1, 2].map((rank) => [1, rank, 3, 13, 14, 15, 0]),
    ]);
  });

  it('runs kernels that wait for each other', async () => {
    const [rows] = values(await join(1, 3, (world) => pass(world, 2)));
    expect(rows!.map((row) => row[0])).toEqual([100, 200, 0]);
  });

  describe('over libfabric', needing('libfabric'), () => {
    const shape = shapeOfRounds({ ranks: 4, experts: 8, topK: 3, maxTokens: 3, hidden: 16, dtype: 'bf16' });
    const rounds = async (world: World) => {
      const { ep, stream, begin, read } = await maskableRounds(world, shape, { family: 'hybrid' }, false);
      const run = async (n: number) => {
        const sources = makeSources(shape, shape.maxTokens, n);
        begin(sources[world.rank]!);
        await ep.synchronize(stream);
        const left = reference.without(shape, sources, world.masked);
        const expected = expectedRound(shape, left, true, 2)[world.rank]!;
        expect(compareCombined(shape, world.rank, await read(), expected).different).toBe(0);
      };
      return { ep, run };
    };
    const admitAll = async (world: World) => {
      while (world.masked.length > 0) {
        await world.admit();
        await new Promise(setImmediate);
      }
    };

    it('takes places that are empty from the beginning, and rounds grow with the world', async () => {
      const joinAs = await joining({ ranks: 2, places: 4, ranksHere: 2 });
      const began = joinAs(0, async (world) => {
        expect(world).toMatchObject({ ranks: 4, masked: [2, 3] });
        expect(world.topology.members).toEqual([0, 2].map((rank) => [rank, rank + 1]));
        const { ep, run } = await rounds(world);
        for (const n of [1, 2]) await run(n);
        await admitAll(world);
        for (const n of [3, 4]) await run(n);
        await ep.dispose();
      });
      const comes = async (world: World) => {
        const { ep, run } = await rounds(world);
        await world.rejoin();
        expect(world.masked).toEqual([]);
        for (const n of [3, 4]) await run(n);
        await ep.dispose();
      };
      const came = joinAs(2, comes, { rejoin: 'more' });
      await Promise.all([began, came]);
    });

    it('leaves out also a rank that cannot go on with the others, since its NIC has gone, and admits it again', async () => {
      const nics = ['lo'];
      let out = 0;
      const joinAs = await joining({ ranks: 4, ranksHere: 2 });
      const stays = joinAs(0, async (world) => {
        const { ep, run } = await rounds(world);
        await run(1);
        await world.mask([2]);
        expect(world.masked).toEqual([2, 3]);
        await run(2);
        await admitAll(world);
        await run(3);
        await ep.dispose();
      });
      const falling = async (world: World) => {
        const { ep, run } = await rounds(world);
        await run(1);
        nics[0] = 'gone';
        const error = await world.mask([2]).catch((error: unknown) => error);
        out++;
        expect(error).toBeInstanceOf(RankMaskedError);
        const why =
          world.rank === 2 ? 'the program leaves it out' : 'its proxy cannot begin: devices is "gone"';
        expect(error).toMatchObject({ cause: { cause: { message: expect.stringContaining(why) } } });
        while (out < 2) await new Promise(setImmediate);
        nics[0] = 'lo';
        await world.rejoin();
        while (world.masked.length > 0) await world.admit();
        await run(3);
        await ep.dispose();
      };
      await Promise.all([stays, joinAs(2, falling, { fabric: { ...onLoopback, devices: nics } })]);
    });
  });

  it('throws what a program threw that had left its world before', async () => {
    const [only] = await join(1, 2, async (world) => {
      await world.dispose();
      if (world.rank === 1) throw new Error('it has had enough');
    });
    expect(only).toMatchObject({ status: 'rejected', reason: { message: 'it has had enough' } });
  });

  it('loses the rank whose program throws, to all processes, and throws what it threw', async () => {
    const [one, other] = await join(2, 2, async (world) => {
      if (world.rank === 1) throw new Error('it has had enough');
      return world.barrier('together').catch((error: unknown) => error);
    });
    expect(one).toMatchObject({ status: 'rejected', reason: { message: 'it has had enough' } });
    const [seen] = values([other!]);
    for (const error of seen!) {
      expect(error).toBeInstanceOf(RankLostError);
      expect(error).toMatchObject({ ranks: [1], operation: 'together' });
    }
  });

  it('needs a program, unless it is one rank', async () => {
    const place: JoinWorldOptions = { device: 'sim', rank: 0, ranks: 2, address: '127.0.0.1:1' };
    await expect(World.join({ ...place, ranksHere: 2 })).rejects.toThrow(
      /program is undefined; it must be given, because this process is 2 ranks: World\.join\(\{\}, async/,
    );
    await expect(World.join({ ...place, ranksHere: 3 })).rejects.toThrow(ArgumentError);
    await expect(World.join({ ...place, device: 'cuda', ranksHere: 2 })).rejects.toThrow(ArgumentError);
    const world = await World.join({ ...place, ranks: 1, address: `127.0.0.1:${await freePort()}` });
    expect([world.ranks, world.device.kind]).toEqual([1, 'sim']);
    await world.dispose();
  });
});

describeOver(['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'], 'examples/two-nodes.ts over %s', (provider) => {
  it('carries every line to every rank', async () => {
    const { exitCode, out, errors } = await launched({
      ...{ ranks: 4, nodes: 2, device: 'sim', timeoutMs: 50_000 },
      ...{ program: transpiled('examples/two-nodes.ts'), args: [provider] },
    });
    const lines = [0, 1, 2, 3].map((rank) => {
      const node = Math.floor(rank / 2);
      return `[ranks ${2 * node}-${2 * node + 1}] rank ${rank} of node ${node} has lines of rank 0, rank 1, rank 2, rank 3`;
    });
    expect(out.trim().split('\n').sort(), errors).toEqual(lines);
    expect(exitCode).toBe(0);
  });
});
