/**
 * Every public function, called wrongly: with other types, other shapes, things that were disposed, things of another
 * world. Whatever comes of it is a result or one of Heddle's own errors: no crash, no hang, no TypeError.
 */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as checking from '../../src/check/index.js';
import * as cuda from '../../src/cuda/index.js';
import { HeddleError } from '../../src/errors/index.js';
import * as fabric from '../../src/fabric/index.js';
import * as heddle from '../../src/index.js';
import * as lang from '../../src/lang/index.js';
import * as testing from '../../src/testing/index.js';
import * as worlds from '../../src/world/index.js';
import { freePort } from '../world/groups.js';
import { spoiled, wrongValues } from './wrong.js';

/** A public function and arguments that it takes. */
interface Call {
  readonly name: string;
  readonly of: (...args: never[]) => unknown;
  readonly good: readonly unknown[];
}

const { row } = heddle;
const layer = {
  ...{ experts: 4, topK: 2, maxTokens: 2, waitMs: 100, weighting: 'experts', wire: 'rows' },
  ...{ weights: true, counts: true, payloads: { x: row('bf16', 8) }, output: row('bf16', 8) },
};
const shape = {
  ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 2, payloads: [{ name: 'x', rowBytes: 16 }] },
  output: { dtype: 'bf16', hidden: 8, weighting: 'experts', wire: 'rows' },
};
const routes = { tokens: 1, topkIds: Int32Array.of(0, 1), topkWeights: Float32Array.of(0.5, 0.5) };
const source = { ...routes, payloads: { x: new Uint8Array(16) } };
const inputs = () => ({
  topkIds: Int32Array.of(0, 1, 2, -1),
  topkWeights: new Float32Array(4).fill(0.5),
  payloads: { x: new Uint16Array(16) },
});
const window = lang.layout('fuzz', { flag: lang.field('u32', 4) });
const kernel = lang.kernel(
  { name: 'fuzz', params: { win: lang.peers(window), out: lang.pointer('u32'), n: 'u32', f: 'f32' } },
  (g, { win, out, n, f }) => {
    if (g.threadIdx.x < n && f > 0) g.store(out.at(g.threadIdx.x), g.load(win.at(g.rank).flag.at(0)));
  },
);
const body = (): void => {};
const subject = {
  ...{ name: 'fuzz', kernels: ['fuzz'] },
  configurations: [{ name: 'one', ranks: 1, residentBlocks: 4, tiny: true, run: async () => {} }],
};
const schedule = { seed: 'random-0', schedule: 'random', stepLimit: 1000 };
const mutant = { id: 'm', kernel: 'fuzz', where: 'a.ts:1:1', text: 'g.barrier()', description: 'removed' };

/** What needs nothing but its arguments. */
const pure: readonly Call[] = [
  { name: 'wrap', of: heddle.wrap, good: [256, 'bf16', [2, 8], [8, 1]] },
  { name: 'row', of: heddle.row, good: ['bf16', 8] },
  { name: 'dlpack', of: heddle.dlpack, good: [{ ...heddle.wrap(256, 'bf16', [2, 8]) }] },
  { name: 'toF32', of: testing.toF32, good: ['bf16', new Uint16Array(4)] },
  { name: 'fromF32', of: testing.fromF32, good: ['bf16', new Float32Array(4), new Uint16Array(4)] },
  { name: 'payloadsFor', of: testing.payloadsFor, good: ['fp8', 7168] },
  { name: 'profile', of: testing.profile, good: ['mixtral'] },
  {
    name: 'ExpertParallel.memory',
    of: heddle.ExpertParallel.memory,
    good: [{ ...layer, ranks: 2, device: 'sim', split: false }],
  },
  { name: 'traffic', of: testing.traffic, good: [shape, [routes, routes]] },
  {
    name: 'makeRoutes',
    of: testing.makeRoutes,
    good: [shape, 0, 4, 1, { router: { kind: 'zipf', exponent: 1, target: 0 }, holes: 0.5 }],
  },
  { name: 'reference.dispatch', of: testing.reference.dispatch, good: [shape, [source, source], 0] },
  {
    name: 'reference.combine',
    of: testing.reference.combine,
    good: [shape, source, 0, [new Uint16Array(32), new Uint16Array(32)]],
  },
  { name: 'kernel', of: lang.kernel, good: [{ name: 'k', params: { n: 'u32' }, using: { A: 1 } }, body] },
  { name: 'device', of: lang.device, good: [{ name: 'd', params: { n: 'u32' }, returns: 'u32' }, body] },
  {
    name: 'foreign',
    of: lang.foreign,
    good: [
      {
        ...{ name: 'f', header: 'f.h', params: { n: 'u32', p: lang.pointer('u32') }, returns: 'u32' },
        effects: { reads: ['p'], writes: ['p'], orders: ['release.sys'] },
      },
      body,
    ],
  },
  { name: 'field', of: lang.field, good: ['u32', 4] },
  {
    name: 'layout',
    of: lang.layout,
    good: ['w', { flag: lang.field('u32', 4), rows: [lang.field('u8', 1)] }],
  },
  { name: 'list', of: lang.list, good: ['u32', 4] },
  { name: 'peers', of: lang.peers, good: [window] },
  { name: 'pointer', of: lang.pointer, good: ['u32'] },
  { name: 'windowOf', of: lang.windowOf, good: [window] },
  { name: 'writtenLine', of: lang.writtenLine, good: ['fuzz.js', { line: 1, column: 1 }] },
  { name: 'provideSource', of: lang.provideSource, good: ['fuzz.js', 'text'] },
  { name: 'registers', of: lang.registers, good: ['f32', 4] },
  { name: 'record', of: lang.record, good: [{ n: 'u32' }] },
  { name: 'callable', of: lang.callable, good: [{ n: 'u32' }, 'u32'] },
  { name: 'requireShmSpace', of: fabric.requireShmSpace, good: ['fuzz', 1, { total: 1e9, free: 1e9 }] },
  { name: 'section', of: lang.section, good: [window, 'flag', 0] },
  { name: 'printCuda', of: lang.printCuda, good: [kernel.ir(), { maxPeers: 8, lineDirectives: false }] },
  { name: 'printIr', of: lang.printIr, good: [kernel.ir()] },
  { name: 'validateIr', of: lang.validateIr, good: [kernel.ir()] },
  { name: 'requireModule', of: (module) => lang.requireModule('module', module), good: [kernel.ir()] },
  { name: 'parameterAbi', of: lang.parameterAbi, good: [kernel.ir(), { maxPeers: 8 }] },
  { name: 'entryName', of: lang.entryName, good: [kernel.ir()] },
  { name: 'compileOptions', of: lang.compileOptions, good: ['sm_90a'] },
  { name: 'effectsOf', of: lang.effectsOf, good: [kernel.ir()] },
  {
    name: 'check',
    of: checking.check,
    good: [
      [subject],
      {
        ...{ only: ['fuzz'], seeds: 1, mutants: true, schedulesPerMutant: 1, replay: 'one/random-0' },
        progress: () => {},
      },
    ],
  },
  { name: 'random', of: testing.random, good: [1, 2] },
  { name: 'makeAllRoutes', of: testing.makeAllRoutes, good: [shape, [4, 2], 1, { holes: 0.5 }] },
  { name: 'byPopularity', of: testing.byPopularity, good: [8, 1] },
  { name: 'interleaved', of: testing.interleaved, good: [shape] },
  { name: 'randomElements', of: testing.randomElements, good: ['bf16', 4, 1, 2] },
  { name: 'randomBytes', of: testing.randomBytes, good: [4, 1] },
  { name: 'mutantsOf', of: checking.mutantsOf, good: [kernel.ir()] },
  { name: 'mutate', of: checking.mutate, good: [kernel.ir(), mutant] },
  { name: 'runOnce', of: checking.runOnce, good: [subject.configurations[0], schedule] },
  { name: 'seedOf', of: checking.seedOf, good: [3] },
  { name: 'CudaDevice.open', of: cuda.CudaDevice.open, good: [0] },
  { name: 'canAddress', of: cuda.canAddress, good: [0, 1] },
  { name: 'describeGpu', of: cuda.describeGpu, good: [0] },
  { name: 'formatBytes', of: cuda.formatBytes, good: [1024] },
  { name: 'formatVersion', of: cuda.formatVersion, good: [12080] },
  { name: 'shmBytesFor', of: fabric.shmBytesFor, good: [2] },
  { name: 'shmRemedy', of: fabric.shmRemedy, good: [2] },
  { name: 'shmShortage', of: fabric.shmShortage, good: [2, { total: 1e9, free: 1e9 }] },
  { name: 'topologyOf', of: worlds.topologyOf, good: [['a', 'a', 'b'], 0, 'apart'] },
  { name: 'LocalGroup.create', of: worlds.LocalGroup.create, good: [2, { timeoutMs: 100 }] },
  {
    name: 'LocalGroup.run',
    of: (ranks, program, options) => worlds.LocalGroup.run(ranks, program, options),
    good: [2, async (group: worlds.Group) => group.barrier(), { timeoutMs: 100 }],
  },
  {
    // There is no such program, so that nothing is started, whatever is given.
    name: 'Launch.start',
    of: (options) => worlds.Launch.start(options),
    good: [
      {
        ...{ ranks: 2, nodes: 2, device: 'sim', program: 'no-such-program.ts', args: ['x'], timeoutMs: 100 },
        ...{ graceMs: 100, prefix: () => '', stdout: null, stderr: null, onNote: body },
      },
    ],
  },
  { name: 'evenNodes', of: worlds.evenNodes, good: [4, 2] },
  {
    name: 'launchReporting',
    of: (what, options, onLine) => worlds.launchReporting(what, options, onLine),
    good: ['it', { ranks: 2, program: 'no-such-program.ts' }, () => {}],
  },
  {
    name: 'World.local',
    of: (options, program) => heddle.World.local(options, program),
    good: [
      {
        ...{ ranks: 1, device: 'sim', timeoutMs: 1000 },
        sim: {
          ...{ mode: 'fast', seed: '1', schedule: 'random', configuration: 'c', residentBlocks: 4 },
          ...{ stepLimit: 1000, substitute: (module: unknown) => module },
        },
      },
      async (world: heddle.World) => world.barrier(),
    ],
  },
];

/** Why a public function is not called wrongly, and which. */
const notCalled: Readonly<Record<string, readonly string[]>> = {
  'takes parts of IR, which only the compiler makes': [
    ...[
      'dynamicSharedBytes',
      'sharedLayout',
      'isLeftEarly',
      'bodies',
      'children',
      'expressionsOf',
      'operands',
    ],
    ...['rewriteEffects', 'rewriteStatements', 'walkExpression', 'walkStatements', 'foreignSources'],
  ],
  'takes what only Heddle reports': ['formatDiagnostic', 'formatFinding', 'library'],
  'takes nothing': [
    ...['constant', 'libfabricVersion', 'listProviders', 'shmSpace', 'countGpus', 'listGpus', 'cacheFolder'],
    ...[
      'examineCuda',
      'findCompiler',
      'forgetCurrentContext',
      'ncclUniqueId',
      'ncclVersionNumber',
      'nvshmem',
    ],
    ...['nvshmemHeaders'],
  ],
  'needs a library of GPUs before it looks at anything': ['ncclGroup', 'compileKernel'],
  'is made by Heddle alone': [
    'Region',
    'NcclCommunicator',
    'Cublas',
    'CudaStream',
    'NvshmemHeap',
    'WrongResult',
  ],
  'makes, runs and compares whole rounds for tests, whose inputs it makes itself': [
    ...[
      'compareBits',
      'compareClosely',
      'compareCombined',
      'compareReceived',
      'mergeComparisons',
      'exampleOutput',
    ],
    ...[
      'compareMlp',
      'makeMlp',
      'runMlp',
      'comparePlan',
      'placeReceived',
      'runPlan',
      'compareLayer',
      'makeLayer',
    ],
    ...['placeWeights', 'plainLayer', 'runLayer', 'compareRounds', 'expectedRound', 'layerOf', 'makeSources'],
    ...[
      'runRounds',
      'shapeOfRounds',
      'compareRouted',
      'expectedRoutes',
      'makeRouted',
      'runRouter',
      'firstOf',
      'inE4m3',
    ],
  ],
};

/** One world that stays, one that is gone, one of another machine; each with what can be made in it. */
async function things(world: heddle.World) {
  const { device } = world;
  const stream = device.createStream();
  const gone = device.createStream();
  gone.dispose();
  const ep = await heddle.ExpertParallel.create(world, layer as heddle.ExpertParallelOptions);
  const disposed = await heddle.ExpertParallel.create(world, layer as heddle.ExpertParallelOptions);
  await disposed.dispose();
  const tensor = heddle.emptyTensor(device, 'bf16', [2, 8]);
  const freed = heddle.emptyTensor(device, 'bf16', [2, 8]);
  freed.free();
  const memory = device.allocate(64, 'fuzz');
  const event = device.createEvent();
  const shared = await world.createWindow(window.bytes, 'fuzz window');
  return { world, device, stream, gone, ep, disposed, tensor, freed, memory, event, shared };
}
type Things = Awaited<ReturnType<typeof things>>;

/** What needs a world. */
async function within(of: Things): Promise<Call[]> {
  const { world, device, stream, ep, tensor, memory, event, shared } = of;
  const program = await device.load(kernel.ir());
  const launcher = program.launcher({ grid: 1, block: 32, rank: 0 });
  launcher.setWindow('win', shared);
  for (const [name, value] of [
    ['out', memory.address],
    ['n', 0],
    ['f', 1],
  ] as const)
    launcher.set(name, value);
  const experts = () => testing.ExampleExperts.create(world, ep, stream);
  const plan = await heddle.ExpertsPlan.create(ep);
  const rows = heddle.emptyTensor(device, 'bf16', [plan.rows, 8]);
  const own = heddle.tensorFrom(device, stream, [0, -1, 1, 2], 'i32', [1, 2, 2]);
  const zeros = (shape: readonly number[]) => heddle.emptyTensor(device, 'bf16', shape);
  const mlp = { gateUp: zeros([128, 64]), down: zeros([64, 64]) };
  const dense = await heddle.DenseMlp.create(device, { ...mlp, maxTokens: 2 });
  const [wide, made] = [zeros([2, 64]), zeros([2, 64])];
  const model = { ...testing.profile('mixtral'), hidden: 64, experts: 4, inner: 64 };
  const gates = { weights: zeros([4, 64]) };
  const router = await heddle.Router.create(world, model, gates, 2);
  const whole = {
    ...{ model, maxTokens: 2, router: gates },
    experts: { gateUp: zeros([4, 128, 64]), down: zeros([4, 64, 64]) },
  };
  const bytes = new Uint8Array(8);
  const address = `127.0.0.1:${await freePort()}`;
  const alone = (then: (alone: heddle.World) => unknown) =>
    heddle.World.local({ ranks: 1, device: 'sim' }, async (inner) => then(inner));
  const call = (name: string, run: (...args: never[]) => unknown, ...good: unknown[]): Call => ({
    name,
    of: run,
    good,
  });
  return [
    call('emptyTensor', heddle.emptyTensor, device, 'bf16', [2, 8], 'fuzz'),
    call('tensorFrom', heddle.tensorFrom, device, stream, [1, 2], 'bf16', [2], 'fuzz'),
    call('write', heddle.write, tensor, stream, new Uint16Array(16)),
    call('read', heddle.read, { ...tensor, free: undefined }, stream),
    call('readBits', testing.readBits, tensor, stream),
    call('World.barrier', (operation) => world.barrier(operation), 'fuzz'),
    call('World.allGather', (a, b) => world.allGather(a, b), bytes, 'fuzz'),
    call('World.createWindow', (a, b, c) => world.createWindow(a, b, c), 64, 'w', [
      { offset: 0, bytes: 4, value: 1 },
    ]),
    call('World.join', (options) => heddle.World.join(options), {
      rank: 0,
      ranks: 1,
      address,
      device: 'cuda',
    }),
    call(
      'Group.onRankLost',
      (listener) => world.group.onRankLost(listener),
      () => {},
    ),
    call('Group.abandon', (reason) => alone(({ group }) => group.abandon(reason)), 'fuzz'),
    call('ProcessGroup.join', async (options) => (await worlds.ProcessGroup.join(options)).dispose(), {
      ...{
        rank: 0,
        ranks: 1,
        localRank: 0,
        address,
        world: 'w',
        secret: 'a secret of this test',
        hosted: false,
      },
      ...{ timeoutMs: 50, lossTimeoutMs: 1000, environment: {} },
    }),
    call(
      'ExpertParallel.create',
      async (a, b) => (await heddle.ExpertParallel.create(a, b)).dispose(),
      world,
      { ...layer, tuning: ep.tuning },
    ),
    call('ExpertParallel.dispatch', (a, b) => ep.dispatch(a, b), inputs(), stream),
    call('ExpertParallel.combine', (a, b) => ep.combine(a, b), tensor, stream),
    call('ExpertParallel.synchronize', (a) => ep.synchronize(a), stream),
    call(
      'ExampleExperts.create',
      async (a, b, c, d) => (await testing.ExampleExperts.create(a, b, c, d)).free(),
      world,
      ep,
      stream,
      { blocks: 1, threads: 32, programmatic: true },
    ),
    call('ExampleExperts.run', async (a) => (await experts()).run(a), stream),
    call(
      'ExpertsPlan.create',
      async (a, b) => (await heddle.ExpertsPlan.create(a, b)).dispose(),
      ...[ep, { form: 'masked', alignment: 16, capacity: 32 }],
    ),
    call('ExpertsPlan.plan', (a, b) => plan.plan(a, b), ep.received, stream),
    call('ExpertsPlan.sizes', (a) => plan.sizes(a), stream),
    call(
      'ExpertsPlan.expand',
      (a, b, c, d) => plan.expand(a, b, c, d),
      ...[ep.received, { x: rows }, stream, own],
    ),
    call('ExpertsPlan.reduce', (a, b, c, d) => plan.reduce(a, b, c, d), ...[ep.received, rows, stream, own]),
    call('DenseMlp.create', async (a, b) => (await heddle.DenseMlp.create(a, b)).dispose(), device, {
      ...{ ...mlp, maxTokens: 2 },
    }),
    call('DenseMlp.run', (a, b, c, d) => dense.run(a, b, c, d), ...[wide, made, 2, stream]),
    // Its rows are too narrow, so this is refused whatever is given.
    call('ExpertsMlp.create', (a, b, c) => heddle.ExpertsMlp.create(a, b, c), ...[ep, plan, mlp]),
    call('Router.create', (a, b, c, d) => heddle.Router.create(a, b, c, d), ...[world, model, gates, 2]),
    call('Router.route', (a, b) => router.route(a, b), wide, stream),
    call('MoeLayer.memory', (a) => heddle.MoeLayer.memory(a), { model, ranks: 1, maxTokens: 2 }),
    call('MoeLayer.create', async (a, b) => (await heddle.MoeLayer.create(a, b)).dispose(), world, whole),
    call('Device.allocate', (a, b) => device.allocate(a, b).free(), 64, 'fuzz'),
    call('Device.allocateWindow', (a, b, c) => device.allocateWindow(a, b, c).free(), 64, 'fuzz', []),
    call('Device.openWindow', (a) => device.openWindow(a), shared.own.handle),
    call('Device.load', (a) => device.load(a), kernel.ir()),
    call('Program.launcher', (a) => program.launcher(a), {
      grid: 1,
      block: 32,
      rank: 0,
      programmatic: false,
    }),
    call('Launcher.set', (a, b) => launcher.set(a, b), 'n', 0),
    call('Launcher.setWindow', (a, b) => launcher.setWindow(a, b), 'win', { ...shared }),
    call('Launcher.setGrid', (a) => launcher.setGrid(a), 1),
    call('Launcher.launch', (a) => launcher.launch(a), stream),
    call('Stream.copyIn', (a, b) => stream.copyIn(a, b), memory.address, bytes),
    call('Stream.copyOut', (a, b) => stream.copyOut(a, b), memory.address, 8),
    call('Stream.copy', (a, b, c) => stream.copy(a, b, c), memory.address, memory.address + 32, 8),
    call('Stream.fill', (a, b, c) => stream.fill(a, b, c), memory.address, 8, 1),
    call('Stream.record', (a) => stream.record(a), event),
    call('Stream.wait', (a) => stream.wait(a), event),
    call('Event.elapsedSince', (a) => event.elapsedSince(a), event),
  ];
}

const usable = (): boolean => {
  try {
    return fabric
      .listProviders()
      .some(({ provider, devices }) => provider === 'tcp;ofi_rxm' && devices.length > 0);
  } catch {
    return false; // no libfabric
  }
};

/** Two engines of this process, each the other's peer. */
async function engines() {
  const options = {
    provider: 'tcp;ofi_rxm',
    thread: 'caller',
    timeoutMs: 200,
    operations: 64,
    receives: 4,
  } as const;
  const opened = [
    await fabric.TransferEngine.open(options),
    await fabric.TransferEngine.open(options),
  ] as const;
  const [mine, theirs] = opened;
  const peer = mine.addPeer(theirs.address, 'other');
  theirs.addPeer(mine.address, 'first');
  const region = mine.allocate(4096);
  const target = theirs.allocate(4096);
  const remote = mine.remote(peer, target.descriptor);
  const group = mine.group([remote]);
  const closed = mine.allocate(64);
  closed.close();
  return { opened, mine, theirs, peer, region, target, remote, group, closed };
}

function transfers(of: Awaited<ReturnType<typeof engines>>): Call[] {
  const { mine, theirs, peer, region, target, remote, group } = of;
  const counter = mine.counter();
  // A wait for more operations than were ever begun is right to go on.
  mine.write({ source: region, sourceOffset: 0, target: remote, targetOffset: 0, bytes: 8, counter });
  const call = (name: string, run: (...args: never[]) => unknown, ...good: unknown[]): Call => ({
    name,
    of: run,
    good,
  });
  const slices = { sourceOffsets: [0], targetOffsets: [0] };
  const how = { immediate: 1, counter, callback: () => {} };
  return [
    call('TransferEngine.open', async (options) => (await fabric.TransferEngine.open(options)).close(), {
      ...{
        provider: 'tcp;ofi_rxm',
        devices: ['lo'],
        rails: 1,
        shard: 'peer',
        thread: 'caller',
        timeoutMs: 100,
      },
      ...{ queue: 8, peers: 4, immediates: 4, operations: 16, messageBytes: 256, receives: 2 },
      ...{ gpuMemory: false, onError: () => {} },
    }),
    call('TransferEngine.addPeer', (a, b) => theirs.addPeer(a, b), new Uint8Array(mine.address), 'again'),
    call('TransferEngine.losePeer', (a) => theirs.losePeer(a), peer),
    call('TransferEngine.removePeer', (a) => theirs.removePeer(a), peer),
    call('TransferEngine.allocate', (a) => mine.allocate(a).close(), 4096),
    call('TransferEngine.register', (a) => mine.register(a).close(), new Uint8Array(64)),
    call('TransferEngine.registerGpu', (a) => mine.registerGpu(a), { address: 0, bytes: 64, ordinal: 0 }),
    call('TransferEngine.remote', (a, b) => mine.remote(a, b), peer, target.descriptor),
    call('TransferEngine.group', (a) => mine.group(a), [remote]),
    call('TransferEngine.immediate', (a) => mine.immediate(a), 3),
    call('TransferEngine.write', (a) => mine.write(a), {
      source: region,
      sourceOffset: 0,
      target: remote,
      targetOffset: 0,
      bytes: 8,
      ...how,
    }),
    call('TransferEngine.paged', (a) => mine.paged(a), {
      source: region,
      target: remote,
      bytes: 8,
      ...slices,
      ...how,
    }),
    call('TransferEngine.scatter', (a) => mine.scatter(a), {
      source: region,
      group,
      bytes: [8],
      ...slices,
      ...how,
    }),
    call('TransferEngine.barrier', (a) => mine.barrier(a), { group, ...how }),
    call('TransferEngine.send', (a, b, c) => mine.send(a, b, c), peer, new Uint8Array(8), { counter }),
    call('TransferEngine.receive', (a) => mine.receive(a), { timeoutMs: 1 }),
    call('Counter.wait', (a) => counter.wait(a), { timeoutMs: 1, from: [peer] }),
    call('ImmediateCounter.wait', (a, b) => mine.immediate(9).wait(a, b), 0, { timeoutMs: 1, from: [peer] }),
  ];
}

/** How a call ended that was neither a result nor one of Heddle's errors; null where all is well. */
async function complaint({ name, of }: Call, args: unknown[]): Promise<string | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve('no end after 10 s'), 10_000);
  });
  const end = (async (): Promise<string | null> => {
    try {
      await of(...(args as never[]));
      return null;
    } catch (error) {
      if (error instanceof HeddleError) return null;
      return error instanceof Error ? (error.stack ?? error.message) : `threw ${typeof error}`;
    }
  })();
  const what = await Promise.race([end, late]);
  clearTimeout(timer);
  return what === null ? null : `${name}(${args.map(shown).join(', ')}): ${what}`;
}

function shown(value: unknown): string {
  try {
    return (
      JSON.stringify(value, (_, part: unknown) =>
        typeof part === 'object' || typeof part === 'string' || typeof part === 'number'
          ? part
          : String(part),
      ) ?? String(value)
    );
  } catch {
    return String(Object.prototype.toString.call(value));
  }
}

/** Calls that many times, each function as often as any other. */
async function fuzz(
  calls: readonly Call[],
  times: number,
  seed: number,
  foreign: readonly unknown[],
): Promise<string[]> {
  const draw = testing.random(seed);
  const wrong = wrongValues(foreign);
  const complaints: string[] = [];
  for (let i = 0; i < times; i++) {
    const call = calls[i % calls.length]!;
    const what = await complaint(call, spoiled(call.good, wrong, draw));
    if (what !== null) complaints.push(what);
  }
  return complaints;
}

test('every public function is called', () => {
  const doors = [heddle, lang, cuda, checking, fabric, testing].flatMap((door) => Object.entries(door));
  const functions = doors.filter(([name, value]) => typeof value === 'function' && !/Error$/.test(name));
  // Those of a world and of engines are named where they are called: `call('Router.create', …)`.
  const text = readFileSync(import.meta.filename, 'utf8');
  const elsewhere = [...text.matchAll(/\bcall\(\s*'([\w.]+)/g)].map(([, name]) => name!);
  const called = [...pure.map(({ name }) => name), ...elsewhere].map((name) => name.split('.')[0]!);
  const excused = Object.values(notCalled).flat();
  const names = new Set(functions.map(([name]) => name));
  const forgotten = [...names].filter((name) => !called.includes(name) && !excused.includes(name));
  expect(forgotten, 'call them, or say in notCalled why not').toEqual([]);
  expect(excused.filter((name) => !names.has(name) || called.includes(name))).toEqual([]);
});

test('functions that need only their arguments', { timeout: 15_000 }, async () => {
  expect(await fuzz(pure, 2_000, 1, [])).toEqual([]);
});

test('a world and what is made in it', { timeout: 240_000 }, async () => {
  const complaints = await heddle.World.local({ ranks: 1, device: 'sim' }, (world) =>
    heddle.World.local({ ranks: 1, device: 'sim' }, async (other) => {
      const [here, there] = [await things(world), await things(other)];
      const calls = await within(here);
      return fuzz(calls, 2_000, 2, [...Object.values(here), ...Object.values(there)]);
    }),
  );
  expect(complaints.flat(2)).toEqual([]);
});

describe.skipIf(!usable())('between machines', () => {
  let of: Awaited<ReturnType<typeof engines>>;
  beforeAll(async () => {
    of = await engines();
  });
  afterAll(async () => {
    for (const engine of of.opened) await engine.close();
  });

  test('an engine, its regions, peers and operations', { timeout: 240_000 }, async () => {
    const { opened, ...foreign } = of;
    expect(await fuzz(transfers(of), 1_000, 3, [...opened, ...Object.values(foreign)])).toEqual([]);
  });
});
