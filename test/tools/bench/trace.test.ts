import { expect, test } from 'vitest';
import { chromeTrace } from '../../../src/base/timeline.js';
import { type Span, timelineOf } from '../../../src/tools/bench/index.js';

test('a timeline has a process a rank, a thread a stream, and an arrow from each send to every other rank’s receive', () => {
  const spans = [0, 1].flatMap((rank): Span[] => [
    { rank, track: 0, name: 'dispatch', depth: 0, start: 0, end: 6 },
    { rank, track: 0, name: 'any_dispatch_send', depth: 1, start: 0, end: 2 },
    { rank, track: 0, name: 'any_dispatch_recv', depth: 1, start: 2, end: 5 },
  ]);
  const { traceEvents } = chromeTrace(timelineOf(spans));
  const of = (ph: string) => traceEvents.filter((event) => 'ph' in event && event.ph === ph);
  expect(of('M')).toHaveLength(6);
  expect(of('X')).toContainEqual({
    ph: 'X',
    name: 'any_dispatch_recv',
    cat: 'work',
    pid: 1,
    tid: 0,
    ts: 2,
    dur: 3,
  });
  expect(of('s')).toMatchObject([
    { pid: 0, ts: 1.998 },
    { pid: 1, ts: 1.998 },
  ]);
  expect(of('f')).toMatchObject([
    { pid: 1, ts: 4.997, bp: 'e' },
    { pid: 0, ts: 4.997, bp: 'e' },
  ]);
});
