import type { Circle, CircleOptions } from '../../src/world/circle.js';
import { LocalCircle } from '../../src/world/local-circle.js';
import { ProcessCircle } from '../../src/world/process-circle.js';
import { Rendezvous } from '../../src/world/rendezvous.js';

/** Makes the circles of all ranks, in this process; `end` lets go of everything. */
export interface Maker {
  readonly name: string;
  make(ranks: number, options?: CircleOptions): Promise<{ circles: Circle[]; end(): Promise<void> }>;
}

const local: Maker = {
  name: 'LocalCircle',
  async make(ranks, options) {
    const circles = LocalCircle.create(ranks, options);
    return { circles, end: () => disposeAll(circles) };
  },
};

/** Hosted by rank 0. The port is free when asked for, so a fixed one cannot collide. */
const processes: Maker = {
  name: 'ProcessCircle',
  async make(ranks, options = {}) {
    const port = await freePort();
    const join = (rank: number) =>
      ProcessCircle.join({ ...options, rank, ranks, address: `127.0.0.1:${port}`, lossTimeoutMs: 20_000 });
    const circles = await Promise.all(Array.from({ length: ranks }, (_, rank) => join(rank)));
    return { circles, end: () => disposeAll(circles) };
  },
};

/** Hosted by somebody else, as under `heddle run`. */
const hosted: Maker = {
  name: 'ProcessCircle, hosted',
  async make(ranks, options) {
    const { circles, rendezvous } = await joinAll(ranks, options);
    return {
      circles,
      async end() {
        await disposeAll(circles);
        await rendezvous.close();
      },
    };
  },
};

export const makers = [local, processes, hosted];

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

export async function freePort(): Promise<number> {
  const probe = await Rendezvous.listen({ ranks: 1, world: 'probe' });
  const { port } = probe.address;
  await probe.close();
  return port;
}

async function disposeAll(circles: readonly Circle[]): Promise<void> {
  await Promise.all(circles.map((circle) => circle.dispose()));
}
