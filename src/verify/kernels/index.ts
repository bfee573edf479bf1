/** Every kernel by name, and those that only measure a machine. */
import { families } from '../../moe/families/index.js';
import { ceilings } from './ceilings.js';
import { ofExperts } from './experts.js';
import { familyKernels } from './families.js';
import { ofRouter } from './router.js';
import type { RegisteredKernel } from './shape.js';

export * from './ceilings.js';
export { type FamilyShape, familyKernels, familyKeys, familyShape } from './families.js';
export type { RegisteredKernel, ShapeKeys, ShapeText } from './shape.js';

/** Every kernel by name, with a shape that it has unless another is asked for: what `heddle emit` prints. */
export const registry = (): readonly RegisteredKernel[] => [
  ...families.flatMap(familyKernels),
  ...ofExperts,
  ...ofRouter,
  ...ceilings,
];
