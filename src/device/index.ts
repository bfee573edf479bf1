export type * from './device.js';
export * from './mapped.js';
export * from './numerics.js';
