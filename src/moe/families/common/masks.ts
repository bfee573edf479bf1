/**
 * Ranks that rounds leave out. Each rank's own window says which, a bit for each; its host writes them while no rank has a kernel
 * (`World.mask`), so a launch may read them at any time, also by way of L1. A launch's view holds for the whole round,
 * captured as a graph or not. Where masks were not asked for, nobody is left out, and nothing of this is compiled.
 */
import { device, pointer } from '../../../lang/index.js';
import type { Layer } from '../../layer/index.js';
import { expertOwner } from './owners.js';
import { type Operation, recordFailure } from './waits.js';

const maskParams = { mask: 'v16' } as const;

/** Kernels ask these questions about masks. */
export function masking(layer: Layer, operation: Operation) {
  const { masks = false, ranks } = layer;

  /** The mask, read once a launch. */
  const maskIn = device(
    { params: { masked: pointer('v16') }, returns: 'v16', using: { MASKS: masks } },
    (g, { masked }, { MASKS }) => {
      let mask = g.pack('u32', [0, 0, 0, 0]);
      if (MASKS) mask = g.load(masked);
      return mask;
    },
  );

  const isOut = device(
    {
      params: { ...maskParams, rank: 'u32' },
      returns: 'bool',
      using: { MASKS: masks, WORDS: Math.ceil(ranks / 32) },
    },
    (g, { mask, rank }, { MASKS, WORDS }) => {
      let out = false;
      if (MASKS) {
        let word = g.lane(mask, 'u32', 0);
        for (const w of g.unroll(WORDS)) {
          if (rank / 32 === w) word = g.lane(mask, 'u32', w);
        }
        out = ((word >>> (rank % 32)) & 1) !== 0;
      }
      return out;
    },
  );

  /** The id of an expert, or -1 where it lives on a rank that is left out. */
  const living = device(
    {
      params: { ...maskParams, id: 'i32' },
      returns: 'i32',
      using: { MASKS: masks, RANKS: ranks, ownerOf: expertOwner(layer), isOut },
    },
    (g, { mask, id }, u) => {
      let there = id;
      if (u.MASKS) {
        const owner = u.ownerOf({ expert: id });
        if (owner < u.RANKS) {
          const out = u.isOut({ mask, rank: owner });
          if (out) there = g.i32(-1);
        }
      }
      return there;
    },
  );

  /** Whether this very rank is left out: its launch ends without a store to a peer. The failure that it records names itself. */
  const thisRankIsOut = device(
    {
      params: { ...maskParams, rank: 'u32', failure: pointer('u32'), epoch: 'u32' },
      returns: 'bool',
      using: { MASKS: masks, isOut, failed: recordFailure(operation) },
    },
    (g, { mask, rank, failure, epoch }, u) => {
      let out = false;
      if (u.MASKS) {
        out = u.isOut({ mask, rank });
        if (out && g.threadIdx.x === 0) u.failed({ failure, peer: rank, epoch });
      }
      return out;
    },
  );

  return { maskIn, isOut, living, thisRankIsOut };
}
