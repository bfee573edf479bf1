export * from './ceilings/index.js';
export * from './experts/index.js';
export * from './one-sided/index.js';
export * from './registry.js';
