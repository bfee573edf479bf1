import { describe, expect, it } from 'vitest';
import { ArgumentError, HeddleError } from '../../../src/base/errors.js';
import { type LocalWorldOptions, World } from '../../../src/net/world/index.js';
import { ordinalFor, requireOwnGpus } from '../../../src/net/world/nodes.js';

const ranks = 3;

/** What each rank's call threw, by rank; null where it threw nothing. */
async function outcomes(call: (world: World) => Promise<unknown>): Promise<(Error | null)[]> {
  return World.local({ ranks, device: 'sim' }, (world) =>
    call(world).then(
      () => null,
      (error: Error) => error,
    ),
  );
}

describe('a window of all ranks', () => {
  it('shows every rank the memory of every other', async () => {
    await World.local({ ranks, device: 'sim' }, async (world) => {
      const { own, bases, close } = await world.createWindow(64, 'window');
      const stream = world.device.createStream();
      for (const base of bases) stream.fill(base + world.rank, 1, 10 + world.rank);
      await stream.synchronize();
      await world.barrier();
      expect([...(await stream.copyOut(own.address, 4))]).toEqual([10, 11, 12, 0]);
      await world.barrier();
      close();
      close();
    });
  });

  it('that one rank cannot make is refused by all, at once and with its reason, and the next one is well', async () => {
    const errors = await outcomes(async (world) => {
      const error = await world.createWindow(world.rank === 1 ? 0 : 64, 'window').catch((e) => e);
      (await world.createWindow(64, 'window')).close();
      throw error;
    });
    expect(errors[1]).toMatchObject({ code: 'HEDDLE_ARGUMENT' });
    for (const error of [errors[0], errors[2]]) {
      expect(error).toBeInstanceOf(HeddleError);
      expect(error).toMatchObject({
        code: 'HEDDLE_PEER_FAILED',
        message: `rank 1 failed at exchanging the windows: ${errors[1]!.message}`,
      });
    }
  });

  it('that one rank cannot map is refused by all, and what was mapped is let go', async () => {
    const freed: number[] = [];
    const errors = await outcomes((world) => {
      const { device } = world;
      const allocate = device.allocateWindow.bind(device);
      device.allocateWindow = (bytes, purpose, fills) => {
        const window = allocate(bytes, purpose, fills);
        const free = () => {
          freed.push(world.rank);
          window.free();
        };
        // Rank 2 hands out a handle that means nothing to anybody.
        return { ...window, free, handle: world.rank === 2 ? Uint8Array.of(1, 2, 3) : window.handle };
      };
      return world.createWindow(64, 'window');
    });
    expect(errors.every((error) => error instanceof HeddleError)).toBe(true);
    expect(errors[2]!.message).toMatch(/^rank 0 failed at mapping the windows: handle is/);
    expect(freed.sort()).toEqual([0, 1, 2]);
  });
});

describe('a simulated world', () => {
  it.each([
    ['nodess', 'options.nodess is 2; it must be left out: there are ranks,', 'did you mean nodes?'],
    ['elsewhere', 'options.elsewhere is 2; it must be left out: there are ranks,', 'timeoutMs'],
  ])('refuses the option %s, and guesses what was meant', async (name, complaint, end) => {
    const made = World.local({ ranks: 1, device: 'sim', [name]: 2 }, async () => {});
    await expect(made).rejects.toThrow(complaint);
    await expect(made).rejects.toThrow(end);
    await expect(World.join({ [name]: 2 })).rejects.toThrow(`options.${name} is 2`);
  });

  it.each([
    ['no schedule by that name', 'sometimes', 'schedule is "sometimes"'],
    ['a number', 5, 'schedule is 5'],
    ['an object', {}, 'schedule is Object'],
  ])('refuses %s where its caller can catch it', async (_, schedule, message) => {
    const sim = { schedule } as unknown as LocalWorldOptions['sim'] & object;
    const made = World.local({ ranks: 1, device: 'sim', sim }, (world) => world.barrier());
    await expect(made).rejects.toThrow(ArgumentError);
    await expect(made).rejects.toThrow(message);
  });
});

describe('the GPU of a rank that is a process', () => {
  it('is that of its place on the machine, or the only one that it was shown', () => {
    expect(ordinalFor(13, 5, 8)).toBe(5);
    expect(ordinalFor(5, undefined, 8)).toBe(5);
    expect(ordinalFor(5, 5, 1)).toBe(0);
    expect(() => ordinalFor(13, 5, 4)).toThrow(
      /Rank 13 needs GPU 5, but this process sees 4\. Start fewer ranks/,
    );
    expect(() => ordinalFor(0, 0, 0)).toThrow(/needs GPU 0, but this process sees 0/);
  });

  it('is no other rank’s', () => {
    expect(() => requireOwnGpus(['a', 'b', 'c'])).not.toThrow();
    expect(() => requireOwnGpus(['a', 'b', 'c', 'b'])).toThrow(
      /Ranks 1 and 3 would share a GPU \(b\)\. Start one rank a GPU/,
    );
  });
});

describe('a mask', () => {
  it('that is asked for while another is under way follows it', async () => {
    const masked = await World.local({ ranks: 4, device: 'sim' }, async (world) => {
      const masks = [world.mask([2]), world.mask([3])];
      const out = (await Promise.allSettled(masks)).map(({ status }) => status);
      if (world.rank > 1) expect(out).toEqual([world.rank === 2 ? 'rejected' : 'fulfilled', 'rejected']);
      else expect(out).toEqual(['fulfilled', 'fulfilled']);
      return world.out || world.masked;
    });
    expect(masked).toEqual([[2, 3], [2, 3], true, true]);
  });
});
