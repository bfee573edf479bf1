/** A configuration that takes its thread with it. */
import type { CheckSubject } from '../../../src/verify/check/index.js';

export const checkSubjects: readonly CheckSubject[] = [
  {
    name: 'dying',
    kernels: ['none'],
    configurations: [
      { name: 'lives', ranks: 1, run: async () => {} },
      {
        name: 'dies',
        ranks: 1,
        run: async () => {
          process.nextTick(() => {
            throw new Error('out of luck');
          });
          await new Promise(() => {});
        },
      },
    ],
  },
];
