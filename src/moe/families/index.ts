/** Ways for rows to travel between ranks, each a value that says what it needs and what it launches. */

import { requireOneOf } from '../../base/errors.js';
import type { Family } from './family.js';
import { hybrid } from './hybrid/family.js';
import { oneSided } from './one-sided/family.js';
import { portable } from './portable/family.js';

export { unitBytes, widestUnit } from './common/parts.js';
export {
  initialEpoch,
  notedWaits,
  numberOfRound,
  type Operation,
  operations,
  readFailure,
} from './common/waits.js';
export * from './family.js';
export { hybrid } from './hybrid/family.js';
export type { HybridTuning } from './hybrid/knobs.js';
export { hybridProxyModule, type ProxyData } from './hybrid/proxy.js';
export { choice, count, type Knob, type KnobTable, requireKnob, requireKnobs, type Tuning } from './knobs.js';
export { oneSided } from './one-sided/family.js';
export type { OneSidedTuning } from './one-sided/knobs.js';
export { portable } from './portable/family.js';
export type { PortableTuning } from './portable/knobs.js';

/** Every family; of those that can carry a layer the first does, unless another is asked for. */
export const families: readonly Family[] = [oneSided, hybrid, portable];

/** @throws ArgumentError for a name that no family has. */
export function familyNamed(name: string): Family {
  requireOneOf(
    'family',
    name,
    families.map((family) => family.name),
  );
  return families.find((family) => family.name === name)!;
}
