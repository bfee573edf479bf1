/** Circles that go on without ranks that are gone. */
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { DisposedError, RankLostError, RendezvousError } from '../../../src/base/errors.js';
import type { Circle } from '../../../src/net/world/circle.js';
import { ProcessCircle } from '../../../src/net/world/process-circle.js';
import { bringOrigin, describeCircles, freePort, placeOf } from './circles.js';

const regrouped = (circles: readonly (Circle | undefined)[]) =>
  Promise.all(circles.map((circle) => circle!.regroup()));

describeCircles(
  (name) => `regrouping ${name}`,
  ({ create, keep: keepOne }) => {
    const keep = (circles: readonly Circle[]) => circles.map(keepOne);

    it('gives a circle of those that are left, in their order', async () => {
      const [a, b, c, d] = await create(4);
      b!.abandon('it falls');
      const next = keep(await regrouped([d, a, c]));
      expect(next.map(placeOf)).toEqual([2, 0, 1].map((rank) => ({ rank, ranks: 3, origins: [0, 2, 3] })));
      for (const parts of await Promise.all(next.map(bringOrigin)))
        expect(parts.map(([origin]) => origin)).toEqual([0, 2, 3]);
      expect(next[0]!.signal.aborted).toBe(false);
    });

    it('leaves nothing to do in the circle before', async () => {
      const [a, b, c] = await create(3);
      c!.abandon('it falls');
      const next = keep(await regrouped([a, b]));
      await expect(a!.barrier()).rejects.toThrow(DisposedError);
      expect(() => a!.accuse([1], 'too late')).toThrow(DisposedError);
      await expect(a!.regroup()).rejects.toThrow(DisposedError);
      await a!.dispose();
      await Promise.all(next.map((circle) => circle.barrier()));
    });

    it('does not believe ranks that were lost, and run all the same', async () => {
      const [a, b, c, d] = await create(4);
      const heard = Promise.all([c, d].map((out) => once(out!.signal, 'abort')));
      a!.accuse([2, 3], 'they do not answer');
      await heard;
      c!.accuse([0, 1], 'they do not answer');
      await c!.dispose();
      const next = keep(await regrouped([a, b]));
      d!.accuse([0, 1], 'they do not answer');
      await d!.dispose();
      await Promise.all(next.map((circle) => circle.barrier()));
      expect(next.map(({ signal }) => signal.aborted)).toEqual([false, false]);
    });

    it('needs nobody that has left, and calls that were pending end', async () => {
      const [a, b, c] = await create(3);
      const pending = a!.barrier('never');
      const rejected = expect(pending).rejects.toThrow(DisposedError);
      const regrouping = regrouped([a, b]);
      await rejected;
      await c!.dispose();
      expect(keep(await regrouping).map(placeOf)).toMatchObject([{ origins: [0, 1] }, { origins: [0, 1] }]);
    });

    it('loses who does not come in time', async () => {
      // The three have it for joining, too.
      const [a, b] = await create(3, { timeoutMs: 1000 });
      const next = keep(await regrouped([a, b]));
      expect(next.map(placeOf)).toEqual([0, 1].map((rank) => ({ rank, ranks: 2, origins: [0, 1] })));
    });

    it('goes on without a rank that waits in another call, where it alone wants that', async () => {
      const [a, b] = await create(2);
      const lost = expect(b!.barrier('its work is over')).rejects.toThrow(RankLostError);
      const [next] = keep([await a!.regroup(500)]);
      expect(placeOf(next!)).toEqual({ rank: 0, ranks: 1, origins: [0] });
      await lost;
    });

    it('says to a rank that is lost meanwhile why it came to nothing, and says it again', async () => {
      const [a, b, c] = await create(3);
      const refused = expect(b!.regroup()).rejects.toMatchObject({ ranks: [1] });
      a!.accuse([1], 'it does not answer');
      await refused;
      await expect(b!.regroup()).rejects.toMatchObject({ ranks: [1] });
      keep(await regrouped([a, c]));
    });

    it('may follow another, and losses are numbered as the circle is', async () => {
      const [a, b, c, d] = await create(4);
      b!.abandon('the first');
      const [a1, c1, d1] = await regrouped([a, c, d]);
      const lost = new Promise((resolve) => a1!.onRankLost(resolve));
      c1!.abandon('the second');
      expect(await lost).toMatchObject({ ranks: [1] });
      const next = keep(await regrouped([a1, d1]));
      expect(next.map(placeOf)).toEqual([0, 1].map((rank) => ({ rank, ranks: 2, origins: [0, 3] })));
    });

    it('ends when the rank that waits for it leaves', async () => {
      const [a, b, c] = await create(3);
      c!.abandon('it falls');
      const refused = expect(b!.regroup()).rejects.toThrow(DisposedError);
      await b!.dispose();
      await refused;
      expect(keep([await a!.regroup()]).map(placeOf)).toMatchObject([{ ranks: 1, origins: [0] }]);
    });
  },
);

describe('regrouping without the process that hosts the rendezvous', () => {
  const join = async (ranks: number) => {
    const address = `127.0.0.1:${await freePort()}`;
    return Promise.all(
      Array.from({ length: ranks }, (_, rank) => ProcessCircle.join({ rank, ranks, address })),
    );
  };

  it('is refused, at once or as soon as that is gone, with what to do', async () => {
    const [host, waits, comes] = await join(3);
    const refused = expect(waits!.regroup()).rejects.toThrow(/under 'heddle run' the launcher hosts it/);
    await host!.dispose();
    await refused;
    await expect(comes!.regroup()).rejects.toThrow(RendezvousError);
    await Promise.all([waits!.dispose(), comes!.dispose()]);
  });

  it('that is no rank any more blames none of those that have rank 0 now', async () => {
    const [host, a, b] = await join(3);
    const out = once(host!.signal, 'abort');
    a!.accuse([0], 'it does not answer');
    await out;
    const left = await Promise.all([a!.regroup(), b!.regroup()]);
    const pending = expect(left[0]!.barrier()).rejects.toThrow(/the process that was rank 0, .* is gone/);
    await host!.dispose();
    await pending;
    for (const circle of left) {
      await expect(circle.barrier()).rejects.toBeInstanceOf(RendezvousError);
      await expect(circle.regroup()).rejects.toThrow(/nobody can go on/);
      expect(circle).toMatchObject({ out: false, signal: { aborted: false } });
      await circle.dispose();
    }
  });
});
