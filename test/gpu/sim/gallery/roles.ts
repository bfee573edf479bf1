/** Mistakes between warps of a block that have parts of their own: groups that meet, producers and consumers. */
import { kernel, pointer } from '../../../../src/lang/index.js';
import { type Exhibit, onDevice } from './exhibit.js';

const params = { input: pointer('u32'), scratch: pointer('u32'), out: pointer('u32') } as const;

/** Two warps reverse 64 words; the third has work of its own and meets nobody. */
const groupUnmet = kernel({ name: 'group_unmet', params }, (g, { input, out }) => {
  const tile = g.shared('u32', 64);
  const at = g.threadIdx.x;
  if (g.warpId < 2) {
    g.store(tile.at(at), g.load(input.at(at)));
    g.store(out.at(at), g.load(tile.at(63 - at)));
  } else {
    g.store(out.at(at), at);
  }
});
const groupMet = kernel({ name: 'group_met', params }, (g, { input, out }) => {
  const tile = g.shared('u32', 64);
  const at = g.threadIdx.x;
  if (g.warpId < 2) {
    g.store(tile.at(at), g.load(input.at(at)));
    g.group.barrier(1, 64);
    g.store(out.at(at), g.load(tile.at(63 - at)));
  } else {
    g.store(out.at(at), at);
  }
});

/** The other two warps meet at a barrier of their own. */
const groupTooLarge = kernel({ name: 'group_too_large', params }, (g, { out }) => {
  const at = g.threadIdx.x;
  if (g.warpId < 2) g.group.barrier(1, 96);
  g.store(out.at(at), at);
});
const groupOfTwo = kernel({ name: 'group_of_two', params }, (g, { out }) => {
  const at = g.threadIdx.x;
  if (g.warpId < 2) g.group.barrier(1, 64);
  g.store(out.at(at), at);
});

const groupTorn = kernel({ name: 'group_torn', params }, (g, { out }) => {
  const at = g.threadIdx.x;
  if (at < 48) g.group.barrier(2, 64);
  else if (at < 64) g.group.barrier(2, 64);
  g.store(out.at(at), at);
});

/**
 * Warp 0 fills a stage, warp 1 reads it, three times over: `full` says that it may be read, `empty` that it may be
 * filled again. Each is for the 32 arrivals of a warp.
 */
const refilledEarly = kernel({ name: 'refilled_early', params }, (g, { out }) => {
  const stage = g.shared('u32', 32);
  const full = g.shared('u64', 1);
  if (g.threadIdx.x === 0) g.mbarrier.init(full, 32);
  g.barrier();
  for (let round = 0; round < 3; round++) {
    if (g.warpId === 0) {
      g.store(stage.at(g.laneId), round);
      g.mbarrier.arrive(full);
    } else {
      g.mbarrier.await(full, round % 2);
      g.store(out.at(g.laneId), g.load(stage.at(31 - g.laneId)));
    }
  }
});
const pipeline = kernel({ name: 'pipeline', params }, (g, { out }) => {
  const stage = g.shared('u32', 32);
  const full = g.shared('u64', 1);
  const empty = g.shared('u64', 1);
  if (g.threadIdx.x === 0) {
    g.mbarrier.init(full, 32);
    g.mbarrier.init(empty, 32);
  }
  g.barrier();
  for (let round = 0; round < 3; round++) {
    if (g.warpId === 0) {
      if (round > 0) g.mbarrier.await(empty, (round - 1) % 2);
      g.store(stage.at(g.laneId), round);
      g.mbarrier.arrive(full);
    } else {
      g.mbarrier.await(full, round % 2);
      g.store(out.at(g.laneId), g.load(stage.at(31 - g.laneId)));
      g.mbarrier.arrive(empty);
    }
  }
});

/** One lane arrives for its warp, but the mbarrier is for 32. */
const tooFewArrive = kernel({ name: 'too_few_arrive', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  if (g.threadIdx.x === 0) g.mbarrier.init(full, 32);
  g.barrier();
  if (g.threadIdx.x === 0) g.mbarrier.arrive(full);
  const over = g.mbarrier.await(full, 0, { limit: 100 });
  g.store(out.at(g.threadIdx.x), g.u32(over));
});
const oneArrives = kernel({ name: 'one_arrives', params }, (g, { out }) => {
  const full = g.shared('u64', 1);
  if (g.threadIdx.x === 0) g.mbarrier.init(full, 1);
  g.barrier();
  if (g.threadIdx.x === 0) g.mbarrier.arrive(full);
  const over = g.mbarrier.await(full, 0, { limit: 100 });
  g.store(out.at(g.threadIdx.x), g.u32(over));
});

export const roles: readonly Exhibit[] = [
  {
    name: 'group of warps that does not meet',
    ranks: 1,
    run: onDevice({ wrong: groupUnmet, right: groupMet }, { block: 96 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      statements: ['g.store(tile.at(at)', 'g.store(out.at(at), g.load(tile'],
    },
  },
  {
    name: 'barrier for more warps than come',
    ranks: 1,
    run: onDevice({ wrong: groupTooLarge, right: groupOfTwo }, { block: 96 }),
    expect: { kind: 'divergence', statements: ['if (g.warpId < 2) g.group.barrier(1, 96)'] },
  },
  {
    name: 'barrier of a group in two branches of a warp',
    ranks: 1,
    run: onDevice({ wrong: groupTorn, right: groupOfTwo }, { block: 96 }),
    expect: { kind: 'divergence', statements: ['if (at < 48) g.group.barrier(2, 64)'] },
  },
  {
    name: 'stage refilled before it is empty',
    ranks: 1,
    run: onDevice({ wrong: refilledEarly, right: pipeline }, { block: 64 }),
    expect: {
      kind: 'race',
      buffer: 'shared memory',
      statements: ['g.store(stage', 'g.store(out.at(g.laneId), g.load(stage'],
    },
  },
  {
    name: 'fewer arrivals than an mbarrier is for',
    ranks: 1,
    run: onDevice({ wrong: tooFewArrive, right: oneArrives }, { block: 32 }),
    expect: { kind: 'stuck-wait', location: /full/, statements: ['const over = g.mbarrier.await'] },
  },
];
