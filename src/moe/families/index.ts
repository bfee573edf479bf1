/** Ways for rows to travel between ranks, each a value that says what it needs and what it launches. */

export { unitBytes, widestUnit } from './common/parts.js';
export { beforeFirst, numberOfRound } from './common/rounds.js';
export { type Operation, operations, readFailure } from './common/waits.js';
export * from './families.js';
export * from './family.js';
export { hybrid } from './hybrid/family.js';
export type { HybridTuning } from './hybrid/knobs.js';
export { hybridProxyModule, type ProxyData } from './hybrid/proxy.js';
export { choice, count, type Knob, type KnobTable, requireKnob, requireKnobs, type Tuning } from './knobs.js';
export { oneSided } from './one-sided/family.js';
export type { OneSidedTuning } from './one-sided/knobs.js';
export { portable } from './portable/family.js';
export type { PortableTuning } from './portable/knobs.js';
export type { Transport } from './portable/transport.js';
