import { defineConfig } from 'vitest/config';

const source = (path: string): string => new URL(`./src/${path}`, import.meta.url).pathname;

/**
 * Tests share processes, and with them the modules under test, whose loading takes longer than most of their tests. These
 * files leave something behind that others would meet, so each has a process of its own.
 */
const apart = [
  // Calls everything wrongly: who knows what stays.
  'test/api/fuzz.test.ts',
  // Puts another module in the place of one.
  'test/cuda/compiler.test.ts',
  // A library that could not be opened is not tried again.
  'test/fabric/unavailable.test.ts',
  // What it provides stays provided.
  'test/lang/provided.test.ts',
];

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
          exclude: ['test/gpu/**', ...apart],
        },
      },
      { extends: true, test: { name: 'apart', include: apart } },
    ],
  },
});
