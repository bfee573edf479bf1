export * from './one-sided/index.js';
