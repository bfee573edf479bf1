/** Where tests load weights to. */
import { World } from '../../../src/net/world/index.js';
import { liveMemory } from '../live-memory.js';

/** Runs `body` with a simulated GPU, and how many pieces of its memory are allocated and not freed. */
export async function onGpu<T>(body: (world: World, live: () => number) => Promise<T>): Promise<T> {
  const [result] = await World.local({ ranks: 1, device: 'sim' }, (world) =>
    body(world, liveMemory(world.device)),
  );
  return result!;
}
