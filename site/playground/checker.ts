/** Asks the worker; one that does not answer in time is ended, and a new one made. */
import type { Outcome } from './explore.js';

const patience = 15_000;

export class Checker {
  #stop: () => void = () => {};

  /** Null where another check was asked for before this one was done: nobody wants to know about that text any more. */
  check(name: string, text: string): Promise<Outcome | null> {
    this.end();
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(
          new Error(`The program did not end within ${patience / 1000} s: a loop of its host has no end.`),
        );
        this.end();
      }, patience);
      this.#stop = () => {
        clearTimeout(timer);
        worker.terminate();
        resolve(null);
      };
      worker.onmessage = ({ data }: MessageEvent<Outcome>) => {
        resolve(data);
        this.end();
      };
      worker.onerror = ({ message }) => {
        reject(new Error(message));
        this.end();
      };
      worker.postMessage({ name, text });
    });
  }

  end(): void {
    this.#stop();
  }
}
