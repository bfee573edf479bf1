export type * from './device.js';
export * from './numerics.js';
export * from './require.js';
