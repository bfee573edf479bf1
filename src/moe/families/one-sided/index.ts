export { oneSided } from './family.js';
export type { OneSidedTuning } from './knobs.js';
