/**
 * Proxies of one process that write to each other. Over shm, libfabric's endpoints of a process share the mapping of a peer that is
 * in it too: one that is closed while another still looks for progress takes the memory from under that one. So they all
 * stop before the first closes.
 */
import type { Circle } from '../circle.js';

/** How long one that has stopped waits for others that do not: they may be about to learn that a rank was lost. */
const longestWaitMs = 1000;

class Siblings {
  #running = 0;
  #onStopped = (): void => {};
  readonly #stopped = new Promise<void>((resolve) => {
    this.#onStopped = resolve;
  });

  /** One more runs. Returns what to call when it does not, any number of times. */
  begin(): () => void {
    let runs = true;
    this.#running++;
    return () => {
      if (runs && --this.#running === 0) this.#onStopped();
      runs = false;
    };
  }

  /** Until none runs any more, or time is over. */
  async allStopped(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, longestWaitMs);
    });
    await Promise.race([this.#stopped, over]);
    clearTimeout(timer);
  }
}

const started = new WeakMap<Circle, number>();
const families = new WeakMap<object, Siblings[]>();

/** Those of the proxy that a rank starts now: all ranks of a circle start as many, in the same order. */
export function siblingsOf(circle: Circle): Siblings {
  const n = started.get(circle) ?? 0;
  started.set(circle, n + 1);
  const all = families.get(circle.place) ?? [];
  families.set(circle.place, all);
  all[n] ??= new Siblings();
  return all[n];
}
