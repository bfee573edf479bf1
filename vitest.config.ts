import { dirname } from 'node:path';
import { pathToFileURL } from 'node:url';
import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { transpiled } from './test/tree.js';
import { kernelsStayBytecode } from './test/v8.js';

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

/** Where a module of src says that it lies: there it finds what it starts as threads and processes, in JavaScript. */
const amongTranspiled: NonNullable<ViteUserConfig['plugins']>[number] = {
  name: 'among-transpiled',
  enforce: 'pre',
  transform(code, id) {
    if (!id.startsWith(source(''))) return null;
    const path = transpiled(id);
    const said = { url: pathToFileURL(path).href, filename: path, dirname: dirname(path) };
    return Object.entries(said).reduce(
      (text, [name, value]) => text.replaceAll(`import.meta.${name}`, JSON.stringify(value)),
      code,
    );
  },
};

/** Slow by nature, and in need of something: a script of its own each (`npm run test:nvcc` …), which `npm test` leaves out. */
const rings = {
  nvcc: ['test/kernels/nvcc.test.ts'],
  nodes: ['test/suite/nodes-over-*.test.ts'],
  faults: ['test/faults/*.test.ts', 'test/fabric/{killed,cut-off}.test.ts'],
  package: ['test/rooms/tarball.test.ts'],
};

/** Begun last, one of these would go on while the other processor has nothing left to do. */
const longest = [
  'test/moe/layer-carried.e2e.test.ts',
  'test/suite/round-trip.test.ts',
  'test/sim/litmus/litmus.test.ts',
];

/** Files that have a process of their own, the longest, all others. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ project, moduleId }: TestSpecification): number => {
      if (project.name === 'apart') return -1;
      const found = longest.findIndex((path) => moduleId.endsWith(path));
      return found < 0 ? longest.length : found;
    };
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

export default defineConfig({
  plugins: [amongTranspiled],
  // Examples import the package by its name; here that is its source.
  resolve: {
    alias: [
      { find: /^heddle$/, replacement: source('index.ts') },
      { find: /^heddle\/(\w+)$/, replacement: source('$1/index.ts') },
    ],
  },
  test: {
    globalSetup: ['test/setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
    execArgv: [kernelsStayBytecode],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: 'together',
          isolate: false,
          include: ['test/**/*.test.ts'],
          exclude: ['test/gpu/**', ...apart, ...Object.values(rings).flat()],
        },
      },
      { extends: true, test: { name: 'apart', include: apart } },
      ...Object.entries(rings).map(([name, include]) => ({
        extends: true as const,
        test: { name, include },
      })),
    ],
  },
});
