/**
 * The ranks of other nodes with which this one exchanges messages. A rank's tokens go to the rank of its own number there, its
 * rail. Where that one is left out, the next number of that node that is not carries them, around behind the last: every rank finds
 * that out from the mask alone. So each rank has one carrier in every node in which anybody is left, and a carrier has a line for each
 * rank that it carries: its own number first, then those before it whose rails it has taken over.
 */
import { device, pointer } from '../../../lang/index.js';
import { masking } from '../common/masks.js';
import { placeAt, placingParam } from '../common/places.js';
import { type HybridShape, hybridConstants } from './shape.js';

/** Lines that may come from each other node. Without masks rails are as they are. */
export const linesOf = ({ masks = false, localRanks }: HybridShape): number => (masks ? localRanks : 1);

/** Functions and constants that kernels ask about nodes, lines and masks. */
export function rails(shape: HybridShape) {
  const { maskIn, isOut, living } = masking(shape, 'dispatch');
  /** `ALL`: a bit for each rank of a node. */
  const u = { ...hybridConstants(shape), WORDS: Math.ceil(shape.ranks / 32), ALL: 2 ** shape.localRanks - 1 };

  /** A bit for each rank of a node that is left out. */
  const outOfNode = device(
    { params: { mask: 'v16', node: 'u32' }, returns: 'u32', using: u },
    (g, { mask, node }, u) => {
      let out = g.u32(0);
      if (u.MASKS) {
        const first = node * u.LOCAL;
        for (const w of g.unroll(u.WORDS)) {
          const word = g.lane(mask, 'u32', w);
          if (first / 32 === w) out |= word >>> (first % 32);
          // The ranks of a node may lie in two words.
          if (first / 32 + 1 === w && first % 32 > 0) out |= word << (32 - (first % 32));
        }
        out &= u.ALL;
      }
      return out;
    },
  );

  /** How many ranks of each other node this rank carries: itself is one of so many that follow each other, of which the others are left out. */
  const carriedHere = device(
    { params: { mask: 'v16', node: 'u32' }, returns: 'u32', using: { ...u, outOfNode } },
    (g, { mask, node }, u) => {
      let count = g.u32(1);
      if (u.MASKS) {
        const out = u.outOfNode({ mask, node });
        while (count < u.LOCAL && ((out >>> ((g.rank + u.LOCAL - count) % u.LOCAL)) & 1) === 1) count += 1;
      }
      return count;
    },
  );

  /** The rank of the world whose tokens come by a line: those of each hop's own numbers first. */
  const senderOf = device(
    { params: { node: 'u32', line: 'u32' }, returns: 'u32', using: u },
    (g, { node, line }, u) => {
      let hop = line;
      let number = g.rank;
      if (u.MASKS) {
        hop = line % u.HOPS;
        number = (g.rank + u.LOCAL - line / u.HOPS) % u.LOCAL;
      }
      return ((node + 1 + hop) % u.NODES) * u.LOCAL + number;
    },
  );

  /** Where route k of a token goes: a place on a rank that is not left out, or anything else for nowhere. */
  const livingPlaceAt = device(
    {
      params: { mask: 'v16', topkIds: pointer('i32'), placing: placingParam(shape), token: 'u32', k: 'u32' },
      returns: 'i32',
      using: { living, placeAt: placeAt(shape) },
    },
    (_, { mask, topkIds, placing, token, k }, { living, placeAt }) =>
      living({ mask, id: placeAt({ topkIds, placing, token, k }) }),
  );
  return { ...u, maskIn, isOut, living, outOfNode, carriedHere, senderOf, livingPlaceAt };
}
