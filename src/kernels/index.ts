export * from './ceilings/index.js';
export { type Operation, readFailure } from './common/failure.js';
export { unitBytes, widestUnit } from './common/units.js';
export * from './experts/index.js';
export * from './families.js';
export * from './family.js';
export { type Knob, type KnobTable, requireKnob, requireKnobs, type Tuning } from './knobs.js';
export * from './one-sided/index.js';
export * from './registry.js';
