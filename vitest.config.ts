import { defineConfig } from 'vitest/config';

const source = (path: string): string => new URL(`./src/${path}`, import.meta.url).pathname;

/**
 * These share a process, and with it the modules under test, whose loading takes longer than most of their tests: they
 * leave nothing behind that others could meet. Each file of the rest has a process of its own.
 */
const together = [
  'test/{bench,device,lang/cuda,layer,plan,testing,tuning}/**/*.test.ts',
  // What that one provides stays provided.
  'test/lang/!(provided).test.ts',
  'test/sim/*.test.ts',
  'test/moe/{memory,tensor,validate}.test.ts',
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
      { extends: true, test: { name: 'together', isolate: false, include: together } },
      {
        extends: true,
        test: { name: 'apart', include: ['test/**/*.test.ts'], exclude: ['test/gpu/**', ...together] },
      },
    ],
  },
});
