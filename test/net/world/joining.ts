/** Worlds whose processes are all this one, with simulated GPUs. */
import { type FabricOptions, type JoinWorldOptions, World } from '../../../src/net/world/index.js';
import { freePort } from './circles.js';

export const onLoopback: FabricOptions = { provider: 'tcp;ofi_rxm', devices: ['lo'] };

/** How ranks join a world of their own: as processes would that meet at a rendezvous and reach each other over the loopback. */
export async function joining(of: JoinWorldOptions) {
  const address = `127.0.0.1:${await freePort()}`;
  const whole = { address, fabric: onLoopback, device: 'sim', environment: {}, ...of } as const;
  return <T>(rank: number, program: (world: World) => Promise<T>, how: JoinWorldOptions = {}) =>
    World.join({ ...whole, rank, ...how }, program);
}
