/** Weights that go from rank to rank while forwards run, on the checked machine. */
import { afterEach, expect, test, vi } from 'vitest';
import { ArgumentError, RankLostError, RankMaskedError, UnavailableError } from '../../src/base/errors.js';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import { emptyTensor, MoeLayer, type MoeLayerOptions, readBits, tensorFrom } from '../../src/moe/index.js';
import { type Bits, type Placement, rebalance } from '../../src/moe/layer/index.js';
import { layerInside } from '../../src/moe/moe-layer.js';
import { MovingWeights } from '../../src/moe/moving-weights.js';
import { World } from '../../src/net/world/index.js';
import { needing } from '../needs.js';
import { gptOss, raceFree } from './layers.js';
import { compareLayer, makeLayer, placeRows, placeWeights, plainLayer } from './whole-layer.js';

afterEach(() => void vi.restoreAllMocks());

const at = (...places: number[]): Placement => ({ experts: 4, ranks: 2, places });
const before = at(0, 1, -1, 2, 3, -1);
/** Experts 1 and 2 have changed ranks; then 0 and 3 have two places each, in those that were left. */
const after = at(0, -1, 2, -1, 3, 1);
const last = at(0, 3, 2, 0, 3, 1);

// Biases move as matrices do.
const inputs = makeLayer(gptOss, [2, 1], 4);
const expected = plainLayer(inputs);

async function layerOf(world: World, placement?: Placement, how: Partial<MoeLayerOptions> = {}) {
  const stream = world.device.createStream();
  const weights = placeWeights(world, stream, inputs, placement);
  const options = { model: gptOss, maxTokens: 4, ...(placement && { placement }), ...weights };
  return { stream, layer: await MoeLayer.create(world, { ...options, ...how }) };
}

/** How many values of each forward are wrong, of what each rank got. */
const differencesOf = (runs: readonly (readonly Bits[])[]): number[] =>
  runs[0]!.map((_, n) => {
    const outs = runs.map((outs) => outs[n]!);
    return compareLayer(64, outs, expected).different;
  });

/**
 * Forwards before, during and behind moves. `mistake`: the move goes on before a rank has filled its window, or experts are placed
 * before their weights are there.
 */
async function moved(
  chunks: 1 | 2,
  moves: readonly Placement[],
  mistake: 'hasty' | 'early' | null = null,
  nodes: 1 | 2 = 1,
) {
  const machine = SimMachine.create({ ranks: 2, mode: 'checked', schedule: 'random', seed: '3' });
  const fabric = { provider: 'tcp;ofi_rxm', devices: ['lo'] } as const;
  const runs = await World.local({ ranks: 2, nodes, device: 'sim', sim: machine, fabric }, async (world) => {
    const { stream, layer } = await layerOf(world, before, { maxTokens: 4 / chunks, rounds: chunks });
    if (mistake === 'hasty') withoutBarrier(world, 1);
    const { x } = placeRows(world, stream, inputs);
    const outs: Promise<Bits>[] = [];
    const forward = (): void => {
      const out = emptyTensor(world.device, 'bf16', x.shape);
      layer.forward(x, out, stream, { chunks });
      outs.push(readBits(out, stream));
    };
    forward();
    for (const next of moves) {
      const moving = layer.move(next, stream);
      if (mistake === 'early') layer.place(next, stream);
      forward();
      await moving;
      layer.place(next, stream);
      forward();
    }
    await layer.synchronize(stream);
    const { routed, dropped } = await layer.statistics(stream);
    expect(dropped).toEqual([0, 0, 0, 0]);
    expect(routed.reduce((a, b) => a + b)).toBe(outs.length * 3 * 2);
    await layer.dispose();
    return Promise.all(outs);
  });
  return { findings: machine.findings.map(formatFinding), different: differencesOf(runs) };
}

test.each([1, 2] as const)(
  'forwards before, during and behind moves are right, and race with nothing: micro-batches %i',
  async (n) => {
    const { findings, different } = await moved(n, n === 1 ? [after, last] : [after]);
    expect(findings).toEqual([]);
    expect(different).toEqual(new Array(n === 1 ? 5 : 3).fill(0));
  },
);

test('weights go between nodes by the network', needing('tcp;ofi_rxm'), async () => {
  const { findings, different } = await moved(1, [after], null, 2);
  expect(findings).toEqual([]);
  expect(different).toEqual([0, 0, 0]);
});

test('a move between nodes that comes too early is found', needing('tcp;ofi_rxm'), async () => {
  vi.spyOn(MovingWeights.prototype, 'requireHeld').mockReturnValue();
  const { findings, different } = await moved(1, [after], 'early', 2);
  expect(findings.length + different.reduce((a, b) => a + b)).toBeGreaterThan(0);
});

test('between nodes without a network nothing moves, and nothing has changed', async () => {
  const fabric = { provider: 'efa' } as const;
  await World.local({ ranks: 2, nodes: 2, device: 'sim', fabric }, async (world) => {
    const { stream, layer } = await layerOf(world, before);
    await expect(layer.move(after, stream)).rejects.toThrow(UnavailableError);
    await expect(layer.relocate(after, stream)).rejects.toThrow(UnavailableError);
    layer.place(before, stream);
    expect(() => layer.place(after, stream)).toThrow('an expert whose weights are in that place');
    await layer.dispose();
  });
});

/** The n-th of the barriers that come is none. */
function withoutBarrier(world: World, n: number): void {
  const barrier = world.barrier.bind(world);
  let calls = 0;
  vi.spyOn(world, 'barrier').mockImplementation(async (operation) => {
    calls += 1;
    if (calls !== n) await barrier(operation);
  });
}

test.each(['hasty', 'early'] as const)('a %s move is found', async (mistake) => {
  // Nothing but the order that is missing keeps experts from being placed early.
  if (mistake === 'early') vi.spyOn(MovingWeights.prototype, 'requireHeld').mockReturnValue();
  const { findings, different } = await moved(1, [after], mistake);
  expect(findings.length + different.reduce((a, b) => a + b)).toBeGreaterThan(0);
});

test('ranks relocate experts while each is at another forward', async () => {
  // Full: experts 1 and 2 change places, by way of one that 0 has twice.
  const full = at(0, 1, 3, 2, 3, 0);
  const swapped = at(0, 2, 3, 1, 3, 0);
  const runs = await raceFree({ ranks: 2, seed: '5' }, async (world) => {
    const { stream, layer } = await layerOf(world, full);
    const { x } = placeRows(world, stream, inputs);
    const outs: Promise<Bits>[] = [];
    const forwards = async (count: number): Promise<void> => {
      for (let n = 0; n < count; n++) {
        const out = emptyTensor(world.device, 'bf16', x.shape);
        layer.forward(x, out, stream);
        outs.push(readBits(out, stream));
        // Rank 0 is two ahead of what has ended, rank 1 one.
        await outs.at(world.rank - 2);
      }
    };
    const before = 1 - world.rank;
    const ahead = forwards(before);
    const relocating = layer.relocate(swapped, stream);
    await ahead;
    await forwards(4 - before);
    await relocating;
    await forwards(1);
    await layer.synchronize(stream);
    const { dropped } = await layer.statistics(stream);
    expect(dropped).toEqual([0, 0, 0, 0]);
    layer.place(swapped, stream); // which is refused where weights are not there
    await layer.dispose();
    return Promise.all(outs);
  });
  expect(differencesOf(runs)).toEqual([0, 0, 0, 0, 0]);
});

test('experts are not placed where their weights are not, nor weights moved where an expert lives', async () => {
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { stream, layer } = await layerOf(world, before);
    expect(() => layer.place(after, stream)).toThrow(
      'placement.places[2] is 2; it must be an expert whose weights are in',
    );
    await expect(layer.move(at(1, 0, -1, 2, 3, -1), stream)).rejects.toThrow('only empty places are filled');
    await expect(layer.move(at(0, 1, -1, 2), stream)).rejects.toThrow(
      'placement.places.length is 4; it must be 6',
    );
    const moving = layer.move(after, stream);
    // Under way, and so not there.
    expect(() => layer.place(after, stream)).toThrow('no weights are');
    await moving;
    layer.place(after, stream);
    // What was there still is.
    layer.place(before, stream);
    await layer.dispose();
  });
});

test('a layer whose experts were dealt out in order has nothing to move', async () => {
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { stream, layer } = await layerOf(world);
    expect(() => layer.place(before, stream)).toThrow('create the MoeLayer with a placement');
    await expect(layer.move(before, stream)).rejects.toThrow('create the MoeLayer with a placement');
    await expect(layer.relocate(before, stream)).rejects.toThrow('create the MoeLayer with a placement');
    await layer.dispose();
  });
});

test('memory counts the places', () => {
  const sizes = { model: gptOss, maxTokens: 4, ranks: 2 } as const;
  const placement = rebalance([1, 1, 1, 1], { ranks: 2, places: 6 });
  expect(MoeLayer.memory({ ...sizes, placement }).parts).toContainEqual(
    expect.objectContaining({ purpose: 'placement', bytes: 4 * (4 * 16 + 2 * 4) }),
  );
});

test('a rank that stood still in a move, and comes back, says the same of every place as the others', async () => {
  const twice = at(0, 1, -1, 2, 3, 0);
  const emptied = at(-1, 1, -1, 2, 3, 0);
  await World.local({ ranks: 2, device: 'sim', timeoutMs: 10_000 }, async (world) => {
    const { stream, layer } = await layerOf(world, twice, { onLoss: 'mask' });
    layer.place(emptied, stream);
    if (world.rank === 1) {
      world.circle.abandon('it stands still where the other begins to move');
      await expect(world.mask()).rejects.toThrow(RankMaskedError);
      await world.rejoin();
    } else {
      await expect(layer.move(at(2, 1, -1, 2, 3, 0), stream)).rejects.toThrow(RankLostError);
      await world.mask();
      while ((await world.admit()).length === 0) await new Promise(setImmediate);
    }
    // Half of expert 2 may lie in the place where expert 0 was.
    expect(() => layer.place(twice, stream)).toThrow('where no weights are');
    await layer.move(twice, stream);
    layer.place(twice, stream);
    await layer.synchronize(stream);
    await layer.dispose();
  });
});

test('in a world that leaves ranks out nothing moves, and nothing has changed', async () => {
  const twice = at(0, 1, -1, 2, 3, 0);
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { stream, layer } = await layerOf(world, twice, { onLoss: 'mask' });
    if (world.rank === 1) return expect(world.mask([1])).rejects.toThrow(RankMaskedError);
    await world.mask([1]);
    const { ep } = layerInside(layer).rounds[0]!;
    for (const call of ['move', 'relocate'] as const) {
      const next = call === 'move' ? at(0, 1, 2, 2, 3, 0) : at(2, 1, -1, 2, 3, 0);
      await expect(layer[call](next, stream)).rejects.toThrow('this world leaves out ranks 1');
      expect(ep.placement).toEqual(twice);
    }
    // Nor need anything come where it lies already.
    await layer.relocate(at(-1, 1, -1, 2, 3, 0), stream);
    await layer.relocate(twice, stream);
    expect(ep.placement).toEqual(twice);
  });
});

test('weights that stay in their nodes need no network, and come from there where they can', async () => {
  const fabric = { provider: 'efa' } as const; // which is not here
  const now: Placement = { experts: 4, ranks: 4, places: [0, 1, 2, -1, 3, -1, 1, -1] };
  const next: Placement = { ...now, places: [0, 1, 2, 0, 3, 1, 1, 3] };
  await World.local({ ranks: 4, nodes: 2, device: 'sim', fabric }, async (world) => {
    const stream = world.device.createStream();
    const weights = tensorFrom(world.device, stream, new Float32Array(2).fill(world.rank), 'f32', [2, 1]);
    const moving = new MovingWeights(world, [weights], now);
    await moving.move(now, next, stream);
    expect(await readBits(weights, stream)).toEqual(Float32Array.of(world.rank, [0, 0, 3, 2][world.rank]!));
    moving.end();
  });
});

test.each([
  ['move', 1],
  ['relocate', 1],
  ['move', 2],
] as const)(
  'a %s takes as long as its limit says, by the busiest rank: %i others take the same',
  async (call, takers) => {
    const limit = { bytesPerSecond: 1e6 };
    const now: Placement = { experts: 3, ranks: 3, places: [0, -1, 1, -1, 2, -1] };
    const places = takers === 1 ? [0, 1, 1, -1, 2, -1] : [0, 1, 1, -1, 2, 1];
    const run = () =>
      World.local({ ranks: 3, device: 'sim' }, async (world) => {
        const stream = world.device.createStream();
        const weights = emptyTensor(world.device, 'f32', [2, 50_000]);
        stream.fill(weights.data, weights.bytes, 0);
        const moving = new MovingWeights(world, [weights], now);
        const since = performance.now();
        if (call === 'move') await moving.move(now, { ...now, places }, stream, limit);
        else await moving.relocate(now, { ...now, places }, () => {}, stream, limit);
        moving.end();
        return performance.now() - since;
      });
    // 200,000 bytes to each; a timer may be a little early.
    for (const ms of await run()) expect(ms).toBeGreaterThan(200 * takers - 5);
  },
);

test('a limit that is none is refused, and nothing has changed', async () => {
  await World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const { stream, layer } = await layerOf(world, before);
    for (const bytesPerSecond of [0, 999_999, 1.5e6 + 0.5, Number.NaN])
      for (const call of ['move', 'relocate'] as const)
        await expect(layer[call](after, stream, { bytesPerSecond })).rejects.toThrow(ArgumentError);
    layer.place(before, stream);
    expect(() => layer.place(after, stream)).toThrow('an expert whose weights are in that place');
    await layer.dispose();
  });
});
