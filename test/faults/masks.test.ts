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
  readonly shape: (typeof shapes)[number];
}
const cases = points.flatMap((point, p): Planned[] => [
  { fault: 'killed', point, family: families[p % 2]!, shape: shapes[(p >> 1) % 2]! },
  ...(point.endsWith('Recv')
    ? [{ fault: 'stopped', point, family: families[(p + 1) % 2]!, shape: shapes[1] } as const]
    : []),
]);

describe('processes that go on', { timeout: 120_000, ...needing('tcp;ofi_rxm') }, () => {
  const crew = new Crew(null);
  afterAll(() => crew.end());
  // Below those that a machine gives to whoever asks for any.
  let port = 30_000 + (process.pid % 100) * 20;

  it.each(cases)('where one is $fault in $point, of $family', async ({ fault, point, family, shape }) => {
    const victim = 1 + (points.indexOf(point) % 2);
    const run = (waitMs: number) =>
      crew.run({
        ...{ family, masks: true, waitMs, ...shape, address: `127.0.0.1:${port++}` },
        fabric: { provider: 'tcp;ofi_rxm', devices: ['lo'] },
        fall: { process: victim, fault, point, cut: [] },
      });
    const [said, waitMs] = await unlessEarly(run, patience[fault]);
    const gone = Array.from({ length: shape.ranksHere }, (_, i) => victim * shape.ranksHere + i);
    const survivors = said.flatMap((reports, process) => (process === victim ? [] : reports!));
    expect(survivors).toHaveLength(2 * shape.ranksHere);
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
  });
});
