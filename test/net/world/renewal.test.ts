/** Going on without ranks that are gone: circles, worlds with rounds in them, and processes. */
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DisposedError, RankLostError, RendezvousError } from '../../../src/base/errors.js';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { readBits, tensorFrom } from '../../../src/moe/index.js';
import type { Circle, CircleOptions } from '../../../src/net/world/circle.js';
import { Launch, World } from '../../../src/net/world/index.js';
import { ProcessCircle } from '../../../src/net/world/process-circle.js';
import {
  expectedRound,
  makeSources,
  type RoundsOptions,
  runRounds,
  shapeOfRounds,
} from '../../../src/verify/testing/index.js';
import { needing } from '../../needs.js';
import { transpiled } from '../../tree.js';
import { describeCircles, freePort } from './circles.js';

const renewed = (circles: readonly (Circle | undefined)[]) =>
  Promise.all(circles.map((circle) => circle!.renew()));
const placeOf = ({ rank, ranks, origins }: Circle) => ({ rank, ranks, origins });
/** What a rank brings, so that the order in which it arrives shows. */
const bringOrigin = (circle: Circle) => circle.allGather(Uint8Array.of(circle.origins[circle.rank]!));

describeCircles(
  (name) => `a renewal of ${name}`,
  (make) => {
    const ends: (() => Promise<void>)[] = [];
    const create = async (ranks: number, options?: CircleOptions) => {
      const { circles, end } = await make(ranks, options);
      ends.push(end);
      return circles;
    };
    const keep = <T extends Circle>(circles: readonly T[]) => {
      // Before the circles that they come from, whose rendezvous they need.
      ends.unshift(async () => void (await Promise.all(circles.map((circle) => circle.dispose()))));
      return circles;
    };
    beforeEach(() => {
      ends.length = 0;
    });
    afterEach(async () => {
      for (const end of ends) await end();
    });

    it('is a circle of those that are left, in their order', async () => {
      const [a, b, c, d] = await create(4);
      b!.abandon('it falls');
      const next = keep(await renewed([d, a, c]));
      expect(next.map(placeOf)).toEqual([
        { rank: 2, ranks: 3, origins: [0, 2, 3] },
        { rank: 0, ranks: 3, origins: [0, 2, 3] },
        { rank: 1, ranks: 3, origins: [0, 2, 3] },
      ]);
      for (const parts of await Promise.all(next.map(bringOrigin)))
        expect(parts.map(([origin]) => origin)).toEqual([0, 2, 3]);
      expect(next[0]!.signal.aborted).toBe(false);
    });

    it('leaves nothing to do in the circle before', async () => {
      const [a, b, c] = await create(3);
      c!.abandon('it falls');
      const next = keep(await renewed([a, b]));
      await expect(a!.barrier()).rejects.toThrow(DisposedError);
      expect(() => a!.accuse([1], 'too late')).toThrow(DisposedError);
      await expect(a!.renew()).rejects.toThrow(DisposedError);
      await a!.dispose();
      await Promise.all(next.map((circle) => circle.barrier()));
    });

    it('does not believe ranks that were lost, and run all the same', async () => {
      const [a, b, c, d] = await create(4);
      const heard = Promise.all([c, d].map((out) => once(out!.signal, 'abort')));
      a!.accuse([2, 3], 'they do not answer');
      await heard;
      c!.accuse([0, 1], 'they do not answer');
      await c!.dispose();
      const next = keep(await renewed([a, b]));
      d!.accuse([0, 1], 'they do not answer');
      await d!.dispose();
      await Promise.all(next.map((circle) => circle.barrier()));
      expect(next.map(({ signal }) => signal.aborted)).toEqual([false, false]);
    });

    it('needs nobody that has left, and calls that were pending end', async () => {
      const [a, b, c] = await create(3);
      const pending = a!.barrier('never');
      const rejected = expect(pending).rejects.toThrow(DisposedError);
      const renewal = renewed([a, b]);
      await rejected;
      await c!.dispose();
      expect(keep(await renewal).map(placeOf)).toMatchObject([{ origins: [0, 1] }, { origins: [0, 1] }]);
    });

    it('loses who does not come in time', async () => {
      // The three have it for joining, too.
      const [a, b] = await create(3, { timeoutMs: 1000 });
      const next = keep(await renewed([a, b]));
      expect(next.map(placeOf)).toMatchObject([
        { rank: 0, origins: [0, 1] },
        { rank: 1, origins: [0, 1] },
      ]);
    });

    it('goes on without one that falls while the others wait for it, and tells of it', async () => {
      const [a, b, c, d] = await create(4);
      const lost: (readonly number[])[] = [];
      a!.onRankLost((loss) => lost.push(loss instanceof RankLostError ? loss.ranks : []));
      d!.abandon('the first');
      const renewal = renewed([a, c]);
      b!.abandon('the second');
      expect(keep(await renewal).map(placeOf)).toMatchObject([{ origins: [0, 2] }, { origins: [0, 2] }]);
      // Two processes fall at the same time, so either may be told first.
      expect(lost.flat().sort()).toEqual([1, 3]);
    });

    it('is refused to a rank that the others have lost', async () => {
      const [a, b] = await create(2);
      const heard = new Promise((resolve) => b!.onRankLost(resolve));
      a!.accuse([1], 'it does not answer');
      await heard;
      await expect(b!.renew()).rejects.toThrow(RankLostError);
      keep(await renewed([a]));
    });

    it('says to a rank that is lost meanwhile why it came to nothing, and says it again', async () => {
      const [a, b, c] = await create(3);
      const refused = expect(b!.renew()).rejects.toMatchObject({ ranks: [1] });
      a!.accuse([1], 'it does not answer');
      await refused;
      await expect(b!.renew()).rejects.toMatchObject({ ranks: [1] });
      keep(await renewed([a, c]));
    });

    it('may follow another, and losses are numbered as the circle is', async () => {
      const [a, b, c, d] = await create(4);
      b!.abandon('the first');
      const [a1, c1, d1] = await renewed([a, c, d]);
      const lost = new Promise((resolve) => a1!.onRankLost(resolve));
      c1!.abandon('the second');
      expect(await lost).toMatchObject({ ranks: [1] });
      expect(keep(await renewed([a1, d1])).map(placeOf)).toMatchObject([
        { rank: 0, origins: [0, 3] },
        { rank: 1, origins: [0, 3] },
      ]);
    });

    it('ends when the rank that waits for it leaves', async () => {
      const [a, b, c] = await create(3);
      c!.abandon('it falls');
      const refused = expect(b!.renew()).rejects.toThrow(DisposedError);
      await b!.dispose();
      await refused;
      expect(keep([await a!.renew()]).map(placeOf)).toMatchObject([{ ranks: 1, origins: [0] }]);
    });
  },
);

describe('a renewal without the process that hosts the rendezvous', () => {
  const join = async (ranks: number) => {
    const address = `127.0.0.1:${await freePort()}`;
    return Promise.all(
      Array.from({ length: ranks }, (_, rank) => ProcessCircle.join({ rank, ranks, address })),
    );
  };

  it('is refused, at once or as soon as that is gone, with what to do', async () => {
    const [host, waits, comes] = await join(3);
    const refused = expect(waits!.renew()).rejects.toThrow(/under 'heddle run' the launcher hosts it/);
    await host!.dispose();
    await refused;
    await expect(comes!.renew()).rejects.toThrow(RendezvousError);
    await Promise.all([waits!.dispose(), comes!.dispose()]);
  });

  it('that is no rank any more blames none of those that have rank 0 now', async () => {
    const [host, a, b] = await join(3);
    const out = once(host!.signal, 'abort');
    a!.accuse([0], 'it does not answer');
    await out;
    const left = await Promise.all([a!.renew(), b!.renew()]);
    const pending = expect(left[0]!.barrier()).rejects.toThrow(/the process that was rank 0, .* is gone/);
    await host!.dispose();
    await pending;
    for (const circle of left) {
      await expect(circle.barrier()).rejects.toBeInstanceOf(RendezvousError);
      await expect(circle.renew()).rejects.toThrow(/cannot be renewed/);
      expect(circle).toMatchObject({ out: false, signal: { aborted: false } });
      await circle.dispose();
    }
  });
});

const layer = { experts: 12, topK: 3, maxTokens: 4, hidden: 16, dtype: 'bf16' } as const;

/** What a round of these ranks brings back to one of them, beside what the reference says. */
async function roundOf(world: World, options: RoundsOptions = {}) {
  const shape = shapeOfRounds({ ...layer, ranks: world.ranks });
  const sources = makeSources(shape, layer.maxTokens, 7);
  const { out } = await runRounds(world, shape, [sources], options);
  const { nodes } = world.topology;
  const summed = options.family !== 'portable' ? nodes : 1;
  return { out: out[0], expected: expectedRound(shape, sources, true, summed)[world.rank] };
}

/** Ranks of which one falls; what each of the others had in the world that was renewed. */
async function renewAfterLoss(
  on: { readonly ranks: number; readonly nodes?: number; readonly sim?: SimMachine },
  victims: readonly number[],
  options: RoundsOptions = {},
) {
  return World.local({ device: 'sim', ...on }, async (world) => {
    const stream = world.device.createStream();
    const weights = tensorFrom(world.device, stream, [1, 2, 3, world.rank], 'f32', [4]);
    await roundOf(world, options);
    if (victims.includes(world.rank)) {
      world.circle.abandon('it falls');
      return null;
    }
    // Not all of them: ranks that renew need not have met equally often.
    if (world.rank > 0) await expect(world.barrier('more work')).rejects.toThrow(RankLostError);
    const next = await world.renew();
    const { out, expected } = await roundOf(next, options);
    expect(await readBits(weights, stream)).toEqual(Float32Array.of(1, 2, 3, world.rank));
    return { rank: next.rank, ranks: next.ranks, was: world.rank, out, expected };
  });
}

describe('a world that is renewed', () => {
  it.each([
    ['by one-sided', { ranks: 4 }, [1], {}],
    ['by portable', { ranks: 4 }, [0], { family: 'portable' }],
    ['by hybrid, of 3 nodes', { ranks: 6, nodes: 3 }, [2, 3], { family: 'hybrid' }],
  ] as const)('carries rows %s', async (_, on, victims, options) => {
    const results = await renewAfterLoss(on, victims, options);
    const left = results.filter((result) => result !== null);
    expect(left.map(({ rank, ranks }) => [rank, ranks])).toEqual(left.map((_, rank) => [rank, left.length]));
    expect(left.map(({ was }) => was)).toEqual(
      Array.from({ length: on.ranks }, (_, rank) => rank).filter((rank) => !victims.includes(rank as never)),
    );
    for (const { out, expected } of left) expect(out).toEqual(expected);
  });

  it('orders what hosts do on both sides of its meetings, though some have met more often', async () => {
    const sim = SimMachine.create({ ranks: 3, mode: 'checked', seed: '1' });
    await World.local({ ranks: 3, device: 'sim', sim }, async (world) => {
      if (world.rank === 1) return world.circle.abandon('it falls');
      if (world.rank > 0) await expect(world.barrier('more work')).rejects.toThrow(RankLostError);
      const next = await world.renew();
      const { own, bases } = await next.createWindow(64, 'window');
      const stream = next.device.createStream();
      for (const base of bases) stream.fill(base + next.rank, 1, 10 + next.rank);
      await stream.synchronize();
      await next.barrier();
      expect([...(await stream.copyOut(own.address, 2))]).toEqual([10, 11]);
    });
    expect(sim.findings).toEqual([]);
  });

  it('goes on without a rank that falls before all have freed their memory', async () => {
    const all = World.local({ ranks: 4, nodes: 4, device: 'sim' }, async (world) => {
      if (world.rank === 0) return world.circle.abandon('the first to fall');
      if (world.rank === 2)
        world.freeAtRenewal(async () => {
          throw new Error('the second to fall');
        });
      const next = await world.renew();
      await next.barrier();
      seen.push({ origins: next.circle.origins, again: (await world.renew()) === next });
    });
    const seen: unknown[] = [];
    await expect(all).rejects.toThrow('the second to fall');
    expect(seen).toEqual([1, 3].map(() => ({ origins: [1, 3], again: true })));
  });

  it('is over, and its end is not that of the new one', async () => {
    await World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const next = await world.renew();
      await expect(world.barrier()).rejects.toThrow(DisposedError);
      await world.dispose();
      await next.barrier();
    });
  });

  it('loses to the others who throws in the new one', async () => {
    const heard: unknown[] = [];
    const all = World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const next = await world.renew();
      if (next.rank === 1) throw new Error('it throws');
      await next.barrier().catch((error) => heard.push(error));
    });
    await expect(all).rejects.toThrow('it throws');
    expect(heard).toMatchObject([{ ranks: [1] }]);
  });
});

describe('processes of which one is killed', () => {
  it('go on without it', needing('libfabric'), async () => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const said = Promise.all([text(stdout), text(stderr)]);
    const notes: string[] = [];
    const launch = await Launch.start({
      ...{ ranks: 3, nodes: 3, device: 'sim', keepGoing: true },
      program: transpiled('test/net/world/programs/renew.ts'),
      ...{ timeoutMs: 50_000, prefix: false, stdout, stderr, onNote: (note) => notes.push(note) },
    });
    const { exitCode, firstFailure } = await launch.finished;
    stdout.end();
    stderr.end();
    const [out, errors] = await said;
    const lines = out.trim().split('\n').sort();
    expect(lines, errors).toEqual(['0 was 0 of 2: the same bits', '1 was 2 of 2: the same bits']);
    expect(notes).toEqual(['rank 1 was ended by SIGKILL; the others go on']);
    expect({ exitCode, rank: firstFailure?.rank }).toEqual({ exitCode: 0, rank: 1 });
  });
});
