/** The cost of dispatch and combine on a cluster that is not there yet: exact traffic, memory, and times with ranges. */
export * from './machines.js';
export * from './model.js';
export * from './plan.js';
export * from './routing.js';
export * from './systems.js';
export * from './traffic.js';
export * from './whole-model.js';
