/** Ways for rows to travel between ranks, each a value that says what it needs and what it launches. */

export { unitBytes, widestUnit } from './common/parts.js';
export { type Operation, operations, readFailure } from './common/waits.js';
export * from './families.js';
export * from './family.js';
export * from './hybrid/index.js';
export { choice, count, type Knob, type KnobTable, requireKnob, requireKnobs, type Tuning } from './knobs.js';
export * from './one-sided/index.js';
export * from './portable/index.js';
