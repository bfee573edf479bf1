/** What the tests on GPUs share: how many there are, and ranks that are processes. */
import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { UnavailableError } from '../../src/base/errors.js';
import { CudaDevice, countGpus } from '../../src/gpu/cuda/index.js';
import { listProviders, type ProviderReport } from '../../src/net/fabric/index.js';
import { Launch, type LaunchOptions, type LaunchResult } from '../../src/net/world/index.js';
import { isRunning, Lines } from '../processes.js';

/** GPUs here; 0 where there is no driver. */
export const gpus = ((): number => {
  try {
    return countGpus();
  } catch (error) {
    if (error instanceof UnavailableError) return 0;
    throw error;
  }
})();

/** Options of a test that needs so many GPUs; it is skipped, with the reason, where there are fewer. */
export const needs = (wanted: number, timeout = 60_000) => ({
  timeout,
  skip: gpus < wanted ? `needs ${wanted} GPUs, and this machine has ${gpus}` : false,
});

/** Providers of libfabric that have a device here. Where there are none, a test that is skipped says why. */
export function providersHere(): readonly ProviderReport[] {
  let why = 'no provider of libfabric has a device here';
  try {
    const usable = listProviders().filter(({ devices }) => devices.length > 0);
    if (usable.length > 0) return usable;
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    why = error.message;
  }
  test('over libfabric', { skip: why }, () => {});
  return [];
}

/** Keeps the GPUs' contexts alive, which otherwise each world would make anew. Returns what lets them go. */
export function keepAwake(): () => Promise<void> {
  const devices = Array.from({ length: gpus }, (_, ordinal) => CudaDevice.open(ordinal));
  return async () => {
    for (const device of devices) await device.dispose();
  };
}

/** The same for the tests of a file. */
export function keepAwakeBetween(): void {
  let letGo = async () => {};
  before(() => {
    letGo = keepAwake();
  });
  after(() => letGo());
}

export interface Ran<T> {
  readonly result: LaunchResult;
  /** What the ranks printed to stdout, a JSON object a line. */
  readonly reports: readonly T[];
  /** What the ranks printed there, and the launcher's notes. */
  readonly stderr: string;
}

/** Runs a program of test/on-gpus/programs as a world of processes. Whatever becomes of it, no process may be left. */
export async function runRanks<T>(
  ranks: number,
  program: string,
  args: readonly string[],
  timeoutMs: number,
  others: Pick<LaunchOptions, 'keepGoing' | 'restarts' | 'rejoin'> = {},
): Promise<Ran<T>> {
  const [stdout, stderr] = [new Lines(), new Lines()];
  const launch = await Launch.start({
    ranks,
    program: fileURLToPath(new URL(`programs/${program}`, import.meta.url)),
    args,
    timeoutMs,
    graceMs: 6_000,
    ...others,
    prefix: false,
    stdout,
    stderr,
    // What a machine lacks is said here, once.
    onNote: (note) => stderr.write(`${note}\n`),
  });
  const { pids } = launch;
  const result = await launch.finished;
  for (const pid of pids) assert.ok(!isRunning(pid), `process ${pid} is still there`);
  return {
    result,
    reports: stdout.lines.map((line) => JSON.parse(line) as T),
    stderr: stderr.lines.join('\n'),
  };
}

/** Runs cases in a world of processes; each is a test. */
export async function runCases(
  context: TestContext,
  ranks: number,
  cases: readonly { readonly name: string }[],
  ...args: readonly string[]
): Promise<void> {
  interface Report {
    readonly name: string;
    readonly error?: string;
  }
  const { result, reports, stderr } = await runRanks<Report>(ranks, 'round-trip-rank.js', args, 90_000);
  for (const { name, error } of reports) await context.test(name, () => assert.equal(error, undefined));
  assert.equal(result.exitCode, 0, stderr);
  assert.deepEqual(
    reports.map(({ name }) => name),
    cases.map(({ name }) => name),
  );
}
