import { describe, expect, it } from 'vitest';
import { SimMachine } from '../../../src/gpu/sim/index.js';
import { kernel, pointer } from '../../../src/lang/index.js';
import { launch, machineOf, type Rank } from './harness.js';

describe('threads of hosts in a machine', () => {
  it('tell what they threw, and end', async () => {
    const { machine } = machineOf({ ranks: 1 });
    const thrown = new Promise((onError) => {
      const step = () => {
        throw new Error('torn');
      };
      machine.startHost(0, { name: 'torn', hearsOutside: false, step, onError });
    });
    expect(String(await thrown)).toBe('Error: torn');
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
