/** How long launches wait, and what they leave behind when a peer did not come. */
import { device, pointer } from '../../../lang/index.js';
import { type Operation, operations } from './failure.js';

/**
 * How long a launch may wait: not at all behind one that gave up. So all that is enqueued ends within the time of one
 * wait, however many waits it holds, and `failure` stays what went wrong first.
 */
export const patienceOf = device(
  { name: 'patience_of', params: { failure: pointer('u32'), limit: 'u32' }, returns: 'u32' },
  (g, { failure, limit }) => {
    const failed = g.load(failure.at(0), { order: 'relaxed', scope: 'gpu' });
    return failed === 0 ? limit : g.u32(0);
  },
);

/**
 * Records whom a wait gave up on, for this rank alone. Several threads may fail at once, of this block or of all: each word
 * is whole, and any of them is worth reporting.
 */
export const recordFailure = (operation: Operation, whose: 'cta' | 'gpu' = 'gpu') =>
  device(
    {
      name: 'record_failure',
      params: { failure: pointer('u32'), peer: 'u32', epoch: 'u32' },
      using: { OPERATION: operations[operation], WHOSE: whose },
    },
    (g, { failure, peer, epoch }, { OPERATION, WHOSE }) => {
      g.store(failure.at(0), OPERATION, { order: 'relaxed', scope: 'gpu' });
      g.store(failure.at(1), peer, { order: 'relaxed', scope: WHOSE });
      g.store(failure.at(2), epoch, { order: 'relaxed', scope: WHOSE });
      g.store(failure.at(3), g.blockIdx.x, { order: 'relaxed', scope: WHOSE });
    },
  );
