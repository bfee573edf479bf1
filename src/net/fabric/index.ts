/**
 * Between machines: one-sided writes with immediates over libfabric. `TransferEngine.open` is the door;
 * docs/fabric.md describes the protocol.
 */

export type { Counter, ImmediateCounter } from './engine/counters.js';
export { TransferEngine } from './engine/engine.js';
export { type Path, type Peer, type PeerGroup, Region, type RemoteRegion } from './engine/handles.js';
export type { GpuMemory } from './engine/memory.js';
export type { EngineOptions } from './engine/options.js';
export type { Barrier, OperationOptions, Paged, Scatter, Write } from './engine/transfers.js';
export type { ArrivalOptions } from './engine/waiting.js';
export { machineId } from './libfabric/address.js';
export type { Reach } from './libfabric/endpoint.js';
export { FabricError, PeerLostError, WaitTimeoutError } from './libfabric/errors.js';
export { distancesFrom, linkOf, listNics, type Nic } from './libfabric/nics.js';
export {
  type FabricDevice,
  libfabricVersion,
  listProviders,
  type ProviderName,
  type ProviderReport,
  providers,
  usableProviders,
} from './libfabric/provider.js';
export { expectPeers } from './libfabric/queues.js';
export { sweepShm } from './libfabric/shm-names.js';
export { requireShmSpace, shmBytesFor, shmRemedy, shmShortage, shmSpace } from './libfabric/shm-space.js';
