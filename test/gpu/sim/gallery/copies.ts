/** Mistakes with what copies beside a thread: its path to memory, the shared memory that it uses, and the mbarriers it arrives at. */
import { kernel } from '../../../../src/lang/index.js';
import { type Exhibit, less, misuse, onOneRank, params, race } from './exhibit.js';

/**
 * A stage that is filled by bulk loads and read by all lanes, again and again. The barrier says that all have read, but by
 * another path to memory than the next load. DeepEP's combine had no fence (its issue 621, mended in 642): wrong sums on GB200.
 */
const stageRefilled = kernel({ name: 'stage_refilled', params }, (g, { input, out }) => {
  const stage = g.shared('u32', 32);
  const full = g.shared('u64', 1);
  if (g.laneId === 0) g.mbarrier.init(full, 1);
  g.warp.barrier();
  let sum = g.u32(0);
  for (let i = g.u32(0); i < 2; i += 1) {
    if (g.laneId === 0) {
      g.proxyFence('shared');
      g.mbarrier.expect(full, 128);
      g.bulk.load(stage.as('v16'), input.as('v16').at(8 * i), 128, full);
    }
    g.mbarrier.await(full, i % 2);
    sum += g.load(stage.at(31 - g.laneId));
    g.warp.barrier();
  }
  g.store(out.at(g.laneId), sum);
});

/**
 * One thread copies rows through two stages. Before a stage is loaded again its own store must have read it, and that is the
 * latest: one store may not be left under way. DeepEP's copies between stages of a pipeline left it (its issue 657, mended by 660's wait for all).
 */
const twoStages = (name: string, left: number) =>
  kernel({ name, params, using: { LEFT: left } }, (g, { input, out }, { LEFT }) => {
    const stages = g.shared('v16', 2);
    const full = g.shared('u64', 2);
    for (const s of g.unroll(2)) {
      g.mbarrier.init(full.at(s), 1);
      g.mbarrier.expect(full.at(s), 16);
      g.bulk.load(stages.at(s), input.as('v16').at(s), 16, full.at(s));
    }
    for (let i = g.u32(0); i < 4; i += 1) {
      const s = i % 2;
      g.mbarrier.await(full.at(s), (i / 2) % 2);
      g.bulk.store(out.as('v16').at(i), stages.at(s), 16);
      g.bulk.commit();
      if (i < 2) {
        g.bulk.waitReads(LEFT);
        g.mbarrier.expect(full.at(s), 16);
        g.bulk.load(stages.at(s), input.as('v16').at(i + 2), 16, full.at(s));
      }
    }
    g.bulk.wait(0);
  });

/** All lanes fill a stage, and one of them sends it. The stage is gone when the block is, and the copy may not have read it yet. */
const sent = kernel({ name: 'sent', params }, (g, { out }) => {
  const stage = g.shared('u32', 32);
  g.store(stage.at(g.laneId), g.laneId);
  g.warp.barrier();
  if (g.laneId === 0) {
    g.proxyFence('shared');
    g.bulk.store(out.as('v16'), stage.as('v16'), 128);
    g.bulk.commit();
    g.bulk.waitReads(0);
  }
});

/** Block 0 writes a row and tells block 1, which fetches it. The writer's fence says nothing to another block's copies. */
const fetched = kernel({ name: 'fetched', params }, (g, { input, scratch, out }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  if (g.blockIdx.x === 0) {
    g.store(scratch.as('v16'), g.pack('u32', [1, 2, 3, 4]));
    g.proxyFence('global');
    g.store(input, 2, { order: 'release', scope: 'gpu' });
  } else {
    g.mbarrier.init(full, 1);
    g.awaitEpoch(input, 2, { until: '==', order: 'acquire', scope: 'gpu', limit: 1000 });
    g.proxyFence('global');
    g.mbarrier.expect(full, 16);
    g.bulk.load(stage, scratch.as('v16'), 16, full);
    g.mbarrier.await(full, 0);
    g.store(out.as('v16'), g.load(stage));
  }
});

/** Two loads, one of which may be one more than there is to do: nobody waits for it. */
const loads = (name: string, awaited: number) =>
  kernel({ name, params, using: { AWAITED: awaited } }, (g, { input, out }, { AWAITED }) => {
    const stages = g.shared('v16', 2);
    const full = g.shared('u64', 2);
    for (const i of g.unroll(2)) {
      g.mbarrier.init(full.at(i), 1);
      g.mbarrier.expect(full.at(i), 16);
      g.bulk.load(stages.at(i), input.as('v16').at(i), 16, full.at(i));
    }
    for (const i of g.unroll(AWAITED)) g.mbarrier.await(full.at(i), 0);
    g.store(out.as('v16'), g.load(stages));
  });

const asyncLoad = kernel({ name: 'async_load', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  g.async.load(stage, input.as('v16'));
  g.async.commit();
  g.async.wait(0);
});

/** Rounds of one mbarrier, of the same thread: no race tells of what it does to it in between. */
const phases = (name: string, wrong: { again?: true; over?: true; uncut?: true } = {}) =>
  kernel(
    { name, params, using: { ONCE: !wrong.again, KEPT: !wrong.over, CUT: !wrong.uncut } },
    (g, { out }, { ONCE, KEPT, CUT }) => {
      const full = g.shared('u64', 1);
      if (ONCE) g.mbarrier.init(full, 1);
      for (let i = g.u32(0); i < 3; i += 1) {
        if (!ONCE) g.mbarrier.init(full, 1);
        g.mbarrier.arrive(full);
        g.mbarrier.await(full, ONCE ? (CUT ? i % 2 : i) : 0);
        if (!KEPT) g.store(full.as('u32'), 0);
      }
      g.store(out, 1);
    },
  );
const counted = phases('counted');

/** More than an mbarrier counts: a wrong phase ends on a GPU, or none. */
const expects = (name: string, bytes: number) =>
  kernel({ name, params, using: { BYTES: bytes } }, (g, { out }, { BYTES }) => {
    const full = g.shared('u64', 1);
    g.mbarrier.init(full, 2);
    g.mbarrier.expect(full, BYTES);
    g.store(out, 1);
  });

const copied = (name: string, arrives = false) =>
  kernel({ name, params, using: { ARRIVES: arrives } }, (g, { input, out }, { ARRIVES }) => {
    const stage = g.shared('v16', 1);
    const full = g.shared('u64', 1);
    g.mbarrier.init(full, 1);
    g.mbarrier.expect(full, 16);
    if (ARRIVES) g.mbarrier.arrive(full);
    g.bulk.load(stage, input.as('v16'), 16, full);
    g.mbarrier.await(full, 0);
    g.store(out.as('v16'), g.load(stage));
  });
const copiedOnce = copied('copied');

/** Lane 1 loads, to an mbarrier that lane 0 initialises: a relaxed word does not say that it has. */
const named = kernel({ name: 'named', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  const ready = g.shared('u32', 1);
  if (g.laneId === 0) {
    g.mbarrier.init(full, 1);
    g.store(ready, 1, { order: 'release', scope: 'cta' });
    g.mbarrier.expect(full, 16);
    g.mbarrier.await(full, 0);
  } else {
    g.awaitEpoch(ready, 1, { order: 'acquire', scope: 'cta', limit: 1000 });
    g.bulk.load(stage, input.as('v16'), 16, full);
  }
});

const buffer = 'shared memory';

export const copies: readonly Exhibit[] = [
  race('stage refilled in bulk without a fence', less(stageRefilled, 'g.proxyFence'), {
    block: 32,
    at: ['sum += g.load(stage', 'g.bulk.load(stage'],
    buffer,
    hint: /g\.proxyFence\('shared'\) in the thread that starts the copy/,
  }),
  race(
    'stage loaded again while a bulk store reads it',
    { wrong: twoStages('two_stages_left', 1), right: twoStages('two_stages_awaited', 0) },
    {
      block: 1,
      at: ['g.bulk.store(out', 'g.bulk.load(stages'],
      buffer,
      hint: /still be under way.*g\.bulk\.waitReads/,
    },
  ),
  race('stage sent in bulk without a fence', less(sent, 'g.proxyFence'), {
    block: 32,
    at: ['g.store(stage.at(g.laneId)', 'g.bulk.store(out'],
    buffer,
    hint: /g\.proxyFence\('shared'\)/,
  }),
  race(
    'fence in the block of the store, not in that of the copy',
    less(fetched, 'g.proxyFence', 'removed', 1),
    {
      grid: 2,
      block: 1,
      at: ['g.store(scratch', 'g.bulk.load(stage, scratch'],
      buffer: 'scratch',
      hint: /g\.proxyFence\('global'\) in the thread that starts the copy, between what it learns of/,
    },
  ),
  misuse('bulk store not awaited at the end', less(sent, 'g.bulk.waitReads'), {
    block: 32,
    at: ['g.bulk.store('],
    buffer,
    location: /stage/,
    hint: /may still read shared memory.*\(g\.bulk\.waitReads\)/,
  }),
  misuse(
    'bulk load not awaited at the end',
    { wrong: loads('one_too_many', 1), right: loads('both_awaited', 2) },
    {
      block: 1,
      at: ['g.bulk.load('],
      buffer,
      location: /stages/,
      hint: /may still write shared memory.*g\.mbarrier\.await/,
    },
  ),
  misuse('asynchronous load not awaited at the end', less(asyncLoad, 'g.async.wait'), {
    block: 1,
    at: ['g.async.load('],
    buffer,
    hint: /may still write shared memory.*has not been awaited.*\(g\.async\.wait\)/,
  }),
  misuse('asynchronous load of no group at the end', less(asyncLoad, 'g.async.commit'), {
    block: 1,
    at: ['g.async.load('],
    hint: /g\.async\.commit comes first/,
  }),
  misuse(
    'mbarrier initialised again',
    { wrong: phases('initialised_again', { again: true }), right: counted },
    { block: 1, at: ['if (!ONCE) g.mbarrier.init('], hint: /has been initialised before/ },
  ),
  misuse(
    'mbarrier overwritten',
    { wrong: phases('overwritten', { over: true }), right: counted },
    { block: 1, at: ['if (!KEPT) g.store(full'], location: /full/, hint: /only g\.mbarrier may change one/ },
  ),
  misuse(
    'number of a phase for its parity',
    { wrong: phases('parity_uncut', { uncut: true }), right: counted },
    { block: 1, at: ['g.mbarrier.await('], hint: /parities are 0 and 1, not 2/ },
  ),
  misuse(
    'more bytes than an mbarrier counts',
    { wrong: expects('expects_too_much', 2 ** 20), right: expects('expects_much', 2 ** 20 - 16) },
    { block: 1, at: ['g.mbarrier.expect('], hint: /1048575 bytes a phase/ },
  ),
  misuse(
    'more arrivals than an mbarrier is for',
    { wrong: copied('arrives_twice', true), right: copiedOnce },
    { block: 1, at: ['if (ARRIVES) g.mbarrier.arrive('], hint: /has had all 1 arrivals/ },
  ),
  onOneRank('stuck-wait')(
    'bytes announced that never come',
    less(copiedOnce, 'g.mbarrier.expect', 'bytes + 16'),
    { block: 1, at: ['g.mbarrier.await('], location: /full/, hint: /lacks 16 bytes that were announced/ },
  ),
  race(
    'bulk load to an mbarrier that may not be initialised yet',
    less(named, 'g.awaitEpoch', 'acquire → relaxed'),
    { block: 2, at: ['g.mbarrier.init(', 'g.bulk.load('], location: /full/ },
  ),
];
