/** Processes that fall in a round, over libfabric, and the others, which leave their ranks out and go on: all alike. */
import { afterAll, describe, expect, it } from 'vitest';
import { needing } from '../needs.js';
import { EtcdServer } from '../net/world/etcd/server.js';
import { type Case, type Point, points } from './cases.js';
import { Crew } from './crew.js';
import { unlessEarly } from './suite.js';

const shapes = [
  { processes: 3, ranksHere: 1 },
  { processes: 3, ranksHere: 2 },
] as const;

/** Silence tells of a process that stands still; one that is killed is missed at once. A busy machine reaches short times before. */
const patience = { killed: [30_000], stopped: [6000, 12_000, 30_000] } as const;
/** A rank's lease in etcd, whose end tells of one to which nothing was under way. */
const leaseMs = 30_000;
interface Planned {
  readonly fault: keyof typeof patience;
  readonly point: Point;
  readonly shape: Pick<Case, 'processes' | 'ranksHere'>;
  /** Where they meet in etcd, any; else not the first process, which hosts the rendezvous. */
  readonly victim: number;
  /** Where they meet in etcd: whether a launcher has started them, which is killed with the victim. */
  readonly etcd?: 'alone' | 'launched';
}
const planned = points.flatMap((point, p): Planned[] => {
  const victim = 1 + (p % 2);
  const killed = { shape: shapes[(p >> 1) % 2]!, victim };
  const stopped = { shape: shapes[1], victim };
  return [
    { fault: 'killed', point, ...killed },
    ...(point.endsWith('Recv') ? [{ fault: 'stopped', point, ...stopped } as const] : []),
  ];
});

/** So many more are killed, of 16 ranks in 8 processes; by hand some hundreds. */
const storms = Number(process.env.HEDDLE_TEST_STORMS ?? 0);
const stormy = Array.from({ length: storms }, (_, n): Planned => {
  const shape = { processes: 8, ranksHere: 2 };
  const etcd = ([undefined, 'alone', 'launched'] as const)[n % 3];
  const victim = etcd === undefined ? 1 + (n % 7) : n % 8;
  return {
    fault: 'killed',
    point: points[n % 5]!,
    shape,
    victim,
    ...(etcd && { etcd }),
  };
});
const inEtcd = (['alone', 'launched'] as const).map((etcd, i): Planned => {
  return { fault: 'killed', point: 'combineSend', shape: shapes[i]!, victim: 0, etcd };
});
const cases = [...planned, ...inEtcd, ...stormy];

describe('processes that go on', { timeout: 120_000, ...needing('tcp;ofi_rxm') }, () => {
  const crew = new Crew(null);
  let server: EtcdServer | undefined;
  afterAll(async () => {
    await crew.end();
    await server?.end();
  });
  // Below those that a machine gives to whoever asks for any.
  let port = 30_000 + (process.pid % 100) * 20;
  const fabric = { provider: 'tcp;ofi_rxm', devices: ['lo'] } as const;

  const goOn = async ({ fault, point, shape, victim, etcd }: Planned) => {
    const run = async (waitMs: number) => {
      const told = {
        ...{ masks: true, waitMs, fabric, ...shape },
        fall: { process: victim, fault, point, cut: [], launcher: etcd === 'launched' },
      };
      const address = `127.0.0.1:${port++}`;
      if (etcd === undefined) return crew.run({ ...told, meeting: { address } });
      server ??= await EtcdServer.start();
      const { rendezvous } = server;
      return etcd === 'alone'
        ? crew.run({ ...told, meeting: { rendezvous, world: address } })
        : crew.runLaunched({ ...told, meeting: null }, rendezvous);
    };
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
      const untold = etcd === undefined ? 0 : leaseMs;
      expect(ms, text).toBeLessThan(fault === 'killed' ? waitMs / 2 + untold : 3 * waitMs);
    }
    // One that stood still and goes on is told that it is out, if the others are still there to tell it.
    if (fault === 'stopped') for (const { first } of said[victim]!) expect(first).not.toBeNull();
  };
  const title = 'where one is $fault in $point, met in etcd: $etcd';
  it.each(cases.filter(({ etcd }) => etcd === undefined))(title, goOn);
  it.each(cases.filter(({ etcd }) => etcd !== undefined))(title, needing('etcd'), goOn);
});
