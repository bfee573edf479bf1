/** Everything that kernels of this family are made of: their shape, where things lie, how bytes travel, and what each of them may ask. */
import { peers, windowOf } from '../../../lang/index.js';
import { masking } from '../common/masks.js';
import { expertOwner, findOwners, firstsOf, mateOf } from '../common/owners.js';
import { layerConstants } from '../common/params.js';
import { placeAt } from '../common/places.js';
import { countRoutes, zeroCounts } from '../common/received.js';
import { type Operation, patienceOf, waiting } from '../common/waits.js';
import type { Transport } from './transport.js';
import { beginsEarly, ownStays, type PortableShape, portableWindow } from './window.js';

export type Portable = ReturnType<typeof portableKit>;

export function portableKit(shape: PortableShape, transport: Transport) {
  const window = portableWindow(shape);
  const phase = (operation: Operation) => ({
    ...masking(shape, operation),
    ...waiting(shape, window, operation),
  });
  return {
    ...{ shape, window, put: (unit: Parameters<Transport['put']>[1]) => transport.put(window, unit) },
    /** Parameters: the windows of all ranks, and this rank's own. */
    at: { win: peers(window), mine: windowOf(window) },
    /** Numbers of the shape, and functions that ask about ranks and signals. */
    u: {
      ...layerConstants(shape),
      ...{ EARLY: beginsEarly(shape), STAYS: ownStays(shape) },
      ...{ ownerOf: expertOwner(shape), findOwners: findOwners(shape), firstsOf, mateOf: mateOf(shape) },
      ...{ placeAt: placeAt(shape), patienceOf },
      ...{ countRoutes: countRoutes(shape, window), zeroCounts: zeroCounts(shape, window) },
      ...{ settle: transport.settle(window), signalBy: transport.signal(window) },
      awaitSignal: transport.awaitSignal,
    },
    phases: { dispatch: phase('dispatch'), combine: phase('combine') },
  };
}
