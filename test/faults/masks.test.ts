/** Processes that fall in a round, over libfabric, and the others, which leave their ranks out and go on: all alike. */
import { afterAll, describe, expect, it } from 'vitest';
import { needing } from '../needs.js';
import { type Case, type Point, points } from './cases.js';
import { Crew } from './crew.js';
import { unlessEarly } from './suite.js';

const shapes = [
  { processes: 3, ranksHere: 1 },
  { processes: 3, ranksHere: 2 },
] as const;

/** Silence tells of a process that stands still; one that is killed is missed at once. A busy machine reaches short times before. */
const patience = { killed: [30_000], stopped: [6000, 12_000, 30_000] } as const;
const families = ['hybrid', 'portable'] as const;
interface Planned extends Pick<Case, 'family'> {
  readonly fault: keyof typeof patience;
  readonly point: Point;
  readonly shape: Pick<Case, 'processes' | 'ranksHere'>;
  /** Not the first process, which hosts the rendezvous. */
  readonly victim: number;
}
const planned = points.flatMap((point, p): Planned[] => {
  const victim = 1 + (p % 2);
  const killed = { family: families[p % 2]!, shape: shapes[(p >> 1) % 2]!, victim };
  const stopped = { family: families[(p + 1) % 2]!, shape: shapes[1], victim };
  return [
    { fault: 'killed', point, ...killed },
    ...(point.endsWith('Recv') ? [{ fault: 'stopped', point, ...stopped } as const] : []),
  ];
});

/** So many more are killed, of 16 ranks in 8 processes; by hand some hundreds. */
const storms = Number(process.env.HEDDLE_TEST_STORMS ?? 0);
const stormy = Array.from({ length: storms }, (_, n): Planned => {
  const shape = { processes: 8, ranksHere: 2 };
  return { fault: 'killed', point: points[n % 5]!, family: families[n % 2]!, shape, victim: 1 + (n % 7) };
});
const cases = [...planned, ...stormy];

describe('processes that go on', { timeout: 120_000, ...needing('tcp;ofi_rxm') }, () => {
  const crew = new Crew(null);
  afterAll(() => crew.end());
  // Below those that a machine gives to whoever asks for any.
  let port = 30_000 + (process.pid % 100) * 20;

  it.each(cases)(
    'where one is $fault in $point, of $family',
    async ({ fault, point, family, shape, victim }) => {
      const run = (waitMs: number) =>
        crew.run({
          ...{ family, masks: true, waitMs, ...shape, address: `127.0.0.1:${port++}` },
          fabric: { provider: 'tcp;ofi_rxm', devices: ['lo'] },
          fall: { process: victim, fault, point, cut: [] },
        });
      const [said, waitMs] = await unlessEarly(run, patience[fault]);
      const gone = Array.from({ length: shape.ranksHere }, (_, i) => victim * shape.ranksHere + i);
      const survivors = said.flatMap((reports, process) => (process === victim ? [] : reports!));
      expect(survivors).toHaveLength((shape.processes - 1) * shape.ranksHere);
      for (const { rank, first, ms, wrong, masked } of survivors) {
        const text = JSON.stringify({ rank, first, ms, masked });
        expect(first, text).toBeNull();
        expect(wrong, text).toBe(0);
        expect(masked, text).toEqual(survivors[0]!.masked);
        expect(masked!.at(-1), text).toEqual(gone);
        // All rounds from the fall on; the rest of it is for a busy machine.
        expect(ms, text).toBeLessThan(fault === 'killed' ? waitMs / 2 : 3 * waitMs);
      }
      // One that stood still and goes on is told that it is out, if the others are still there to tell it.
      if (fault === 'stopped') for (const { first } of said[victim]!) expect(first).not.toBeNull();
    },
  );
});
