import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { doors, transpiled } from './test/tree.js';
import { kernelsStayBytecode } from './test/v8.js';

const source = (path: string): string => join(import.meta.dirname, 'src', path);

/** Puts another module in the place of one. */
const mocking = 'test/gpu/cuda/compiler.test.ts';

/**
 * Tests share processes, and with them the modules under test, whose loading takes longer than most of their tests. These
 * files leave something behind that others would meet, so each has a process of its own.
 */
const apart = [
  // Calls everything wrongly: who knows what stays.
  'test/api/fuzz.test.ts',
  mocking,
  // A library that could not be opened is not tried again.
  'test/net/fabric/unavailable.test.ts',
  // Adds a family to the list before anything reads it.
  'test/moe/families/own-family.test.ts',
  // Its clock is one for the whole process, and would count the timers of others.
  'test/net/world/siblings.test.ts',
  // What it provides stays provided.
  'test/lang/provided.test.ts',
];

/**
 * Modules of src come from `.test`, as Node.js loads them: what Vite makes of a module runs slower, for each name that it imports
 * becomes a property that is looked up at every use. And there they find, as JavaScript, what they start as threads and processes.
 */
const fromTranspiled: NonNullable<ViteUserConfig['plugins']>[number] = {
  name: 'from-transpiled',
  enforce: 'pre',
  async resolveId(id, importer) {
    // Node.js's modules cannot be replaced: what the test of compilers imports is Vite's throughout.
    if (importer === undefined || importer.endsWith(mocking) || importer.startsWith(source('/'))) return null;
    const found = await this.resolve(id, importer, { skipSelf: true });
    return found?.id.startsWith(source('/')) ? { id: transpiled(found.id), external: true } : null;
  },
};

/** Slow by nature, and in need of something: a script of its own each (`npm run test:nvcc` …), which `npm test` leaves out. */
const rings = {
  nvcc: [
    'test/verify/kernels/nvcc.test.ts',
    'test/lang/{cuda,hopper}/nvcc.test.ts',
    'test/gpu/sim/ptx/own.test.ts',
    'test/tools/program/*.test.ts',
  ],
  nodes: [
    'test/suite/nodes-over-*.test.ts',
    'test/net/fabric/{all-to-all,engine,signals}.test.ts',
    'test/net/world/{fabric,program-end}.test.ts',
    'test/moe/families/steady-proxy.test.ts',
  ],
  faults: [
    'test/faults/*.test.ts',
    'test/net/fabric/{killed,cut-off}.test.ts',
    'test/net/world/restarted.test.ts',
    'test/net/world/etcd/etcd.test.ts',
  ],
  machines: ['test/machines/machines.test.ts'],
  package: ['test/rooms/tarball.test.ts'],
};

/** Begun last, one of these would go on while the other processor has nothing left to do. */
const longest = [
  'test/python/python.test.ts',
  'test/moe/layer-carried.e2e.test.ts',
  'test/gpu/sim/litmus/litmus.test.ts',
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
  plugins: [fromTranspiled],
  // Examples import the package by its name; here that is its source.
  resolve: {
    alias: doors.map(([name, path]) => ({ find: new RegExp(`^${name}$`), replacement: source(path) })),
  },
  test: {
    globalSetup: ['test/setup.ts'],
    server: { deps: { external: [/\/\.test\//] } },
    // Against hanging, not for speed: a busy machine is many times slower.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: 'forks',
    // One more than processors, for tests wait for processes and time.
    maxWorkers: availableParallelism() + 1,
    execArgv: kernelsStayBytecode,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: 'together',
          isolate: false,
          include: ['test/**/*.test.ts'],
          exclude: ['test/on-gpus/**', ...apart, ...Object.values(rings).flat()],
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
