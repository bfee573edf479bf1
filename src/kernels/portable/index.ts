export { portable, portableOver } from './family.js';
export type { PortableTuning } from './knobs.js';
export { type Transport, windows } from './transport.js';
