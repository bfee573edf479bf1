/** Groups of ranks that bring the same tokens. */
import { device } from '../../../lang/index.js';
import { type Layer, sharing } from '../../layer/index.js';

/** The other ranks of this rank's group, around from the next one: `other` is 1, 2 … */
export const mateOf = (layer: Layer) =>
  device(
    {
      params: { other: 'u32' },
      returns: 'u32',
      using: { REPLICAS: sharing(layer).replicas },
    },
    (g, { other }, { REPLICAS }) => g.rank - (g.rank % REPLICAS) + ((g.rank + other) % REPLICAS),
  );
