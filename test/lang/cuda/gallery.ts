/** Kernels that together meet every effect in every form that the printer tells apart. */
import { device, field, type IrModule, kernel, layout, peers, pointer } from '../../../src/lang/index.js';
import { reverseTwice } from './large-shared.js';

const memoryNames = ['u8', 'u16', 'i32', 'u32', 'u64', 'f32', 'bf16', 'f16', 'e4m3', 'v16'] as const;
const scopes = ['cta', 'gpu', 'sys'] as const;

/** The body of a kernel whose statements are written out, one for each of their forms. */
const bodyOf = (parameters: string, lines: readonly string[]) =>
  new Function(`return (g, { ${parameters} }) => {\n${lines.join('\n')}\n}`)();

/** Loads and stores of every type, order, scope, hint and space. */
function accesses(name: (typeof memoryNames)[number]): IrModule {
  const forms = ['weak', 'relaxed', 'ordered'].flatMap((order) =>
    (order === 'weak' ? ['gpu'] : scopes).map((scope) => ({ order, scope })),
  );
  const lines = [['from', 'to', ['keep', 'stream']] as const, ['tile', 'tile', ['keep']] as const].flatMap(
    ([from, to, caches]) =>
      forms
        .flatMap((form) => caches.map((cache) => ({ ...form, cache })))
        .map(({ order, ...how }, i) => {
          const said = (ordered: string) =>
            JSON.stringify({ order: order === 'ordered' ? ordered : order, ...how });
          const at = (base: string) => `${base}.at(${256 * i}).at(g.threadIdx.x)`;
          return `g.store(${at(to)}, g.load(${at(from)}, ${said('acquire')}), ${said('release')});`;
        }),
  );
  const params = { from: pointer(name), to: pointer(name) };
  const body = bodyOf('from, to', [`const tile = g.shared('${name}', 2048);`, ...lines]);
  return kernel({ name: `accesses_${name}`, params, maxThreads: 256 }, body).ir();
}

/** Atomics of every order and scope; of each pair nobody reads what the second returns. */
function atomics(name: 'i32' | 'u32' | 'u64'): IrModule {
  const lines = ['counters', 'tile'].flatMap((base) =>
    ['relaxed', 'acquire', 'release', 'acq_rel'].flatMap((order) =>
      scopes.flatMap((scope) =>
        [
          `Add(${base}.at(1), value`,
          `Exchange(${base}.at(1), value`,
          `Cas(${base}.at(1), sum, value`,
        ].flatMap((op) => {
          const call = `g.atomic${op}, { order: '${order}', scope: '${scope}' })`;
          return [`sum += ${call};`, `${call};`];
        }),
      ),
    ),
  );
  const body = bodyOf('counters', [
    `const tile = g.shared('${name}', 32); const value = g.${name}(g.threadIdx.x); let sum = g.${name}(0);`,
    ...lines,
    'g.store(counters, sum);',
  ]);
  return kernel({ name: `atomics_${name}`, params: { counters: pointer(name) }, maxThreads: 256 }, body).ir();
}

/** Flags, packets, fences, clocks, programmatic launch. */
const waits = kernel(
  {
    name: 'waits',
    params: {
      flags: pointer('u32'),
      packets: pointer('v16'),
      output: pointer('v16'),
      epoch: 'u32',
      limit: 'u32',
    },
    maxThreads: 256,
  },
  bodyOf('flags, packets, output, epoch, limit', [
    'const [flag, packet, out] = [flags.at(g.threadIdx.x), packets.at(g.threadIdx.x), output.at(g.threadIdx.x)];',
    'g.prefetch(packet);',
    'g.awaitPrevious();',
    ...scopes.flatMap((scope) => {
      const how = `order: '${scope === 'sys' ? 'acquire' : 'relaxed'}', scope: '${scope}', limit`;
      return [
        `const reached_${scope} = g.awaitEpoch(flag, epoch, { ${how}, until: '>=' });`,
        `g.awaitEpoch(flag, epoch, { ${how}, until: '==', mask: epoch });`,
        `g.awaitEpoch(flag, epoch, { ${how}, until: '!=', mask: 0xff });`,
        `if (!reached_${scope}) return;`,
        `g.fence('${scope}');`,
        `g.fence('${scope}', { order: 'seq_cst' });`,
        `g.store(out, g.awaitFilled(packet, 0, { scope: '${scope}', limit }), { order: 'relaxed', scope: 'sys' });`,
      ];
    }),
    'const start = g.clock();',
    'g.sleep(200);',
    'g.releaseNext();',
    "g.store(output.as('u64'), start);",
  ]),
).ir();

const warps = kernel(
  { name: 'warps', params: { output: pointer('u32') }, maxThreads: 256 },
  bodyOf('output', [
    'let sum = g.laneId;',
    ...['shuffle', 'shuffleXor', 'shuffleUp'].flatMap((shuffle) =>
      ['u32', 'i32', 'f32'].map((type) => `sum += g.u32(g.warp.${shuffle}(g.${type}(sum), g.warpId));`),
    ),
    'if (g.warp.any(sum % 2 === 1)) sum += 3;',
    'g.warp.any(sum % 2 === 1);',
    'sum += g.popc(g.warp.ballot(sum % 2 === 1));',
    'sum += g.ffs(g.warp.match(sum));',
    'g.warp.barrier();',
    'if (g.laneId === 0) g.store(output.at(g.warpId), sum);',
  ]),
).ir();

/** A tile through shared memory by the copy engine: in, changed by all threads, out. */
const bulk = kernel(
  { name: 'bulk', params: { from: pointer('v16'), to: pointer('v16') }, maxThreads: 256 },
  (g, { from, to }) => {
    const tile = g.shared('v16', 256);
    const full = g.shared('u64', 1);
    if (g.threadIdx.x === 0) g.mbarrier.init(full, 1);
    g.barrier();
    if (g.threadIdx.x === 0) {
      g.mbarrier.expect(full, 4096);
      g.bulk.load(tile, from.at(g.blockIdx.x * 256), 4096, full);
    }
    g.mbarrier.await(full, 0);
    if (!g.mbarrier.await(full, 0, { limit: 5 })) g.mbarrier.arrive(full);
    g.group.barrier(1, 64);
    const row = g.load(tile.at(g.threadIdx.x));
    const lanes = g.registers('f32', 4);
    for (const i of g.unroll(4)) lanes[i] = -g.lane(row, 'f32', i);
    g.store(tile.at(g.threadIdx.x), g.pack('f32', lanes));
    g.barrier();
    if (g.threadIdx.x === 0) {
      g.proxyFence('shared');
      g.proxyFence('global');
      g.bulk.store(to, tile, 4096);
      g.bulk.commit();
      g.bulk.waitReads(1);
      g.bulk.wait(0);
    }
  },
).ir();

/** Rows through shared memory by asynchronous loads, and a product of their matrices. */
const matrices = kernel(
  { name: 'matrices', params: { from: pointer('v16'), to: pointer('v16') }, maxThreads: 256 },
  (g, { from, to }) => {
    const tile = g.shared('v16', 256);
    const row = tile.at(g.threadIdx.x);
    g.async.load(row, from.at(g.threadIdx.x));
    g.async.commit();
    g.async.wait(1);
    g.async.wait(0);
    g.barrier();
    const a = g.warp.ldmatrix(row);
    g.warp.mma(a, a, 0, a);
    g.store(to.at(g.threadIdx.x), g.warp.mma(a, a, 1, a));
  },
).ir();

/** Shared memory of other blocks of a cluster, of every type; and the memory of all ranks at once, through a multicast address. */
const elsewhere = kernel(
  { name: 'elsewhere', params: { all: pointer('v16') }, maxThreads: 256, cluster: 2 },
  bodyOf('all', [
    ...memoryNames.flatMap((name) => [
      `const tile_${name} = g.shared('${name}', 32);`,
      `g.cluster.store(tile_${name}.at(g.laneId), g.cluster.load(tile_${name}.at(g.laneId), 1), 0);`,
    ]),
    ...['f32', 'bf16', 'f16'].flatMap((of) =>
      ["{ order: 'weak' }", ...scopes.map((scope) => `{ order: 'acquire', scope: '${scope}' }`)].map(
        (how) =>
          `g.multimem.store(all, g.multimem.load(all, '${of}', ${how}), ${how.replace('acquire', 'release')});`,
      ),
    ),
    ...['u32', 'u64', 'f32'].map((name) => `g.multimem.store(all.as('${name}'), g.${name}(g.laneId));`),
    ...scopes.map((scope) => `g.multimem.add(all.as('u32'), 1, { order: 'release', scope: '${scope}' });`),
  ]),
).ir();

const mail = layout('Window', { arrived: field('u32', 72), rows: field('v16', 1024) });

/** Tells a peer of a round. */
const publish = device(
  { params: { win: peers(mail), peer: 'u32', epoch: 'u32' } },
  (g, { win, peer, epoch }) => {
    g.store(win.at(peer).arrived.at(g.rank), epoch, { order: 'release', scope: 'sys' });
  },
);

/** Peers' windows, also from an inlined device function. */
const windows = kernel(
  {
    name: 'windows',
    params: { win: peers(mail), epoch: 'u32', rows: pointer('v16') },
    ...{ maxThreads: 256, using: { publish } },
  },
  (g, { win, epoch, rows }, { publish }) => {
    for (let peer = g.u32(0); peer < 8; peer++) {
      const row = g.load(rows.at(g.threadIdx.x), { cache: 'stream' });
      g.store(win.at(peer).rows.at(g.threadIdx.x), row, { cache: 'stream' });
    }
    g.barrier();
    if (g.threadIdx.x < 8) publish({ win, peer: g.threadIdx.x, epoch });
  },
).ir();

/** Sums rows of each storage type in f32 registers and packs them again. */
const reduction = (of: 'bf16' | 'f16' | 'e4m3'): IrModule =>
  kernel(
    {
      name: `reduction_${of}`,
      params: { rows: pointer('v16'), out: pointer('v16'), count: 'u32' },
      ...{ maxThreads: 256, using: { OF: of, LANES: of === 'e4m3' ? 16 : 8 } },
    },
    (g, { rows, out, count }, { OF, LANES }) => {
      const sum = g.registers('f32', LANES, 0);
      for (let i = g.u32(0); i < count; i++) {
        const row = g.load(rows.at(i * g.blockDim.x).at(g.threadIdx.x), { cache: 'stream' });
        for (const k of g.unroll(LANES)) sum[k] = sum[k]! + g.f32(g.lane(row, OF, k));
      }
      g.store(out.at(g.threadIdx.x), g.pack(OF, sum));
    },
  ).ir();

/** What folding and unrolling leave behind: unread variables, unreachable statements, empty branches. */
const leftovers = kernel(
  { name: 'leftovers', params: { out: pointer('u32'), n: 'u32' }, maxThreads: 256 },
  bodyOf('out, n', [
    "const scratch = g.shared('u32', 32);",
    'const unread = n; const chained = unread; let counted = g.u32(0); counted += 1;',
    'const loaded = g.load(out); const nothing = g.load(scratch.at(g.threadIdx.x));',
    'if (n < 0) { const x = g.u32(1); }',
    'if (n > 9) {} else g.store(out, 2);',
    'let sum = g.u32(0);',
    'while (true) { sum += 1; if (sum >= n) { break; sum = g.u32(0); } continue; sum = g.u32(0); }',
    'g.store(out, sum);',
    'return;',
    'g.store(out, 3);',
  ]),
).ir();

export const gallery: readonly IrModule[] = [
  ...memoryNames.map(accesses),
  ...(['i32', 'u32', 'u64'] as const).map(atomics),
  ...[waits, warps, bulk, matrices, elsewhere, windows],
  ...(['bf16', 'f16', 'e4m3'] as const).map(reduction),
  leftovers,
  reverseTwice.ir(),
];
