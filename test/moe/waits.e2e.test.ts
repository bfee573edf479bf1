/** How long kernels wait for peers: counted where asked for, so that a rank which is late is named. */
import { describe, expect, test } from 'vitest';
import { ArgumentError, HeddleError } from '../../src/base/errors.js';
import { callSite } from '../../src/gpu/index.js';
import { kernel } from '../../src/lang/index.js';
import { ExpertParallel, latestRank, type Waits } from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { ExampleExperts, layerOf, makeSources, shapeOfRounds } from '../../src/verify/testing/index.js';

/** Work that takes so many nanoseconds of the simulated machine. */
const dawdle = kernel({ name: 'dawdle', params: { nanoseconds: 'u32' } }, (g, { nanoseconds }) => {
  const since = g.clock();
  while (g.clock() - since < g.u64(nanoseconds)) g.sleep(100_000);
});

const ranks = 4;
const shape = shapeOfRounds({ ranks, experts: 8, topK: 2, maxTokens: 3, hidden: 8, dtype: 'bf16' });
const late = 500_000;

/** Three rounds in which one rank comes late to dispatch, and one has slow experts. */
async function roundsWith(
  options: Parameters<typeof layerOf>[1],
  slow: { readonly dispatch?: number; readonly experts?: number },
): Promise<Waits> {
  const rounds = [1, 2, 3].map((seed) => makeSources(shape, 3, seed));
  const all = await World.local({ ranks, device: 'sim' }, async (world) => {
    const { device, rank } = world;
    const ep = await ExpertParallel.create(world, layerOf(shape, { waits: true, ...options }));
    const stream = device.createStream();
    const zeros = new Array(ranks).fill(new Array(ranks).fill(0));
    expect(await ep.waits(stream)).toMatchObject({ dispatch: zeros, combine: zeros });
    const experts = await ExampleExperts.create(world, ep, stream);
    const out = device.allocate(3 * 16, 'out');
    const site = await callSite(device, dawdle, { grid: 1, block: 32, rank });
    site.set.nanoseconds(late);
    for (const sources of rounds) {
      const { topkIds, topkWeights, payloads } = sources[rank]!;
      if (rank === slow.dispatch) site.launch(stream);
      ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
      experts.run(stream);
      if (rank === slow.experts) site.launch(stream);
      ep.combine({ data: out.address, dtype: 'bf16', shape: [3, 8], bytes: 48 }, stream);
    }
    await ep.synchronize(stream);
    const waits = await ep.waits(stream);
    expect(await ep.waits(stream)).toEqual(waits);
    experts.free();
    await ep.dispose();
    return waits;
  });
  for (const one of all) expect(one).toEqual(all[0]);
  return all[0]!;
}

/** The peer that each rank waited for most; -1 for the one that came last itself. */
const missed = (waits: readonly (readonly number[])[]): number[] =>
  waits.map((row) => {
    const most = Math.max(...row);
    return most < (0.9 * late) / 1000 ? -1 : row.indexOf(most);
  });

describe('a rank that is late is named by all others, and waits for nobody', () => {
  const ways: Record<string, Parameters<typeof layerOf>[1]> = {
    pushed: {},
    pulled: { tuning: pulling() },
    split: { split: true },
  };
  test.each(Object.entries(ways))('%s', async (_, options) => {
    const waits = await roundsWith(options, { dispatch: 1 });
    expect(missed(waits.dispatch)).toEqual([1, -1, 1, 1]);
    expect(latestRank(waits).rank).toBe(1);
    const slowExperts = await roundsWith(options, { experts: 2 });
    expect(missed(slowExperts.combine)).toEqual([2, 2, -1, 2]);
    const { rank, waited } = latestRank(slowExperts);
    expect(rank).toBe(2);
    expect(waited).toBeGreaterThan((0.9 * 3 * late) / 1000);
  });

  function pulling() {
    const launch = { blocks: 2, threads: 32, parts: 1, inFlight: 4, teams: 1 };
    return {
      dispatch: { ...launch, way: 'store' as const },
      combine: { ...launch, way: 'pull' as const, ahead: 1 },
    };
  }
});

describe('waits', () => {
  test('are those of the last 64 rounds', async () => {
    const waits = await World.local({ ranks: 2, device: 'sim' }, async (world) => {
      const { device, rank } = world;
      const tiny = shapeOfRounds({ ranks: 2, experts: 2, topK: 1, maxTokens: 1, hidden: 8, dtype: 'bf16' });
      const ep = await ExpertParallel.create(world, layerOf(tiny, { waits: true }));
      const stream = device.createStream();
      const { topkIds, topkWeights, payloads } = makeSources(tiny, 1, 1)[rank]!;
      const out = device.allocate(16, 'out');
      const site = await callSite(device, dawdle, { grid: 1, block: 32, rank });
      site.set.nanoseconds(64 * late);
      const round = () => {
        ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
        ep.combine({ data: out.address, dtype: 'bf16', shape: [1, 8], bytes: 16 }, stream);
      };
      if (rank === 0) site.launch(stream);
      for (let n = 0; n < 64; n++) round();
      await ep.synchronize(stream);
      const first = await ep.waits(stream);
      round();
      await ep.synchronize(stream);
      const then = await ep.waits(stream);
      await ep.dispose();
      return { first, then };
    });
    const late1 = (0.9 * late) / 1000;
    const [first, then] = [waits[1]!.first, waits[1]!.then];
    expect(first.dispatch[1]![0]).toBeGreaterThan(late1);
    expect(then.dispatch[1]![0]).toBeLessThan(late1);
    // One round of 64 waited 32 ms, which lie between 2^14 and 2^15 µs, or a little longer; then it was too long ago.
    const long = ({ histograms }: Waits) => histograms.dispatch[1]![0]!.slice(15).reduce((sum, n) => sum + n);
    const all = ({ histograms }: Waits) => histograms.dispatch[1]![0]!.reduce((sum, n) => sum + n);
    expect([long(first), all(first)]).toEqual([1, 64]);
    expect([long(then), all(then)]).toEqual([0, 64]);
  });

  test('are counted where they were asked for only', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const ep = await ExpertParallel.create(world, layerOf({ ...shape, ranks: 1 }));
      const refused = await ep.waits(world.device.createStream()).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(HeddleError);
      expect(refused).toMatchObject({ code: 'HEDDLE_NOT_COUNTED' });
      expect((refused as Error).message).toContain('create the ExpertParallel with waits: true');
      await ep.dispose();
    });
  });

  test('families that do not count them say so', async () => {
    await World.local({ ranks: 1, device: 'sim' }, async (world) => {
      const options = layerOf({ ...shape, ranks: 1 }, { waits: true, family: 'portable' });
      const refused = await ExpertParallel.create(world, options).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ArgumentError);
      expect((refused as Error).message).toBe(
        "waits is true; it must be false with family 'portable', which does not count them",
      );
    });
  });
});
