/** `heddle/check`: what a module of one's own gives `heddle check` to run. */
export type { SimMachine } from '../../gpu/sim/index.js';
export {
  type Addressed,
  type ElementType,
  type Fields,
  type FieldType,
  type Struct,
  type StructValues,
  struct,
} from './elements.js';
export { type Elements, everyRank, type ParameterValue, type RankHost } from './every-rank.js';
export { configuration, type OwnMachine, type TimedConfiguration, type TimedRound } from './own-module.js';
export type { PtxHost } from './ptx-subject.js';
export { type CheckConfiguration, WrongResult } from './subject.js';
