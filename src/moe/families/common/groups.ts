/** Groups of ranks that bring the same tokens. */
import { device } from '../../../lang/index.js';
import { type Layer, sharing } from '../../layer/index.js';

/** How many of its group's `tokens` this rank takes: one in each turn. */
export const shareOf = (layer: Layer) =>
  device(
    {
      name: 'share_of',
      params: { tokens: 'u32' },
      returns: 'u32',
      using: { REPLICAS: sharing(layer).replicas },
    },
    (g, { tokens }, { REPLICAS }) => (tokens + (REPLICAS - 1 - (g.rank % REPLICAS))) / REPLICAS,
  );

/** The token that this rank takes in a turn. */
export const tokenOf = (layer: Layer) =>
  device(
    {
      name: 'token_of',
      params: { turn: 'u32' },
      returns: 'u32',
      using: { REPLICAS: sharing(layer).replicas },
    },
    (g, { turn }, { REPLICAS }) => turn * REPLICAS + (g.rank % REPLICAS),
  );

/** The other ranks of this rank's group, around from the next one: `other` is 1, 2 … */
export const mateOf = (layer: Layer) =>
  device(
    {
      name: 'mate_of',
      params: { other: 'u32' },
      returns: 'u32',
      using: { REPLICAS: sharing(layer).replicas },
    },
    (g, { other }, { REPLICAS }) => g.rank - (g.rank % REPLICAS) + ((g.rank + other) % REPLICAS),
  );
