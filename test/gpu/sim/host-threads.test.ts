import { describe, expect, it } from 'vitest';
import type { HostView } from '../../../src/gpu/index.js';
import { type Finding, type MachineOptions, SimMachine } from '../../../src/gpu/sim/index.js';
import { kernel, pointer } from '../../../src/lang/index.js';
import { launch, machineOf, type Rank } from './harness.js';

const rounds = 4;
/** The rounds of what the kernel sends and of what has come for it; then places for either, which rounds take in turns. */
const [sent, came, rows, others] = [0, 4, 8, 16];

/** Every round sends a number to the other rank and awaits the one that comes. */
const swap = (places: number) =>
  kernel(
    {
      name: 'swap',
      params: { words: pointer('u32'), sum: pointer('u32'), limit: 'u32' },
      using: { rounds, places },
    },
    (g, { words, sum, limit }, { rounds, places }) => {
      for (let round = 1; round <= rounds; round++) {
        g.store(words.at(2 + (round % places)), round * (10 + g.rank));
        g.store(words, round, { order: 'release', scope: 'sys' });
        g.awaitEpoch(words.at(1), round, { order: 'acquire', scope: 'sys', limit });
        g.store(sum, g.load(sum) + g.load(words.at(4 + (round % places))));
      }
    },
  );

type Relay = (from: HostView, to: HostView, round: number, place: number, bytes: Uint8Array) => void;

const relay: Relay = (from, to, round, place, bytes) => {
  from.read(rows + place, bytes);
  to.write(others + place, bytes);
  to.store(came, round);
};

/** Two ranks whose hosts each carry what the other's kernel sends; the sums that the kernels end with. */
async function run(
  options: Omit<MachineOptions, 'ranks'>,
  carry: Relay = relay,
  places = 2,
): Promise<{ machine: SimMachine; sums: number[]; errors: unknown[] }> {
  const { machine, ranks } = machineOf({ ranks: 2, ...options });
  const words = ranks.map(({ device }) => device.allocateMapped(24, 'words'));
  const errors: unknown[] = [];
  const ends = ranks.map(({ rank }) => {
    const [from, to] = [words[1 - rank]!.host, words[rank]!.host];
    const bytes = new Uint8Array(4);
    let round = 0;
    return machine.startHost(rank, {
      name: 'relay',
      hearsOutside: false,
      step() {
        if (from.load(sent) === round) return false;
        round++;
        carry(from, to, round, 4 * (round % places), bytes);
        return true;
      },
      onError: (error) => errors.push(error),
    });
  });
  const sums = ranks.map(({ device, stream }) => {
    const sum = device.allocate(4, 'sum');
    stream.fill(sum.address, 4, 0);
    return sum;
  });
  const results = await Promise.all(
    ranks.map(async (rank, i) => {
      await launch(
        rank,
        swap(places).ir(),
        { block: 1 },
        { words: words[i]!, sum: sums[i]!, limit: 10_000_000 },
      );
      return (await rank.stream.copyOut(sums[i]!.address, 4))[0]!;
    }),
  );
  for (const end of ends) end();
  return { machine, sums: results, errors };
}

const races = (findings: readonly Finding[]) => findings.filter(({ kind }) => kind === 'race');

describe('threads of hosts in a machine', () => {
  it('take turns with kernels until all is done', async () => {
    const { sums, errors } = await run({});
    expect(sums).toEqual([110, 100]);
    expect(errors).toEqual([]);
  });

  it('are free of races in every schedule where each side publishes what it wrote', async () => {
    for (let seed = 0; seed < 20; seed++) {
      const schedule = seed % 2 === 0 ? 'random' : 'priority';
      const { machine, sums } = await run({ mode: 'checked', seed: `${seed}`, schedule });
      expect(machine.findings).toEqual([]);
      expect(sums).toEqual([110, 100]);
    }
  });

  it('race where one announces before it has written', async () => {
    const hasty: Relay = (from, to, round, place, bytes) => {
      to.store(came, round);
      from.read(rows + place, bytes);
      to.write(others + place, bytes);
    };
    const { machine } = await run({ mode: 'checked' }, hasty);
    const where = expect.stringMatching(/^test\/gpu\/sim\/host-threads\.test\.ts:/);
    expect(races(machine.findings)).toContainEqual(
      expect.objectContaining({
        buffer: 'words',
        first: expect.objectContaining({ kernel: 'relay', where }),
      }),
    );
  });

  it('race with the next round where rounds have one place', async () => {
    const { machine } = await run({ mode: 'checked' }, relay, 1);
    expect(races(machine.findings).length).toBeGreaterThan(0);
  });

  it('that never announce leave waits that nobody ends, and the checker says so', async () => {
    const { machine } = await run({ mode: 'checked' }, () => {});
    expect(machine.findings.map(({ kind }) => kind)).toContain('stuck-wait');
  });

  it('tell what they threw, and end', async () => {
    const { errors } = await run({}, () => {
      throw new Error('torn');
    });
    expect(errors.map(String)).toEqual(['Error: torn', 'Error: torn']);
  });

  it('may read what is no longer there, as kernels may: each side stores, then looks for the other', async () => {
    const storeThenLook = kernel(
      { name: 'storeThenLook', params: { words: pointer('u32') } },
      (g, { words }) => {
        g.store(words, 1, { order: 'release', scope: 'sys' });
        g.store(words.at(2), g.load(words.at(1), { order: 'acquire', scope: 'sys' }));
      },
    );
    const seen = new Set<string>();
    for (let seed = 0; seed < 200; seed++) {
      const { machine, rank } = machineOf({ ranks: 1, mode: 'checked', seed: `${seed}` });
      const memory = rank.device.allocateMapped(12, 'words');
      let looked = -1;
      const end = machine.startHost(0, {
        name: 'looker',
        hearsOutside: false,
        step() {
          if (looked >= 0) return false;
          memory.host.store(4, 1);
          looked = memory.host.load(0);
          return true;
        },
        onError: () => {},
      });
      await launch(rank, storeThenLook.ir(), { block: 1 }, { words: memory });
      const kernelLooked = (await rank.stream.copyOut(memory.address + 8, 4))[0]!;
      end();
      // A machine that has nothing left to run for need not have given it a turn.
      if (looked >= 0) seen.add(`${looked} ${kernelLooked}`);
    }
    expect([...seen].sort()).toEqual(['0 0', '0 1', '1 0', '1 1']);
  });

  it('see what a host program stores', async () => {
    const machine = SimMachine.create({ ranks: 1 });
    const { host } = machine.device(0).allocateMapped(8, 'words');
    const seen = new Promise<number>((resolve) => {
      const end = machine.startHost(0, {
        name: 'listener',
        hearsOutside: false,
        step() {
          const value = host.load(0);
          if (value === 0) return false;
          end();
          resolve(value);
          return true;
        },
        onError: () => {},
      });
    });
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    host.store(0, 7);
    expect(await seen).toBe(7);
  });

  it.each([
    ['work again and again', false],
    ['a loop that polls', true],
  ])('let a wait for what is outside end, though another rank has %s', async (_, polls) => {
    const wait = kernel({ name: 'wait', params: { words: pointer('u32') } }, (g, { words }) => {
      g.awaitEpoch(words, 1, { order: 'acquire', scope: 'sys', limit: 100_000 });
    });
    const work = kernel({ name: 'work', params: { words: pointer('u32') } }, (g, { words }) => {
      g.store(words.at(1), 1);
    });
    const poll = kernel({ name: 'poll', params: { words: pointer('u32') } }, (g, { words }) => {
      const end = g.clock() + g.u64(300_000_000);
      while (g.load(words, { order: 'relaxed', scope: 'sys' }) === 0) if (g.clock() > end) break;
    });
    const { machine, ranks } = machineOf({ ranks: 2 });
    const [first, second] = ranks as [Rank, Rank];
    for (const rank of [0, 1]) machine.hostEntered(rank);
    const listens = { name: 'listens', hearsOutside: true, step: () => false, onError: () => {} };
    const end = machine.startHost(0, listens);
    const words = [first, second].map(({ device }) => device.allocateMapped(8, 'words'));
    let ended = false;
    await launch(first, wait.ir(), { block: 1 }, { words: words[0]! });
    const waiting = first.stream.synchronize().then(() => {
      ended = true;
    });
    if (polls) await launch(second, poll.ir(), { block: 1 }, { words: words[1]! });
    // Each pause is far shorter than the limit, and all of them together are far longer.
    for (let n = 0; n < 2000 && !ended; n++) {
      if (!polls) await launch(second, work.ir(), { block: 1 }, { words: words[1]! });
      if (!polls) await second.stream.synchronize();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(ended).toBe(true);
    await waiting;
    // The loop looks at the clock, and time passes for it, too.
    await second.stream.synchronize();
    end();
  });
});
