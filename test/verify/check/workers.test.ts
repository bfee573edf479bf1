/** What a check reports must not depend on who runs it. */
import { setEnvironmentData, Worker } from 'node:worker_threads';
import { describe, expect, test, vi } from 'vitest';
import { type CheckProgress, type CheckReport, check } from '../../../src/verify/check/index.js';
import { transpiledUrl } from '../../tree.js';
import * as dying from './dying.js';
import * as loading from './loading.js';
import * as rings from './rings.js';

/** Without white space and columns: threads have a transpiler of their own, which sets and maps statements as it likes. */
const textOf = (report: CheckReport): string =>
  JSON.stringify(report)
    .replaceAll(/\s/g, '')
    .replaceAll(/(\.ts:\d+):\d+/g, '$1');

const on = (count: number, name = 'rings') => ({
  count,
  module: transpiledUrl(`test/verify/check/${name}.ts`).href,
});

describe('several workers', () => {
  test('report of schedules and mutants what one does, and tell how far they are', async () => {
    const options = { seeds: 2, mutants: true, schedulesPerMutant: 20 };
    const one = await check(rings.checkSubjects, options);
    expect(one.findings.length).toBeGreaterThan(0);
    const all: CheckProgress[] = [];
    const progress = (one: CheckProgress) => all.push(one);
    const two = await check(rings.checkSubjects, { ...options, workers: on(2), progress });
    expect(textOf(two)).toBe(textOf(one));
    const seen = all.filter(({ phase }) => phase === 'schedules');
    expect(seen.map(({ done }) => done)).toEqual(seen.map(({ done }) => done).sort((a, b) => a - b));
    expect(new Set(seen.map(({ total }) => total))).toEqual(new Set([8]));
    expect(seen.at(-1)).toMatchObject({ done: 8 });
    expect(seen[0]!.what).toBe('right ring of 2/random-0');
  });

  test('one that dies is an error that says during what', async () => {
    await expect(check(dying.checkSubjects, { seeds: 1, workers: on(2, 'dying') })).rejects.toThrow(
      /a worker died during dies\/random-0: out of luck/,
    );
  });

  test('that load other subjects are refused', async () => {
    await expect(check(dying.checkSubjects, { seeds: 1, workers: on(2) })).rejects.toThrow(
      /rings\.js are not the subjects of this check/,
    );
  });

  test('are not ended while they load', async () => {
    const state = new Int32Array(new SharedArrayBuffer(12));
    /** At the end of each thread: whether the second had loaded. */
    const ends: number[] = [];
    const terminate = Worker.prototype.terminate;
    const spy = vi.spyOn(Worker.prototype, 'terminate').mockImplementation(function (this: Worker) {
      ends.push(Atomics.load(state, loading.loaded));
      Atomics.store(state, loading.released, 1);
      Atomics.notify(state, loading.released);
      return terminate.call(this);
    });
    setEnvironmentData('test/verify/check/loading', state);
    try {
      await expect(check(loading.checkSubjects, { seeds: 1, workers: on(2, 'loading') })).rejects.toThrow(
        /the first does not load/,
      );
    } finally {
      setEnvironmentData('test/verify/check/loading', undefined);
      spy.mockRestore();
    }
    expect(ends).toEqual([0, 1]);
  });
});
