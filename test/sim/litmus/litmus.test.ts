/** Every weakest correct form stays silent, every wrong one is found. */
import { describe, expect, it } from 'vitest';
import {
  type CheckConfiguration,
  type Finding,
  formatFinding,
  runOnce,
  seedOf,
} from '../../../src/check/index.js';
import { litmusConfiguration } from './program.js';
import { litmusTests } from './table.js';

const silent = 2000;
const enough = 200;
/** Thousands of runs of one test may take that long on a busy machine. */
const timeout = 120_000;

async function findingsOf(configuration: CheckConfiguration, n: number): Promise<readonly Finding[]> {
  const seed = seedOf(n);
  const schedule = seed.startsWith('priority') ? 'priority' : 'random';
  return (await runOnce(configuration, { seed, schedule })).findings;
}

describe.each(litmusTests)('$name', ({ name, never, right, wrong }) => {
  it('is silent in its weakest correct form', { timeout }, async () => {
    const configuration = litmusConfiguration(name, right, never);
    for (let n = 0; n < silent; n++) {
      expect((await findingsOf(configuration, n)).map(formatFinding)).toEqual([]);
    }
  });

  it.each(Object.keys(wrong))('is found: %s', async (mistake) => {
    const configuration = litmusConfiguration(`${name}, ${mistake}`, wrong[mistake]!, never);
    for (let n = 0; n < enough; n++) {
      const findings = await findingsOf(configuration, n);
      if (findings.length > 0) {
        // A wrong result says which loads read what was old, and so why.
        for (const { kind, stale } of findings) if (kind === 'wrong-result') expect(stale).not.toEqual([]);
        return;
      }
    }
    throw new Error(`not found in ${enough} schedules`);
  });
});
