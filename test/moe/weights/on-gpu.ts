/** Where tests load weights to. */
import { vi } from 'vitest';
import { World } from '../../../src/net/world/index.js';

/** Runs `body` with a simulated GPU, and how many pieces of its memory are allocated and not freed. */
export async function onGpu<T>(body: (world: World, live: () => number) => Promise<T>): Promise<T> {
  const [result] = await World.local({ ranks: 1, device: 'sim' }, async (world) => {
    const { device } = world;
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
    return body(world, () => live);
  });
  return result!;
}
