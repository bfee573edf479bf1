/**
 * Ranks: how they meet, hear of each other's loss, and share windows. `World` has GPUs or simulated ones; a circle is
 * ranks without any, as transfers between machines need them.
 */

export {
  evenNodes,
  type ProxyMaker,
  type ProxyParts,
  type ProxyProgram,
  type Topology,
  topologyOf,
} from '../../gpu/index.js';
export type { Circle, CircleLoss, CircleOptions } from './circle.js';
export type { JoinOptions } from './environment.js';
export { askEtcd } from './etcd/host.js';
export type { WhatHappened, WorldEvent } from './events.js';
export { MAX_RANKS } from './exchange.js';
export { connectFabric, type FabricConnection, type FabricRegions } from './fabric.js';
export { Launch, type LaunchOptions, type LaunchResult, type RankResult } from './launch.js';
export { LocalCircle } from './local-circle.js';
export { ProcessCircle } from './process-circle.js';
export type { FabricOptions } from './proxy/network.js';
export { proxyMaker } from './proxy/program.js';
export { inThread as proxyInThread, type ProxyOptions, type RunningProxy } from './proxy/start.js';
export type { Wires } from './proxy/wires.js';
export { launchReporting } from './report-lines.js';
export { allOrNone, type SharedWindow } from './windows.js';
export {
  type DeviceChoice,
  type JoinWorldOptions,
  type LocalWorldOptions,
  type SurvivesLoss,
  World,
} from './world.js';
