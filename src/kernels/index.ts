export * from './ceilings/index.js';
export * from './one-sided/index.js';
