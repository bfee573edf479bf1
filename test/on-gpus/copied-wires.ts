/** Wires without a NIC: what a proxy writes is copied to the host by the sender's stream, and on by the receiver's. */
import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { UnavailableError } from '../../src/base/errors.js';
import { CudaDevice } from '../../src/gpu/cuda/index.js';
import type { RemoteWrite, Stream, WireMemory, WireSide } from '../../src/gpu/index.js';
import { proxyMaker, type World } from '../../src/net/world/index.js';
import { gpus } from './machine.js';

/** Why messages cannot lie in memory of the GPUs here; null where they can. */
export const wiresRefused = ((): string | null => {
  if (gpus === 0) return 'needs a GPU';
  const device = CudaDevice.open(0);
  try {
    device.allocateWire({ bytes: 4096, front: 64, side: 'gpu' }, 'a wire').free();
    return null;
  } catch (error) {
    assert.ok(error instanceof UnavailableError, String(error));
    assert.match(error.message, /^GPU 0 .* (has no memory that NICs reach|cannot map host|neither orders)/);
    return error.message;
  } finally {
    void device.dispose();
  }
})();

interface End {
  readonly memory: WireMemory;
  readonly out: Stream;
  readonly in: Stream;
  readonly tags: number[];
}

/** Has the layers of a world lie so. `ends`: one list for all ranks, which are in this process; each has an end for each wire, in the order in which all make them. */
export function copyWires(world: World, ends: End[][], side: WireSide = 'gpu'): void {
  const { device, rank, ranks } = world;
  world.wires = async () => ({ side, why: 'copies stand in for a NIC' });
  world.startProxy = async ({ module, name, data, memory }) => {
    assert.ok('nics' in memory);
    const { host } = memory;
    const own: End = { memory, out: device.createStream(), in: device.createStream(), tags: [] };
    ends[rank] ??= [];
    const wire = ends[rank].push(own) - 1;
    const make = await proxyMaker({ module, name });
    const underway = new Set<Promise<void>>();
    const carry = async ({ peer, from, to, bytes, tag }: Readonly<RemoteWrite>) => {
      const there = ends[peer]![wire]!;
      if (bytes > 0) {
        assert.ok(from >= memory.front && to >= memory.front);
        const copied = await own.out.copyOut(memory.address + from, bytes);
        there.in.copyIn(there.memory.address + to, copied);
        await there.in.synchronize();
      }
      there.tags.push(tag);
    };
    const network = {
      write(write: Readonly<RemoteWrite>) {
        const carried = carry(write).catch((error: unknown) => {
          running.error ??= error as Error;
        });
        underway.add(carried);
        void carried.then(() => underway.delete(carried));
        return true;
      },
      arrived: () => own.tags.shift() ?? -1,
    };
    const program = make({ rank, ranks, out: [], network, memory: host, side, data });
    let stopped = false;
    const turns = async () => {
      for (; !stopped; await setImmediate()) program.step();
    };
    const running = {
      error: null as Error | null,
      async stop() {
        stopped = true;
        await loop;
        await Promise.all(underway);
      },
    };
    await world.barrier('all wires are there');
    const loop = turns().catch((error: unknown) => {
      running.error ??= error as Error;
    });
    return running;
  };
}
