/** The worked example of docs/first-kernel.md, checked as Heddle's own kernels are. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { configurations, ring } from '../../examples/ring.js';
import { check, formatFinding, mutantsOf, mutate, runOnce } from '../../src/verify/check/index.js';

const subject = { name: 'ring', kernels: ['ring'], configurations };

describe('the ring', () => {
  test('has no finding, and each of its synchronising operations is needed', async () => {
    const { schedules, findings, mutants } = await check([subject], { seeds: 10, mutants: true });
    expect(findings.map(formatFinding)).toEqual([]);
    expect(schedules).toBe(30);
    expect(mutants.survivors).toEqual([]);
    expect(mutants.total).toBe(14);
  });

  test('without its last barrier has the finding that docs/first-kernel.md shows', async () => {
    const barriers = mutantsOf(ring(2).ir()).filter(({ text }) => text === 'g.barrier()');
    const { findings } = await runOnce(subject.configurations[0]!, {
      seed: 'random-0',
      schedule: 'random',
      substitute: (module) => mutate(module, barriers.at(-1)!),
    });
    const shown = readFileSync(new URL('../../docs/first-kernel.md', import.meta.url), 'utf8');
    expect(words(shown)).toContain(words(formatFinding(findings[0]!)));
  });
});

/** The text without white space: transpilers set it as they like. */
const words = (text: string): string => text.replaceAll(/\s+/g, '');
