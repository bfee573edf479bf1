/** Who was lost, as all ranks are told. */
import type { Circle } from '../../net/world/index.js';

/** Where all is well but for the loss, the circle answers in a fraction of it. */
const patienceMs = 1000;

/**
 * Waits until the circle has said whom it lost, but not for long. Whom a rank's own proxy misses may be one that was told of a loss
 * before this rank was, and has left because of it. The circle has heard of that first, if that one's proxy told it.
 */
export function verdictOf({ signal }: Circle): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, patienceMs);
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
