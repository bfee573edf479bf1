/** Where one row of a token's sum lies: where it came home, or where this rank's experts left it. */
import { device, pointer, windowOf } from '../../../lang/index.js';
import { sharing } from '../../layer/index.js';
import { ownStays, type PortableShape, type PortableWindow } from './window.js';

export const rowOf = (shape: PortableShape, window: PortableWindow) =>
  device(
    {
      name: 'row_of',
      params: { mine: windowOf(window), owner: 'u32', token: 'u32' },
      returns: pointer('u8'),
      using: { REPLICAS: sharing(shape).replicas, STAYS: ownStays(shape) },
    },
    (g, { mine, owner, token }, u) => {
      if (u.STAYS) {
        if (owner === g.rank) return mine.output.at(g.rank / u.REPLICAS, token, 0).as('u8');
      }
      return mine.returned.at(owner, token / u.REPLICAS, 0).as('u8');
    },
  );
