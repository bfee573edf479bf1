/** Inputs from a seed, whole rounds, and the comparison of what came out with the reference: `heddle/testing`, and what only Heddle uses. */
export * from './example-experts.js';
export * from './public.js';
export * from './rounds.js';
export * from './routes.js';
