/** Every kernel by name, and those that only measure a machine. */
export * from './ceilings/index.js';
export * from './registry.js';
