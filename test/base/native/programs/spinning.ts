/** A thread that is in koffi nearly all the time, until it is told to stop. */
import { writeSync } from 'node:fs';
import { workerData } from 'node:worker_threads';
import { openLibrary, stepDone } from '../../../../src/base/native/index.js';

const { stop, done } = workerData as { readonly stop: Int32Array; readonly done: Int32Array };
const library = openLibrary(null, '');
Atomics.store(stop, 1, 1);
Atomics.notify(stop, 1);
while (Atomics.load(stop, 0) === 0) library.functions({ sched_yield: ['i32'] }).sched_yield();
writeSync(1, 'out\n');
stepDone(done, 1);
