/** Work that must end in time. */
import { setTimeout as delay } from 'node:timers/promises';

/** The result of the work; the error of `late` where it takes more than so many milliseconds. */
export function within<T>(ms: number, work: Promise<T>, late: () => Error): Promise<T> {
  const over = new AbortController();
  const expired = delay(ms, undefined, over).then(() => Promise.reject(late()));
  return Promise.race([work, expired]).finally(() => over.abort());
}
