/** Outsiders, which wait until the ranks of a world that runs admit them. Processes that are started anew: `restarted`. */
import { expect, it, vi } from 'vitest';
import { DisposedError, RankLostError, RendezvousError } from '../../../src/base/errors.js';
import type { Circle } from '../../../src/net/world/circle.js';
import { OutsideCircle } from '../../../src/net/world/process-circle.js';
import { bringOrigin, describeJoinable, placeOf } from './circles.js';

const admit = (circle: Circle) => circle.regroup(undefined, true);

describeJoinable(
  (name) => `outsiders of ${name}`,
  ({ create, at, keep }) => {
    /** A process that takes a place; `in`: the circle that it is in once it is admitted. */
    const come = (rank = 1) => {
      const outsider = OutsideCircle.of({ ...at(), rank, ranks: 3, rejoin: 'spare' });
      return { outsider, in: outsider.rejoin().then(keep) };
    };
    const heard = (circles: readonly (Circle | undefined)[], count: number) =>
      vi.waitFor(
        () => expect(circles.map((circle) => circle!.outsiders)).toEqual(circles.map(() => count)),
        5000,
      );

    it('are heard of, and are ranks behind the others once they are admitted', async () => {
      const circles = await create(2);
      const coming = come().in;
      await heard(circles, 1);
      const next = await Promise.all([...circles.map((circle) => admit(circle).then(keep)), coming]);
      expect(next.map(placeOf)).toEqual([0, 1, 2].map((rank) => ({ rank, ranks: 3, origins: [0, 1, 2] })));
      for (const parts of await Promise.all(next.map(bringOrigin)))
        expect(parts.map(([origin]) => origin)).toEqual([0, 1, 2]);
      expect(next.map(({ outsiders }) => outsiders)).toEqual([0, 0, 0]);
    });

    it('are admitted by those that came back, once all others are outsiders themselves', async () => {
      const [a, b] = await create(2);
      b!.abandon('it falls');
      await vi.waitFor(() => expect(b!.out).toBe(true));
      const cameBack = b!.rejoin();
      await heard([a], 1);
      const [next, back] = await Promise.all([admit(a!), cameBack.then(keep)]);
      back.accuse([0], 'it does not answer');
      await vi.waitFor(() => expect(next.out).toBe(true));
      const coming = next.rejoin().then(keep);
      await back.regroup().then((alone) => heard([alone], 1));
      const both = await Promise.all([admit(back.latest), coming]);
      expect(both.map(({ origins }) => origins)).toEqual([2, 3].map(() => [2, 3]));
    });

    it('take no origin of a rank that fell, may fall themselves, and come as often as they like', async () => {
      let [a, b, c]: (Circle | undefined)[] = await create(3);
      for (const origin of [3, 4, 5]) {
        b!.abandon('it falls');
        const coming = come().in;
        await heard([a, c], 1);
        [a, c, b] = await Promise.all([admit(a!), admit(c!), coming]);
        expect([a, c, b].map(placeOf)).toEqual(
          [0, 1, 2].map((rank) => ({ rank, ranks: 3, origins: [0, 2, origin] })),
        );
        await Promise.all([a, b, c].map(bringOrigin));
      }
      for (const circle of [a, c, b]) keep(circle!);
    });

    it('wait where the others go on alone', async () => {
      const circles = await create(2);
      const coming = come().in;
      await heard(circles, 1);
      const reduced = await Promise.all(circles.map((circle) => circle.regroup()));
      expect(reduced.map(placeOf)).toMatchObject([{ ranks: 2 }, { ranks: 2 }]);
      await heard(reduced, 1);
      const next = await Promise.all([...reduced.map((circle) => admit(circle).then(keep)), coming]);
      expect(next.map(({ ranks }) => ranks)).toEqual([3, 3, 3]);
    });

    it('that fall as soon as they are admitted, are missed by nobody', async () => {
      const circles = await create(2);
      const coming = come().in;
      await heard(circles, 1);
      const [a, b, c] = await Promise.all([...circles.map(admit), coming]);
      const missed = [a!.barrier(), b!.barrier()].map((call) => expect(call).rejects.toThrow(RankLostError));
      c!.abandon('it falls');
      await Promise.all(missed);
      const next = (await Promise.all([a!.regroup(), b!.regroup()])).map(keep);
      expect(next.map(placeOf)).toMatchObject([{ origins: [0, 1] }, { origins: [0, 1] }]);
      await Promise.all(next.map((circle) => circle.barrier()));
    });

    it('that dispose of their circle wait no more: nobody hears of them, and their wait ends', async () => {
      const circles = await create(1);
      const { outsider, in: coming } = come();
      await heard(circles, 1);
      const ended = expect(coming).rejects.toThrow(DisposedError);
      await outsider.dispose();
      await ended;
      await heard(circles, 0);
    });

    it('are told when nobody is left who could admit them', async () => {
      const circles = await create(2);
      const coming = expect(come().in).rejects.toThrow(RendezvousError);
      await heard(circles, 1);
      await Promise.all(circles.map((circle) => circle.dispose()));
      await coming;
    });
  },
);
