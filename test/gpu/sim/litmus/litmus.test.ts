/** Every weakest correct form stays silent, every wrong one is found. */
import { describe, expect, it } from 'vitest';
import {
  type CheckConfiguration,
  type Finding,
  formatFinding,
  runOnce,
  seedOf,
} from '../../../../src/verify/check/index.js';
import { litmusConfiguration } from './program.js';
import { litmusTests } from './table.js';

const silent = 200;
const enough = 200;
/** Thousands of runs of one test may take that long on a busy machine. */
const timeout = 120_000;

async function findingsOf(configuration: CheckConfiguration, n: number): Promise<readonly Finding[]> {
  const seed = seedOf(n);
  const schedule = seed.startsWith('priority') ? 'priority' : 'random';
  return (await runOnce(configuration, { seed, schedule })).findings;
}

/** It says which loads read what was old: the value, the store that they missed, and what would order it. */
function expectExplained(finding: Finding): void {
  expect(finding.stale).not.toEqual([]);
  const text = formatFinding(finding);
  for (const { load, value, missing, missingValue, hint } of finding.stale!.slice(-1)) {
    const said =
      missingValue === null
        ? ['came behind the store that stands behind it']
        : load.kind === 'write'
          ? [`put ${value} into `, `before ${missingValue} by`]
          : [`saw ${value} in `, `not ${missingValue}, by`];
    expect(missingValue).not.toBe(value);
    expect(missing.kind).not.toBe('read');
    for (const part of [load.where, ...said, missing.where]) expect(text).toContain(part);
    expect(hint).toMatch(/scope|fence|acquire|release|publish|order/);
    expect(text).toContain(hint);
  }
}

describe.each(litmusTests)('$name', ({ name, never, right, wrong }) => {
  it('is silent in its weakest correct form', { timeout }, async () => {
    const configuration = litmusConfiguration(name, right, never);
    for (let n = 0; n < silent; n++) {
      const findings = await findingsOf(configuration, n);
      if (findings.length > 0) expect(findings.map(formatFinding)).toEqual([]);
    }
  });

  it.each(Object.keys(wrong))('is found: %s', async (mistake) => {
    const configuration = litmusConfiguration(`${name}, ${mistake}`, wrong[mistake]!, never);
    for (let n = 0; n < enough; n++) {
      const findings = await findingsOf(configuration, n);
      if (findings.length > 0) {
        for (const finding of findings) if (finding.kind === 'wrong-result') expectExplained(finding);
        return;
      }
    }
    throw new Error(`not found in ${enough} schedules`);
  });
});
