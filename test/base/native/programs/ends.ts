// A program that ends while its threads are in foreign calls.
import { endOrderly, startThread } from '../../../../src/base/native/index.js';

const way = process.argv[2];
for (let thread = 0; thread < 4; thread++) {
  const [stop, done] = [2, 1].map((words) => new Int32Array(new SharedArrayBuffer(4 * words))) as [
    Int32Array,
    Int32Array,
  ];
  const worker = startThread(new URL('./spinning.js', import.meta.url), { stop, done });
  worker.unref();
  worker.once('exit', endOrderly({ steps: [() => Atomics.store(stop, 0, 1)], done }));
  Atomics.wait(stop, 1, 0);
}
if (way === 'throws') throw new Error('its own');
if (way === 'exits') process.exit(3);
