/** Mistakes with what copies beside a thread: its path to memory, the shared memory that it uses, and the mbarriers it arrives at. */
import { kernel, pointer } from '../../../../src/lang/index.js';
import { type Exhibit, onDevice } from './exhibit.js';

const params = { input: pointer('u32'), scratch: pointer('u32'), out: pointer('u32') } as const;

/**
 * A stage that is filled by bulk loads and read by all lanes, again and again. The barrier says that all have read, but by
 * another path to memory than the next load. DeepEP's combine had that (its issue 621, mended in 642): wrong sums on GB200.
 */
const stageRefilled = kernel({ name: 'stage_refilled', params }, (g, { input, out }) => {
  const stage = g.shared('u32', 32);
  const full = g.shared('u64', 1);
  if (g.laneId === 0) g.mbarrier.init(full, 1);
  g.warp.barrier();
  let sum = g.u32(0);
  for (let i = g.u32(0); i < 2; i += 1) {
    if (g.laneId === 0) {
      g.mbarrier.expect(full, 128);
      g.bulk.load(stage.as('v16'), input.as('v16').at(8 * i), 128, full);
    }
    g.mbarrier.await(full, i % 2);
    sum += g.load(stage.at(31 - g.laneId));
    g.warp.barrier();
  }
  g.store(out.at(g.laneId), sum);
});
const stageFenced = kernel({ name: 'stage_fenced', params }, (g, { input, out }) => {
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
const twoStagesLeft = kernel({ name: 'two_stages_left', params }, (g, { input, out }) => {
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
      g.bulk.waitReads(1);
      g.mbarrier.expect(full.at(s), 16);
      g.bulk.load(stages.at(s), input.as('v16').at(i + 2), 16, full.at(s));
    }
  }
  g.bulk.wait(0);
});
const twoStagesAwaited = kernel({ name: 'two_stages_awaited', params }, (g, { input, out }) => {
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
      g.bulk.waitReads(0);
      g.mbarrier.expect(full.at(s), 16);
      g.bulk.load(stages.at(s), input.as('v16').at(i + 2), 16, full.at(s));
    }
  }
  g.bulk.wait(0);
});

/** All lanes fill a stage, and one of them sends it. */
const sentUnfenced = kernel({ name: 'sent_unfenced', params }, (g, { out }) => {
  const stage = g.shared('u32', 32);
  g.store(stage.at(g.laneId), g.laneId);
  g.warp.barrier();
  if (g.laneId === 0) {
    g.bulk.store(out.as('v16'), stage.as('v16'), 128);
    g.bulk.commit();
    g.bulk.wait(0);
  }
});
const sentFenced = kernel({ name: 'sent_fenced', params }, (g, { out }) => {
  const stage = g.shared('u32', 32);
  g.store(stage.at(g.laneId), g.laneId);
  g.warp.barrier();
  if (g.laneId === 0) {
    g.proxyFence('shared');
    g.bulk.store(out.as('v16'), stage.as('v16'), 128);
    g.bulk.commit();
    g.bulk.wait(0);
  }
});

/** Block 0 writes a row and tells block 1, which fetches it. The writer's fence says nothing to another block's copies. */
const fencedAtSource = kernel({ name: 'fenced_at_source', params }, (g, { input, scratch, out }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  if (g.blockIdx.x === 0) {
    g.store(scratch.as('v16'), g.pack('u32', [1, 2, 3, 4]));
    g.proxyFence('global');
    g.store(input, 2, { order: 'release', scope: 'gpu' });
  } else {
    g.mbarrier.init(full, 1);
    g.awaitEpoch(input, 2, { until: '==', order: 'acquire', scope: 'gpu', limit: 1000 });
    g.mbarrier.expect(full, 16);
    g.bulk.load(stage, scratch.as('v16'), 16, full);
    g.mbarrier.await(full, 0);
    g.store(out.as('v16'), g.load(stage));
  }
});
const fencedAtTarget = kernel({ name: 'fenced_at_target', params }, (g, { input, scratch, out }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  if (g.blockIdx.x === 0) {
    g.store(scratch.as('v16'), g.pack('u32', [1, 2, 3, 4]));
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

/** The stage is gone when the block is, and the copy may not have read it yet. */
const sentAndGone = kernel({ name: 'sent_and_gone', params }, (g, { out }) => {
  const stage = g.shared('v16', 1);
  g.store(stage, g.pack('u32', [1, 2, 3, 4]));
  g.proxyFence('shared');
  g.bulk.store(out.as('v16'), stage, 16);
  g.bulk.commit();
});
const sentAndRead = kernel({ name: 'sent_and_read', params }, (g, { out }) => {
  const stage = g.shared('v16', 1);
  g.store(stage, g.pack('u32', [1, 2, 3, 4]));
  g.proxyFence('shared');
  g.bulk.store(out.as('v16'), stage, 16);
  g.bulk.commit();
  g.bulk.waitReads(0);
});

/** One load more than there is to do: nobody waits for it. */
const oneTooMany = kernel({ name: 'one_too_many', params }, (g, { input, out }) => {
  const stages = g.shared('v16', 2);
  const full = g.shared('u64', 2);
  for (const i of g.unroll(2)) {
    g.mbarrier.init(full.at(i), 1);
    g.mbarrier.expect(full.at(i), 16);
    g.bulk.load(stages.at(i), input.as('v16').at(i), 16, full.at(i));
  }
  g.mbarrier.await(full, 0);
  g.store(out.as('v16'), g.load(stages));
});
const bothAwaited = kernel({ name: 'both_awaited', params }, (g, { input, out }) => {
  const stages = g.shared('v16', 2);
  const full = g.shared('u64', 2);
  for (const i of g.unroll(2)) {
    g.mbarrier.init(full.at(i), 1);
    g.mbarrier.expect(full.at(i), 16);
    g.bulk.load(stages.at(i), input.as('v16').at(i), 16, full.at(i));
  }
  for (const i of g.unroll(2)) g.mbarrier.await(full.at(i), 0);
  g.store(out.as('v16'), g.load(stages));
});

const asyncLeft = kernel({ name: 'async_left', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  g.async.load(stage, input.as('v16'));
  g.async.commit();
});
const asyncUncommitted = kernel({ name: 'async_left_uncommitted', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  g.async.load(stage, input.as('v16'));
  g.async.wait(0);
});
const asyncFinished = kernel({ name: 'async_finished', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  g.async.load(stage, input.as('v16'));
  g.async.commit();
  g.async.wait(0);
});

/** Two rounds of one mbarrier, of the same thread: no race tells of what it does to it in between. */
const initialisedTwice = kernel({ name: 'initialised_twice', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  for (let i = g.u32(0); i < 2; i += 1) {
    g.mbarrier.init(full, 1);
    g.mbarrier.arrive(full);
    g.mbarrier.await(full, 0);
  }
  g.store(out, 1);
});
const overwritten = kernel({ name: 'overwritten', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 1);
  for (let i = g.u32(0); i < 2; i += 1) {
    g.mbarrier.arrive(full);
    g.mbarrier.await(full, i % 2);
    g.store(full.as('u32'), 0);
  }
  g.store(out, 1);
});
const countedOn = kernel({ name: 'counted_on', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 1);
  for (let i = g.u32(0); i < 2; i += 1) {
    g.mbarrier.arrive(full);
    g.mbarrier.await(full, i % 2);
  }
  g.store(out, 1);
});
const parityUncut = kernel({ name: 'parity_uncut', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 1);
  for (let i = g.u32(0); i < 3; i += 1) {
    g.mbarrier.arrive(full);
    g.mbarrier.await(full, i);
  }
  g.store(out, 1);
});

/** More than an mbarrier counts: a wrong phase ends on a GPU, or none. */
const expectsTooMuch = kernel({ name: 'expects_too_much', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 2);
  g.mbarrier.expect(full, 1 << 20);
  g.store(out, 1);
});
const expectsMuch = kernel({ name: 'expects_much', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 2);
  g.mbarrier.expect(full, (1 << 20) - 16);
  g.store(out, 1);
});

const arrivesTwice = kernel({ name: 'arrives_twice', params }, (g, { input, out }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 1);
  g.mbarrier.expect(full, 16);
  g.mbarrier.arrive(full);
  g.bulk.load(stage, input.as('v16'), 16, full);
  g.mbarrier.await(full, 0);
  g.store(out.as('v16'), g.load(stage));
});
/** Bytes that were announced and are not copied. */
const halfCopied = kernel({ name: 'half_copied', params }, (g, { input, out }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 1);
  g.mbarrier.expect(full, 32);
  g.bulk.load(stage, input.as('v16'), 16, full);
  g.mbarrier.await(full, 0);
  g.store(out.as('v16'), g.load(stage));
});
const copied = kernel({ name: 'copied', params }, (g, { input, out }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  g.mbarrier.init(full, 1);
  g.mbarrier.expect(full, 16);
  g.bulk.load(stage, input.as('v16'), 16, full);
  g.mbarrier.await(full, 0);
  g.store(out.as('v16'), g.load(stage));
});

/** Lane 1 loads, to an mbarrier that lane 0 initialises: nothing says that it has. */
const namedEarly = kernel({ name: 'named_early', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  const ready = g.shared('u32', 1);
  if (g.laneId === 0) {
    g.mbarrier.init(full, 1);
    g.store(ready, 1, { order: 'relaxed', scope: 'cta' });
    g.mbarrier.expect(full, 16);
    g.mbarrier.await(full, 0);
  } else {
    g.awaitEpoch(ready, 1, { order: 'relaxed', scope: 'cta', limit: 1000 });
    g.bulk.load(stage, input.as('v16'), 16, full);
  }
});
const namedLater = kernel({ name: 'named_later', params }, (g, { input }) => {
  const stage = g.shared('v16', 1);
  const full = g.shared('u64', 1);
  if (g.laneId === 0) {
    g.mbarrier.init(full, 1);
    g.mbarrier.expect(full, 16);
  }
  g.barrier();
  if (g.laneId === 0) g.mbarrier.await(full, 0);
  else g.bulk.load(stage, input.as('v16'), 16, full);
});

const alone = { block: 1 };
const shared = 'shared memory';

export const copies: readonly Exhibit[] = [
  {
    name: 'stage refilled in bulk without a fence',
    ranks: 1,
    run: onDevice({ wrong: stageRefilled, right: stageFenced }, { block: 32 }),
    expect: {
      kind: 'race',
      buffer: shared,
      statements: ['sum += g.load(stage', 'g.bulk.load(stage'],
      hint: /g\.proxyFence\('shared'\) in the thread that starts the copy/,
    },
  },
  {
    name: 'stage loaded again while a bulk store reads it',
    ranks: 1,
    run: onDevice({ wrong: twoStagesLeft, right: twoStagesAwaited }, alone),
    expect: {
      kind: 'race',
      buffer: shared,
      statements: ['g.bulk.store(out', 'g.bulk.load(stages'],
      hint: /still be under way.*g\.bulk\.waitReads/,
    },
  },
  {
    name: 'stage sent in bulk without a fence',
    ranks: 1,
    run: onDevice({ wrong: sentUnfenced, right: sentFenced }, { block: 32 }),
    expect: {
      kind: 'race',
      buffer: shared,
      statements: ['g.store(stage.at(g.laneId)', 'g.bulk.store(out'],
      hint: /g\.proxyFence\('shared'\)/,
    },
  },
  {
    name: 'fence in the block of the store, not in that of the copy',
    ranks: 1,
    run: onDevice({ wrong: fencedAtSource, right: fencedAtTarget }, { grid: 2, block: 1 }),
    expect: {
      kind: 'race',
      buffer: 'scratch',
      statements: ['g.store(scratch', 'g.bulk.load(stage, scratch'],
      hint: /g\.proxyFence\('global'\) in the thread that starts the copy, between what it learns of/,
    },
  },
  {
    name: 'bulk store not awaited at the end',
    ranks: 1,
    run: onDevice({ wrong: sentAndGone, right: sentAndRead }, alone),
    expect: {
      kind: 'misuse',
      buffer: shared,
      location: /stage/,
      statements: ['g.bulk.store('],
      hint: /may still read shared memory.*\(g\.bulk\.waitReads\)/,
    },
  },
  {
    name: 'bulk load not awaited at the end',
    ranks: 1,
    run: onDevice({ wrong: oneTooMany, right: bothAwaited }, alone),
    expect: {
      kind: 'misuse',
      buffer: shared,
      location: /stages/,
      statements: ['g.bulk.load('],
      hint: /may still write shared memory.*g\.mbarrier\.await/,
    },
  },
  {
    name: 'asynchronous load not awaited at the end',
    ranks: 1,
    run: onDevice({ wrong: asyncLeft, right: asyncFinished }, alone),
    expect: {
      kind: 'misuse',
      buffer: shared,
      statements: ['g.async.load('],
      hint: /may still write shared memory.*has not been awaited.*\(g\.async\.wait\)/,
    },
  },
  {
    name: 'asynchronous load of no group at the end',
    ranks: 1,
    run: onDevice({ wrong: asyncUncommitted, right: asyncFinished }, alone),
    expect: { kind: 'misuse', statements: ['g.async.load('], hint: /g\.async\.commit comes first/ },
  },
  {
    name: 'mbarrier initialised again',
    ranks: 1,
    run: onDevice({ wrong: initialisedTwice, right: countedOn }, alone),
    expect: { kind: 'misuse', statements: ['g.mbarrier.init('], hint: /has been initialised before/ },
  },
  {
    name: 'mbarrier overwritten',
    ranks: 1,
    run: onDevice({ wrong: overwritten, right: countedOn }, alone),
    expect: {
      kind: 'misuse',
      location: /full/,
      statements: ['g.store(full'],
      hint: /only g\.mbarrier may change one/,
    },
  },
  {
    name: 'number of a phase for its parity',
    ranks: 1,
    run: onDevice({ wrong: parityUncut, right: countedOn }, alone),
    expect: { kind: 'misuse', statements: ['g.mbarrier.await('], hint: /parities are 0 and 1, not 2/ },
  },
  {
    name: 'more bytes than an mbarrier counts',
    ranks: 1,
    run: onDevice({ wrong: expectsTooMuch, right: expectsMuch }, alone),
    expect: { kind: 'misuse', statements: ['g.mbarrier.expect('], hint: /1048575 bytes a phase/ },
  },
  {
    name: 'more arrivals than an mbarrier is for',
    ranks: 1,
    run: onDevice({ wrong: arrivesTwice, right: copied }, alone),
    expect: { kind: 'misuse', statements: ['g.mbarrier.arrive('], hint: /has had all 1 arrivals/ },
  },
  {
    name: 'bytes announced that never come',
    ranks: 1,
    run: onDevice({ wrong: halfCopied, right: copied }, alone),
    expect: {
      kind: 'stuck-wait',
      location: /full/,
      statements: ['g.mbarrier.await('],
      hint: /lacks 16 bytes that were announced/,
    },
  },
  {
    name: 'bulk load to an mbarrier that may not be initialised yet',
    ranks: 1,
    run: onDevice({ wrong: namedEarly, right: namedLater }, { block: 2 }),
    expect: { kind: 'race', location: /full/, statements: ['g.mbarrier.init(', 'g.bulk.load('] },
  },
];
