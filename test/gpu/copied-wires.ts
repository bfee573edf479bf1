/** Wires in memory of GPUs without a NIC: what a proxy writes is copied to the host by the sender's stream, and on by the receiver's. */
import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import type { Stream, WireMemory } from '../../src/device/index.js';
import { proxyMaker, type World } from '../../src/world/index.js';

interface End {
  readonly memory: WireMemory;
  readonly out: Stream;
  readonly in: Stream;
  readonly tags: number[];
}

/** Has the layers of a world lie so. `ends`: one list for all ranks, which are in this process. */
export function copyWires(world: World, ends: End[]): void {
  const { device, rank, ranks } = world;
  world.wires = async () => ({ lies: 'gpu', why: 'copies stand in for a NIC' });
  world.startProxy = async ({ module, name, data, memory }) => {
    assert.ok('nics' in memory);
    const { host, lies } = memory;
    const own: End = { memory, out: device.createStream(), in: device.createStream(), tags: [] };
    ends[rank] = own;
    const make = await proxyMaker({ module, name });
    const underway = new Set<Promise<void>>();
    const carry = async (peer: number, from: number, to: number, bytes: number, tag: number) => {
      const there = ends[peer]!;
      if (bytes > 0) {
        assert.ok(from >= memory.front && to >= memory.front);
        const copied = await own.out.copyOut(memory.address + from, bytes);
        there.in.copyIn(there.memory.address + to, copied);
        await there.in.synchronize();
      }
      there.tags.push(tag);
    };
    const network = {
      write(...write: Parameters<typeof carry>) {
        const carried = carry(...write).catch((error: unknown) => {
          running.error ??= error as Error;
        });
        underway.add(carried);
        void carried.then(() => underway.delete(carried));
        return true;
      },
      arrived: () => own.tags.shift() ?? -1,
    };
    const program = make({ rank, ranks, network, memory: host, lies, data });
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
