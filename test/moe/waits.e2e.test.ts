/** How long kernels wait for peers: counted where asked for, so that a rank which is late is named. */
import { describe, expect, test } from 'vitest';
import { DisposedError, HeddleError, RepeatRoundsError } from '../../src/base/errors.js';
import { callSite } from '../../src/gpu/index.js';
import { SimMachine } from '../../src/gpu/sim/index.js';
import { kernel, printCuda } from '../../src/lang/index.js';
import {
  ExpertParallel,
  type ExpertParallelOptions,
  emptyTensor,
  type ForwardOptions,
  latestRank,
  MoeLayer,
  type MoeLayerOptions,
  roundsInside,
  type Waits,
} from '../../src/moe/index.js';
import { World } from '../../src/net/world/index.js';
import { ExampleExperts, layerOf, makeSources, shapeOfRounds } from '../../src/verify/testing/index.js';
import { plain } from './layers.js';
import { tuned } from './maskable-rounds.js';
import { makeLayer, placeRows, placeWeights } from './whole-layer.js';

/** Work that takes so many nanoseconds of the simulated machine. */
const dawdle = kernel({ name: 'dawdle', params: { nanoseconds: 'u32' } }, (g, { nanoseconds }) => {
  const since = g.clock();
  while (g.clock() - since < g.u64(nanoseconds)) g.sleep(100_000);
});

const ranks = 4;
const shape = shapeOfRounds({ ranks, experts: 8, topK: 2, maxTokens: 3, hidden: 8, dtype: 'bf16' });
const late = 500_000;

type Way = Parameters<typeof layerOf>[1] &
  Pick<ExpertParallelOptions, 'transport'> & { readonly nodes?: number };

/** Three rounds in which one rank comes late to dispatch, and one has slow experts. */
async function roundsWith(
  { nodes = 1, ...options }: Way,
  slow: { readonly dispatch?: number; readonly experts?: number },
): Promise<Waits> {
  const rounds = [1, 2, 3].map((seed) => makeSources(shape, 3, seed));
  const sim = SimMachine.create({ ranks, schedule: 'random', seed: '7' });
  const all = await World.local({ ranks, nodes, device: 'sim', sim }, async (world) => {
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
  const ways: Record<string, Way> = {
    pushed: {},
    pulled: tuned('pull'),
    split: { split: true },
    portable: { family: 'portable' },
    'portable, counts, split': { family: 'portable', counts: true, split: true },
    'portable over NVSHMEM': { family: 'portable', transport: 'nvshmem' },
    'hybrid, a rank a node': { family: 'hybrid', nodes: 4 },
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

  test('hybrid: by its own node and its rail, whose ranks the others of their node wait for', async () => {
    const rails = { family: 'hybrid', nodes: 2 };
    const waits = await roundsWith(rails, { dispatch: 1 });
    expect(missed(waits.dispatch)).toEqual([1, -1, 3, 1]);
    expect(latestRank(waits).rank).toBe(1);
    const slowExperts = await roundsWith(rails, { experts: 2 });
    expect(missed(slowExperts.combine)).toEqual([2, 3, -1, 2]);
    expect(latestRank(slowExperts).rank).toBe(2);
  });
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
      expect((refused as Error).message).toContain('create the layer with waits: true');
      await ep.dispose();
    });
  });

  test('leave out the ranks that the world leaves out', async () => {
    const of = { family: 'portable', onLoss: 'mask', waits: true } as const;
    const all = await World.local({ ranks, device: 'sim' }, async (world) => {
      const ep = await ExpertParallel.create(world, layerOf(shape, of));
      const stream = world.device.createStream();
      const mask = world.mask([3]);
      if (world.rank === 3) return mask.catch(() => null);
      await mask;
      const { topkIds, topkWeights, payloads } = makeSources(shape, 3, 1)[world.rank]!;
      ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads }, stream);
      ep.combine(emptyTensor(world.device, 'bf16', [3, 8]), stream);
      await ep.synchronize(stream).catch((error) => expect(error).toBeInstanceOf(RepeatRoundsError));
      const waits = await ep.waits(stream);
      await ep.dispose();
      return waits;
    });
    const { dispatch, combine, histograms } = all[0]!;
    const counted = (rows: Waits['histograms']['dispatch']) =>
      rows.map((row) => row.map((times) => times.reduce((sum, n) => sum + n)));
    const others = [1, 1, 1, 0];
    expect(counted(histograms.dispatch)).toEqual([others, others, others, [0, 0, 0, 0]]);
    expect(counted(histograms.combine)).toEqual([others, others, others, [0, 0, 0, 0]]);
    expect([dispatch[3], combine[3]]).toEqual([
      [0, 0, 0, 0],
      [0, 0, 0, 0],
    ]);
  });

  test.each([
    ['one-sided', 1],
    ['portable', 1],
    ['hybrid', 2],
  ] as const)('are nothing in kernels of a layer without them: %s, %i nodes', async (family, nodes) => {
    const texts = async (waits: boolean): Promise<string[]> => {
      const [texts] = await World.local({ ranks: 2, nodes, device: 'sim' }, async (world) => {
        const ep = await ExpertParallel.create(world, layerOf({ ...shape, ranks: 2 }, { family, waits }));
        const { phases } = roundsInside(ep)[0]!.loaded.plan;
        await ep.dispose();
        return Object.values(phases).flatMap((steps) => steps.map(({ kernel }) => printCuda(kernel.ir())));
      });
      return texts!;
    };
    const notes = /note_wait|waited|since/;
    expect((await texts(true)).filter((text) => notes.test(text))).toHaveLength(family === 'hybrid' ? 3 : 2);
    expect((await texts(false)).filter((text) => notes.test(text))).toEqual([]);
  });
});

describe('a whole layer', () => {
  const inputs = makeLayer(plain, [2, 1, 2], 4);
  const forward = ({ chunks = 1, ...options }: Partial<MoeLayerOptions> & ForwardOptions) =>
    World.local({ ranks: 3, device: 'sim' }, async (world) => {
      const { device, rank } = world;
      const stream = device.createStream();
      const weights = placeWeights(world, stream, inputs);
      const layer = await MoeLayer.create(world, { model: plain, maxTokens: 2, ...weights, ...options });
      const { x, out } = placeRows(world, stream, inputs);
      const site = await callSite(device, dawdle, { grid: 1, block: 32, rank });
      site.set.nanoseconds(late);
      for (let n = 0; n < 2; n++) {
        if (rank === 1) site.launch(stream);
        layer.forward(x, out, stream, { chunks });
      }
      await layer.synchronize(stream);
      try {
        return await layer.waits(stream);
      } finally {
        await layer.dispose();
        await expect(layer.waits(stream)).rejects.toThrow(DisposedError);
      }
    });

  test.each([1, 2] as const)('names the rank that is late, of chunks: %i', async (chunks) => {
    const [waits] = await forward({ waits: true, rounds: chunks, chunks });
    expect(latestRank(waits!).rank).toBe(1);
    expect(waits!.histograms.dispatch[0]![1]!.reduce((sum, n) => sum + n)).toBe(2 * chunks);
  });

  test('counts where it was asked to only', async () => {
    await expect(forward({})).rejects.toMatchObject({ code: 'HEDDLE_NOT_COUNTED' });
  });
});
