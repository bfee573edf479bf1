/** What needs a world. */
import * as heddle from '../../src/index.js';
import * as worlds from '../../src/net/world/index.js';
import * as testing from '../../src/verify/testing/public.js';
import {
  deepseek,
  drawn,
  expertOf,
  layerOf as expertsIn,
  folderWith,
  safetensors,
} from '../moe/weights/files.js';
import { freePort } from '../net/world/circles.js';
import { kernel, layer, window } from './arguments.js';
import { type Call, call } from './call.js';
import type { PublicName } from './names.js';

const inputs = () => ({
  topkIds: Int32Array.of(0, 1, 2, -1),
  topkWeights: new Float32Array(4).fill(0.5),
  payloads: { x: new Uint16Array(16) },
});

/** One world that stays, one that is gone, one of another machine; each with what can be made in it. */
export async function things(world: heddle.World) {
  const { device } = world;
  const stream = device.createStream();
  const gone = device.createStream();
  gone.dispose();
  const ep = await heddle.ExpertParallel.create(world, layer);
  const split = await heddle.ExpertParallel.create(world, { ...layer, split: true });
  const disposed = await heddle.ExpertParallel.create(world, layer);
  await disposed.dispose();
  const tensor = heddle.emptyTensor(device, 'bf16', [2, 8]);
  const freed = heddle.emptyTensor(device, 'bf16', [2, 8]);
  freed.free();
  const memory = device.allocate(64, 'fuzz');
  const mapped = device.allocateMapped(64, 'fuzz');
  const event = device.createEvent();
  const shared = await world.createWindow(window.bytes, 'fuzz window');
  return { world, device, stream, gone, ep, split, disposed, tensor, freed, memory, mapped, event, shared };
}
export type Things = Awaited<ReturnType<typeof things>>;

/** A model with a layer that has all that can be loaded. */
const modelFolder = () =>
  folderWith({
    'model.safetensors': safetensors({
      ...expertsIn(deepseek, 2, [128, 128]),
      ...expertOf(deepseek, `${deepseek.prefix}shared_experts.`, [128, 128], 1),
      [`${deepseek.prefix}gate.weight`]: drawn('BF16', [2, 128], 1),
    }),
  });

/** Experts of a layer with rows as wide as they take. */
async function expertsOf(world: heddle.World, weights: heddle.MlpWeights) {
  const wide = { payloads: { x: heddle.row('bf16', 64) }, output: heddle.row('bf16', 64) };
  const ep = await heddle.ExpertParallel.create(world, { ...layer, ...wide });
  const plan = await heddle.ExpertsPlan.create(ep);
  return { ep, plan, mlp: await heddle.ExpertsMlp.create(ep, plan, weights) };
}

export async function inWorld(of: Things) {
  const { world, device, stream, ep, split, tensor, memory, mapped, event, shared } = of;
  const program = await device.load(kernel.ir());
  const launcher = program.launcher({ grid: 1, block: 32, rank: 0 });
  launcher.setWindow('win', shared);
  const peer = await device.openWindow(shared.own.handle);
  for (const [name, value] of [
    ['out', memory.address],
    ['n', 0],
    ['f', 1],
  ] as const)
    launcher.set(name, value);
  const placement = { experts: 4, ranks: 1, places: [0, 1, 2, 3, -1] };
  const placedEp = await heddle.ExpertParallel.create(world, { ...layer, placement, waits: true });
  const layerOfPlaced = await placedEp.addLayer();
  const plan = await heddle.ExpertsPlan.create(ep);
  const rows = heddle.emptyTensor(device, 'bf16', [plan.rows, 8]);
  const own = heddle.tensorFrom(device, stream, [0, -1, 1, 2], 'i32', [1, 2, 2]);
  const zeros = (shape: readonly number[]) => heddle.emptyTensor(device, 'bf16', shape);
  const weights = (...lead: number[]) => ({
    ...{ gateUp: zeros([...lead, 128, 64]), down: zeros([...lead, 64, 64]) },
    ...{
      gateUpBias: zeros([...lead, 128]),
      downBias: zeros([...lead, 64]),
      activation: 'clamped-swiglu' as const,
    },
  });
  const mlp = weights();
  const dense = await heddle.DenseMlp.create(device, { ...mlp, maxTokens: 2 });
  const [wide, made] = [zeros([2, 64]), zeros([2, 64])];
  const model: heddle.MoeModel = {
    ...{ ...testing.profile('mixtral'), hidden: 64, experts: 4, inner: 64 },
    ...{ biases: true, activation: 'clamped-swiglu' },
  };
  const gates = { weights: zeros([4, 64]) };
  const router = await heddle.Router.create(world, model, gates, 2);
  const stacked = weights(4);
  const whole = { ...{ model, maxTokens: 2, router: gates, waits: true }, experts: stacked };
  const moe = await heddle.MoeLayer.create(world, whole);
  const spare = weights(5);
  const placedMoe = await heddle.MoeLayer.create(world, { ...whole, placement, experts: spare });
  const rate = { bytesPerSecond: 1e9 };
  const ofExperts = await expertsOf(world, stacked);
  ofExperts.plan.plan(ofExperts.ep.received, stream);
  const folder = modelFolder();
  const files = await heddle.ModelFiles.open(folder);
  const place = { device, rank: 0, ranks: 1 };
  const told = { layer: 3, onProgress: () => {} };
  stream.beginCapture();
  const graph = stream.endCapture();
  const bytes = new Uint8Array(8);
  const address = `127.0.0.1:${await freePort()}`;
  const joined = {
    ...{ rank: 0, ranks: 1, localRank: 0, address, world: 'w', secret: 'a secret of this test' },
    ...{ hosted: false, timeoutMs: 50, lossTimeoutMs: 1000, environment: {} },
  };
  const local = worlds.LocalCircle.create(1)[0]!;
  const joinOne = async () =>
    worlds.ProcessCircle.join({
      ...joined,
      hosted: false,
      timeoutMs: 5000,
      address: `127.0.0.1:${await freePort()}`,
    });
  const process = await joinOne();
  const apart = <T>(then: (circle: worlds.Circle) => T) =>
    worlds.LocalCircle.run(1, async (circle) => then(circle));
  const between = async <T>(then: (circle: worlds.Circle) => T) => {
    const circle = await joinOne();
    try {
      return await then(circle);
    } finally {
      await circle.latest.dispose();
    }
  };

  return {
    emptyTensor: call(heddle.emptyTensor, device, 'bf16', [2, 8], 'fuzz'),
    tensorFrom: call(heddle.tensorFrom, device, stream, [1, 2], 'bf16', [2], 'fuzz'),
    write: call(heddle.write, tensor, stream, new Uint16Array(16)),
    read: call(heddle.read, { ...tensor, free: undefined }, stream),
    readBits: call(testing.readBits, tensor, stream),

    'World.barrier': call((operation) => world.barrier(operation), 'fuzz'),
    'World.allGather': call((a, b) => world.allGather(a, b), bytes, 'fuzz'),
    'World.attach': call(async (layer) => (await world.attach(layer))(), {
      ...{ waitMs: 1, count: async () => 0, leaveOut: async () => {}, goOn: () => {}, shape: '' },
      ...{ state: () => 0, takeOver: async () => {} },
    }),
    'World.replicate': call((what) => world.replicate(what)(), { state: () => 0, takeOver: async () => {} }),
    'World.onEvent': call(
      (listener) => world.onEvent(listener)(),
      () => {},
    ),
    'World.tell': call((what) => world.tell(what), { kind: 'joined', joined: [0] } as const),
    'World.mask': call((ranks) => world.mask(ranks), []),
    'World.createWindow': call((a, b, c) => world.createWindow(a, b, c), 64, 'w', [
      { offset: 0, bytes: 4, value: 1 },
    ]),
    'World.createSymmetricWindow': call((a, b, c) => world.createSymmetricWindow(a, b, c), 64, 'w', []),
    'World.join': call((options) => heddle.World.join(options), {
      ...{ rank: 0, ranks: 1, address, device: 'cuda', rejoin: 'spare' },
    }),
    // There is no such module, so that none is started.
    'World.startProxy': call((options) => world.startProxy(options), {
      ...{ module: new URL('./no-such-module.js', import.meta.url), name: 'p', data: 1, reach: [0] },
      ...{ memory: mapped, timeoutMs: 100 },
    }),

    ...ofCircle('Circle', world.circle, apart),
    ...ofCircle('LocalCircle', local, apart),
    'ProcessCircle.join': call(
      async (options) => (await worlds.ProcessCircle.join(options)).dispose(),
      joined,
    ),
    ...ofCircle('ProcessCircle', process, between),

    'ExpertParallel.create': call(
      async (a, b) => (await heddle.ExpertParallel.create(a, b)).dispose(),
      world,
      { ...layer, tuning: ep.tuning },
    ),
    'ExpertParallel.dispatch': call((a, b) => ep.dispatch(a, b), inputs(), stream),
    'ExpertParallel.addLayer': call((a) => placedEp.addLayer(a), placement),
    'ExpertParallel.removeLayer': call((a) => placedEp.removeLayer(a), layerOfPlaced),
    'ExpertParallel.place': call((a, b) => placedEp.place(a, b), placement, stream),
    'ExpertParallel.waits': call((a) => placedEp.waits(a), stream),
    'ExpertParallel.statistics': call((a) => placedEp.statistics(a), stream),
    'ExpertParallel.combine': call((a, b) => ep.combine(a, b), tensor, stream),
    'ExpertParallel.synchronize': call((a) => ep.synchronize(a), stream),
    'ExpertParallel.dispatchSend': call((a, b) => split.dispatchSend(a, b), inputs(), stream),
    'ExpertParallel.dispatchRecv': call(
      (a, b, c) => split.dispatchRecv(a ?? split.dispatchSend(inputs(), b), c),
      ...[undefined, stream, stream],
    ),
    'ExpertParallel.combineSend': call((a, b) => split.combineSend(a, b), split.received, stream),
    'ExpertParallel.combineRecv': call(
      (a, b, c, d) => split.combineRecv(a ?? split.combineSend(split.received, c), b, d),
      ...[undefined, tensor, stream, stream],
    ),
    'ExpertsPlan.create': call(
      async (a, b) => (await heddle.ExpertsPlan.create(a, b)).dispose(),
      ...[ep, { form: 'masked', alignment: 16, capacity: 32 }],
    ),
    'ExpertsPlan.plan': call((a, b) => plan.plan(a, b), ep.received, stream),
    'ExpertsPlan.sizes': call((a) => plan.sizes(a), stream),
    'ExpertsPlan.expand': call(
      (a, b, c, d) => plan.expand(a, b, c, d),
      ...[ep.received, { x: rows }, stream, own],
    ),
    'ExpertsPlan.made': call((a) => plan.made(a), rows),
    'ExpertsPlan.reduce': call((a, b, c, d) => plan.reduce(a, b, c, d), ep.received, rows, stream, own),
    'DenseMlp.create': call(async (a, b) => (await heddle.DenseMlp.create(a, b)).dispose(), device, {
      ...{ ...mlp, maxTokens: 2 },
    }),
    'DenseMlp.run': call((a, b, c, d) => dense.run(a, b, c, d), wide, made, 2, stream),
    // Its rows are too narrow, so this is refused whatever is given.
    'ExpertsMlp.create': call((a, b, c) => heddle.ExpertsMlp.create(a, b, c), ep, plan, mlp),
    'ExpertsMlp.run': call((a, b, c) => ofExperts.mlp.run(a, b, c), ofExperts.ep.received, stream, undefined),
    'Router.create': call((a, b, c, d) => heddle.Router.create(a, b, c, d), world, model, gates, 2),
    'Router.route': call((a, b) => router.route(a, b), wide, stream),
    'LayerBuffers.create': call(
      async (a, b) => (await heddle.LayerBuffers.create(a, b)).dispose(),
      ...[world, { model, maxTokens: 2 }],
    ),
    'LayerBuffers.synchronize': call((a) => moe.buffers.synchronize(a), stream),
    'MoeLayer.create': call(async (a, b) => (await heddle.MoeLayer.create(a, b)).dispose(), world, whole),
    'MoeLayer.forward': call((a, b, c) => moe.forward(a, b, c), wide, made, stream),
    'MoeLayer.move': call((a, b, c) => placedMoe.move(a, b, c), placement, stream, rate),
    'MoeLayer.place': call((a, b) => placedMoe.place(a, b), placement, stream),
    'MoeLayer.relocate': call((a, b, c) => placedMoe.relocate(a, b, c), placement, stream, rate),
    'MoeLayer.statistics': call((a) => placedMoe.statistics(a), stream),
    'MoeLayer.waits': call((a) => moe.waits(a), stream),
    'MoeLayer.synchronize': call((a) => moe.synchronize(a), stream),
    'ModelFiles.open': call((a) => heddle.ModelFiles.open(a), folder),
    'ModelFiles.loadExperts': call(
      async (a, b, c) => (await files.loadExperts(a, b, c)).free(),
      ...[place, stream, told],
    ),
    'ModelFiles.loadShared': call(
      async (a, b, c) => (await files.loadShared(a, b, c)).free(),
      ...[place, stream, told],
    ),
    'ModelFiles.loadRouter': call(
      async (a, b, c) => (await files.loadRouter(a, b, c)).free(),
      ...[place, stream, told],
    ),

    'Device.allocate': call((a, b) => device.allocate(a, b).free(), 64, 'fuzz'),
    'Device.allocateMapped': call((a, b) => device.allocateMapped(a, b).free(), 64, 'fuzz'),
    'Device.allocateWire': call(
      (a, b, c) => device.allocateWire(a, b, c).free(),
      ...[{ bytes: 64, front: 16, side: 'gpu' } as const, 'fuzz', []],
    ),
    'Device.allocateWindow': call((a, b, c) => device.allocateWindow(a, b, c).free(), 64, 'fuzz', []),
    'Device.openWindow': call((a) => device.openWindow(a), shared.own.handle),
    'Device.reserveWindow': call((a, b) => device.reserveWindow(a, b).close(), 64, 'fuzz'),
    'PeerMemory.map': call((a) => peer.map(a), shared.own.handle),
    'Device.load': call((a) => device.load(a), kernel.ir()),
    'HostView.load': call((a) => mapped.host.load(a), 0),
    'HostView.store': call((a, b) => mapped.host.store(a, b), 0, 1),
    'HostView.read': call((a, b) => mapped.host.read(a, b), 0, bytes),
    'HostView.write': call((a, b) => mapped.host.write(a, b), 0, bytes),
    'WindowMemory.poison': call((a, b) => shared.own.poison(a, b), 0, 4),
    'Program.launcher': call((a) => program.launcher(a), {
      ...{ grid: 1, block: 32, rank: 0, programmatic: false },
    }),
    'Launcher.set': call((a, b) => launcher.set(a, b), 'n', 0),
    'Launcher.setWindow': call((a, b) => launcher.setWindow(a, b), 'win', { ...shared }),
    'Launcher.setTensor': call((a, b) => launcher.setTensor(a, b), 'boxes', {
      address: 256,
      extents: [8, 64],
      strides: [128],
    }),
    'Launcher.setGrid': call((a) => launcher.setGrid(a), 1),
    'Launcher.launch': call((a) => launcher.launch(a), stream),
    'Graph.launch': call((a) => graph.launch(a), stream),
    'Stream.copyIn': call((a, b) => stream.copyIn(a, b), memory.address, bytes),
    'Stream.copyOut': call((a, b) => stream.copyOut(a, b), memory.address, 8),
    'Stream.copy': call((a, b, c) => stream.copy(a, b, c), memory.address, memory.address + 32, 8),
    'Stream.fill': call((a, b, c) => stream.fill(a, b, c), memory.address, 8, 1),
    'Stream.record': call((a) => stream.record(a), event),
    'Stream.wait': call((a) => stream.wait(a), event),
    'Event.elapsedSince': call((a) => event.elapsedSince(a), event),
  } satisfies Partial<Record<PublicName, Call>>;
}

/** The calls of a circle; those that end it are another's, which is made for the call. */
const ofCircle = <Name extends 'Circle' | 'LocalCircle' | 'ProcessCircle'>(
  name: Name,
  circle: worlds.Circle,
  another: (then: (circle: worlds.Circle) => unknown) => Promise<unknown>,
) => {
  const calls = {
    barrier: call((a) => circle.barrier(a), 'fuzz'),
    allGather: call((a, b) => circle.allGather(a, b), new Uint8Array(8), 'fuzz'),
    survey: call((a, b) => circle.survey(a, b), new Uint8Array(8), 1),
    onRankLost: call(
      (a) => circle.onRankLost(a),
      () => {},
    ),
    abandon: call((a) => another((one) => one.abandon(a)), 'fuzz'),
    regroup: call((a, b) => another((one) => one.regroup(a, b)), 1000, false),
    accuse: call((a, b) => another((one) => one.accuse(a, b)), [0], 'fuzz'),
  };
  type Calls = typeof calls;
  return Object.fromEntries(Object.entries(calls).map(([of, made]) => [`${name}.${of}`, made])) as {
    [Of in keyof Calls & string as `${Name}.${Of}`]: Call;
  };
};
