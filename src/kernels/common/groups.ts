/** Groups of ranks that bring the same tokens. */
import { device } from '../../lang/index.js';
import { type Layer, sharing } from '../../layer/index.js';

/** The other ranks of this rank's group: `other` from 1 on, the one behind it first. */
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
