/** The worked example of CONTRIBUTING.md, checked as Heddle's own kernels are. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { pass, ring } from '../../examples/ring.js';
import { World } from '../../src/net/world/index.js';
import {
  type CheckConfiguration,
  type CheckSubject,
  check,
  formatFinding,
  mutantsOf,
  mutate,
  runOnce,
  WrongResult,
} from '../../src/verify/check/index.js';

/** Several rounds back to back, so that a place is used again while others may still read it. */
const configuration = (ranks: number, rounds: number): CheckConfiguration => ({
  name: `ring of ${ranks}`,
  ranks,
  run: async (machine) => {
    const rows = await World.local({ ranks, device: 'sim', sim: machine }, (world) => pass(world, rounds));
    for (const [rank, row] of rows.entries()) {
      const from = (((rank - rounds) % ranks) + ranks) % ranks;
      const wrong = row.findIndex((value, i) => value !== 100 * from + i);
      if (wrong >= 0) throw new WrongResult(`rank ${rank}: element ${wrong} is ${row[wrong]}`);
    }
  },
});

const subject: CheckSubject = {
  name: 'ring',
  kernels: ['ring'],
  configurations: [configuration(2, 3), configuration(3, 4), configuration(1, 2)],
};

describe('the ring', () => {
  test('has no finding, and each of its synchronising operations is needed', async () => {
    const { schedules, findings, mutants } = await check([subject], { seeds: 50, mutants: true });
    expect(findings.map(formatFinding)).toEqual([]);
    expect(schedules).toBe(150);
    expect(mutants.survivors).toEqual([]);
    expect(mutants.total).toBe(14);
  });

  test('without its last barrier has the finding that CONTRIBUTING.md shows', async () => {
    const barriers = mutantsOf(ring(2).ir()).filter(({ text }) => text === 'g.barrier()');
    const { findings } = await runOnce(subject.configurations[0]!, {
      seed: 'random-0',
      schedule: 'random',
      substitute: (module) => mutate(module, barriers.at(-1)!),
    });
    const shown = readFileSync(new URL('../../CONTRIBUTING.md', import.meta.url), 'utf8');
    expect(words(shown)).toContain(words(formatFinding(findings[0]!)));
  });
});

/** The text without white space: transpilers set it as they like. */
const words = (text: string): string => text.replaceAll(/\s+/g, '');
