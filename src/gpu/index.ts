export { type CallSite, callSite, type Setters } from './call-site.js';
export type * from './device.js';
export * from './mapped.js';
export type * from './network.js';
export * from './numerics.js';
export { findListener, inRange, listenToRanges, openRange, type RangeListener } from './ranges.js';
export * from './require.js';
export { requireGrid, requireTensor, type StridedTensor } from './tensor.js';
export {
  evenNodes,
  maxSimulatedRanks,
  maxWorldRanks,
  nodesByReach,
  type Topology,
  topologyOf,
} from './topology.js';
