export * from './example-experts.js';
