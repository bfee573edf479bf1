export * from './flag-barrier.js';
export * from './transfers.js';
