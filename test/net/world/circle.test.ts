import { describe, expect, it } from 'vitest';
import { ArgumentError, DisposedError, RankLostError } from '../../../src/base/errors.js';
import type { Circle, CircleLoss } from '../../../src/net/world/circle.js';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { describeCircles } from './circles.js';

const bytes = (...values: number[]) => Uint8Array.from(values);

/** The error with which a promise rejects. */
const errorOf = async (promise: Promise<unknown>): Promise<Error> => {
  try {
    await promise;
  } catch (error) {
    return error as Error;
  }
  throw new Error('it resolved');
};

/** The loss that a rank hears of. */
const lossAt = (circle: Circle) =>
  new Promise<CircleLoss>((resolve) => {
    circle.onRankLost(resolve);
  });

// One suite, every kind of circle: what holds for ranks in one process holds for ranks in many.
describeCircles(
  (name) => name,
  ({ create }) => {
    describe('calls', () => {
      it('opens a barrier only when the last rank has come', async () => {
        const [a, b, c] = await create(3);
        const order: string[] = [];
        const first = [a!, b!].map((circle) => circle.barrier().then(() => order.push('through')));
        // A full round trip of other calls: had the barrier opened early, it would show by now.
        await Promise.all([a!, b!, c!].map((circle) => circle.allGather(bytes(1), 'probe')));
        order.push('last comes');
        await Promise.all([...first, c!.barrier()]);
        expect(order).toEqual(['last comes', 'through', 'through']);
      });

      it('gathers bytes of different lengths, none included, by rank', async () => {
        const circles = await create(3);
        const brought = [bytes(), bytes(1, 2, 3), bytes(255)];
        const gathered = await Promise.all(circles.map((circle, rank) => circle.allGather(brought[rank]!)));
        for (const parts of gathered) expect(parts.map((part) => [...part])).toEqual([[], [1, 2, 3], [255]]);
      });

      it('asks the others, and has an answer when all but one have spoken', async () => {
        const [a, b, c] = await create(3);
        const said = (parts: Uint8Array[]) => parts.map((part) => [...part]);
        const first = a!.survey(bytes(1), 60_000);
        expect(said(await c!.survey(bytes(3, 3), 60_000))).toEqual([[1], [], [3, 3]]);
        expect(said(await first)).toEqual([[1], [], [3, 3]]);
        expect(said(await b!.survey(bytes(2), 60_000))).toEqual([[1], [2], [3, 3]]);
      });

      it('has an answer after its time where more are silent, and loses nobody', async () => {
        const circles = await create(3);
        expect(await circles[1]!.survey(bytes(2), 1)).toEqual([bytes(), bytes(2), bytes()]);
        await Promise.all(circles.map((circle) => circle.barrier()));
        // What was said before all met counts no more.
        expect(await circles[0]!.survey(bytes(1), 1)).toEqual([bytes(1), bytes(), bytes()]);
        expect(circles.map(({ signal }) => signal.aborted)).toEqual([false, false, false]);
      });

      it('ends a question that waits when a rank is lost', async () => {
        const [a, b] = await create(4);
        const asked = a!.survey(bytes(1), 60_000);
        b!.abandon('it falls');
        expect(await errorOf(asked)).toBeInstanceOf(RankLostError);
      });

      it('gives each rank bytes of its own', async () => {
        const [a, b] = await create(2);
        const [partsA, partsB] = await Promise.all([a!.allGather(bytes(7)), b!.allGather(bytes(9))]);
        partsA[1]![0] = 0;
        expect(partsB[1]![0]).toBe(9);
      });

      it('takes the bytes at the moment of the call', async () => {
        const [a, b] = await create(2);
        // More than a connection takes at once, so that some would be read later.
        const mine = Array.from({ length: 8 }, () => new Uint8Array(1 << 20).fill(7));
        const calls = mine.map((each) => a!.allGather(each));
        for (const each of mine) each.fill(8);
        const gathered = await Promise.all(mine.map(() => b!.allGather(bytes(9))));
        await Promise.all(calls);
        for (const [fromA] of gathered) expect(fromA!.every((byte) => byte === 7)).toBe(true);
      });

      it('carries 1 MiB from every rank, and refuses more', async () => {
        const circles = await create(4);
        const gathered = await Promise.all(
          circles.map(({ rank }, at) => circles[at]!.allGather(new Uint8Array(1 << 20).fill(rank + 1))),
        );
        for (const parts of gathered) {
          expect(parts.map((part) => [part.length, part[0], part.at(-1)])).toEqual(
            [1, 2, 3, 4].map((value) => [1 << 20, value, value]),
          );
        }
        await expect(circles[0]!.allGather(new Uint8Array((1 << 20) + 1))).rejects.toThrow(ArgumentError);
      });

      it('matches calls of the same name in order, many at once', async () => {
        const circles = await create(2);
        const rounds = Array.from({ length: 50 }, (_, round) => round);
        const seen = await Promise.all(
          circles.map(({ rank }, at) =>
            Promise.all(rounds.map((round) => circles[at]!.allGather(bytes(rank, round)))),
          ),
        );
        for (const parts of seen) {
          expect(parts.map((pair) => pair.map((part) => [...part]))).toEqual(
            rounds.map((round) => [
              [0, round],
              [1, round],
            ]),
          );
        }
      });

      it('matches calls of different names in any order, and keeps kinds apart', async () => {
        const [a, b] = await create(2);
        const results = await Promise.all([
          a!.allGather(bytes(1), 'x'),
          a!.barrier('x'),
          a!.allGather(bytes(2), 'y'),
          b!.allGather(bytes(4), 'y'),
          b!.barrier('x'),
          b!.allGather(bytes(3), 'x'),
        ]);
        expect(results[0]!.map((part) => part[0])).toEqual([1, 3]);
        expect(results[2]!.map((part) => part[0])).toEqual([2, 4]);
      });

      it('works alone', async () => {
        const [alone] = await create(1);
        await alone!.barrier();
        expect(await alone!.allGather(bytes(5))).toEqual([bytes(5)]);
      });

      it.each([
        ['', 'operation'],
        ['x'.repeat(201), 'operation'],
      ])('refuses the name %j', async (name, argument) => {
        const [alone] = await create(1);
        await expect(alone!.barrier(name)).rejects.toMatchObject({ argument });
      });
    });

    describe('loss', () => {
      it('rejects pending and later calls of every survivor, naming rank, operation and how it showed', async () => {
        const [a, b, c] = await create(3);
        const pending = [errorOf(a!.barrier('dispatch')), errorOf(b!.allGather(bytes(1), 'windows'))];
        b!.onRankLost(() => {});
        c!.abandon('its GPU fell off the bus');
        const [atA, atB] = (await Promise.all(pending)) as RankLostError[];
        expect(atA).toBeInstanceOf(RankLostError);
        expect(atA).toMatchObject({ ranks: [2], operation: 'dispatch', code: 'HEDDLE_RANK_LOST' });
        expect(atB).toMatchObject({ ranks: [2], operation: 'windows' });
        expect(atA!.cause).toMatchObject({ message: 'its GPU fell off the bus' });
        expect(atA!.message).toBe(
          "rank 2 did not answer during dispatch; layers with onLoss: 'mask' go on without it; without masks start the world anew",
        );
        expect(await errorOf(a!.barrier('combine'))).toMatchObject({ ranks: [2], operation: 'combine' });
      });

      it('tells everybody of the rank that one of them accuses, and believes who speaks first', async () => {
        const circles = await create(3);
        const losses = circles.map(lossAt);
        circles[0]!.accuse([2], 'it takes no writes');
        for (const loss of await Promise.all(losses)) {
          expect(loss).toMatchObject({ ranks: [2], cause: { message: 'rank 0 says: it takes no writes' } });
        }
        circles[2]!.accuse([0], 'no, that one');
        expect(await errorOf(circles[1]!.barrier())).toMatchObject({
          ranks: expect.arrayContaining([2]),
          cause: { message: 'rank 0 says: it takes no writes' },
        });
        expect(() => circles[1]!.accuse([3], 'who?')).toThrow(ArgumentError);
      });

      it('raises an event and aborts the signal at every rank, also where nothing is pending', async () => {
        const circles = await create(3);
        const losses = circles.map(lossAt);
        circles[1]!.abandon('out of memory');
        for (const [rank, loss] of losses.entries()) {
          expect(await loss).toMatchObject({ ranks: [1] });
          expect(circles[rank]!.signal.reason).toBe(await loss);
        }
      });

      it('tells of a loss before the listener came, and not after it went', async () => {
        const [a, b] = await create(2);
        const removed: CircleLoss[] = [];
        a!.onRankLost((loss) => removed.push(loss))();
        b!.abandon('gone');
        await lossAt(a!);
        expect(await lossAt(a!)).toMatchObject({ ranks: [1] });
        expect(removed).toEqual([]);
      });

      it('names all ranks that are lost by then', async () => {
        const [a, b, c] = await create(3);
        b!.abandon('first');
        await lossAt(c!);
        c!.abandon('second');
        await new Promise<void>((resolve) => {
          a!.onRankLost((loss) => loss instanceof RankLostError && loss.ranks[0] === 2 && resolve());
        });
        expect(await errorOf(a!.barrier())).toMatchObject({ ranks: [1, 2] });
      });

      it('gives up ranks that do not come in time', async () => {
        const circles = await create(4, { timeoutMs: 500 });
        const [atA, atB] = await Promise.all(
          [0, 2].map((rank) => errorOf(circles[rank]!.barrier('dispatch'))),
        );
        for (const error of [atA, atB]) {
          expect(error).toMatchObject({ ranks: [1, 3], operation: 'dispatch' });
          expect((error!.cause as Error).message).toBe('the others waited 500 ms');
        }
        expect(await lossAt(circles[3]!)).toMatchObject({ ranks: [1, 3] });
      });

      it('hears what came while its host stood still, before it gives anybody up', async () => {
        const timeoutMs = 500;
        const [a, b] = await create(2, { timeoutMs });
        const first = a!.barrier('work');
        await Promise.all([a!.barrier('both are here'), b!.barrier('both are here')]);
        const second = b!.barrier('work');
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1.2 * timeoutMs);
        await Promise.all([first, second]);
      });

      it('blames the silent rank, not those that wait in another call', async () => {
        const circles = await create(3, { timeoutMs: 500 });
        const [atA, atC] = await Promise.all([
          errorOf(circles[0]!.barrier('dispatch')),
          errorOf(circles[2]!.barrier('other')),
        ]);
        expect(atA).toMatchObject({ ranks: [1], operation: 'dispatch' });
        expect(atC).toMatchObject({ ranks: [1], operation: 'other' });
      });

      it('tells ranks in different calls apart, and blames the fewer', async () => {
        const circles = await create(3, { timeoutMs: 500 });
        const odd = errorOf(circles[2]!.allGather(bytes(), 'shapes'));
        const [atA] = await Promise.all([0, 1].map((rank) => errorOf(circles[rank]!.barrier('dispatch'))));
        expect(atA).toMatchObject({ ranks: [2], operation: 'dispatch' });
        const { message } = atA!.cause as Error;
        expect(message).toContain('; in allGather shapes: rank 2');
        expect(message).toMatch(/; in barrier dispatch: rank (0, 1|1, 0)/);
        expect(await odd).toMatchObject({ ranks: [2], operation: 'shapes' });
      });
    });

    describe('a clean leave', () => {
      it('lets a call complete that the leaver had already made', async () => {
        const [a, b] = await create(2);
        const leaving = b!.allGather(bytes(2)).catch((error: Error) => error);
        await Promise.resolve();
        await b!.dispose();
        expect(await leaving).toBeInstanceOf(DisposedError);
        expect(await a!.allGather(bytes(1))).toEqual([bytes(1), bytes(2)]);
      });

      it('alarms nobody, but fails the calls that need the rank', async () => {
        const [a, b, c] = await create(3);
        const losses: CircleLoss[] = [];
        a!.onRankLost((loss) => losses.push(loss));
        const pending = errorOf(a!.barrier('dispatch'));
        await b!.dispose();
        expect(await pending).toMatchObject({ ranks: [1], operation: 'dispatch' });
        const later = (await errorOf(c!.barrier('combine'))) as RankLostError;
        expect(later).toMatchObject({ ranks: [1], operation: 'combine' });
        expect(later.cause).toMatchObject({ message: 'it left the world' });
        expect(losses).toEqual([]);
        expect(a!.signal.aborted).toBe(false);
      });

      it('of rank 0, which may host the others, is no different', async () => {
        const [a, b] = await create(2);
        const pending = errorOf(b!.barrier('dispatch'));
        await a!.dispose();
        expect(await pending).toMatchObject({ ranks: [0], operation: 'dispatch' });
        expect(await errorOf(b!.barrier('combine'))).toMatchObject({ ranks: [0], operation: 'combine' });
        expect(b!.signal.aborted).toBe(false);
      });

      it('rejects the leaver’s own calls with DisposedError, then and later, and may be repeated', async () => {
        const [a] = await create(2);
        const pending = errorOf(a!.barrier());
        await Promise.all([a!.dispose(), a!.dispose()]);
        expect(await pending).toBeInstanceOf(DisposedError);
        expect(await errorOf(a!.barrier())).toBeInstanceOf(DisposedError);
        expect(() => a!.abandon('too late')).toThrow(DisposedError);
      });
    });
  },
);

describe('LocalCircle.run', () => {
  it('tells a call that its program did not await what to do', async () => {
    let unawaited: Promise<Error> | undefined;
    await LocalCircle.run(1, async (circle) => {
      unawaited = errorOf(new Promise(setImmediate).then(() => circle.barrier()));
    });
    expect((await unawaited)?.message).toBe(
      "rank 0's circle was disposed; await every call before the program of its world returns, or make a new world",
    );
  });

  it('loses a rank whose program throws, and rejects with what it threw', async () => {
    const survivors: Error[] = [];
    const run = LocalCircle.run(3, async (circle) => {
      if (circle.rank === 1) throw new TypeError('x is not a function');
      survivors.push(await errorOf(circle.barrier('dispatch')));
    });
    await expect(run).rejects.toThrow(new TypeError('x is not a function'));
    expect(survivors).toHaveLength(2);
    for (const error of survivors) {
      expect(error).toMatchObject({ ranks: [1], operation: 'dispatch' });
      expect(error.cause).toMatchObject({ message: 'x is not a function' });
    }
  });

  it('rejects with what a program threw that had left before', async () => {
    const run = LocalCircle.run(2, async (circle) => {
      await circle.dispose();
      if (circle.rank === 1) throw new TypeError('after all');
    });
    await expect(run).rejects.toThrow(new TypeError('after all'));
  });

  it('lets a rank whose program returns leave in good order', async () => {
    const aborted = await LocalCircle.run(2, async (circle) => {
      if (circle.rank === 0) return false;
      expect(await errorOf(circle.barrier())).toMatchObject({ ranks: [0] });
      return circle.signal.aborted;
    });
    expect(aborted).toEqual([false, false]);
  });

  it.each([0, -1, 1.5, 1025])('refuses %s ranks', async (ranks) => {
    await expect(LocalCircle.run(ranks, async () => {})).rejects.toMatchObject({ argument: 'ranks' });
  });
});
