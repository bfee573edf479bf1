import { expect, test } from 'vitest';
import { chromeTrace } from '../../../src/base/timeline.js';
import { layerTimeline, type Span } from '../../../src/tools/bench/index.js';

test('a timeline has a process a rank, a thread a stream, and an arrow from each send to every other rank’s receive', () => {
  const spans = [0, 1].flatMap((rank): Span[] => [
    { rank, batch: 0, work: 'dispatch send', start: 0, end: 2 },
    { rank, batch: 0, work: 'dispatch receive', start: 2, end: 5 },
  ]);
  const { traceEvents } = chromeTrace(layerTimeline(spans));
  const of = (ph: string) => traceEvents.filter((event) => 'ph' in event && event.ph === ph);
  expect(of('M')).toHaveLength(6);
  expect(of('X')).toContainEqual({
    ph: 'X',
    name: 'dispatch receive',
    cat: 'layer',
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
