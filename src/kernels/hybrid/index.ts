export { hybrid } from './family.js';
export type { HybridTuning } from './knobs.js';
