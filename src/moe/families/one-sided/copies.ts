/**
 * A combine that pushes by bulk copies. A warp sends pieces of its own and has a stage (bulk.ts). Copied vectors do not say
 * by themselves that they have come (arrival.ts), so a word for each piece and rank says it of all of its copies. That costs
 * two more trips over the links: one until the copies are known to be complete, one of the word. In return fewer bytes go
 * through each multiprocessor: those that leave pass no registers, and the source makes nothing EMPTY again.
 */
import { device, peers, pointer, registers, windowOf } from '../../../lang/index.js';
import { outputRowBytes, sharing } from '../../layer/index.js';
import { masking } from '../common/masks.js';
import { expertOwner } from '../common/owners.js';
import { recordFailure } from '../common/waits.js';
import { bulkStage, combineStages, fillStage } from './bulk.js';
import { type OneSidedShape, type OneSidedWindow, partVectors } from './window.js';

/** Of a warp. */
export const copyParams = {
  bulk: bulkStage,
  /** The warp's state. [0]: how many chunks it has copied. [1]: 1 + the number of the piece that it has copied but not yet told peers of; 0 for none. */
  copied: registers('u32', 2),
} as const;

/** Tells every rank of the piece that was copied last, once all of it is there. */
export const tellCopied = (shape: OneSidedShape, window: OneSidedWindow) =>
  device(
    {
      params: { win: peers(window), mask: 'v16', epoch: 'u32', copied: copyParams.copied },
      using: { RANKS: shape.ranks, isOut: masking(shape, 'combine').isOut },
    },
    (g, { win, mask, epoch, copied }, { RANKS, isOut }) => {
      if (copied[1] !== 0) {
        if (g.laneId === 0) g.bulk.wait(0);
        g.warp.barrier();
        for (let to = g.laneId; to < RANKS; to += 32) {
          const out = isOut({ mask, rank: to });
          if (!out)
            g.store(win.at(to).copied.at(copied[1]! - 1, g.rank), epoch, { order: 'release', scope: 'sys' });
        }
        copied[1] = g.u32(0);
      }
    },
  );

/** One part of a row, from `output` of this rank to `returned` of its source. */
export const copyRow = (shape: OneSidedShape, window: OneSidedWindow) =>
  device(
    {
      params: {
        ...{
          win: peers(window),
          mask: 'v16',
          from: pointer('v16'),
          to: pointer('v16'),
          part: 'u32',
          epoch: 'u32',
        },
        ...copyParams,
      },
      using: {
        UNITS: outputRowBytes(shape) / 16,
        PART_UNITS: partVectors(shape),
        CHUNK: Math.max(1, combineStages(shape).stage),
        fillStage,
        tellCopied: tellCopied(shape, window),
      },
    },
    (g, { win, mask, from, to, part, epoch, bulk: { stage, filled }, copied }, u) => {
      const end = g.min((part + 1) * u.PART_UNITS, g.u32(u.UNITS));
      for (let base = part * u.PART_UNITS; base < end; base += u.CHUNK) {
        const bytes = 16 * g.min(end - base, g.u32(u.CHUNK));
        if (g.laneId === 0) u.fillStage({ stage, from: from.at(base), bytes, filled });
        // While the stage is filled, the copies of the piece before end.
        u.tellCopied({ win, mask, epoch, copied });
        if (g.laneId === 0) {
          g.mbarrier.await(filled, copied[0]! % 2);
          g.bulk.store(to.at(base), stage, bytes);
          g.bulk.commit();
        }
        copied[0]! += 1;
      }
    },
  );

/** A warp waits until a token's part has come from all ranks that have some of it; false in vain. In lane k the id of route k. */
export const awaitCopied = (shape: OneSidedShape, window: OneSidedWindow) =>
  device(
    {
      params: {
        ...{ mine: windowOf(window), id: 'i32', token: 'u32', part: 'u32', epoch: 'u32' },
        patience: registers('u32', 1),
      },
      returns: 'bool',
      using: {
        RANKS: shape.ranks,
        REPLICAS: sharing(shape).replicas,
        PARTS: shape.combine.parts,
        ownerOf: expertOwner(shape),
        failed: recordFailure('combine'),
      },
    },
    (g, { mine, id, token, part, epoch, patience }, u) => {
      const peer = u.ownerOf({ expert: id });
      let came = true;
      if (peer < u.RANKS && peer !== g.rank) {
        const flag = mine.copied.at((token / u.REPLICAS) * u.PARTS + part, peer);
        came = g.awaitEpoch(flag, epoch, { order: 'acquire', scope: 'sys', limit: patience[0]! });
        if (!came && patience[0]! > 0) u.failed({ failure: mine.failure, peer, epoch });
      }
      const all = !g.warp.any(!came);
      if (!all) patience[0] = g.u32(0);
      g.warp.barrier();
      return all;
    },
  );
