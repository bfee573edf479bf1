import { parseEtcdAddress } from './address.js';
import { EtcdClient, under } from './client.js';
import { EtcdWorld, type WorldPlace } from './world.js';

/** How long `heddle run` looks for etcd, and at its end waits for what it still has to say. */
const PATIENCE_MS = 10_000;

/** How long the world lasts in etcd when launcher and ranks are gone without a word. */
const LEASE_MS = 30_000;

export type EtcdHost = Awaited<ReturnType<typeof openEtcdHost>>;

/** The launcher's part for a world in etcd: it says at once how processes ended, and hears who is lost. The world does not need it. */
export async function openEtcdHost(place: Omit<WorldPlace, 'lossTimeoutMs'>) {
  const world = await EtcdWorld.open({ ...place, lossTimeoutMs: LEASE_MS }, PATIENCE_MS);
  const names = new Map<number, string>();
  let members = new Set(Array.from({ length: world.ranks }, (_, rank) => rank));
  let saying: Promise<unknown> = Promise.resolve();
  const say = (what: () => Promise<void>): void => {
    saying = saying.then(what).catch(() => {}); // leases tell it otherwise
  };
  const host = {
    onLost: (_ranks: readonly number[], _why: string): void => {},
    lose: (rank: number, why: string) => say(() => world.judge([rank], why)),
    leave: (rank: number) => say(() => world.leave(rank)),
    originsOf: (name: string): number[] =>
      [...names].flatMap(([origin, other]) => (other === name ? [origin] : [])),
    get over(): boolean {
      return members.size === 0;
    },
    async close(): Promise<void> {
      say(() => world.endIfEmpty());
      await world.closeAfter(saying, PATIENCE_MS);
    },
  };
  const gone = new Set<number>();
  const go = (ranks: readonly number[]): void => {
    for (const rank of ranks) {
      gone.add(rank);
      members.delete(rank);
    }
  };
  world.keepAlive(false);
  world.start({
    came: () => {},
    said: (rank, message) => {
      if (message.type === 'wait') names.set(rank, message.name);
    },
    regrouped: (origins) => {
      members = new Set(origins.filter((origin) => !gone.has(origin)));
    },
    left: (rank) => go([rank]),
    lost: (ranks, why) => {
      go(ranks);
      host.onLost(ranks, why);
    },
    over: () => members.clear(),
  });
  return host;
}

/** Whether the etcd of a HEDDLE_RENDEZVOUS answers, and lets Heddle read below its prefix. Returns its version. @throws HeddleError */
export async function askEtcd(rendezvous: string): Promise<string> {
  const address = parseEtcdAddress('HEDDLE_RENDEZVOUS', rendezvous);
  const client = new EtcdClient(address, PATIENCE_MS / 2);
  try {
    await client.call('kv/range', { ...under(`${address.prefix}/`), count_only: true });
    return (await client.call<{ readonly version: string }>('maintenance/status', {})).version;
  } finally {
    client.close();
  }
}
