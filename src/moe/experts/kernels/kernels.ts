/** The launches of an experts' plan, made once for all ranks of a process that are alike. */
import { remembered } from '../../families/common/remembered.js';
import { expandKernel } from './expand.js';
import { expertsPlanKernel } from './plan.js';
import { reduceKernel } from './reduce.js';
import { type Chip, type ExpertsShape, planSpread, rowsSpread } from './shape.js';

export const expertsKernels = remembered(({ shape, ...chip }: { readonly shape: ExpertsShape } & Chip) => {
  const [sorting, moving] = [planSpread(shape, chip), rowsSpread(shape, chip)];
  return {
    plan: { kernel: expertsPlanKernel(shape, sorting), ...sorting },
    expand: { kernel: expandKernel(shape, moving), ...moving },
    reduce: { kernel: reduceKernel(shape, moving), ...moving },
  };
});
