import type { Receiving } from '../../src/moe/index.js';
import type { Layer, ReferenceReceived } from '../../src/moe/layer/index.js';
import { World } from '../../src/net/world/index.js';
import { placeReceived } from '../../src/verify/trials/index.js';

export interface Arrived {
  readonly layer: Layer;
  readonly rank: number;
  readonly received: ReferenceReceived;
}

/** Calls `body` with what arrived, in the memory of a simulated GPU. */
export async function withReceived<T>(
  { layer, rank, received }: Arrived,
  body: (receiving: Receiving) => Promise<T>,
): Promise<T> {
  const [result] = await World.local({ ranks: 1, device: 'sim' }, async ({ device }) => {
    const stream = device.createStream();
    const placed = placeReceived(device, stream, layer, received);
    await stream.synchronize();
    return body({ world: { device, rank }, shape: layer, received: placed });
  });
  return result!;
}
