/** A thread of `Threads`: does the jobs that it is sent. An error ends it, and is told there. */
import { parentPort, workerData } from 'node:worker_threads';
import { HeddleError } from '../../base/errors.js';
import { type Job, runJob } from './jobs.js';
import type { WorkerReport, WorkerStart } from './pool.js';
import type { CheckSubject } from './subject.js';

const { module, names, assume } = workerData as WorkerStart;
const { checkSubjects = [] } = (await import(module)) as { checkSubjects?: readonly CheckSubject[] };
const configurations = checkSubjects.flatMap((subject) => subject.configurations);
if (configurations.map(({ name }) => name).join('\n') !== names.join('\n')) {
  throw new HeddleError('HEDDLE_CHECK', `checkSubjects of ${module} are not the subjects of this check`);
}

const report = (what: WorkerReport): void => parentPort!.postMessage(what);

parentPort!.on('message', async (job: Job) => {
  report({
    kind: 'ended',
    outcome: await runJob(configurations, job, assume, () => report({ kind: 'ran' })),
  });
});
report({ kind: 'loaded' });
