export type * from './device.js';
