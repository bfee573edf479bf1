/** Mistakes with products of tiles, with the registers of warp groups, and in clusters. */
import { device, kernel, pointer, tile, tiles } from '../../../../src/lang/index.js';
import { type Exhibit, less, misuse, race } from './exhibit.js';

const params = { input: pointer('u32'), scratch: pointer('u32'), out: pointer('f32') } as const;
const A = tile('bf16', [64, 16], { swizzle: 32 });
const B = tile('bf16', [8, 16], { swizzle: 32 });

const fill = device(
  { name: 'fill', params: { a: tiles(A), b: tiles(B) }, using: { B } },
  (g, { a, b }, { B }) => {
    const [row, column] = [g.threadIdx.x / 2, 8 * (g.threadIdx.x % 2)];
    const zeros = g.pack('u32', [0, 0, 0, 0]);
    g.store(a.element(row, column).as('v16'), zeros);
    if (row < 2 * B.rows)
      g.store(
        b
          .at(row / B.rows)
          .element(row % B.rows, column)
          .as('v16'),
        zeros,
      );
    g.proxyFence('shared');
    g.barrier();
  },
);

/** A warp group multiplies a tile, and stores some of the sums. */
const product = (name: string, left: { fence?: true; tile?: true; wait?: true; end?: true }) =>
  kernel(
    {
      name,
      params,
      maxThreads: 128,
      using: {
        ...{ A, B, fill },
        ...{ FENCES: !left.fence, ALIKE: !left.tile, WAITS: !left.wait, STORES: !left.end },
      },
    },
    (g, { input, out }, { A, B, fill, FENCES, ALIKE, WAITS, STORES }) => {
      const a = g.shared(A);
      const b = g.shared(B, 2);
      fill({ a, b });
      const sums = g.registers('f32', 4, g.f32(1));
      if (FENCES) g.wgmma.fence();
      g.wgmma.multiply(sums, a, b.at(ALIKE ? 0 : g.laneId / 16), false);
      g.wgmma.commit();
      // The input is no 0.
      if (STORES && (WAITS || g.load(input) === 0)) g.wgmma.wait(0);
      if (STORES) g.store(out.at(g.threadIdx.x), sums[0]!);
      if (STORES) g.wgmma.wait(0);
    },
  );
const multiplied = product('multiplied', {});

/** The same with the left factor in registers, which are written next. */
const heldProduct = (name: string, waits: boolean) =>
  kernel({ name, params, maxThreads: 128, using: { A, B, fill, WAITS: waits } }, (g, { input, out }, u) => {
    const a = g.shared(u.A);
    const b = g.shared(u.B, 2);
    u.fill({ a, b });
    const sums = g.registers('f32', 4);
    const held = g.registers('u32', 4);
    g.wgmma.fence();
    g.wgmma.multiplyHeld(sums, held, b.at(0), true);
    g.wgmma.commit();
    if (u.WAITS || g.load(input) === 0) g.wgmma.wait(0);
    held[1] = g.laneId;
    g.wgmma.wait(0);
    g.store(out.at(g.threadIdx.x), sums[0]! + g.f32(held[1]!));
  });

/** Of three warp groups, which begin with 168 registers a thread, one gives and two take. */
const registersMoved = (name: string, more: number) =>
  kernel({ name, params, maxThreads: 384, using: { MORE: more } }, (g, _, { MORE }) => {
    if (g.warpId / 4 === 0) g.group.giveRegisters(40);
    else g.group.takeRegisters(MORE);
  });

/** Of two warp groups, which begin with 248 registers a thread, one gives: all of it, or so many threads of it. */
const givenBy = (name: string, threads: number) =>
  kernel({ name, params, maxThreads: 256, using: { THREADS: threads } }, (g, _, { THREADS }) => {
    if (g.threadIdx.x < THREADS) g.group.giveRegisters(40);
    else if (THREADS === 128) g.group.takeRegisters(248);
  });

/** Each block of a cluster arrives at the mbarrier of the other. */
const reached = (name: string, meets: boolean) =>
  kernel({ name, params, cluster: 2, using: { MEETS: meets } }, (g, _, { MEETS }) => {
    const mailbox = g.shared('u64', 1);
    g.mbarrier.init(mailbox, 1);
    if (MEETS) g.cluster.barrier();
    else g.barrier();
    g.cluster.arrive(mailbox, 1 - (g.blockIdx.x % 2));
    g.mbarrier.await(mailbox, 0);
    g.cluster.barrier();
  });

/** Each block of a cluster reads what the other holds in shared memory, and doubles it there. */
const neighbours = kernel({ name: 'neighbours', params, cluster: 2 }, (g, { out }) => {
  const word = g.shared('u32', 1);
  const other = 1 - (g.blockIdx.x % 2);
  g.store(word, 20 + g.blockIdx.x);
  g.cluster.barrier();
  const theirs = g.cluster.load(word, other);
  g.cluster.barrier();
  g.cluster.store(word, 2 * theirs, other);
  g.cluster.barrier();
  g.store(out.as('u32').at(g.blockIdx.x), g.load(word));
});

/** Block 1 of a cluster tells block 0, which need not wait for that. */
const told = kernel({ name: 'told', params, cluster: 2 }, (g) => {
  const mailbox = g.shared('u64', 1);
  g.mbarrier.init(mailbox, 1);
  g.cluster.barrier();
  if (g.blockIdx.x === 1) g.cluster.arrive(mailbox, 0);
  g.cluster.barrier();
});

export const products: readonly Exhibit[] = [
  misuse(
    'sums read before their product is awaited',
    { wrong: product('sums_read_early', { wait: true }), right: multiplied },
    { block: 128, at: ['if (STORES) g.store(out'], hint: /still under way/ },
  ),
  misuse(
    'factor in registers written before its product is awaited',
    { wrong: heldProduct('held_written_early', false), right: heldProduct('held_awaited', true) },
    { block: 128, at: ['held[1] = g.laneId'], hint: /still under way/ },
  ),
  misuse(
    'sums written before a product, without a fence',
    { wrong: product('sums_unfenced', { fence: true }), right: multiplied },
    { block: 128, at: ['g.wgmma.multiply('], hint: /no g\.wgmma\.fence\(\) stands between/ },
  ),
  misuse(
    'lanes that name different tiles',
    { wrong: product('lanes_differ', { tile: true }), right: multiplied },
    { block: 128, at: ['g.wgmma.multiply('], hint: /different tiles/ },
  ),
  misuse(
    'product not awaited at the end',
    { wrong: product('product_left', { end: true }), right: multiplied },
    { block: 128, at: ['g.wgmma.multiply('], hint: /its thread ends while this product/ },
  ),
  misuse(
    'more registers taken than given',
    { wrong: registersMoved('takes_too_many', 240), right: registersMoved('takes_the_rest', 232) },
    { block: 384, at: ['else g.group.takeRegisters(MORE)'], hint: /want 66560 registers, but it has 64512/ },
  ),
  misuse(
    'registers given by a part of a warp group',
    { wrong: givenBy('one_warp_gives', 32), right: givenBy('a_group_gives', 128) },
    {
      block: 256,
      at: ['if (g.threadIdx.x < THREADS) g.group.giveRegisters(40)'],
      hint: /not all 128 have given/,
    },
  ),
  race(
    'mbarrier that another block reaches before the cluster has met',
    { wrong: reached('block_meets', false), right: reached('cluster_meets', true) },
    {
      grid: 2,
      block: 1,
      at: ['g.mbarrier.init(mailbox', 'g.cluster.arrive(mailbox'],
      buffer: 'shared memory',
      hint: /g\.cluster\.barrier\(\) behind g\.mbarrier\.init/,
    },
  ),
  race(
    'shared memory of another block read before the cluster has met',
    less(neighbours, 'g.cluster.barrier'),
    {
      grid: 2,
      block: 1,
      at: ['g.store(word', 'const theirs = g.cluster.load(word'],
      buffer: 'shared memory',
    },
  ),
  race(
    'shared memory of another block written while it reads it',
    less(neighbours, 'g.cluster.barrier', 'removed', 2),
    { grid: 2, block: 1, at: ['g.cluster.store(word', 'g.store(out.as'], buffer: 'shared memory' },
  ),
  misuse(
    'block that leaves its cluster while another reaches it',
    less(told, 'g.cluster.barrier', 'removed', 1),
    {
      grid: 2,
      block: 1,
      at: ['if (g.blockIdx.x === 1) g.cluster.arrive('],
      hint: /the block has ended, .*g\.cluster\.barrier/,
    },
  ),
];
