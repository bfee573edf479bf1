/** All that kernels of this family are made of: their shape, where things lie, and what every one of them may ask. */
import { peers, windowOf } from '../../../lang/index.js';
import { masking } from '../common/masks.js';
import { expertOwner, listOwners, mateOf } from '../common/owners.js';
import { type Operation, patienceOf, waiting } from '../common/waits.js';
import { rails } from './rails.js';
import type { HybridShape } from './shape.js';
import { hybridWindow } from './window.js';
import { hybridWire } from './wire.js';

export type Hybrid = ReturnType<typeof hybridKit>;

export function hybridKit(shape: HybridShape) {
  const window = hybridWindow(shape);
  const wire = hybridWire(shape);
  const phase = (operation: Operation) => ({
    thisRankIsOut: masking(shape, operation).thisRankIsOut,
    ...waiting(shape, window, operation),
  });
  return {
    ...{ shape, window, wire },
    /** Parameters: the windows of the node, this rank's own, and the wire. */
    at: { win: peers(window), mine: windowOf(window), wire: peers(wire) },
    /** Numbers of the shape, and functions that ask about ranks, lines and masks. */
    u: { ...rails(shape), ...{ ownerOf: expertOwner(shape), listOwners, mateOf: mateOf(shape), patienceOf } },
    phases: { dispatch: phase('dispatch'), combine: phase('combine') },
  };
}
