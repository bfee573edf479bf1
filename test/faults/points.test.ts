/** What a rank passes on its way into a world, through a loss and out again, each time killed or stopped there. */
import { afterAll, describe, it } from 'vitest';
import { needing } from '../needs.js';
import { endFalls, expectSurvived, findPoints } from '../net/world/falls.js';

afterAll(endFalls);

const hosts = ['launcher', 'rank 0'] as const;
const cases = await Promise.all(
  hosts.map(async (host) => {
    const points = await findPoints({ host, layers: false });
    return { host, layers: false, points, signals: ['SIGKILL', 'SIGSTOP'] as const };
  }),
);
/** What only the making of a layer passes. */
const layers = { host: 'launcher', layers: true } as const;
const overFabric = needing('tcp;ofi_rxm');
const passed = overFabric.skip ? ['each point of a layer'] : await findPoints(layers);
const points = passed.filter((point) => !cases[0]!.points.includes(point));
const all = [
  ...cases.map((of) => ({ ...of, options: {} })),
  { ...layers, points, signals: ['SIGKILL', 'SIGSTOP'] as const, options: overFabric },
];

describe.concurrent.each(all)(
  'with the rendezvous in $host, layers: $layers',
  ({ points, signals, options, ...falling }) => {
    describe.each(signals)('survivors of a %s all end alike, and name nobody else', (signal) => {
      it.each(points)('at: %s', options, async (point) => {
        await expectSurvived(falling, point, signal);
      });
    });
  },
);
