import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it, test } from 'vitest';
import { RankLostError } from '../../../src/base/errors.js';
import { allocate } from '../../../src/base/native/index.js';
import { type MappedMemory, NativeView } from '../../../src/gpu/index.js';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import type { ProviderName } from '../../../src/net/fabric/index.js';
import { type Circle, type FabricOptions, type RunningProxy, World } from '../../../src/net/world/index.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { inThread, LastingProxy } from '../../../src/net/world/proxy/start.js';
import { needing } from '../../needs.js';
import { transpiledUrl } from '../../tree.js';
import { joining } from './joining.js';
import { exchange } from './programs/exchange.js';
import { type RelayData, words } from './programs/relay.js';

const module = transpiledUrl('test/net/world/programs/relay.ts');
const fabric: FabricOptions = { provider: 'tcp;ofi_rxm', devices: ['lo'], timeoutMs: 20_000 };

/** Memory as a GPU's kernels and its host would share it. */
function mapped(): MappedMemory {
  const memory = allocate(words.bytes);
  const raw = new Uint8Array(memory.buffer);
  const { address, bytes } = memory;
  return { address, bytes, host: new NativeView(raw), raw, free: () => memory.free() };
}

/** What came last. */
function incoming({ host }: MappedMemory): Set<number> {
  const bytes = new Uint8Array(16);
  host.read(words.incoming, bytes);
  return new Set(bytes);
}

/** Looks every millisecond: proxies need the cores. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** Runs ranks with a proxy in a thread each. */
function run<T>(
  data: (rank: number) => RelayData,
  program: (rank: {
    circle: Circle;
    memory: MappedMemory;
    proxy: RunningProxy;
    /** Sends 16 bytes of a value, as a kernel would, and awaits those that come. */
    swap(epoch: number): Promise<Set<number>>;
  }) => Promise<T>,
  options = fabric,
): Promise<T[]> {
  return LocalCircle.run(2, async (circle) => {
    const memory = mapped();
    const { host } = memory;
    const proxy = await inThread(options)(
      { module, name: 'relay', data: data(circle.rank), memory },
      null,
    ).begin(circle);
    const swap = async (epoch: number) => {
      host.write(words.outgoing, new Uint8Array(16).fill(10 * epoch + circle.rank));
      host.store(words.sent, epoch);
      // A peer may be ahead by one.
      await until(() => host.load(words.came) >= epoch || circle.signal.aborted);
      return incoming(memory);
    };
    try {
      return await program({ circle, memory, proxy, swap });
    } finally {
      await proxy.stop();
      memory.free();
    }
  });
}

const healthy = () => ({});

/** '0-3,8' as the numbers that it stands for. */
const availableHere = (list: string): number[] =>
  list.split(',').flatMap((range) => {
    const [first, last = first] = range.split('-').map(Number) as [number, number?];
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  });

describe('a proxy in a thread', () => {
  for (const provider of ['shm', 'tcp;ofi_rxm', 'udp;ofi_rxd'] as const)
    it(`carries what kernels send, over ${provider}`, needing(provider), async () => {
      const devices = provider === 'shm' ? [] : ['lo'];
      const rounds = 20;
      const results = await run(
        healthy,
        async ({ circle, proxy, swap }) => {
          const seen: number[][] = [];
          for (let epoch = 1; epoch <= rounds; epoch++) {
            seen.push([...(await swap(epoch))]);
            await circle.barrier();
          }
          expect(proxy.error).toBeNull();
          return seen;
        },
        { ...fabric, provider, devices },
      );
      for (const [rank, seen] of results.entries()) {
        expect(seen).toEqual(Array.from({ length: rounds }, (_, i) => [(10 * (i + 1) + 1 - rank) & 255]));
      }
    });

  for (const provider of ['shm', 'tcp;ofi_rxm'] as const)
    it(
      `that is stopped brings what its kernels sent before, over ${provider}`,
      needing(provider),
      async () => {
        const devices = provider === 'shm' ? [] : ['lo'];
        const seen = await run(
          healthy,
          async ({ circle, memory, proxy }) => {
            const { host } = memory;
            await circle.barrier();
            if (circle.rank === 0) {
              host.write(words.outgoing, new Uint8Array(16).fill(7));
              host.store(words.sent, 1);
              await proxy.stop();
              return [];
            }
            await until(() => host.load(words.came) >= 1 || circle.signal.aborted);
            return [...incoming(memory)];
          },
          { ...fabric, provider, devices },
        );
        expect(seen).toEqual([[], [7]]);
      },
    );

  it('stays on the processor of its rank, where some are given', needing('tcp;ofi_rxm'), async () => {
    const listOf = (task: string): string =>
      /Cpus_allowed_list:\s*(.*)/.exec(readFileSync(`/proc/self/task/${task}/status`, 'utf8'))![1]!;
    const mine = availableHere(listOf(String(process.pid)));
    const seen = await run(
      healthy,
      async ({ swap }) => {
        await swap(1);
        return readdirSync('/proc/self/task').map(listOf);
      },
      { ...fabric, processors: [mine.at(0)!, mine.at(-1)!] },
    );
    for (const processor of [mine.at(0), mine.at(-1)]) expect(seen[0]).toContain(String(processor));
    await expect(run(healthy, async () => {}, { ...fabric, processors: [65_000] })).rejects.toThrow(
      /processor is 65000; it must be one that this process may run on/,
    );
  });

  it.each<[string, RelayData, string]>([
    ['that throws', { throwsAt: 2 }, 'torn'],
    ['whose thread dies', { endsAt: 2 }, "the thread of rank 1's proxy ended with 3"],
  ])(
    '%s makes its rank lost to the others, with the reason',
    needing('tcp;ofi_rxm'),
    async (_, fault, why) => {
      const [survivor, fallen] = await run(
        (rank) => (rank === 1 ? fault : {}),
        async ({ circle, proxy, swap }) => {
          await swap(1);
          await swap(2);
          const loss: unknown = await circle.barrier('next').catch((error: unknown) => error);
          return { loss, own: proxy.error?.message };
        },
      );
      expect(survivor!.loss).toBeInstanceOf(RankLostError);
      expect(survivor!.loss).toMatchObject({ ranks: [1], cause: { message: `its proxy failed: ${why}` } });
      expect(fallen!.own).toBe(why);
    },
  );

  it(
    'that sends to a rank that the circle has lost ends with that loss, and its own rank is not lost',
    needing('tcp;ofi_rxm'),
    async () => {
      const [survivor] = await run(healthy, async ({ circle, memory, proxy, swap }) => {
        await swap(1);
        await circle.barrier();
        if (circle.rank === 1) circle.abandon('it has had enough');
        const loss: unknown = await circle.barrier('next').catch((error: unknown) => error);
        expect(loss).toMatchObject({ ranks: [1] });
        if (circle.rank === 1) return null;
        for (let epoch = 2; proxy.error === null; epoch++) {
          memory.host.store(words.sent, epoch);
          await new Promise(setImmediate);
        }
        return proxy.error;
      });
      expect(survivor).toBeInstanceOf(RankLostError);
      expect(survivor).toMatchObject({ ranks: [1] });
    },
  );

  it('that does not exist is refused on every rank, by name', async () => {
    const errors = await LocalCircle.run(2, async (circle) => {
      const name = circle.rank === 1 ? 'relais' : 'relay';
      return inThread(fabric)({ module, name, memory: mapped() }, null)
        .begin(circle)
        .catch((error: Error) => error);
    });
    expect((errors[1] as Error).message).toMatch(/relay\.js exports no relais/);
    expect(errors[0]).toBeInstanceOf(RankLostError);
    expect(errors[0]).toMatchObject({ ranks: [1] });
  });
});

describe('a proxy that is made ready ahead', () => {
  const ready = (provider: ProviderName) => {
    const memory = mapped();
    return { memory, ...inThread(fabric)({ module, name: 'relay', data: {}, memory }, provider) };
  };

  it.each(['tcp;ofi_rxm', 'shm'] as const)(
    'over %s begins over the network on which the ranks agree',
    needing('tcp;ofi_rxm'),
    async (provider) => {
      const came = await LocalCircle.run(2, async (circle) => {
        const { memory, opened, begin } = ready(provider);
        await opened;
        const proxy = await begin(circle);
        expect(proxy.provider).toBe('tcp;ofi_rxm');
        memory.host.store(words.sent, 1);
        await until(() => memory.host.load(words.came) >= 1);
        await proxy.stop();
        return proxy.error;
      });
      expect(came).toEqual([null, null]);
    },
  );

  it('and never begins, ends when it is told to', needing('tcp;ofi_rxm'), async () => {
    const { opened, discard } = ready('tcp;ofi_rxm');
    await opened;
    await discard();
  });
});

describe('the same program beside simulated GPUs', () => {
  it('is given turns by the machine, over its own network', async () => {
    const sums = await World.local({ ranks: 2, nodes: 2, device: 'sim' }, (world) =>
      exchange(world, module, 3),
    );
    expect(sums).toEqual([63, 60]);
  });

  it('takes the same steps however long its module takes to come', async () => {
    // The first rank's comes last. Only the first run waits for them.
    const slow = [20, 5, 12].map((ms) => {
      const late = `await new Promise((come) => setTimeout(come, ${ms})); export { relay } from '${module.href}';`;
      return new URL(`data:text/javascript,${encodeURIComponent(late)}`);
    });
    const steps: number[] = [];
    for (let i = 0; i < 3; i++) {
      const sim = SimMachine.create({ ranks: 3, mode: 'checked', seed: 'random-0', schedule: 'random' });
      await World.local({ ranks: 3, nodes: 3, device: 'sim', sim }, async (world) => {
        const { address, bytes } = world.device.allocate(64, 'other work');
        const stream = world.device.createStream();
        for (let n = 0; n < 8; n++) stream.fill(address, bytes, n);
        await exchange(world, slow[world.rank]!, 3);
      });
      steps.push(sim.statistics.steps);
    }
    expect(steps).toEqual([steps[0], steps[0], steps[0]]);
  });

  it(
    'reaches GPUs that other processes simulate over libfabric, for which the machine waits',
    needing('tcp;ofi_rxm'),
    async () => {
      const join = await joining({ ranks: 2, fabric });
      const sums = [0, 1].map((rank) => join(rank, (world) => exchange(world, module, 3)));
      expect(await Promise.all(sums)).toEqual([[63], [60]]);
    },
  );
});

test('a proxy that is stopped while it begins does not run on', async () => {
  const [circle] = LocalCircle.create(1);
  const done: string[] = [];
  let connected = () => {};
  const connecting = new Promise<void>((resolve) => {
    connected = resolve;
  });
  const running = {
    ...{ error: null, provider: null, failed: (error: Error) => error },
    stop: async () => void done.push('stopped'),
  };
  const starter = () => ({
    opened: Promise.resolve(),
    begin: () => connecting.then(() => running),
    discard: async () => {},
  });
  const proxy = new LastingProxy(starter as never, {} as never, () => void done.push('forgotten'));
  const begun = proxy.begin(circle!);
  await proxy.stop();
  connected();
  await begun;
  expect(done).toEqual(['forgotten', 'stopped']);
});
