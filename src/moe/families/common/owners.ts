/** Which ranks own a token's experts, and which bring the same tokens. */
import { constant, device, registers } from '../../../lang/index.js';
import { expertShares, type Layer, sharing, sourceWeighs } from '../../layer/index.js';

/** The rank that owns an expert, or RANKS for 'none': ids out of range own nothing and never become an address. */
export function expertOwner(layer: Pick<Layer, 'experts' | 'ranks'>) {
  const { base, extra, cut } = expertShares(layer);
  return device(
    {
      params: { expert: 'i32' },
      returns: 'u32',
      // The first EXTRA ranks own MORE = BASE + 1 experts each, up to CUT; the others BASE. Where that is 0 nobody
      // divides by it, but it must not be a constant 0 in a division.
      using: {
        ...{ RANKS: layer.ranks, EXPERTS: layer.experts, BASE: Math.max(base, 1), MORE: base + 1 },
        ...{ EXTRA: extra, CUT: cut },
      },
    },
    (g, { expert }, { RANKS, EXPERTS, BASE, MORE, EXTRA, CUT }) => {
      const id = g.u32(expert); // a negative id becomes a huge one
      if (id >= EXPERTS) return g.u32(RANKS);
      if (id < CUT) return id / MORE;
      return EXTRA + (id - CUT) / BASE;
    },
  );
}

/**
 * The lanes whose routes are the first to their owner: each of a token's owners once, in order of first appearance.
 * Lane k of the warp holds the owner of route k.
 */
export const firstsOf = device(
  { params: { owner: 'u32', ranks: constant() }, returns: 'u32' },
  (g, { owner, ranks }) => {
    const same = g.warp.match(owner);
    return g.warp.ballot(owner < ranks && g.ffs(same) - 1 === g.laneId);
  },
);

/** So many rows of a token come home at most: one from each of its ranks, or one for each route. */
export const mostRows = (layer: Pick<Layer, 'topK' | 'ranks' | 'output'>): number =>
  sourceWeighs(layer) ? layer.topK : Math.min(layer.topK, layer.ranks);

/**
 * A token's owners, each once, in order of first appearance: the order of the sum. Returns how many; beyond them `owners`
 * holds anything. Lane k of the warp holds the owner of route k.
 */
export const listOwners = device(
  {
    params: { owner: 'u32', ranks: constant(), owners: registers('u32') },
    returns: 'u32',
    using: { firstsOf },
  },
  (g, { owner, ranks, owners }, { firstsOf }) => {
    const firsts = firstsOf({ owner, ranks });
    let left = firsts;
    for (const r of g.unroll(owners.length)) {
      owners[r] = g.warp.shuffle(owner, g.max(g.ffs(left), g.u32(1)) - 1);
      left &= left - 1;
    }
    return g.popc(firsts);
  },
);

/** Lists a token's owners, as `listOwners` does, where lane k holds route k. */
export const findOwners = (layer: Pick<Layer, 'experts' | 'ranks'>) =>
  device(
    {
      params: { expert: 'i32', owners: registers('u32') },
      returns: 'u32',
      using: { RANKS: layer.ranks, ownerOf: expertOwner(layer), listOwners },
    },
    (_, { expert, owners }, { RANKS, ownerOf, listOwners }) =>
      listOwners({ owner: ownerOf({ expert }), ranks: RANKS, owners }),
  );

/** The other ranks of this rank's group, around from the next one: `other` is 1, 2 … */
export const mateOf = (layer: Layer) =>
  device(
    { params: { other: 'u32' }, returns: 'u32', using: { REPLICAS: sharing(layer).replicas } },
    (g, { other }, { REPLICAS }) => g.rank - (g.rank % REPLICAS) + ((g.rank + other) % REPLICAS),
  );
