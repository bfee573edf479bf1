/** Where tests load weights to, and run the experts that take them. */
import type { Device, Stream } from '../../../src/gpu/index.js';
import {
  ExpertsMlp,
  type ExpertsMlpOptions,
  ExpertsPlan,
  type LoadedMlp,
  readBits,
} from '../../../src/moe/index.js';
import type { Layer, ReferenceReceived } from '../../../src/moe/layer/index.js';
import { World } from '../../../src/net/world/index.js';
import { placeReceived } from '../../../src/verify/trials/index.js';
import { liveMemory } from '../live-memory.js';

/** Runs `body` with a simulated GPU, and how many pieces of its memory are allocated and not freed. */
export async function onGpu<T>(body: (world: World, live: () => number) => Promise<T>): Promise<T> {
  const [result] = await World.local({ ranks: 1, device: 'sim' }, (world) =>
    body(world, liveMemory(world.device)),
  );
  return result!;
}

export type Load = (
  place: { readonly device: Device; readonly rank: number; readonly ranks: number },
  stream: Stream,
) => Promise<LoadedMlp>;

/** What the experts of a rank of two make of what it received, with weights that are loaded for them. */
export const madeByLoaded = (
  shape: Layer,
  rank: number,
  arrived: ReferenceReceived,
  load: Load,
  how: Partial<ExpertsMlpOptions> = {},
) =>
  onGpu(async ({ device }, live) => {
    const stream = device.createStream();
    const before = live();
    const weights = await load({ device, rank, ranks: 2 }, stream);
    const loaded = live() - before;
    const received = placeReceived(device, stream, shape, arrived);
    const of = { world: { device, rank }, shape, received };
    const plan = await ExpertsPlan.create(of);
    const mlp = await ExpertsMlp.create(of, plan, { ...weights, ...how });
    plan.plan(received, stream);
    mlp.run(received, stream);
    return { weights, loaded, made: await readBits(received.output, stream) };
  });
