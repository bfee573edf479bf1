/**
 * `npm test`: what must hold before a change is done. The first row of steps in which one fails ends it. With the name of a ring, its tests. The last line counts: every test, and one for each other step.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { constants, setPriority, tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import type { Lack } from '../test/needs.js';

interface Step {
  readonly name: string;
  readonly command: readonly string[];
  /** Takes what others leave of the processors, and says what it has to say when it has ended. */
  readonly behind?: boolean;
}

/** Of a test that was skipped by other means than test/needs.ts. */
const untold = 'Nobody said what: tests are skipped by `needing` of test/needs.ts';

/** What Vitest's JSON reporter says, as far as it is used here. */
interface TestReport {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly testResults: readonly {
    /** The path of a file of tests. */
    readonly name: string;
    readonly assertionResults: readonly {
      readonly status: string;
      readonly ancestorTitles: readonly string[];
      readonly title: string;
      readonly meta: { readonly lack?: Lack };
    }[];
  }[];
}

const folder = mkdtempSync(join(tmpdir(), 'heddle-test-'));
const reportFile = join(folder, 'report.json');

/** Tests that are slow by nature and need something of the machine: projects of vitest.config.ts. */
const rings: Readonly<Record<string, string>> = {
  nvcc: 'every kernel compiles, without spills (nvcc)',
  nodes: 'processes that are nodes of a world, over each provider (libfabric)',
  faults: 'processes killed, stopped and cut off (libfabric, network namespaces, etcd)',
  machines: 'worlds of two virtual machines, over verbs and tcp (qemu, a kernel of Debian)',
  package: 'what users get: packed, compiled against, run (npm pack)',
};

const tests = (name: string, ...projects: readonly string[]): Step => ({
  name,
  command: [
    ...['vitest', 'run', ...projects.map((project) => `--project=${project}`)],
    ...['--reporter=default', '--reporter=json', `--outputFile.json=${reportFile}`],
  ],
});

/**
 * Steps of one row run at once. The tests wait for processes and for time, in which the last step runs.
 */
const everyday: readonly (readonly Step[])[] = [
  [
    { name: 'lint and format (Biome)', command: ['biome', 'check', '--error-on-warnings', '.'] },
    {
      name: 'import directions (dependency-cruiser)',
      command: ['depcruise', '--config', '.dependency-cruiser.cjs', 'src'],
    },
    { name: 'lines of every room (npm run size)', command: ['tsx', 'scripts/size.ts'] },
    { name: 'types (tsc)', command: ['tsc', '-p', 'tsconfig.json'] },
    // The step beside it checks it.
    { name: 'build', command: ['tsc', '-p', 'tsconfig.build.json', '--noCheck'] },
  ],
  [
    tests('unit and property tests (Vitest)', 'together', 'apart'),
    // One schedule of each configuration; CI runs five, and every mutant.
    {
      name: 'synchronisation of every kernel (heddle check --seeds 1)',
      command: ['node', 'dist/cli/main.js', 'check', '--seeds', '1'],
      behind: true,
    },
  ],
];

/** npm puts node_modules/.bin on PATH; without npm it is put there here. */
const env = { ...process.env, PATH: `${join('node_modules', '.bin')}:${process.env.PATH ?? ''}` };

const ring = process.argv[2];
if (ring !== undefined && !Object.hasOwn(rings, ring)) {
  rmSync(folder, { recursive: true });
  console.error(
    `there is no ring '${ring}', but ${Object.keys(rings).join(', ')}; without a name all other tests run`,
  );
  process.exit(2);
}
const rows = ring === undefined ? everyday : [[tests(rings[ring]!, ring)]];
const count = rows.flat().length;
if (ring === undefined) {
  console.log(
    `${count} steps, which may take five minutes on two cores; most of it goes to the last two, which run at once. Left out:`,
  );
  for (const [name, what] of Object.entries(rings)) console.log(`  npm run test:${name.padEnd(8)} ${what}`);
}
const started = performance.now();
const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(1)} s`;
const times: string[] = [];
let stepsPassed = 0;
let failures: readonly Step[] = [];

for (const row of rows) {
  const passed = await Promise.all(row.map(run));
  stepsPassed += passed.filter(Boolean).length;
  failures = row.filter((_, i) => !passed[i]);
  if (failures.length > 0) break;
}

/** Whether it succeeded. */
async function run(step: Step): Promise<boolean> {
  console.log(`\n── ${rows.flat().indexOf(step) + 1}/${count} ${step.name}`);
  const begun = performance.now();
  const status = await statusOf(step);
  times.push(`${seconds(begun).padStart(8)}  ${step.name}`);
  return status === 0;
}

/** Of a program that has run: null if it was killed, or could not be started. */
async function statusOf({ command, behind = false, name }: Step): Promise<number | null> {
  const [program = '', ...args] = command;
  const output = behind ? 'pipe' : 'inherit';
  try {
    const child = spawn(program, args, { stdio: ['inherit', output, output], env });
    if (behind && child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_LOW);
    const said = { stdout: '', stderr: '' };
    for (const which of ['stdout', 'stderr'] as const) {
      child[which]?.setEncoding('utf8').on('data', (text: string) => {
        said[which] += text;
      });
    }
    const [status]: (number | null)[] = await once(child, 'close');
    // On stderr are how far it is, and why it fell.
    if (behind) console.log(`\n── ${name}:\n${status === 0 ? '' : said.stderr}${said.stdout}`);
    return status;
  } catch (error) {
    console.error(`${program}: ${error instanceof Error ? error.message : error}; npm install provides it`);
    return null;
  }
}

const report = readReport();
rmSync(folder, { recursive: true, force: true });
console.log(`\n${times.join('\n')}`);
const skipped = report === null ? [] : skippedTests(report);
if (skipped.length > 0) {
  console.log(`\n${skipped.length} tests were skipped. What they need, and what brings it:`);
  for (const lack of new Set(skipped.map(({ lack }) => lack))) {
    const tests = skipped.filter((test) => test.lack === lack);
    console.log(`\n  ${lack} (${tests.length === 1 ? '1 test' : `${tests.length} tests`})`);
    for (const group of new Set(tests.map(({ group }) => group))) console.log(`    ${group}`);
  }
}
if (failures.length > 0) console.log(`\nfailed: ${failures.map(({ name }) => name).join(', ')}`);

// The suite counts by its tests, not as a step.
const passed = stepsPassed - (report?.numFailedTests === 0 ? 1 : 0) + (report?.numPassedTests ?? 0);
const failedTests = report?.numFailedTests ?? 0;
const wrong = failures.length > 0 || skipped.some(({ lack }) => lack === untold);
const failed = Math.max(failures.length - (failedTests > 0 ? 1 : 0) + failedTests, wrong ? 1 : 0);
console.log(`\nin ${seconds(started)}:\n${passed} passed, ${failed} failed`);
process.exitCode = wrong ? 1 : 0;

function readReport(): TestReport | null {
  try {
    return JSON.parse(readFileSync(reportFile, 'utf8')) as TestReport;
  } catch {
    return null; // no step came to write one
  }
}

/** Each skipped test by its file and its group, or its own title where others of that group ran; what it lacks, and what brings that. */
function skippedTests({ testResults }: TestReport): { readonly group: string; readonly lack: string }[] {
  return testResults.flatMap(({ name, assertionResults }) => {
    const isSkipped = ({ status }: { readonly status: string }) =>
      status === 'pending' || status === 'skipped';
    const groupOf = (titles: readonly string[]): string => titles.join(' › ');
    const ran = assertionResults.filter((test) => !isSkipped(test));
    const mixed = new Set(['', ...ran.map(({ ancestorTitles }) => groupOf(ancestorTitles))]);
    return assertionResults.filter(isSkipped).map(({ ancestorTitles, title, meta: { lack } }) => {
      const group = groupOf(ancestorTitles);
      return {
        group: `${relative('.', name)}: ${mixed.has(group) ? groupOf([...ancestorTitles, title]) : group}`,
        lack: lack === undefined ? untold : `${lack.what}: ${lack.remedy}`,
      };
    });
  });
}
