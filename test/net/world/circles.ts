import { afterAll, afterEach, beforeAll, describe } from 'vitest';
import { RendezvousError } from '../../../src/base/errors.js';
import { formatAddress } from '../../../src/net/world/address.js';
import type { Circle, CircleOptions } from '../../../src/net/world/circle.js';
import type { JoinOptions } from '../../../src/net/world/environment.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { ProcessCircle } from '../../../src/net/world/process-circle.js';
import { Rendezvous } from '../../../src/net/world/rendezvous.js';
import { needing } from '../../needs.js';
import { EtcdServer } from './etcd/server.js';

/** Makes the circles of all ranks, in this process; `end` lets go of everything. */
interface Maker {
  readonly name: string;
  make(ranks: number, options?: CircleOptions): Promise<Made>;
}

interface Made {
  readonly circles: Circle[];
  /** Where outsiders come, unless none can. */
  readonly at?: JoinOptions;
  end(): Promise<void>;
}

const local: Maker = {
  name: 'LocalCircle',
  async make(ranks, options) {
    const circles = LocalCircle.create(ranks, options);
    return { circles, end: () => disposeAll(circles) };
  },
};

/** Hosted by rank 0. */
const processes: Maker = {
  name: 'ProcessCircle',
  async make(ranks, options = {}) {
    const port = await freePort();
    const join = (rank: number) =>
      ProcessCircle.join({ ...options, rank, ranks, address: `127.0.0.1:${port}`, lossTimeoutMs: 20_000 });
    const circles = await Promise.all(Array.from({ length: ranks }, (_, rank) => join(rank)));
    return { circles, at: { ...options, address: `127.0.0.1:${port}` }, end: () => disposeAll(circles) };
  },
};

/** Hosted by somebody else, as under `heddle run`. */
const hosted: Maker = {
  name: 'ProcessCircle, hosted',
  async make(ranks, options) {
    const { circles, rendezvous } = await joinAll(ranks, options);
    return {
      circles,
      at: { ...options, world: 'test', address: formatAddress(rendezvous.address), hosted: true },
      async end() {
        await disposeAll(circles);
        await rendezvous.close();
      },
    };
  },
};

let server: EtcdServer;
let worlds = 0;
const inEtcd: Maker = {
  name: 'ProcessCircle, in etcd',
  async make(ranks, options) {
    const world = `circle ${worlds++}`;
    const circles = await joinInEtcd(server, ranks, { ...options, world });
    const { rendezvous } = server;
    return { circles, at: { ...options, world, rendezvous }, end: () => disposeAll(circles) };
  },
};

export function joinInEtcd(
  { rendezvous }: Pick<EtcdServer, 'rendezvous'>,
  ranks: number,
  options: JoinOptions = {},
): Promise<ProcessCircle[]> {
  const world = `test ${worlds++}`;
  return Promise.all(
    Array.from({ length: ranks }, (_, rank) =>
      ProcessCircle.join({ world, ...options, rank, ranks, rendezvous }),
    ),
  );
}

/** What a test has of one kind of circle; all of it ends with the test. */
interface Making {
  create(ranks: number, options?: CircleOptions): Promise<Circle[]>;
  /** Where outsiders come to the circles that were created last. */
  at(): JoinOptions;
  /** Has this circle end before those that it comes from, whose rendezvous it needs. */
  keep<T extends Circle>(circle: T): T;
}

function making(make: Maker['make']): Making {
  const ends: (() => Promise<void>)[] = [];
  let at: JoinOptions = {};
  afterEach(async () => {
    for (const end of ends.splice(0)) await end();
  });
  return {
    async create(ranks, options) {
      const made = await make(ranks, options);
      ends.push(made.end);
      at = made.at ?? {};
      return made.circles;
    },
    at: () => at,
    keep(circle) {
      ends.unshift(() => circle.latest.dispose());
      return circle;
    },
  };
}

export const placeOf = ({ rank, ranks, origins }: Circle) => ({ rank, ranks, origins });
/** What a rank brings, so that the order in which it arrives shows. */
export const bringOrigin = (circle: Circle) => circle.allGather(Uint8Array.of(circle.origins[circle.rank]!));

/** The same tests of every kind of circle. */
export function describeCircles(
  title: (name: string) => string,
  tests: (make: Making) => void,
  makers = [local, processes, hosted],
): void {
  for (const { name, make } of makers) describe(title(name), () => tests(making(make)));
  describe(title(inEtcd.name), needing('etcd'), () => {
    beforeAll(async () => {
      server = await EtcdServer.start();
    });
    afterAll(() => server.end());
    tests(making(inEtcd.make));
  });
}

/** The same tests of every kind of circle to which outsiders can come. */
export const describeJoinable = (title: (name: string) => string, tests: (make: Making) => void) =>
  describeCircles(title, tests, [processes, hosted]);

export async function joinAll(ranks: number, options: CircleOptions = {}) {
  const rendezvous = await Rendezvous.listen({ ranks, world: 'test' });
  const address = `127.0.0.1:${rendezvous.address.port}`;
  const circles = await Promise.all(
    Array.from({ length: ranks }, (_, rank) =>
      ProcessCircle.join({ ...options, rank, ranks, address, world: 'test', hosted: true }),
    ),
  );
  return { circles, rendezvous };
}

/** Where this process looks first; files of tests that run at once are other processes. */
let nextPort = 10_000 + ((process.pid * 997) % 10_000);

/** Below those that the system hands out, so that none of its connections takes it before it is used. */
export async function freePort(): Promise<number> {
  for (;;) {
    const address = { host: '127.0.0.1', port: nextPort++ };
    try {
      await (await Rendezvous.listen({ ranks: 1, world: 'probe', address })).close();
      return address.port;
    } catch (error) {
      if (!(error instanceof RendezvousError)) throw error;
    }
  }
}

async function disposeAll(circles: readonly Circle[]): Promise<void> {
  await Promise.all(circles.map((circle) => circle.dispose()));
}
