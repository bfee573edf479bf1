/**
 * Between machines: one-sided writes with immediates over libfabric. `TransferEngine.open` is the door;
 * docs/fabric.md describes the protocol.
 */

export {
  benchFabric,
  type FabricBenchOptions,
  type FabricBenchReport,
  type Figure,
} from './bench/bench.js';
export type { Counter, ImmediateCounter } from './counters.js';
export type { Reach } from './endpoint.js';
export { TransferEngine } from './engine.js';
export { FabricError, PeerLostError, WaitTimeoutError } from './errors.js';
export { type Group, type Path, type Peer, Region, type RemoteRegion } from './handles.js';
export type { GpuMemory } from './memory.js';
export type { Message } from './messages.js';
export type { Callback } from './operations.js';
export type { EngineOptions } from './options.js';
export { type Device, listProviders, type ProviderName, type ProviderReport, providers } from './provider.js';
export { shmBytesFor, shmRemedy, shmShortage, shmSpace } from './shm-space.js';
export type { Barrier, OperationOptions, Paged, Scatter, Write } from './transfers.js';
export type { WaitOptions } from './waiting.js';
