/** Mistakes between warps of a block that have parts of their own: groups that meet, producers and consumers. */
import { kernel, pipeline as stagesOf } from '../../../../src/lang/index.js';
import { type Exhibit, less, onOneRank, params, race } from './exhibit.js';

/** Two warps reverse 64 words; the third has work of its own and meets nobody. */
const reverse = kernel({ name: 'reverse', params }, (g, { input, out }) => {
  const part = g.shared('u32', 64);
  const at = g.threadIdx.x;
  if (g.warpId < 2) {
    g.store(part.at(at), g.load(input.at(at)));
    g.group.barrier(1, 64);
    g.store(out.at(at), g.load(part.at(63 - at)));
  } else {
    g.store(out.at(at), at);
  }
});

const group = (name: string, size: number) =>
  kernel({ name, params, using: { SIZE: size } }, (g, { out }, { SIZE }) => {
    const at = g.threadIdx.x;
    if (g.warpId < 2) g.group.barrier(1, SIZE);
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

/** One lane arrives for its warp. */
const arrives = (name: string, count: number) =>
  kernel({ name, params, using: { COUNT: count } }, (g, { out }, { COUNT }) => {
    const full = g.shared('u64', 1);
    if (g.threadIdx.x === 0) g.mbarrier.init(full, COUNT);
    g.barrier();
    if (g.threadIdx.x === 0) g.mbarrier.arrive(full);
    const over = g.mbarrier.await(full, 0, { limit: 100 });
    g.store(out.at(g.threadIdx.x), g.u32(over));
  });

/** The copy engine fills a stage three times over, and 32 threads read it. */
const copied = (name: string, readers: 'tensor cores' | 'threads') =>
  kernel(
    { name, params, using: { ring: stagesOf({ stages: 1, empties: 32, readers }) } },
    (g, { input, out }, { ring }) => {
      const stage = g.shared('v16', 8);
      const full = g.shared('u64', 1);
      const empty = g.shared('u64', 1);
      const gates = { full, empty };
      if (g.threadIdx.x === 0) ring.start({ gates });
      g.barrier();
      for (let step = 0; step < 3; step++) {
        if (g.threadIdx.x === 32) {
          ring.acquire({ gates, step });
          g.mbarrier.expect(full, 128);
          g.bulk.load(stage, input.as('v16'), 128, full);
        }
        if (g.warpId === 0) {
          ring.wait({ gates, step });
          g.store(out.at(g.laneId), g.load(stage.as('u32').at(g.laneId)));
          ring.release({ gates, step });
        }
      }
    },
  );

const groupOfTwo = group('group_of_two', 64);
const buffer = 'shared memory';

export const roles: readonly Exhibit[] = [
  race('group of warps that does not meet', less(reverse, 'g.group.barrier'), {
    block: 96,
    at: ['g.store(part.at(at)', 'g.store(out.at(at), g.load(part'],
    buffer,
  }),
  onOneRank('divergence')(
    'barrier for more warps than come',
    { wrong: group('group_too_large', 96), right: groupOfTwo },
    { block: 96, at: ['if (g.warpId < 2) g.group.barrier(1, SIZE)'] },
  ),
  onOneRank('divergence')(
    'barrier of a group in two branches of a warp',
    { wrong: groupTorn, right: groupOfTwo },
    { block: 96, at: ['if (at < 48) g.group.barrier(2, 64)'] },
  ),
  race('stage refilled before it is empty', less(pipeline, 'g.mbarrier.await(empty'), {
    block: 64,
    at: ['g.store(stage', 'g.store(out.at(g.laneId), g.load(stage'],
    buffer,
  }),
  race(
    'stage filled by the copy engine while threads have read it without a fence',
    { wrong: copied('reads_unfenced', 'tensor cores'), right: copied('reads_fenced', 'threads') },
    { block: 64, at: ['g.store(out.at(g.laneId), g.load(stage', 'g.bulk.load(stage'], buffer },
  ),
  onOneRank('stuck-wait')(
    'fewer arrivals than an mbarrier is for',
    { wrong: arrives('too_few_arrive', 32), right: arrives('one_arrives', 1) },
    { block: 32, at: ['const over = g.mbarrier.await'], location: /full/ },
  ),
];
