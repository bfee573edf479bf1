export { portable } from './family.js';
export type { PortableTuning } from './knobs.js';
export type { Transport } from './transport.js';
