/** Newcomers, which wait until the ranks of a world that runs take them in. Of processes that are started anew: `restarted`. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { RankLostError, RendezvousError } from '../../../src/base/errors.js';
import type { Circle, CircleOptions } from '../../../src/net/world/circle.js';
import type { JoinOptions } from '../../../src/net/world/environment.js';
import { ProcessCircle } from '../../../src/net/world/process-circle.js';
import { describeJoinable } from './circles.js';

const renewed = (circles: readonly (Circle | undefined)[]) =>
  Promise.all(circles.map((circle) => circle!.renew()));
const placeOf = ({ rank, ranks, origins }: Circle) => ({ rank, ranks, origins });
const bringOrigin = (circle: Circle) => circle.allGather(Uint8Array.of(circle.origins[circle.rank]!));

describeJoinable(
  (name) => `newcomers to ${name}`,
  (make) => {
    const ends: (() => Promise<void>)[] = [];
    let at: JoinOptions = {};
    const create = async (ranks: number, options?: CircleOptions) => {
      const made = await make(ranks, options);
      ends.push(made.end);
      at = made.at!;
      return made.circles;
    };
    const keep = <T extends Circle>(circle: T): T => {
      ends.unshift(() => circle.latest.dispose());
      return circle;
    };
    const come = (options: JoinOptions = {}) =>
      ProcessCircle.join({ newcomer: 'spare', ...at, ...options }).then(keep);
    const heard = (circles: readonly (Circle | undefined)[], count: number) =>
      vi.waitFor(
        () => expect(circles.map((circle) => circle!.newcomers)).toEqual(circles.map(() => count)),
        5000,
      );
    beforeEach(() => {
      ends.length = 0;
    });
    afterEach(async () => {
      for (const end of ends) await end();
    });

    it('are heard of, and are ranks behind the others after the next renewal', async () => {
      const circles = await create(2);
      const coming = come();
      await heard(circles, 1);
      const next = await Promise.all([...circles.map((circle) => circle.renew().then(keep)), coming]);
      expect(next.map(placeOf)).toEqual([0, 1, 2].map((rank) => ({ rank, ranks: 3, origins: [0, 1, 2] })));
      for (const parts of await Promise.all(next.map(bringOrigin)))
        expect(parts.map(([origin]) => origin)).toEqual([0, 1, 2]);
      expect(next.map(({ newcomers }) => newcomers)).toEqual([0, 0, 0]);
    });

    it('take no number of a rank that fell, and may fall and come again themselves', async () => {
      const [a, b, c] = await create(3);
      b!.abandon('it falls');
      const first = come();
      await heard([a], 1);
      const [a1, c1, d1] = await Promise.all([a!.renew(), c!.renew(), first]);
      expect(placeOf(d1)).toEqual({ rank: 2, ranks: 3, origins: [0, 2, 3] });
      const second = come();
      await heard([a1, c1, d1], 1);
      d1.abandon('it falls as well');
      const next = await Promise.all([...(await renewed([a1, c1])).map(keep), second]);
      expect(next.map(placeOf)).toEqual([0, 1, 2].map((rank) => ({ rank, ranks: 3, origins: [0, 2, 4] })));
      await Promise.all(next.map(bringOrigin));
    });

    it('that come back are told that the others have renewed their world, before or behind it', async () => {
      const [a, b, c] = await create(3);
      c!.abandon('it falls');
      const back = () => ProcessCircle.join({ ...at, rank: 2, ranks: 3, rejoin: 'again' });
      const waiting = expect(back()).rejects.toThrow(/the others have renewed their world/);
      await vi.waitFor(() => expect([a!.rejoining, b!.rejoining]).toEqual([1, 1]), 5000);
      const coming = come();
      await heard([a, b], 1);
      const next = [...(await renewed([a, b])), await coming].map(keep);
      await waiting;
      await expect(back()).rejects.toThrow(/the others have renewed their world/);
      await Promise.all(next.map(bringOrigin));
      expect(next.map(({ rejoining }) => rejoining)).toEqual([0, 0, 0]);
    });

    it('of a group are taken in together, in their order', async () => {
      const circles = await create(1);
      const of = { newcomer: 'machine', ranks: 2 };
      const [second, alone] = [come({ ...of, rank: 1 }), come()];
      await heard(circles, 1);
      const [a, spare] = await Promise.all([circles[0]!.renew(), alone]);
      expect(placeOf(spare)).toEqual({ rank: 1, ranks: 2, origins: [0, expect.any(Number)] });
      const first = come({ ...of, rank: 0 });
      await heard([a, spare], 2);
      const next = await Promise.all([a.renew().then(keep), spare.renew(), first, second]);
      expect(next.map(({ rank }) => rank)).toEqual([0, 1, 2, 3]);
      await Promise.all(next.map(bringOrigin));
    });

    it('wait where the others go on alone', async () => {
      const circles = await create(2);
      const coming = come();
      await heard(circles, 1);
      const reduced = await Promise.all(circles.map((circle) => circle.renew(undefined, 'nobody')));
      expect(reduced.map(placeOf)).toMatchObject([{ ranks: 2 }, { ranks: 2 }]);
      await heard(reduced, 1);
      const next = await Promise.all([...reduced.map((circle) => circle.renew().then(keep)), coming]);
      expect(next.map(({ ranks }) => ranks)).toEqual([3, 3, 3]);
    });

    it('that go again, or fall as soon as they are taken in, are missed by nobody', async () => {
      const circles = await create(2);
      const coming = come();
      await heard(circles, 1);
      const [a, b, c] = await Promise.all([...circles.map((circle) => circle.renew()), coming]);
      const missed = [a!.barrier(), b!.barrier()].map((call) => expect(call).rejects.toThrow(RankLostError));
      c!.abandon('it falls');
      await Promise.all(missed);
      const next = (await renewed([a, b])).map(keep);
      expect(next.map(placeOf)).toMatchObject([{ origins: [0, 1] }, { origins: [0, 1] }]);
      await Promise.all(next.map((circle) => circle.barrier()));
    });

    it('are told when nobody is left who could take them in', async () => {
      const circles = await create(2);
      const coming = expect(come()).rejects.toThrow(RendezvousError);
      await heard(circles, 1);
      await Promise.all(circles.map((circle) => circle.dispose()));
      await coming;
    });
  },
);
