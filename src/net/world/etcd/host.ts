import { parseEtcdAddress } from './address.js';
import { EtcdClient, under } from './client.js';
import { EtcdWorld, type Reader, type WorldPlace } from './world.js';

/** How long `heddle run` looks for etcd, and at its end waits for what it still has to say. */
const PATIENCE_MS = 10_000;

/** How long the world lasts in etcd when launcher and ranks are gone without a word. */
const LEASE_MS = 30_000;

/** The launcher's part for a world in etcd: it says at once how processes ended, and hears who is lost. The world does not need it. */
export class EtcdHost {
  onLost: (ranks: readonly number[], why: string) => void = () => {};
  readonly #world: EtcdWorld;
  readonly #groups = new Map<number, string>();
  #said: Promise<unknown> = Promise.resolve();

  private constructor(world: EtcdWorld) {
    this.#world = world;
    world.keepAlive(false);
    const nothing = () => {};
    const lost = (ranks: readonly number[], why: string) => this.onLost(ranks, why);
    const said: Reader['said'] = (rank, message) => {
      if (message.type === 'wait') this.#groups.set(rank, message.group);
    };
    world.start({ came: nothing, said, renewed: nothing, left: nothing, lost, over: nothing });
  }

  static async open(place: Omit<WorldPlace, 'lossTimeoutMs'>): Promise<EtcdHost> {
    return new EtcdHost(await EtcdWorld.open({ ...place, lossTimeoutMs: LEASE_MS }, PATIENCE_MS));
  }

  lose(rank: number, why: string): void {
    this.#say(() => this.#world.judge([rank], why));
  }

  leave(rank: number): void {
    this.#say(() => this.#world.leave(rank));
  }

  /** The numbers of the newcomers that came as this group. */
  originsOf(group: string): number[] {
    return [...this.#groups].flatMap(([origin, name]) => (name === group ? [origin] : []));
  }

  async close(): Promise<void> {
    this.#world.keepAlive(true);
    const timer = setTimeout(() => this.#world.close(), PATIENCE_MS);
    this.#say(() => this.#world.endIfEmpty());
    await this.#said;
    clearTimeout(timer);
    this.#world.close();
  }

  #say(what: () => Promise<void>): void {
    this.#said = this.#said.then(what).catch(() => {}); // leases tell it otherwise
  }
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
