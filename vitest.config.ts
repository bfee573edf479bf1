import { defineConfig } from 'vitest/config';

const source = (path: string): string => new URL(`./src/${path}`, import.meta.url).pathname;

export default defineConfig({
  // Examples import the package by its name; here that is its source.
  resolve: {
    alias: [
      { find: /^heddle$/, replacement: source('index.ts') },
      { find: /^heddle\/(\w+)$/, replacement: source('$1/index.ts') },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/gpu/**'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
  },
});
