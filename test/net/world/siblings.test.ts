/** Proxies of one process: which of them close when. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { LocalCircle } from '../../../src/net/world/local-circle.js';
import { siblingsOf } from '../../../src/net/world/proxy/start.js';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** The proxies that ranks start, one each, and who has closed since. */
function proxies(ranks: number, circles = LocalCircle.create(ranks)) {
  const closed: number[] = [];
  const started = circles.map((circle, rank) => {
    const siblings = siblingsOf(circle);
    const stopped = siblings.begin();
    return {
      ended: stopped,
      stop() {
        stopped();
        void siblings.allStopped().then(() => closed.push(rank));
      },
    };
  });
  return { started, closed };
}

/** Lets time pass, and what waits for promises run. */
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

describe('a proxy that has stopped closes', () => {
  test('when the last of its process has stopped, and no sooner', async () => {
    const { started, closed } = proxies(3);
    started[1]!.stop();
    started[0]!.stop();
    await pass(999);
    expect(closed).toEqual([]);
    started[2]!.stop();
    await pass(0);
    expect(closed.sort()).toEqual([0, 1, 2]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('a second after it stopped, where another never does', async () => {
    const { started, closed } = proxies(2);
    started[0]!.stop();
    await pass(999);
    expect(closed).toEqual([]);
    await pass(1);
    expect(closed).toEqual([0]);
  });

  test('when the others have ended otherwise, however often they say so', async () => {
    const { started, closed } = proxies(3);
    for (let time = 0; time < 3; time++) started[1]!.ended();
    started[0]!.stop();
    await pass(999);
    expect(closed).toEqual([]);
    started[2]!.ended();
    await pass(0);
    expect(closed).toEqual([0]);
  });

  test('whatever those of another layer, or of other circles, do', async () => {
    const circles = LocalCircle.create(2);
    const first = proxies(2, circles);
    proxies(2, circles);
    proxies(2);
    for (const { stop } of first.started) stop();
    await pass(0);
    expect(first.closed).toEqual([0, 1]);
  });
});
