/** Mistakes inside one GPU: within a block, between blocks, and with memory; more are programs that the playground shows too. */
import { kernel, pointer } from '../../../../src/lang/index.js';
import { type Exhibit, onDevice } from './exhibit.js';

const params = { input: pointer('u32'), scratch: pointer('u32'), out: pointer('u32') } as const;

const divergentBarrier = kernel({ name: 'divergent_barrier', params }, (g, { out }) => {
  const at = g.threadIdx.x;
  if (at < 40) {
    g.store(out.at(at), at);
    g.barrier();
  }
});
const commonBarrier = kernel({ name: 'common_barrier', params }, (g, { out }) => {
  const at = g.threadIdx.x;
  if (at < 40) g.store(out.at(at), at);
  g.barrier();
});

const divergentShuffle = kernel({ name: 'divergent_shuffle', params }, (g, { input, out }) => {
  const at = g.threadIdx.x;
  let sum = g.load(input.at(at));
  if (at < 24) sum += g.warp.shuffleXor(sum, 1);
  g.store(out.at(at), sum);
});
const commonShuffle = kernel({ name: 'common_shuffle', params }, (g, { input, out }) => {
  const at = g.threadIdx.x;
  let sum = g.load(input.at(at));
  const other = g.warp.shuffleXor(sum, 1);
  if (at < 24) sum += other;
  g.store(out.at(at), sum);
});

const reverseVoted = kernel({ name: 'reverse_voted', params }, (g, { input, out }) => {
  const tile = g.shared('u32', 32);
  const at = g.threadIdx.x;
  g.store(tile.at(at), g.load(input.at(at)));
  const other = g.warp.shuffleXor(at, 1);
  g.store(out.at(other), g.load(tile.at(31 - at)));
});
const reverseMet = kernel({ name: 'reverse_met', params }, (g, { input, out }) => {
  const tile = g.shared('u32', 32);
  const at = g.threadIdx.x;
  g.store(tile.at(at), g.load(input.at(at)));
  g.warp.barrier();
  g.store(out.at(at), g.load(tile.at(31 - at)));
});

const halfWritten = kernel({ name: 'half_written', params }, (g, { input, scratch, out }) => {
  const at = g.threadIdx.x;
  if (at < 16) g.store(scratch.at(at), g.load(input.at(at)));
  g.store(out.at(at), g.load(scratch.at(at)));
});
const allWritten = kernel({ name: 'all_written', params }, (g, { input, scratch, out }) => {
  const at = g.threadIdx.x;
  g.store(scratch.at(at), g.load(input.at(at)));
  g.store(out.at(at), g.load(scratch.at(at)));
});

const pastTheEnd = kernel({ name: 'past_the_end', params }, (g, { input, out }) => {
  const at = g.threadIdx.x;
  g.store(out.at(at), g.load(input.at(at + 1)));
});
const uptoTheEnd = kernel({ name: 'upto_the_end', params }, (g, { input, out }) => {
  const at = g.threadIdx.x;
  if (at + 1 < 64) g.store(out.at(at), g.load(input.at(at + 1)));
});

const crookedVector = kernel({ name: 'crooked_vector', params }, (g, { input, out }) => {
  const row = input.at(g.threadIdx.x * 2).as('v16');
  g.store(out.at(g.threadIdx.x * 4).as('v16'), g.load(row));
});
const straightVector = kernel({ name: 'straight_vector', params }, (g, { input, out }) => {
  const row = input.at(g.threadIdx.x * 4).as('v16');
  g.store(out.at(g.threadIdx.x * 4).as('v16'), g.load(row));
});

const narrowCount = kernel({ name: 'narrow_count', params }, (g, { input }) => {
  g.atomicAdd(input, 1, { order: 'relaxed', scope: 'cta' });
});
const count = kernel({ name: 'count', params }, (g, { input }) => {
  g.atomicAdd(input, 1, { order: 'relaxed', scope: 'gpu' });
});

/** Thread 0 sends its block's vectors and refills the staging area for the next ones. */
const bulkRefill = kernel({ name: 'bulk_refill', params }, (g, { out }) => {
  const staging = g.shared('v16', 1);
  for (const i of g.unroll(2)) {
    g.store(staging, g.pack('u32', [i, i, i, i]));
    g.proxyFence('shared');
    g.bulk.store(out.at(4 * i).as('v16'), staging, 16);
    g.bulk.commit();
  }
  g.bulk.wait(0);
});
const bulkRefillAwaited = kernel({ name: 'bulk_refill_awaited', params }, (g, { out }) => {
  const staging = g.shared('v16', 1);
  for (const i of g.unroll(2)) {
    g.bulk.waitReads(0);
    g.store(staging, g.pack('u32', [i, i, i, i]));
    g.proxyFence('shared');
    g.bulk.store(out.at(4 * i).as('v16'), staging, 16);
    g.bulk.commit();
  }
  g.bulk.wait(0);
});

/** Thread 0 sends a vector in bulk and tells the other block. */
const bulkReadsOnly = kernel({ name: 'bulk_reads_only', params }, (g, { input, out }) => {
  const staging = g.shared('v16', 1);
  if (g.blockIdx.x === 0) {
    g.store(staging, g.pack('u32', [1, 2, 3, 4]));
    g.proxyFence('shared');
    g.bulk.store(out.as('v16'), staging, 16);
    g.bulk.commit();
    g.bulk.waitReads(0);
    g.store(input, 0x01010102, { order: 'release', scope: 'gpu' });
  } else {
    g.awaitEpoch(input, 0x01010102, { order: 'acquire', scope: 'gpu', limit: 1000 });
    g.store(out.at(16), g.load(out.at(2)));
  }
});
const bulkComplete = kernel({ name: 'bulk_complete', params }, (g, { input, out }) => {
  const staging = g.shared('v16', 1);
  if (g.blockIdx.x === 0) {
    g.store(staging, g.pack('u32', [1, 2, 3, 4]));
    g.proxyFence('shared');
    g.bulk.store(out.as('v16'), staging, 16);
    g.bulk.commit();
    g.bulk.wait(0);
    g.store(input, 0x01010102, { order: 'release', scope: 'gpu' });
  } else {
    g.awaitEpoch(input, 0x01010102, { order: 'acquire', scope: 'gpu', limit: 1000 });
    g.store(out.at(16), g.load(out.at(2)));
  }
});

/** Thread 0 fetches vectors for the block; everybody who reads them must await the mbarrier. */
const bulkLoadUnawaited = kernel({ name: 'bulk_load_unawaited', params }, (g, { input, out }) => {
  const tile = g.shared('u32', 64);
  const arrived = g.shared('u64', 1);
  const at = g.threadIdx.x;
  if (at === 0) g.mbarrier.init(arrived, 1);
  g.barrier();
  if (at === 0) {
    g.mbarrier.expect(arrived, 256);
    g.bulk.load(tile.as('v16'), input.as('v16'), 256, arrived);
  }
  g.barrier();
  g.store(out.at(at), g.load(tile.at(at)));
});
const bulkLoad = kernel({ name: 'bulk_load', params }, (g, { input, out }) => {
  const tile = g.shared('u32', 64);
  const arrived = g.shared('u64', 1);
  const at = g.threadIdx.x;
  if (at === 0) g.mbarrier.init(arrived, 1);
  g.barrier();
  if (at === 0) {
    g.mbarrier.expect(arrived, 256);
    g.bulk.load(tile.as('v16'), input.as('v16'), 256, arrived);
  }
  g.mbarrier.await(arrived, 0);
  g.store(out.at(at), g.load(tile.at(at)));
});

/** Each thread fetches 16 bytes for the block, which reads the others'. */
const asyncUnawaited = kernel({ name: 'async_unawaited', params }, (g, { input, out }) => {
  const tile = g.shared('v16', 16);
  const at = g.threadIdx.x;
  g.async.load(tile.at(at), input.as('v16').at(at));
  g.async.commit();
  g.barrier();
  g.store(out.at(at), g.load(tile.as('u32').at(63 - at)));
});
const asyncUnmet = kernel({ name: 'async_unmet', params }, (g, { input, out }) => {
  const tile = g.shared('v16', 16);
  const at = g.threadIdx.x;
  g.async.load(tile.at(at), input.as('v16').at(at));
  g.async.commit();
  g.async.wait(0);
  g.store(out.at(at), g.load(tile.as('u32').at(63 - at)));
});
const asyncUncommitted = kernel({ name: 'async_uncommitted', params }, (g, { input, out }) => {
  const tile = g.shared('v16', 16);
  const at = g.threadIdx.x;
  g.async.load(tile.at(at), input.as('v16').at(at));
  g.async.wait(0);
  g.barrier();
  g.store(out.at(at), g.load(tile.as('u32').at(63 - at)));
});
const asyncAwaited = kernel({ name: 'async_awaited', params }, (g, { input, out }) => {
  const tile = g.shared('v16', 16);
  const at = g.threadIdx.x;
  g.async.load(tile.at(at), input.as('v16').at(at));
  g.async.commit();
  g.async.wait(0);
  g.barrier();
  g.store(out.at(at), g.load(tile.as('u32').at(63 - at)));
});

/** Two stages: while one is read, the next is under way. */
const asyncRefilled = kernel({ name: 'async_refilled', params }, (g, { input, out }) => {
  const stages = g.shared('v16', 2 * 4);
  const at = g.threadIdx.x;
  g.async.load(stages.at(at), input.as('v16').at(at));
  g.async.commit();
  for (let i = g.u32(0); i < 3; i += 1) {
    const next = 4 * ((i + 1) % 2);
    g.async.load(stages.at(next + at), input.as('v16').at(4 * i + 4 + at));
    g.async.commit();
    g.async.wait(1);
    g.barrier();
    g.store(out.as('v16').at(4 * i + at), g.load(stages.at(4 * (i % 2) + 3 - at)));
  }
  g.async.wait(0);
});
const asyncPipeline = kernel({ name: 'async_pipeline', params }, (g, { input, out }) => {
  const stages = g.shared('v16', 2 * 4);
  const at = g.threadIdx.x;
  g.async.load(stages.at(at), input.as('v16').at(at));
  g.async.commit();
  for (let i = g.u32(0); i < 3; i += 1) {
    const next = 4 * ((i + 1) % 2);
    g.async.load(stages.at(next + at), input.as('v16').at(4 * i + 4 + at));
    g.async.commit();
    g.async.wait(1);
    g.barrier();
    g.store(out.as('v16').at(4 * i + at), g.load(stages.at(4 * (i % 2) + 3 - at)));
    g.barrier();
  }
  g.async.wait(0);
});

export const blocks: readonly Exhibit[] = [
  {
    name: 'a vote in place of a warp barrier',
    ranks: 1,
    run: onDevice({ wrong: reverseVoted, right: reverseMet }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      location: /^tile\[/,
      statements: ['g.store(tile.at(at)', 'g.store(out.at(other), g.load(tile'],
      hint: /one block.*a warp barrier or a block barrier between/,
    },
  },
  {
    name: 'barrier under divergence',
    ranks: 1,
    run: onDevice({ wrong: divergentBarrier, right: commonBarrier }, { block: 64 }),
    expect: { kind: 'divergence', statements: ['g.barrier()'] },
  },
  {
    name: 'shuffle under divergence',
    ranks: 1,
    run: onDevice({ wrong: divergentShuffle, right: commonShuffle }),
    expect: { kind: 'divergence', statements: ['if (at < 24) sum += g.warp.shuffleXor'] },
  },
  {
    name: 'uninitialised read',
    ranks: 1,
    run: onDevice({ wrong: halfWritten, right: allWritten }),
    expect: {
      kind: 'uninitialised-read',
      buffer: 'scratch',
      location: /byte 64/,
      statements: ['g.store(out.at(at), g.load(scratch'],
    },
  },
  {
    name: 'out of bounds',
    ranks: 1,
    run: onDevice({ wrong: pastTheEnd, right: uptoTheEnd }, { block: 64 }),
    expect: {
      kind: 'out-of-bounds',
      buffer: 'input',
      statements: ['g.store(out.at(at), g.load(input.at(at + 1)'],
    },
  },
  {
    name: 'misaligned vector',
    ranks: 1,
    run: onDevice({ wrong: crookedVector, right: straightVector }, { block: 16 }),
    expect: { kind: 'misaligned', buffer: 'input', statements: ['g.store(out.at(g.threadIdx.x * 4)'] },
  },
  {
    name: 'atomic at cta scope across blocks',
    ranks: 1,
    run: onDevice({ wrong: narrowCount, right: count }, { grid: 2, block: 1 }),
    expect: {
      kind: 'race',
      buffer: 'input',
      statements: ['g.atomicAdd(input', 'g.atomicAdd(input'],
      hint: /Both are atomic.*cta scope.*in another block: use gpu/,
    },
  },
  {
    name: 'bulk source refilled too early',
    ranks: 1,
    run: onDevice({ wrong: bulkRefill, right: bulkRefillAwaited }, { block: 1 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      statements: ['g.bulk.store(', 'g.store(staging'],
      hint: /still be under way.*g\.bulk\.waitReads/,
    },
  },
  {
    name: 'bulk store awaited for its reads only',
    ranks: 1,
    run: onDevice({ wrong: bulkReadsOnly, right: bulkComplete }, { grid: 2, block: 1 }),
    expect: {
      kind: 'race',
      buffer: 'output',
      statements: ['g.bulk.store(', 'g.store(out.at(16)'],
      hint: /only for its reads.*use g\.bulk\.wait/,
    },
  },
  {
    name: 'bulk load not awaited',
    ranks: 1,
    run: onDevice({ wrong: bulkLoadUnawaited, right: bulkLoad }, { block: 64 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      location: /^tile\[/,
      statements: ['g.bulk.load(', 'g.store(out.at(at), g.load(tile'],
      hint: /may still be under way.*its mbarrier\) before its target is used/,
    },
  },
  {
    name: 'asynchronous load not awaited',
    ranks: 1,
    run: onDevice({ wrong: asyncUnawaited, right: asyncAwaited }, { block: 16 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      location: /^tile\[/,
      statements: ['g.async.load(', 'g.store(out.at(at), g.load(tile'],
      hint: /asynchronous copy.*may still be under way.*g\.async\.wait\) before its target is used/,
    },
  },
  {
    name: 'asynchronous load awaited, but in no group',
    ranks: 1,
    run: onDevice({ wrong: asyncUncommitted, right: asyncAwaited }, { block: 16 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      statements: ['g.async.load(', 'g.store(out.at(at), g.load(tile'],
      hint: /commit its group/,
    },
  },
  {
    name: 'asynchronous loads of others read without a barrier',
    ranks: 1,
    run: onDevice({ wrong: asyncUnmet, right: asyncAwaited }, { block: 16 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      statements: ['g.async.load(', 'g.store(out.at(at), g.load(tile'],
      hint: /block barrier/,
    },
  },
  {
    name: 'stage loaded again while others read it',
    ranks: 1,
    run: onDevice({ wrong: asyncRefilled, right: asyncPipeline }, { block: 4 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      location: /^stages\[/,
      statements: ['g.async.load(stages.at(next', 'g.store(out.as('],
    },
  },
];
