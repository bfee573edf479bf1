/**
 * The operation: what dispatch and combine mean, and what a user holds.
 */
export * from './arithmetic.js';
export * from './compare.js';
export * from './dtype.js';
export * from './profiles.js';
export * from './random.js';
export type { Received, Source } from './reference.js';
export * as reference from './reference.js';
export * from './routes.js';
export * from './shape.js';
export * from './tensor.js';
export * from './traffic.js';
export * from './validate.js';
