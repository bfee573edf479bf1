/** Subjects that the first thread fails to load, and that the second loads slowly. */
import { getEnvironmentData } from 'node:worker_threads';
import type { CheckSubject } from '../../../src/verify/check/index.js';

/** What the threads and the test share: one word each. */
export const began = 0;
export const released = 1;
export const loaded = 2;

/** Only threads have it. */
const state = getEnvironmentData('test/verify/check/loading') as Int32Array | undefined;
if (state !== undefined) {
  const nth = Atomics.add(state, began, 1);
  Atomics.notify(state, began);
  if (nth === 0) {
    Atomics.wait(state, began, 1);
    throw new Error('the first does not load');
  }
  Atomics.wait(state, released, 0);
  Atomics.store(state, loaded, 1);
}

export const checkSubjects: readonly CheckSubject[] = [
  {
    name: 'loading',
    kernels: ['none'],
    configurations: ['one', 'two'].map((name) => ({ name, ranks: 1, run: async () => {} })),
  },
];
