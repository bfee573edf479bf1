import type { Group, GroupOptions } from '../../src/world/group.js';
import { LocalGroup } from '../../src/world/local-group.js';
import { ProcessGroup } from '../../src/world/process-group.js';
import { Rendezvous } from '../../src/world/rendezvous.js';

/** Makes the groups of all ranks, in this process; `end` lets go of everything. */
export interface Maker {
  readonly name: string;
  make(ranks: number, options?: GroupOptions): Promise<{ groups: Group[]; end(): Promise<void> }>;
}

const local: Maker = {
  name: 'LocalGroup',
  async make(ranks, options) {
    const groups = LocalGroup.create(ranks, options);
    return { groups, end: () => disposeAll(groups) };
  },
};

/** Hosted by rank 0. The port is free when asked for, so a fixed one cannot collide. */
const processes: Maker = {
  name: 'ProcessGroup',
  async make(ranks, options = {}) {
    const port = await freePort();
    const join = (rank: number) =>
      ProcessGroup.join({ ...options, rank, ranks, address: `127.0.0.1:${port}`, lossTimeoutMs: 20_000 });
    const groups = await Promise.all(Array.from({ length: ranks }, (_, rank) => join(rank)));
    return { groups, end: () => disposeAll(groups) };
  },
};

/** Hosted by somebody else, as under `heddle run`. */
const hosted: Maker = {
  name: 'ProcessGroup, hosted',
  async make(ranks, options) {
    const { groups, rendezvous } = await joinAll(ranks, options);
    return {
      groups,
      async end() {
        await disposeAll(groups);
        await rendezvous.close();
      },
    };
  },
};

export const makers = [local, processes, hosted];

export async function joinAll(ranks: number, options: GroupOptions = {}) {
  const rendezvous = await Rendezvous.listen({ ranks, world: 'test' });
  const address = `127.0.0.1:${rendezvous.address.port}`;
  const groups = await Promise.all(
    Array.from({ length: ranks }, (_, rank) =>
      ProcessGroup.join({ ...options, rank, ranks, address, world: 'test', hosted: true }),
    ),
  );
  return { groups, rendezvous };
}

export async function freePort(): Promise<number> {
  const probe = await Rendezvous.listen({ ranks: 1, world: 'probe' });
  const { port } = probe.address;
  await probe.close();
  return port;
}

async function disposeAll(groups: readonly Group[]): Promise<void> {
  await Promise.all(groups.map((group) => group.dispose()));
}
