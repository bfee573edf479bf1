import { availableParallelism } from 'node:os';
import { styleText } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { ArgumentError, onlyGiven, requireOneOf } from '../base/errors.js';
import { writeOutput } from '../base/files/index.js';
import { chromeTrace } from '../base/timeline.js';
import {
  type Assumption,
  assumptions,
  lastSteps,
  type Step,
  scheduleTimeline,
  Trace,
} from '../gpu/sim/index.js';
import {
  type Cause,
  type CheckOptions,
  type CheckProgress,
  type CheckReport,
  type CheckSubject,
  check,
  checkSubjects,
  checkSubjectsModule,
  formatCause,
  loadOwnModule,
  type PtxContents,
  ptxContents,
  ptxSubject,
  subjectsNamed,
} from '../verify/check/index.js';
import { github, knownFrom, sarif } from './check-formats.js';
import { type Command, type FlagsOf, Option } from './commander.js';
import { integerFrom, isModule, requireOutputFile } from './options.js';
import { progressOn } from './progress.js';

type Options = FlagsOf<typeof define>;

/** With more workers, each of which compiles the kernels anew, a check takes longer. */
const mostWorkers = 8;

/**
 * Settings of V8 for a check. Kernels are large functions that run for a few schedules only, so optimising them costs
 * more than it saves and takes processors from other workers: V8 leaves large functions as they are, and others for
 * longer. Almost everything that simulated threads allocate is garbage a few steps later, so a larger young
 * generation (`young` MiB) has little left to keep.
 */
const optimized = {
  ever: { bytes: 61_440, after: 67_584, young: { least: 1, most: 16 } },
  inChecks: { bytes: 3_000, after: 400_000, young: { least: 32, most: 32 } },
};
/** Node.js 20 alone takes it; newer ones have a quick compiler in between, and refuse the flag. */
const takesBudget = Number.parseInt(process.versions.node, 10) < 22;
function optimize({ bytes, after, young }: (typeof optimized)['ever']): void {
  setFlagsFromString(`--max-optimized-bytecode-size=${bytes}`);
  setFlagsFromString(`--min-semi-space-size=${young.least}`);
  setFlagsFromString(`--max-semi-space-size=${young.most}`);
  if (takesBudget) setFlagsFromString(`--interrupt-budget=${after}`);
}

const count = integerFrom(1, 1_000_000);

const rules = (text: string): readonly Assumption[] =>
  text.split(',').map((rule) => requireOneOf('--assume', rule, assumptions));

const define = (command: Command) =>
  command
    .argument(
      '[kernel...]',
      'kernels, families with all that they run, or configurations; everything by default. Or first a module of your own: ./mine.ts. Or behind -- a CUDA program and its arguments',
    )
    .option(
      '--seeds <n>',
      'schedules a configuration (default: as many as make about 800 in all, at least two); or --schedules',
      count,
    )
    .addOption(new Option('--schedules <n>', 'the same').argParser(count).conflicts('seeds').hideHelp())
    .option(
      '--mutants',
      'also weaken or remove each synchronising operation, one at a time: each must be caught',
    )
    .option(
      '--replay <schedule>',
      "one schedule only, as a finding names it: 'configuration/random-17', or 'random-17' of all",
    )
    .option('--trace <file>', 'with --replay: write the schedule as a timeline, for ui.perfetto.dev')
    .addOption(
      new Option(
        '--list',
        'run nothing; list the kernels, and the configurations of those that are named',
      ).conflicts(['replay', 'trace', 'seeds', 'schedules', 'mutants', 'workers']),
    )
    .option(
      '--workers <n>',
      `threads that run schedules; the report does not depend on it (default: one a core, at most ${mostWorkers})`,
      count,
    )
    .option('--letter', 'what GPUs order today, though PTX does not say so, also ends the check with 1')
    .option(
      '--assume <rules>',
      `do not report what these rules of GPUs order: ${assumptions.join(',')}, or some of them`,
      rules,
    )
    .option('--json', 'print the report as JSON')
    .addOption(
      new Option(
        '--format <name>',
        'print annotations of GitHub’s workflows, at the lines of the source, or SARIF, in place of the report',
      )
        .choices(['github', 'sarif'])
        .conflicts(['json', 'list', 'replay']),
    )
    .addOption(
      new Option(
        '--baseline <file>',
        'a report of --json: what it has is known, and neither printed nor counted',
      ).conflicts(['list', 'replay']),
    )
    .option(
      '--ptx <file>',
      'instead of Heddle’s kernels, those of a file of PTX, or of several, a.ptx,b.ptx; without --host: list them, and what would be refused',
    )
    .option('--host <file>', 'the module that says how the kernels of --ptx are launched')
    .option('--gpus <n>', 'the GPUs that a program behind -- finds (default: 2)', integerFrom(1, 128))
    .addHelpText(
      'after',
      `
A module of your own exports kernels, and what 'configuration' of heddle/check makes of a name, a machine and the
program of a rank. TypeScript is loaded as it is.

Exit code: 0 when nothing was found or refused and every mutant was caught, otherwise 1; what GPUs order today though PTX's
memory model does not ('by the letter') counts only with --letter, and what --baseline has does not count; 2 for a mistake in the arguments.

Examples:
  $ heddle check
  $ heddle check one_sided_dispatch --seeds 500 --mutants
  $ heddle check portable --seeds 1
  $ heddle check 'push, 3 ranks' --seeds 500
  $ heddle check --list router
  $ heddle check ./mine.ts --mutants
  $ heddle check ./mine.ts --list ring
  $ heddle check --replay 'push, 3 ranks/priority-17'
  $ heddle check ./mine.ts --replay 'ring of 3/random-4' --trace ring.json
  $ heddle check --ptx all-reduce.ptx
  $ heddle check --ptx all-reduce.ptx --host all-reduce.ts --mutants
  $ heddle check --ptx all-reduce.ptx --host all-reduce.ts --baseline known.json --format github
  $ heddle check --gpus 4 --seeds 20 -- ./program --its --arguments`,
    );

export const register = (command: Command) =>
  define(command).action(async (all, options) => {
    const { trace, replay } = options;
    const { named, program } = behindDashes(all, command);
    requireOutputFile('--trace', trace);
    if (trace !== undefined && replay?.includes('/') !== true)
      throw new ArgumentError('--trace', trace, "with one schedule, --replay 'configuration/random-17'");
    const [module, ...rest] = named;
    const own = module !== undefined && isModule(module) ? module : null;
    const kernels = own === null ? named : rest;
    if (options.ptx !== undefined && options.host === undefined && own === null) {
      const contents = ptxContents(options.ptx);
      process.stdout.write(listPtx(contents, options.json === true));
      process.exitCode = contents.entries.some(({ refused }) => refused.length > 0) ? 1 : 0;
      return;
    }
    process.once('exit', endedEarly);
    try {
      const subjects =
        program === null
          ? await subjectsOf(own, options, kernels)
          : [await programOf(program, named, options)];
      if (options.list === true) {
        process.stdout.write(listSubjects(subjects, kernels, options.json === true));
        return;
      }
      const seeds = options.seeds ?? options.schedules ?? (program === null ? undefined : programSchedules);
      const workers = options.workers ?? Math.min(mostWorkers, availableParallelism());
      optimize(optimized.inChecks);
      const { text, clean } = await runCheck(subjects, kernels, {
        ...options,
        // Exports of a file contain functions, which cannot be sent to other threads.
        workers: options.ptx === undefined && own === null && program === null ? workers : 1,
        ...onlyGiven({ seeds }),
      });
      process.stdout.write(text);
      process.exitCode = clean ? 0 : 1;
    } finally {
      process.off('exit', endedEarly);
      // A program that calls this command may go on after it, with V8's usual settings.
      optimize(optimized.ever);
    }
  });

/** A program under check that calls process.exit() must not look like a check that found nothing. */
function endedEarly(code: number): void {
  if (code !== 0) return;
  process.stderr.write(
    'heddle: a program ended this process before the check was done: let it return instead\n',
  );
  process.exitCode = 1;
}

/** Schedules in which a program runs, unless it is said: each runs all of it. */
const programSchedules = 10;

/** The words of the command line before `--`, and the program behind it; null where there is none. */
function behindDashes(all: readonly string[], { parent }: Command) {
  const raw: readonly string[] = parent === null ? [] : Reflect.get(parent, 'rawArgs');
  const at = raw.indexOf('--');
  if (at < 0) return { named: all, program: null };
  const program = raw.slice(at + 1);
  if (program[0] === undefined) throw new ArgumentError('program', '--', 'followed by a program');
  return { named: all.slice(0, all.length - program.length), program };
}

async function programOf(
  program: readonly string[],
  named: readonly string[],
  { ptx, host, gpus, json, format }: Options,
): Promise<CheckSubject> {
  const other = named[0] ?? ptx ?? host;
  if (other !== undefined) throw new ArgumentError('kernel', other, 'left out where a program is given');
  const { programSubject } = await import('../tools/program/index.js');
  const show = json || format !== undefined ? process.stderr : process.stdout;
  return programSubject(program, gpus ?? 2, show);
}

/** The subjects to check: Heddle's own, or those that a file exports. */
async function subjectsOf(
  own: string | null,
  { ptx, host, gpus, replay, baseline, list }: Options,
  kernels: readonly string[],
): Promise<readonly CheckSubject[]> {
  if (gpus !== undefined) throw new ArgumentError('--gpus', gpus, 'given with a program: -- ./program');
  if (own !== null) {
    for (const [option, file] of Object.entries({ '--ptx': ptx, '--host': host }))
      if (file !== undefined) throw new ArgumentError(option, file, 'left out where a module is named');
    return [(await loadOwnModule(own)).subject];
  }
  if (ptx === undefined && host === undefined) return checkSubjects;
  if (ptx === undefined)
    throw new ArgumentError('--host', host, 'given with --ptx, the file whose kernels it launches');
  // What names something of a host was not meant for one that is still to be written.
  const isNew = kernels.length === 0 && [replay, baseline, list].every((option) => option === undefined);
  return [await ptxSubject(ptx, host!, isNew)];
}

function listPtx({ entries, seconds }: PtxContents, json: boolean): string {
  if (json) return `${JSON.stringify({ entries, seconds }, null, 2)}\n`;
  const lines = entries.flatMap(({ name, source, parameters, refused }) => [
    source,
    ...(source === name ? [] : [`    in the PTX: ${name}`]),
    ...parameters.map(
      (one) => `    ${one.name}: ${one.bytes} bytes${one.type === null ? '' : ` (${one.type})`}`,
    ),
    ...refused.map((message) => `    refused: ${message}`),
  ]);
  const without = entries.filter(({ refused }) => refused.length > 0).length;
  lines.push(`${counted(entries.length, 'kernel')}, read in ${seconds} s; refused: ${without || 'none'}`);
  return `${lines.join('\n')}\n`;
}

/** The list of things to check: counts, and the names of the configurations where subjects are named, or for JSON. */
export function listSubjects(
  subjects: readonly CheckSubject[],
  only: readonly string[],
  json: boolean,
): string {
  const listed = subjectsNamed(subjects, only);
  if (json) {
    const plain = listed.map(({ name, kernels, configurations }) => ({
      name,
      kernels,
      configurations: configurations.map(({ name, ranks }) => ({ name, ranks })),
    }));
    return `${JSON.stringify({ subjects: plain }, null, 2)}\n`;
  }
  const lines = listed.flatMap(({ name, kernels, configurations }) => [
    `${name}: ${counted(configurations.length, 'configuration')} of ${kernels.join(', ')}`,
    ...(only.length === 0 ? [] : configurations.map((one) => `  ${one.name}`)),
  ]);
  return `${lines.join('\n')}\n`;
}

/** Checks the subjects; returns what is to be printed and whether all is well. */
export async function runCheck(
  subjects: readonly CheckSubject[],
  only: readonly string[],
  options: Options,
): Promise<{ readonly text: string; readonly clean: boolean }> {
  const { baseline, letter = false } = options;
  const unknown = baseline === undefined ? (causes: readonly Cause[]) => causes : knownFrom(baseline);
  const started = performance.now();
  const say = progressOn(process.stderr);
  const progress = ({ phase, done, total, what, findings }: CheckProgress): void => {
    const found = findings === 0 ? '' : `, ${findings} found`;
    say(`heddle check: ${phase} ${done} of ${total}${found}: ${what}`);
  };
  const prints: string[] = [];
  const { seeds, replay, workers, assume, mutants: withMutants = false } = options;
  let trace: Trace | null = null;
  const watch: CheckOptions['watch'] = (...machine) => {
    trace = new Trace();
    return trace.watch(...machine);
  };
  const report = await check(subjects, {
    ...{ only, progress, mutants: withMutants, ...onlyGiven({ seeds, replay, assume }) },
    ...(replay !== undefined && { print: (line: string) => void prints.push(line) }),
    ...(replay?.includes('/') && { watch }),
    ...(workers !== undefined && { workers: { count: workers, module: checkSubjectsModule } }),
  });
  say(null);
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  const causes = unknown(report.causes);
  const { races, byTheLetter } = kindsOf(causes);
  const wrong = races + (letter ? byTheLetter : 0);
  const clean = wrong === 0 && report.mutants.survivors.length === 0;
  const steps = stepsOf(trace);
  if (options.trace !== undefined)
    writeOutput(options.trace, JSON.stringify(chromeTrace(scheduleTimeline(steps, report.findings))));
  const sources = subjects.flatMap((subject) => subject.sources ?? []);
  if (options.format === 'sarif')
    return { text: `${JSON.stringify(sarif({ causes, sources, letter }), null, 2)}\n`, clean };
  const annotations = options.format === 'github' ? github({ causes, sources, letter }) : null;
  if (options.json !== true)
    return {
      text: [...prints, render({ ...report, causes }, options, { seconds, clean, steps, annotations })].join(
        '\n',
      ),
      clean,
    };
  const { kernels, configurations, schedules, findings, mutants } = report;
  const printed = {
    ...{ kernels, configurations, schedules, findings, mutants, seconds },
    causes: causes.map((cause) => ({
      ...cause,
      findings: cause.findings.map((one) => findings.indexOf(one)),
    })),
    ...(replay !== undefined && { prints }),
  };
  return { text: `${JSON.stringify(printed, null, 2)}\n`, clean };
}

/** The steps of the schedule that was replayed; none where more than one schedule ran. */
function stepsOf(trace: Trace | null): readonly Step[] {
  trace?.end();
  return trace?.steps ?? [];
}

function render(
  report: CheckReport,
  options: Options,
  found: {
    readonly seconds: number;
    readonly clean: boolean;
    readonly steps: readonly Step[];
    /** Lines in place of the causes. */
    readonly annotations: readonly string[] | null;
  },
): string {
  const { seconds, clean, steps, annotations } = found;
  const colour = process.stdout.isTTY ? styleText : (_: unknown, text: string) => text;
  const { causes, mutants } = report;
  const lines: string[] = [...(annotations ?? [])];
  for (const cause of annotations === null ? causes : []) {
    lines.push(colour(cause.rules.length > 0 ? 'yellow' : 'red', formatCause(cause)), '');
    for (const finding of steps.length > 0 ? cause.findings : [])
      lines.push('  before it:', lastSteps(finding, steps), '');
  }
  for (const { id, text } of mutants.survivors) {
    lines.push(colour('yellow', `Survivor: ${id}`), `    ${text}`, '');
  }
  const findings = causes.flatMap((cause) => cause.findings).length;
  const known = report.findings.length - findings;
  lines.push(
    `${counted(report.kernels.length, 'kernel')}, ${counted(report.configurations, 'configuration')}, ${counted(report.schedules, 'schedule')}: ${
      findings === 0 ? 'no finding' : counted(findings, 'finding')
    }${known > 0 ? `, and ${known} known` : ''}`,
  );
  const { races, byTheLetter } = kindsOf(causes);
  if (findings > races + byTheLetter) lines.push(`They have ${counted(races + byTheLetter, 'cause')}.`);
  if (byTheLetter > 0)
    lines.push(
      `${counted(byTheLetter, 'cause')} by the letter of PTX alone, which GPUs order today (--letter)`,
    );
  if (options.mutants === true) lines.push(`${counted(mutants.total, 'mutant')}: ${mutants.killed} caught`);
  if (mutants.elsewhere.length > 0) {
    const kernels = [...new Set(mutants.elsewhere.map(({ kernel }) => kernel))].join(' ');
    lines.push(
      `${counted(mutants.elsewhere.length, 'mutant')} of kernels that other configurations run too, not caught here: heddle check ${kernels} --mutants`,
    );
  }
  lines.push(colour(clean ? 'green' : 'red', `${clean ? 'clean' : 'not clean'}, in ${seconds} s`));
  return `${lines.join('\n')}\n`;
}

function kindsOf(causes: CheckReport['causes']) {
  const byTheLetter = causes.filter(({ rules }) => rules.length > 0).length;
  return { races: causes.length - byTheLetter, byTheLetter };
}

const counted = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;
