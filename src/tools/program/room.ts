/** Memory of simulated GPUs that processes of a program map, each at the addresses that the simulated machine knows. */
import { UnavailableError } from '../../base/errors.js';
import { functionOfC, view } from '../../base/native/index.js';
import { type Room, stride } from '../../gpu/sim/index.js';

const memfd_create = functionOfC('memfd_create', ['i32', 'string', 'u32']);
const ftruncate = functionOfC('ftruncate', ['i32', 'i32', 'i64']);
const mmap = functionOfC('mmap', ['address', 'address', 'u64', 'i32', 'i32', 'i32', 'i64']);
const munmap = functionOfC('munmap', ['i32', 'address', 'u64']);
const fallocate = functionOfC('fallocate', ['i32', 'i32', 'i32', 'i64', 'i64']);
const close = functionOfC('close', ['i32', 'i32']);

const closeOnExec = 1;
const readAndWrite = 3;
const shared = 1;
const punchHole = 3;

export interface SharedRoom extends Room {
  /** This process's descriptor of the file, in which each byte lies behind the room's first one as its address does. */
  readonly descriptor: number;
  /** Only once nobody uses what lies there. */
  close(): void;
}

/** Makes room that ends with this process, and with the last one that maps it. Pages cost nothing until they are written. */
export function sharedRoom(): SharedRoom {
  // Programs, their heaps and libraries lie elsewhere.
  const first = 2 ** 44;
  const most = 2 ** 14;
  const descriptor = memfd_create('heddle', closeOnExec);
  if (descriptor < 0 || ftruncate(descriptor, most * stride) !== 0)
    throw new UnavailableError('This system gives no memory that processes share', 'Use Linux 3.17 or newer');
  const taken = new Map<number, { readonly at: number; readonly bytes: number }>();
  const give = (address: number): void => {
    const of = taken.get(address);
    if (of === undefined) return;
    taken.delete(address);
    munmap(of.at, of.bytes);
    fallocate(descriptor, punchHole, address - first, of.bytes);
  };
  return {
    ...{ first, most, descriptor, give },
    take(address, bytes) {
      const at = mmap(0, bytes, readAndWrite, shared, descriptor, address - first);
      if (at >= 2 ** 48)
        throw new UnavailableError(
          `${bytes} bytes of memory cannot be mapped`,
          'Free memory or ask for less',
        );
      taken.set(address, { at, bytes });
      return view(at, bytes);
    },
    close() {
      for (const address of [...taken.keys()]) give(address);
      close(descriptor);
    },
  };
}
