export type * from './device.js';
export * from './numerics.js';
