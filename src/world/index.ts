/**
 * Ranks: how they meet, hear of each other's loss, and share windows. `World` has GPUs or simulated ones; a group is
 * ranks without any, as transfers between machines need them.
 */
export { connectFabric, type FabricConnection, type FabricRegions } from './fabric.js';
export { type Group, type GroupLoss, type GroupOptions, MAX_RANKS } from './group.js';
export { Launch, type LaunchOptions, type LaunchResult, type RankResult } from './launch.js';
export { LocalGroup } from './local-group.js';
export { type JoinOptions, ProcessGroup } from './process-group.js';
export type { FabricOptions } from './proxy/network.js';
export { type ProxyMaker, type ProxyParts, type ProxyProgram, proxyMaker } from './proxy/program.js';
export type { ProxyOptions, RunningProxy } from './proxy/start.js';
export { launchReporting } from './report-lines.js';
export { evenNodes, type Topology, topologyOf } from './topology.js';
export {
  type DeviceChoice,
  type JoinWorldOptions,
  type LocalWorldOptions,
  type SharedWindow,
  World,
} from './world.js';
