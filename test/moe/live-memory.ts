/** How much of a device's memory is allocated. */
import { vi } from 'vitest';
import type { Device } from '../../src/gpu/index.js';
import { World } from '../../src/net/world/index.js';

/** Pieces that are allocated from now on and not freed, windows and wires among them. */
export function liveMemory(device: Device): () => number {
  let live = 0;
  const counted = <M extends { free(): void }>(memory: M): M => {
    const free = memory.free.bind(memory);
    live++;
    return Object.assign(memory, {
      free: () => {
        live--;
        free();
      },
    });
  };
  for (const name of ['allocate', 'allocateWindow', 'allocateWire'] as const) {
    const real = device[name].bind(device) as (...of: unknown[]) => { free(): void };
    vi.spyOn(device, name).mockImplementation((...of: unknown[]) => counted(real(...of)) as never);
  }
  return () => live;
}

/** Makes a device refuse memory for a purpose; what is returned ends that. */
export function withoutRoom(device: Device, missing: string): () => void {
  const { allocate } = device;
  device.allocate = (bytes, purpose) => {
    if (purpose === missing) throw new Error('no room');
    return allocate.call(device, bytes, purpose);
  };
  return () => {
    device.allocate = allocate;
  };
}

/** Runs `body` with a simulated GPU, and how many pieces of its memory are allocated and not freed. */
export async function onGpu<T>(body: (world: World, live: () => number) => Promise<T>): Promise<T> {
  const [result] = await World.local({ ranks: 1, device: 'sim' }, (world) =>
    body(world, liveMemory(world.device)),
  );
  return result!;
}
