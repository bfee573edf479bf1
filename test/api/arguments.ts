/** What needs nothing but its arguments. */

import * as cuda from '../../src/gpu/cuda/index.js';
import * as heddle from '../../src/index.js';
import * as lang from '../../src/lang/index.js';
import * as fabric from '../../src/net/fabric/index.js';
import * as worlds from '../../src/net/world/index.js';
import * as checking from '../../src/verify/check/public.js';
import * as testing from '../../src/verify/testing/public.js';
import { type Call, call } from './call.js';
import type { PublicName } from './names.js';

const { row } = heddle;
export const layer: heddle.ExpertParallelOptions = {
  ...{ experts: 4, topK: 2, maxTokens: 2, waitMs: 100, weighting: 'experts', combineFormat: 'rows' },
  ...{ weights: true, counts: true, payloads: { x: row('bf16', 8) }, output: row('bf16', 8) },
};
const shape: testing.Shape = {
  ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 2, payloads: [{ name: 'x', rowBytes: 16 }] },
  output: { dtype: 'bf16', hidden: 8, weighting: 'experts', combineFormat: 'rows' },
};
const routes = { tokens: 1, topkIds: Int32Array.of(0, 1), topkWeights: Float32Array.of(0.5, 0.5) };
const source = { ...routes, payloads: { x: new Uint8Array(16) } };
const received = testing.reference.dispatch(shape, [source, source], 0);
const bits = new Uint16Array(8);
export const window = lang.layout('fuzz', { flag: lang.field('u32', 4) });
const boxes = lang.tile('bf16', [8, 64], { swizzle: 128 });
export const kernel = lang.kernel(
  {
    ...{ name: 'fuzz' },
    params: {
      win: lang.peers(window),
      out: lang.pointer('u32'),
      n: 'u32',
      f: 'f32',
      boxes: lang.tensorMap(boxes),
    },
  },
  (g, { win, out, n, f }) => {
    if (g.threadIdx.x < n && f > 0) g.store(out.at(g.threadIdx.x), g.load(win.at(g.rank).flag.at(0)));
  },
);
const placement: heddle.Placement = { experts: 2, ranks: 2, places: [0, 1, 1, -1] };
const body = (): void => {};
const emptyPtx = '.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n';
const { expand, mlp, plan, reduce, route, scaledMlp, widen } = testing.reference;

export const withArguments = {
  wrap: call(heddle.wrap, 256, 'bf16', [2, 8], [8, 1]),
  row: call(row, 'bf16', 8),
  fp8: call(heddle.fp8, 'bf16', 128),
  mxfp8: call(heddle.mxfp8, 'bf16', 128),
  rankLoads: call(heddle.rankLoads, placement, [3, 1]),
  rebalance: call(heddle.rebalance, [3, 1], { ranks: 2, places: 4, nodes: 1 }),
  dlpack: call(heddle.dlpack, { ...heddle.wrap(256, 'bf16', [2, 8]) }),
  'ExpertParallel.memory': call(heddle.ExpertParallel.memory, {
    ...{ ...layer, ranks: 2, device: 'sim', split: false },
  }),
  'LayerBuffers.memory': call(heddle.LayerBuffers.memory, {
    ...{ model: { ...testing.profile('mixtral'), hidden: 64, experts: 4, inner: 64 } },
    ...{ ranks: 1, maxTokens: 2 },
  }),
  'MoeLayer.memory': call(heddle.MoeLayer.memory, {
    ...{ model: { ...testing.profile('mixtral'), hidden: 64, experts: 4, inner: 64 } },
    ...{ ranks: 1, nodes: 1, maxTokens: 2 },
  }),
  'World.local': call(
    (options, program) => heddle.World.local(options, program),
    {
      ...{ ranks: 1, device: 'sim', timeoutMs: 1000 },
      sim: {
        ...{ mode: 'fast', seed: '1', schedule: 'random', configuration: 'c', residentBlocks: 4 },
        ...{ stepLimit: 1000, substitute: (module: unknown) => module },
      },
    },
    async (world: heddle.World) => world.barrier(),
  ),

  toF32: call(testing.toF32, 'bf16', new Uint16Array(4)),
  fromF32: call(testing.fromF32, 'bf16', new Float32Array(4), new Uint16Array(4)),
  payloadsFor: call(testing.payloadsFor, 'fp8', 7168),
  profile: call(testing.profile, 'mixtral'),
  traffic: call(testing.traffic, shape, [routes, routes]),
  'reference.dispatch': call(testing.reference.dispatch, shape, [source, source], 0),
  'reference.without': call(testing.reference.without, shape, [source, source], [1]),
  'reference.combine': call(
    testing.reference.combine,
    ...[shape, source, 0, [new Uint16Array(32), new Uint16Array(32)]],
  ),
  'reference.expand': call(expand, new Uint8Array(16), 16, shape, Int32Array.of(0, -1), 1),
  'reference.plan': call(
    plan,
    ...[Int32Array.of(0, -1), { first: 0, count: 2 }, { form: 'masked', alignment: 16, capacity: 16 }],
  ),
  'reference.reduce': call(
    reduce,
    ...[shape, { experts: Int32Array.of(0, -1), weights: Float32Array.of(1, 0) }, Int32Array.of(0, -1)],
    ...[bits, true],
  ),
  'reference.mlp': call(mlp, bits, 8, {
    ...{ gateUp: new Uint16Array(32), down: new Uint16Array(16) },
    ...{ gateUpBias: new Uint16Array(4), downBias: new Uint16Array(8), activation: 'swiglu' },
  }),
  'reference.scaledMlp': call(scaledMlp, new Uint8Array(128), new Float32Array(1), 128, {
    gateUp: new Uint8Array(256 * 128),
    gateUpScales: new Float32Array(2),
    down: new Uint8Array(128 * 128),
    downScales: new Float32Array(1),
  }),
  'reference.widen': call(widen, new Uint8Array(256), new Float32Array(2)),
  'reference.route': call(
    route,
    { experts: 4, topK: 2, routing: { scores: 'softmax', normalise: true, scale: 1 } },
    new Float64Array(8),
    { bias: [0, 0, 0, 1], correction: new Float32Array(4) },
  ),
  random: call(testing.random, 1, 2),
  makeRoutes: call(testing.makeRoutes, shape, 0, 4, 1, {
    ...{ router: { kind: 'zipf', exponent: 1, favourites: 1, target: 0 }, holes: 0.5 },
  }),
  makeAllRoutes: call(testing.makeAllRoutes, shape, [4, 2], 1, { holes: 0.5 }),
  makeSources: call(testing.makeSources, shape, [2, 1], 1, { holes: 0.5 }),
  randomElements: call(testing.randomElements, 'bf16', 4, 1, 2),
  randomBytes: call(testing.randomBytes, 4, 1),
  shapeOfRounds: call(testing.shapeOfRounds, {
    ...{ ranks: 2, experts: 4, topK: 2, maxTokens: 2, replicas: 1, hidden: 8, dtype: 'bf16' },
    ...{ weighting: 'experts', combineFormat: 'rows', extra: [4] },
  }),
  compareBits: call(testing.compareBits, 'x', 'bf16', bits, bits, 8),
  compareClosely: call(testing.compareClosely, 'x', 'bf16', bits, bits, 8, 0.1),
  compareCombined: call(testing.compareCombined, shape, 0, bits, bits),
  compareReceived: call(testing.compareReceived, shape, [source, source], 0, received),
  mergeComparisons: call(testing.mergeComparisons, [
    { compared: 1, different: 0, maxAbsError: 0, first: 'x' },
  ]),

  kernel: call(lang.kernel, { name: 'k', params: { n: 'u32' }, using: { A: 1 } }, body),
  device: call(lang.device, { name: 'd', params: { n: 'u32' }, returns: 'u32' }, body),
  foreign: call(
    lang.foreign,
    {
      ...{ name: 'f', header: 'f.h', params: { n: 'u32', p: lang.pointer('u32') }, returns: 'u32' },
      effects: { reads: ['p'], writes: ['p'], orders: ['release.sys'] },
    },
    body,
  ),
  field: call(lang.field, 'u32', 4),
  layout: call(lang.layout, 'w', { flag: lang.field('u32', 4), rows: [lang.field('u8', 1)] }),
  list: call(lang.list, 'u32', 4),
  peers: call(lang.peers, window),
  pointer: call(lang.pointer, 'u32'),
  windowOf: call(lang.windowOf, window),
  tile: call(lang.tile, 'bf16', [64, 64] as const, { swizzle: 128 } as const),
  offsetInTile: call(lang.offsetInTile, boxes, 1, 2),
  tensorMap: call(lang.tensorMap, boxes, 3),
  tiles: call(lang.tiles, boxes),
  pipeline: call(lang.pipeline, { stages: 4, fills: 1, empties: 8 }),
  writtenLine: call(lang.writtenLine, 'fuzz.js', { line: 1, column: 1 }),
  provideSource: call(lang.provideSource, 'fuzz.js', 'text'),
  registers: call(lang.registers, 'f32', 4),
  record: call(lang.record, { n: 'u32' }),
  callable: call(lang.callable, { n: 'u32' }, 'u32'),
  section: call(lang.section, window, 'flag', 0),
  printCuda: call(lang.printCuda, kernel.ir(), { lineDirectives: false }),
  printIr: call(lang.printIr, kernel.ir()),
  ptx: call((text, file, name) => lang.ptx(text, file).kernel(name), emptyPtx, 'k.ptx', 'k'),
  requireModule: call((module) => lang.requireModule('module', module), kernel.ir()),
  parameterAbi: call(lang.parameterAbi, kernel.ir()),
  entryName: call(lang.entryName, kernel.ir()),
  compileOptions: call(lang.compileOptions, 'sm_90a'),
  effectsOf: call(lang.effectsOf, kernel.ir()),

  configuration: call(checking.configuration, 'fuzz', { ranks: 1 }, async () => {}),
  everyRank: call(checking.everyRank, 'fuzz', { ranks: 1 }, async () => {}),
  struct: call(
    checking.struct,
    { to: ['pointer', 8], part: checking.struct({ count: 'u32' }) },
    { align: 16 },
  ),

  'CudaDevice.open': call(cuda.CudaDevice.open, 0),
  canAddress: call(cuda.canAddress, 0, 1),
  describeGpu: call(cuda.describeGpu, 0),
  formatBytes: call(cuda.formatBytes, 1024),
  formatVersion: call(cuda.formatVersion, 12080),

  distancesFrom: call(fabric.distancesFrom, '0000:18:00.0', '/sys'),
  linkOf: call(fabric.linkOf, 'eth0', '/sys'),
  listNics: call(fabric.listNics, '/sys'),
  expectPeers: call(fabric.expectPeers, 4),
  usableProviders: call(fabric.usableProviders, ['lo']),
  requireShmSpace: call(fabric.requireShmSpace, 'fuzz', 1, { total: 1e9, free: 1e9 }),
  shmBytesFor: call(fabric.shmBytesFor, 2),
  shmRemedy: call(fabric.shmRemedy, 2),
  shmShortage: call(fabric.shmShortage, 2, { total: 1e9, free: 1e9 }),

  proxyMaker: call(worlds.proxyMaker, { module: 'no-such-module', name: 'p' }),
  topologyOf: call(worlds.topologyOf, ['a', 'a', 'b'], 0, 'apart'),
  evenNodes: call(worlds.evenNodes, 4, 2),
  'LocalCircle.create': call(worlds.LocalCircle.create, 2, { timeoutMs: 100 }),
  'LocalCircle.run': call(
    (ranks, program, options) => worlds.LocalCircle.run(ranks, program, options),
    ...[2, async (circle: worlds.Circle) => circle.barrier(), { timeoutMs: 100 }],
  ),
  // There is no such program, so that nothing is started, whatever is given.
  'Launch.start': call((options) => worlds.Launch.start(options), {
    ...{ ranks: 2, nodes: 2, device: 'sim', program: 'no-such-program.ts', args: ['x'], timeoutMs: 100 },
    ...{ graceMs: 100, prefix: false, stdout: null, stderr: null, onNote: body },
  }),
  askEtcd: call(worlds.askEtcd, 'etcd://127.0.0.1:9/heddle'),
  launchReporting: call(
    (what, options, onReport) => worlds.launchReporting(what, options, onReport),
    ...['it', { ranks: 2, program: 'no-such-program.ts' }, () => {}],
  ),
} satisfies Partial<Record<PublicName, Call>>;
