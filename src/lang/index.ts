export * from './cuda/index.js';
export type * from './ir.js';
export type * from './kernel.js';
export type * from './language.js';
export * from './types.js';
