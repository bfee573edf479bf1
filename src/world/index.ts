export { type Environment, type Place, readEnvironment } from './environment.js';
export { connectFabric, type FabricConnection, type FabricRegions } from './fabric.js';
export { type Group, type GroupLoss, type GroupOptions, MAX_PAYLOAD, MAX_RANKS } from './group.js';
export { Launch, type LaunchOptions, type LaunchResult, type RankResult } from './launch.js';
export { LocalGroup } from './local-group.js';
export { type JoinOptions, ProcessGroup } from './process-group.js';
export type { FabricOptions } from './proxy/network.js';
export type { ProxyMaker, ProxyParts, ProxyProgram } from './proxy/program.js';
export type { ProxyOptions, RunningProxy } from './proxy/start.js';
export { Rendezvous, type RendezvousOptions } from './rendezvous.js';
export { launchReporting } from './report-lines.js';
export { type Topology, topologyOf } from './topology.js';
export {
  type DeviceChoice,
  type JoinWorldOptions,
  type LocalWorldOptions,
  type SharedWindow,
  World,
} from './world.js';
