/** Mistakes inside one GPU: within a block, and between blocks. More are programs that the playground shows too, and in ../findings.test.ts. */
import { kernel } from '../../../../src/lang/index.js';
import { type Exhibit, less, onOneRank, params, race } from './exhibit.js';

const meets = (name: string, all: boolean) =>
  kernel({ name, params, using: { ALL: all } }, (g, { out }, { ALL }) => {
    const at = g.threadIdx.x;
    if (at < 40) {
      g.store(out.at(at), at);
      if (!ALL) g.barrier();
    }
    if (ALL) g.barrier();
  });

/** What lanes tell each other by a shuffle orders no memory. */
const reverse = kernel({ name: 'reverse', params }, (g, { input, out }) => {
  const part = g.shared('u32', 32);
  const at = g.threadIdx.x;
  g.store(part.at(at), g.load(input.at(at)));
  const other = g.warp.shuffleXor(at, 1);
  g.warp.barrier();
  g.store(out.at(other), g.load(part.at(31 - at)));
});

const count = kernel({ name: 'count', params }, (g, { input }) => {
  g.atomicAdd(input, 1, { order: 'relaxed', scope: 'gpu' });
});

/** Thread 0 sends its block's vectors and refills the staging area for the next ones. */
const bulkRefill = kernel({ name: 'bulk_refill', params }, (g, { out }) => {
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
const bulkTold = kernel({ name: 'bulk_told', params }, (g, { input, out }) => {
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
const bulkLoad = kernel({ name: 'bulk_load', params }, (g, { input, out }) => {
  const part = g.shared('u32', 64);
  const arrived = g.shared('u64', 1);
  const at = g.threadIdx.x;
  if (at === 0) g.mbarrier.init(arrived, 1);
  g.barrier();
  if (at === 0) {
    g.mbarrier.expect(arrived, 256);
    g.bulk.load(part.as('v16'), input.as('v16'), 256, arrived);
  }
  g.barrier();
  g.mbarrier.await(arrived, 0);
  g.store(out.at(at), g.load(part.at(at)));
});

/** Each thread fetches 16 bytes for the block, which reads the others'. */
const asyncLoad = kernel({ name: 'async_load', params }, (g, { input, out }) => {
  const part = g.shared('v16', 16);
  const at = g.threadIdx.x;
  g.async.load(part.at(at), input.as('v16').at(at));
  g.async.commit();
  g.async.wait(0);
  g.barrier();
  g.store(out.at(at), g.load(part.as('u32').at(63 - at)));
});

/** Two stages: while one is read, the next is under way. */
const asyncStages = kernel({ name: 'async_stages', params }, (g, { input, out }) => {
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

const [buffer, location] = ['shared memory', /^part\[/];
const ofAsync = ['g.async.load(', 'g.store(out.at(at), g.load(part'];

export const blocks: readonly Exhibit[] = [
  race('a vote in place of a warp barrier', less(reverse, 'g.warp.barrier'), {
    at: ['g.store(part.at(at)', 'g.store(out.at(other), g.load(part'],
    buffer,
    location,
    hint: /one block.*a warp barrier or a block barrier between/,
  }),
  onOneRank('divergence')(
    'barrier under divergence',
    { wrong: meets('divergent_barrier', false), right: meets('common_barrier', true) },
    { block: 64, at: ['if (!ALL) g.barrier()'] },
  ),
  race('atomic at cta scope across blocks', less(count, 'g.atomicAdd', 'gpu → cta'), {
    grid: 2,
    block: 1,
    at: ['g.atomicAdd(input', 'g.atomicAdd(input'],
    buffer: 'input',
    hint: /Both are atomic.*cta scope.*in another block: use gpu/,
  }),
  race('bulk source refilled too early', less(bulkRefill, 'g.bulk.waitReads'), {
    block: 1,
    at: ['g.bulk.store(', 'g.store(staging'],
    buffer,
    hint: /still be under way.*g\.bulk\.waitReads/,
  }),
  race('bulk store awaited for its reads only', less(bulkTold, 'g.bulk.wait', 'waits for reads only'), {
    grid: 2,
    block: 1,
    at: ['g.bulk.store(', 'g.store(out.at(16)'],
    buffer: 'output',
    hint: /only for its reads.*use g\.bulk\.wait/,
  }),
  race('bulk load not awaited', less(bulkLoad, 'g.mbarrier.await'), {
    block: 64,
    at: ['g.bulk.load(', 'g.store(out.at(at), g.load(part'],
    buffer,
    location,
    hint: /may still be under way.*its mbarrier\) before its target is used/,
  }),
  race('asynchronous load not awaited', less(asyncLoad, 'g.async.wait'), {
    block: 16,
    at: ofAsync,
    ...{ buffer, location },
    hint: /asynchronous copy.*may still be under way.*g\.async\.wait\) before its target is used/,
  }),
  race('asynchronous load awaited, but in no group', less(asyncLoad, 'g.async.commit'), {
    block: 16,
    at: ofAsync,
    buffer,
    hint: /commit its group/,
  }),
  race('asynchronous loads of others read without a barrier', less(asyncLoad, 'g.barrier'), {
    block: 16,
    at: ofAsync,
    buffer,
    hint: /block barrier/,
  }),
  race('stage loaded again while others read it', less(asyncStages, 'g.barrier', 'removed', 1), {
    block: 4,
    at: ['g.async.load(stages.at(next', 'g.store(out.as('],
    buffer,
    location: /^stages\[/,
  }),
];
