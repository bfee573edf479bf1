import { resolve } from 'node:path';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  root: resolve(import.meta.dirname, '..'),
  test: {
    include: ['site/test/**/*.test.ts'],
    testTimeout: 240_000,
    hookTimeout: 120_000,
    // One browser at a time: what it finds in how many seconds is a promise.
    fileParallelism: false,
  },
});
