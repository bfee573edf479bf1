/** How much of a device's memory is allocated. */
import { vi } from 'vitest';
import type { Device } from '../../src/gpu/index.js';

/** Pieces that are allocated from now on and not freed. */
export function liveMemory(device: Device): () => number {
  const allocate = device.allocate.bind(device);
  let live = 0;
  vi.spyOn(device, 'allocate').mockImplementation((bytes, purpose) => {
    const memory = allocate(bytes, purpose);
    live++;
    const free = () => {
      live--;
      memory.free();
    };
    return { address: memory.address, bytes, free };
  });
  return () => live;
}
