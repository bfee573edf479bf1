import { defineConfig } from 'vitest/config';

const source = (path: string): string => new URL(`./src/${path}`, import.meta.url).pathname;

/**
 * These change their process for all that comes after them: its environment, a library that is loaded once, texts that
 * are provided. Each has a process of its own; all others share one a core, and with it the modules under test, whose
 * loading takes longer than most of their tests.
 */
const alone = ['test/cuda/**/*.test.ts', 'test/fabric/**/*.test.ts', 'test/lang/provided.test.ts'];

export default defineConfig({
  // Examples import the package by its name; here that is its source.
  resolve: {
    alias: [
      { find: /^heddle$/, replacement: source('index.ts') },
      { find: /^heddle\/(\w+)$/, replacement: source('$1/index.ts') },
    ],
  },
  test: {
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
    projects: [
      {
        extends: true,
        test: {
          name: 'together',
          isolate: false,
          include: ['test/**/*.test.ts'],
          exclude: ['test/gpu/**', ...alone],
        },
      },
      { extends: true, test: { name: 'alone', include: alone } },
    ],
  },
});
