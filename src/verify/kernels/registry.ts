/** Every kernel by name, with a shape that it has unless another is asked for: what `heddle emit` prints. */
import { families } from '../../moe/families/index.js';
import { ceilings } from './ceilings.js';
import { ofExperts } from './experts.js';
import { familyKernels } from './families.js';
import { ofRouter } from './router.js';
import type { RegisteredKernel } from './shape.js';

export const registry = (): readonly RegisteredKernel[] => [
  ...families.flatMap(familyKernels),
  ...ofExperts,
  ...ofRouter,
  ...ceilings,
];
