/**
 * `npm test`: everything that must hold before a change is done. Cheapest first, and the first step that fails ends it.
 * The last line counts: every test of the suite, and one for each other step.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';

interface Step {
  readonly name: string;
  readonly command: readonly string[];
}

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
    }[];
  }[];
}

const folder = mkdtempSync(join(tmpdir(), 'heddle-test-'));
const reportFile = join(folder, 'report.json');

const steps: readonly Step[] = [
  {
    name: 'lint and format (Biome)',
    command: ['biome', 'check', '--error-on-warnings', '.'],
  },
  {
    name: 'import directions (dependency-cruiser)',
    command: ['depcruise', '--config', '.dependency-cruiser.cjs', 'src'],
  },
  { name: 'types (tsc)', command: ['tsc', '-p', 'tsconfig.json'] },
  { name: 'build', command: ['tsc', '-p', 'tsconfig.build.json'] },
  {
    name: 'unit and property tests (Vitest)',
    command: ['vitest', 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${reportFile}`],
  },
  { name: 'synchronisation of every kernel (heddle check)', command: ['node', 'dist/cli/main.js', 'check'] },
];

/** npm puts node_modules/.bin on PATH; without npm it is put there here. */
const env = { ...process.env, PATH: `${join('node_modules', '.bin')}:${process.env.PATH ?? ''}` };

console.log(
  `${steps.length} steps, which may take a quarter of an hour on two cores; most of it goes to the last two.`,
);
const started = performance.now();
const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(1)} s`;
const times: string[] = [];
let stepsPassed = 0;
let failure: Step | null = null;

for (const [i, step] of steps.entries()) {
  console.log(`\n── ${i + 1}/${steps.length} ${step.name}`);
  const [program, ...args] = step.command;
  const begun = performance.now();
  const { status, error } = spawnSync(program!, args, { stdio: 'inherit', env });
  if (error !== undefined) console.error(`${program}: ${error.message}; npm install provides it`);
  times.push(`${seconds(begun).padStart(8)}  ${step.name}`);
  if (status !== 0) {
    failure = step;
    break;
  }
  stepsPassed += 1;
}

const tests = readReport();
rmSync(folder, { recursive: true, force: true });
console.log(`\n${times.join('\n')}`);
if (tests !== null && tests.numPendingTests > 0) {
  console.log(
    `\n${tests.numPendingTests} tests skipped (this machine lacks what they need; their files say what):`,
  );
  for (const group of skippedGroups(tests)) console.log(`  ${group}`);
}
if (failure !== null) console.log(`\nfailed: ${failure.name}`);

// The suite counts by its tests, not as a step.
const passed = stepsPassed - (tests?.numFailedTests === 0 ? 1 : 0) + (tests?.numPassedTests ?? 0);
const failed = Math.max(tests?.numFailedTests ?? 0, failure === null ? 0 : 1);
console.log(`\nin ${seconds(started)}:\n${passed} passed, ${failed} failed`);
process.exitCode = failure === null ? 0 : 1;

function readReport(): TestReport | null {
  try {
    return JSON.parse(readFileSync(reportFile, 'utf8')) as TestReport;
  } catch {
    return null; // no step came to write one
  }
}

/** File and group of each skipped test, or its own title where it is in no group. */
function skippedGroups({ testResults }: TestReport): string[] {
  const groups = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === 'pending' || status === 'skipped')
      .map(({ ancestorTitles, title }) => `${relative('.', name)}: ${ancestorTitles.join(' › ') || title}`),
  );
  return [...new Set(groups)];
}
