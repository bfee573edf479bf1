/**
 * The options that everybody gives for a layer: its shape, the types of its elements, how its experts are split over ranks, what
 * dispatch and combine mean, and how many bytes they move.
 */
export * from '../formats/index.js';
export * from './arithmetic.js';
export {
  type Alignment,
  alignments,
  type ExpertForm,
  type ExpertRows,
  expertForms,
  type ReferencePlan,
} from './expert-rows.js';
export {
  type Activation,
  activations,
  clampedSwiglu,
  type MlpMatrices,
  type ScaledMatrices,
} from './mlp.js';
export * from './placement.js';
export * from './profiles.js';
export * from './rebalance.js';
export type { ReferenceReceived } from './reference.js';
export * as reference from './reference.js';
export { type ReferenceRoutes, type RouterBiases, requireRouting } from './routing.js';
export * from './shape.js';
export * from './source.js';
export * from './steps.js';
export * from './traffic.js';
