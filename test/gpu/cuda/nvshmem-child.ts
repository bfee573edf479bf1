/** A process that comes into NVSHMEM and parts from it, as the argument says; the last line is what went wrong. */
import { NvshmemHeap, nvshmemHeaders } from '../../../src/gpu/cuda/index.js';

const lost = new AbortController();
const [what] = process.argv.slice(2);
try {
  if (what === 'headers') {
    const { version, folders } = nvshmemHeaders();
    console.log(version, folders[0]);
  } else {
    const heap = NvshmemHeap.join(NvshmemHeap.uniqueId(), 1, 2, lost.signal);
    const memory = heap.allocate(what === 'greedy' ? 2 ** 30 : 64, 'receive window');
    heap.enter(1, 'a kernel');
    if (what === 'twice') NvshmemHeap.join(new Uint8Array(128), 1, 2, lost.signal);
    heap.leave(1);
    heap.free(memory);
    heap.end();
  }
} catch (error) {
  console.log(String(error));
}
