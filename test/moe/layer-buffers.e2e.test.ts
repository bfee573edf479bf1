/** Layers of a model over one set of buffers: each as it is alone, whoever carries them, in graphs, and when ranks are lost. */
import { describe, expect, it, test, vi } from 'vitest';
import { RankLostError, RepeatRoundsError } from '../../src/base/errors.js';
import type { Stream } from '../../src/gpu/index.js';
import { formatFinding, SimMachine } from '../../src/gpu/sim/index.js';
import {
  LayerBuffers,
  type LayerBuffersOptions,
  MoeLayer,
  readBits,
  type Tensor,
  wrap,
} from '../../src/moe/index.js';
import { type Bits, type MoeModel, type Placement, rebalance } from '../../src/moe/layer/index.js';
import { buffersInside } from '../../src/moe/layer-buffers.js';
import { SharedExpert } from '../../src/moe/shared-expert.js';
import { World } from '../../src/net/world/index.js';
import { deep, plain, raceFree } from './layers.js';
import { liveMemory } from './live-memory.js';
import { compareLayer, makeLayer, placeRows, placeWeights, plainLayer } from './whole-layer.js';

const ranks = 2;
const tokens = [3, 2];
/** A second layer with wider experts, whose tokens are the same ones. */
const wide: MoeModel = { ...deep, inner: 128, sharedInner: 64 };
const models = [deep, wide];
const layers = models.map((model, n) => makeLayer(model, tokens, 20 + n));
const expected = layers.map((inputs) => plainLayer(inputs));

type How = Partial<Omit<LayerBuffersOptions, 'model'>> & { readonly chunks?: number };

/** All layers of a rank, over one set. */
async function createModel(world: World, stream: Stream, { chunks = 1, ...how }: How, placement?: Placement) {
  const maxTokens = Math.ceil(Math.max(...tokens) / chunks);
  const buffers = await LayerBuffers.create(world, {
    ...{ model: deep, maxTokens, ...how },
    ...(placement && { placement }),
  });
  const all: { readonly layer: MoeLayer; readonly x: Tensor; readonly out: Tensor }[] = [];
  for (const inputs of layers) {
    const weights = placeWeights(world, stream, inputs, placement);
    const layer = await MoeLayer.create(world, { buffers, model: inputs.model, ...weights });
    all.push({ layer, ...placeRows(world, stream, inputs) });
  }
  const forward = (): void => {
    for (const { layer, x, out } of all) layer.forward(x, out, stream, { chunks });
  };
  const read = () => Promise.all(all.map(({ out }) => readBits(out, stream)));
  const dispose = async (): Promise<void> => {
    for (const { layer } of all) await layer.dispose();
    await buffers.dispose();
  };
  return { buffers, all, forward, read, dispose };
}

const rowsOf = ({ data }: Tensor, first: number, rows: number): Tensor =>
  wrap(data + 128 * first, 'bf16', [rows, 64]);

function requireRight(outs: readonly (readonly Bits[])[]): void {
  for (const [n] of layers.entries())
    expect(
      compareLayer(
        64,
        outs.map((rank) => rank[n]!),
        expected[n]!,
      ),
      `layer ${n}`,
    ).toMatchObject({ different: 0 });
}

/** Each way with the family whose buffers it presses most, in four rounds. */
it.each<[string, string, How]>([
  ['one-sided', 'two chunks, both in flight, in a graph', { rounds: 2, chunks: 2 }],
  ['portable', 'one phase after another', { overlap: false }],
  ['hybrid', 'a round at a time', {}],
])(
  'layers over one set, carried by %s, give what each gives alone, and race with nothing: %s',
  async (family, _, how) => {
    const nodes = family === 'hybrid' ? 2 : 1;
    const outs = await raceFree({ ranks, nodes, seed: '11' }, async (world) => {
      const stream = world.device.createStream();
      const model = await createModel(world, stream, { family, ...how });
      const graph = how.chunks === 2 ? captured(stream, model.forward) : null;
      // Two layers in two chunks are four rounds; whole forwards are two each.
      if (graph) graph.launch(stream);
      else for (let n = 0; n < 2; n++) model.forward();
      await model.buffers.synchronize(stream);
      const bits = await model.read();
      graph?.dispose();
      await model.dispose();
      return bits;
    });
    requireRight(outs);
  },
);

function captured(stream: Stream, enqueue: () => void) {
  stream.beginCapture();
  enqueue();
  return stream.endCapture();
}

/** Launches of this kernel begin as soon as the launch before lets them. */
function beginEarly(device: World['device'], name: string): void {
  const load = device.load.bind(device);
  vi.spyOn(device, 'load').mockImplementation(async (module) => {
    const program = await load(module);
    if (module.name !== name) return program;
    const launcher: typeof program.launcher = (shape) => program.launcher({ ...shape, programmatic: true });
    return new Proxy(program, { get: (of, key) => (key === 'launcher' ? launcher : Reflect.get(of, key)) });
  });
}

describe('what orders the layers of a set is needed, each of it: without', () => {
  const placement = rebalance(new Array(7).fill(1), { ranks, places: 8 });
  type Model = Awaited<ReturnType<typeof createModel>>;
  test.each<[string, (world: World) => void, (world: World, model: Model, stream: Stream) => void]>([
    [
      'logits that wait for all before them',
      ({ device }) => beginEarly(device, 'router_logits'),
      (_, { all }, stream) => all[0]!.layer.forward(all[1]!.out, all[0]!.out, stream),
    ],
    [
      'a wait for the shared expert',
      () => vi.spyOn(SharedExpert.prototype, 'end').mockReturnValue(),
      () => {},
    ],
    [
      'the stream of the forwards for a layer that moves its experts',
      () => {},
      ({ device }, { all }) => all[0]!.layer.place({ ...placement }, device.createStream()),
    ],
  ])('%s', async (_, without, after) => {
    const found: string[] = [];
    for (let seed = 1; seed <= 10 && found.length === 0; seed++) {
      const sim = SimMachine.create({
        ...{ ranks, mode: 'checked', schedule: 'random', seed: `${seed}`, hostLines: false },
      });
      const run = World.local({ ranks, device: 'sim', sim }, async (world) => {
        without(world);
        const stream = world.device.createStream();
        const model = await createModel(world, stream, {}, placement);
        model.forward();
        after(world, model, stream);
        model.forward();
        await model.buffers.synchronize(stream);
        await model.dispose();
      });
      await run.catch(() => {});
      vi.restoreAllMocks();
      found.push(...sim.findings.map(formatFinding));
    }
    expect(found[0]).toMatch(/^Data race/i);
  });
});

/** Two chunks in flight on GPUs with room for a block, with or without the order of what waits for peers; what they end with. */
async function chunksInFlight(seed: number, ordered: boolean): Promise<Bits[][] | 'stuck'> {
  const sim = SimMachine.create({
    ...{ ranks, residentBlocks: 1, schedule: 'random', seed: `${seed}`, hostLines: false },
  });
  const run = World.local({ ranks, device: 'sim', sim }, async (world) => {
    const stream = world.device.createStream();
    const model = await createModel(world, stream, { rounds: 2, chunks: 2, waitMs: 500 });
    const second = buffersInside(model.buffers).second!;
    const [before, behind] = [world.device.createEvent(), world.device.createEvent()];
    stream.record(before);
    second.stream.wait(before);
    if (!ordered)
      for (const one of [stream, second.stream]) {
        const wait = one.wait.bind(one);
        vi.spyOn(one, 'wait').mockImplementation((event) => {
          if (event !== second.begun && event !== second.done) wait(event);
        });
      }
    model.forward();
    second.stream.record(behind);
    stream.wait(behind);
    await model.buffers.synchronize(stream);
    const bits = await model.read();
    await model.dispose();
    return bits;
  });
  return run.catch((error: unknown) => {
    expect(String(error)).toMatch(/did not (come|answer)|gave up|RankLostError/);
    return 'stuck' as const;
  });
}

test('chunks in flight never wait for each other, for what waits for peers has one order everywhere', async () => {
  const free: unknown[] = [];
  for (let seed = 1; seed <= 6 && !free.includes('stuck'); seed++)
    free.push(await chunksInFlight(seed, false));
  expect(free).toContain('stuck');
  // The schedule that got stuck, and one more.
  for (const seed of [free.length, free.length + 1]) {
    const outs = await chunksInFlight(seed, true);
    expect(outs).not.toBe('stuck');
    requireRight(outs as Bits[][]);
  }
});

test('few tokens and many take turns in one set, whose shared expert runs beside the others or before them', async () => {
  const steps = [
    [2, 513, 1],
    [3, 0, 1],
  ] as const;
  // As narrow as layers come: rank 0 brings more tokens than run beside a shared expert.
  const model: MoeModel = { ...deep, experts: 2, topK: 1, sharedInner: 64 };
  const inputs = makeLayer(
    model,
    steps.map((own) => own.reduce<number>((sum, tokens) => sum + tokens, 0)),
    40,
  );
  const outs = await raceFree({ ranks, seed: '13' }, async (world) => {
    const stream = world.device.createStream();
    const weights = placeWeights(world, stream, inputs);
    const layer = await MoeLayer.create(world, { model, maxTokens: 513, ...weights });
    const { x, out } = placeRows(world, stream, inputs);
    let from = 0;
    for (const tokens of steps[world.rank]!) {
      layer.forward(rowsOf(x, from, tokens), rowsOf(out, from, tokens), stream);
      from += tokens;
    }
    const bits = await readBits(out, stream);
    await layer.dispose();
    return bits;
  });
  expect(compareLayer(64, outs, plainLayer(inputs))).toMatchObject({ different: 0 });
});

test('layers place and count experts apart', async () => {
  const placement = rebalance(new Array(7).fill(1), { ranks, places: 8 });
  await World.local({ ranks, device: 'sim' }, async (world) => {
    const stream = world.device.createStream();
    const model = await createModel(world, stream, {}, placement);
    const [first, second] = model.all as [(typeof model.all)[0], (typeof model.all)[0]];
    model.forward();
    first.layer.forward(first.x, first.out, stream);
    await model.buffers.synchronize(stream);
    const routes = 5 * deep.topK;
    const count = async (layer: MoeLayer) => {
      const { routed, dropped } = await layer.statistics(stream);
      return [...routed, ...dropped].reduce((sum, n) => sum + n);
    };
    expect([await count(first.layer), await count(second.layer)]).toEqual([2 * routes, routes]);
    await model.dispose();
  });
});

test.each(['one-sided', 'portable', 'hybrid'])(
  'layers count apart how long they wait: %s',
  async (family) => {
    const nodes = family === 'hybrid' ? 2 : 1;
    await World.local({ ranks, nodes, device: 'sim' }, async (world) => {
      const stream = world.device.createStream();
      const model = await createModel(world, stream, { family, waits: true });
      const [first, second] = model.all.map(({ layer }) => layer) as [MoeLayer, MoeLayer];
      const counted = async (layer: MoeLayer) => {
        const { histograms } = await layer.waits(stream);
        return histograms.combine[world.rank]![1 - world.rank]!.reduce((sum, rounds) => sum + rounds);
      };
      model.forward();
      first.forward(model.all[0]!.x, model.all[0]!.out, stream);
      await model.buffers.synchronize(stream);
      expect([await counted(first), await counted(second)]).toEqual([2, 1]);
      await model.dispose();
    });
  },
);

test('a further layer takes no memory but its table', async () => {
  await World.local({ ranks, device: 'sim' }, async (world) => {
    const stream = world.device.createStream();
    const placement = rebalance(new Array(7).fill(1), { ranks, places: 8 });
    const weights = placeWeights(world, stream, layers[0]!, placement);
    const live = liveMemory(world.device);
    const buffers = await LayerBuffers.create(world, { model: deep, maxTokens: 3, placement });
    const create = () => MoeLayer.create(world, { buffers, ...weights });
    const first = await create();
    const before = live();
    const second = await create();
    expect(live() - before).toBe(1);
    await second.dispose();
    expect(live()).toBe(before);
    await first.dispose();
    await buffers.dispose();
    expect(live()).toBe(0);
  });
});

test('a loss is one event of the model: it says from which layer of which forward on to repeat', async () => {
  const told: unknown[] = [];
  const world = World.local({ ranks: 2, device: 'sim' }, async (world) => {
    const stream = world.device.createStream();
    const model = await createModel(world, stream, { onLoss: 'mask', waitMs: 1000 });
    model.forward();
    model.forward();
    await model.buffers.synchronize(stream);
    model.all[0]!.layer.forward(model.all[0]!.x, model.all[0]!.out, stream);
    await model.buffers.synchronize(stream);
    if (world.rank === 1) throw new RankLostError([1], 'the test', undefined);
    for (const { layer, x, out } of model.all.slice(1)) layer.forward(x, out, stream);
    const error = await model.all[1]!.layer.synchronize(stream).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(RepeatRoundsError);
    told.push((error as RepeatRoundsError).round, (error as RepeatRoundsError).from);
    // The rest of that forward, and another: layers count on from where they are.
    for (const { layer, x, out } of model.all.slice(1)) layer.forward(x, out, stream);
    model.forward();
    await model.buffers.synchronize(stream);
    told.push(model.all.map(({ layer }) => layer.forwards));
  });
  await expect(world).rejects.toThrow();
  expect(told).toEqual([6, { layer: 1, forward: 3 }, [4, 4]]);
});

describe('what one set cannot carry is refused, by the number that differs', () => {
  const other = (model: MoeModel) => makeLayer(model, tokens, 30);
  it.each<[string, MoeModel, string]>([
    ['other rows', { ...deep, hidden: 128 }, 'model.hidden is 128; it must be 64, as that of the buffers'],
    ['other experts', { ...deep, experts: 6 }, 'model.experts is 6; it must be 7'],
    ['other routes', { ...deep, topK: 3 }, 'model.topK is 3; it must be 2'],
    [
      'no shared expert',
      { ...plain, experts: 7, topK: 2 },
      'model.sharedInner is undefined; it must be a number',
    ],
  ])('%s', async (_, model, message) => {
    await World.local({ ranks, device: 'sim' }, async (world) => {
      const buffers = await LayerBuffers.create(world, { model: deep, maxTokens: 3 });
      const weights = placeWeights(world, world.device.createStream(), other(model));
      await expect(MoeLayer.create(world, { buffers, model, ...weights })).rejects.toThrow(message);
      await buffers.dispose();
    });
  });
});
