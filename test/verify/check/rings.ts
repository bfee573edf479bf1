/** A module of subjects, as threads load it: a kernel that is right, and the same with a mistake. */
import { ringConfiguration, ringKernel } from './ring.js';

const subjectOf = (name: string, waitsUntilTaken: boolean) => ({
  name,
  kernels: ['ring'],
  configurations: [2, 3].map((ranks) => {
    const configuration = ringConfiguration(ringKernel(ranks, { waitsUntilTaken }), ranks, 3);
    return { ...configuration, name: `${name} of ${ranks}` };
  }),
});

export const checkSubjects = [subjectOf('right ring', true), subjectOf('wrong ring', false)];
