/**
 * Rows on their way by bulk asynchronous copies: from global memory into a stage in shared memory, and from there into
 * the windows of all ranks that want them. One thread of a warp starts the copies and the copy engine moves the bytes:
 * few threads and registers, and no bytes through them. Storing is as fast or faster (docs/results), so nothing chooses
 * copies by itself; `heddle tune` tries them.
 *
 * Every warp has a stage of its own and takes its turn: while one warp's stage is being filled, another's is being sent.
 * A stage is its warp's first lane's alone, so no block or warp has to meet over it. Why it may be filled again:
 * `waitReads`, whose copies have then read it. Why the release in `arrive` covers what was sent: `wait(0)` returns once
 * the copies are complete and their writes visible to that thread, to its ordinary accesses too (PTX: completion is
 * followed by a fence between the proxies); from there on they are like its own stores, which the block's barrier and
 * the release behind it pass on. In the other direction nothing needs a proxy fence: what copies read and overwrite (inputs,
 * slots of peers) was last touched before a launch began or was awaited, which orders both paths to memory, and no thread
 * touches a stage but by copies.
 *
 * Waits for copies have no limit: they wait for this GPU's engine, not for a peer to do anything.
 */
import { device, pointer, record } from '../../../lang/index.js';
import { isMade } from '../../layer/index.js';
import { widestUnit } from '../common/parts.js';
import { type OneSidedShape, partVectors } from './window.js';

/** For the stages of a block: two blocks fit on a multiprocessor, and one alone keeps enough in flight. */
const stagesBytes = 112 * 1024;

/** Vectors that go through a stage at a time, where `warps` share so many bytes: a part is cut evenly. */
function chunkOf(partUnits: number, warps: number, bytes: number): number {
  const most = Math.floor(bytes / 16 / warps);
  return Math.ceil(partUnits / Math.ceil(partUnits / most));
}

/** Combine's, where it pushes by bulk copies: a block has a multiprocessor to itself. */
export function combineStages(shape: OneSidedShape) {
  const { combine } = shape;
  const warps = combine.threads / 32;
  return { warps, stage: combine.way === 'bulk' ? chunkOf(partVectors(shape), warps, 192 * 1024) : 0 };
}

/** The stages of bulk copies in shared memory, and how rows are cut for them, in vectors. There are none where dispatch stores rows. */
export function bulkStages({ dispatch, payloads }: Pick<OneSidedShape, 'dispatch' | 'payloads'>) {
  const warps = dispatch.threads / 32;
  /** Of each payload: what goes through a stage at a time, 0 for rows that are stored. */
  const chunks = payloads.map(({ rowBytes }, p) => {
    if (dispatch.way === 'store' || isMade({ payloads }, p) || widestUnit(rowBytes) !== 'v16') return 0;
    return chunkOf(Math.ceil(rowBytes / 16 / dispatch.parts), warps, stagesBytes);
  });
  return { warps, chunks, stage: Math.max(0, ...chunks) };
}

/** A warp's part of them: its stage, and the mbarrier that says it is filled. */
export const bulkStage = record({ stage: pointer('v16'), filled: pointer('u64') });

/** Sets up a block's stages, each warp its own. Stages of nothing vanish, for nobody uses them. */
export const ownStage = ({ warps, stage }: { readonly warps: number; readonly stage: number }) =>
  device(
    {
      params: {},
      returns: bulkStage,
      using: { WARPS: warps, STAGE: Math.max(1, stage), USED: stage > 0 },
    },
    (g, _, { WARPS, STAGE, USED }) => {
      const stages = g.shared('v16', WARPS * STAGE);
      const filled = g.shared('u64', WARPS);
      const own = { stage: stages.at(g.warpId * STAGE), filled: filled.at(g.warpId) };
      if (USED && g.laneId === 0) g.mbarrier.init(own.filled, 1);
      return own;
    },
  );

/** One thread: fills its stage as soon as the copies out of it have read it. */
export const fillStage = device(
  {
    params: { stage: pointer('v16'), from: pointer('v16'), bytes: 'u32', filled: pointer('u64') },
    using: {},
  },
  (g, { stage, from, bytes, filled }) => {
    g.bulk.waitReads(0);
    g.mbarrier.expect(filled, bytes);
    g.bulk.load(stage, from, bytes, filled);
  },
);
