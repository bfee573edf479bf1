import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { styleText } from 'node:util';
import { writeOutput } from '../base/files/index.js';
import { Launch, type LaunchResult, MAX_RANKS } from '../net/world/index.js';
import type { Command, FlagsOf } from './commander.js';
import { choice, integerFrom, numberIn, requireOutputFile, set, times } from './options.js';

/** Signals that end a program, passed on to its ranks. */
const SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Neighbouring ranks differ. */
const COLOURS = ['cyan', 'yellow', 'green', 'magenta', 'blue', 'red'] as const;

const define = (command: Command) =>
  command
    .argument('<program>', 'JavaScript or TypeScript file; World.join in it joins the world')
    .argument('[args...]', 'passed on to the program')
    // Options behind the program's name are its own.
    .passThroughOptions()
    .requiredOption('-n, --ranks <count>', 'how many ranks', integerFrom(1, MAX_RANKS))
    .option(
      '--nodes <count>',
      'as equal nodes of consecutive ranks, however the GPUs are connected',
      integerFrom(1, MAX_RANKS),
    )
    .addOption(
      choice('--device <name>', 'simulate the GPUs: one process a node, whose program runs for each rank', [
        'sim',
      ]),
    )
    .option('--timeout <seconds>', 'end everything after this time (exit code 124)', seconds)
    .option('--grace <seconds>', 'how long ranks may take to end after a failure or a signal', seconds, 5)
    .option('--keep-going', 'when a rank is lost the others go on: for programs that renew their world')
    .option(
      '--events <file>',
      'write what happens to the world to a file, a JSON line for each event of each rank',
    )
    .option(
      '--restart <times>',
      'start a rank that failed anew, so often, as a newcomer whom the others take in when they renew; implies --keep-going',
      times,
    )
    .option(
      '--rejoin',
      'with --restart: it takes the place of the rank in the same world, whose layers leave out lost ranks',
    )
    .option('--no-prefix', 'forward output as it is, without [rank 3]')
    .option('--json', 'print a summary as JSON; the output of the ranks goes to stderr')
    .addHelpText(
      'after',
      `
Exit code: 0, or that of the rank that failed first (128 + number for a signal; 2 where its machine lacks something,
with a stack if DEBUG is set), or 124 after --timeout. With --keep-going 0 where one rank ended well.

Examples:
  $ heddle run -n 8 program.ts
  $ heddle run -n 4 --nodes 2 --device sim examples/two-nodes.ts
  $ heddle run -n 4 --timeout 60 --json train.js --steps 100`,
    );

export const register = (command: Command) =>
  define(command).action(async (file, args, flags) => {
    process.exitCode = await run(file, args, flags);
  });

async function run(file: string, args: readonly string[], flags: FlagsOf<typeof define>): Promise<number> {
  const { ranks, nodes, device, timeout, grace, keepGoing, restart: restarts, rejoin, json, events } = flags;
  requireOutputFile('--events', events);
  if (events !== undefined) {
    writeOutput(events, '');
    process.env.HEDDLE_EVENTS = resolve(events);
  }
  const launch = await Launch.start({
    ...{ ranks, args, program: file },
    ...set({ nodes, device, keepGoing, restarts, rejoin }),
    graceMs: Math.round(grace * 1000),
    ...(timeout !== undefined && { timeoutMs: Math.round(timeout * 1000) }),
    ...(json && { stdout: process.stderr }),
    prefix: flags.prefix ? labelFor(json ? process.stderr : process.stdout) : () => '',
    onNote: (note) => process.stderr.write(`heddle run: ${note}\n`),
  });
  const forward = (signal: NodeJS.Signals) => launch.signal(signal);
  for (const signal of SIGNALS) process.on(signal, forward);
  // The reader of the output went away (`heddle run … | head`): nobody is left to run for.
  process.stdout.once('error', () => {
    launch.signal('SIGTERM');
    process.stdout.on('error', () => {});
  });
  const result = await launch.finished;
  const hint = result.exitCode === 1 ? awaitsInCommonJs(file) : null;
  if (hint !== null) process.stderr.write(`heddle run: ${hint}\n`);
  for (const signal of SIGNALS) process.off(signal, forward);
  if (json) process.stdout.write(`${JSON.stringify(summary(file, ranks, result))}\n`);
  return result.exitCode;
}

function summary(file: string, ranks: number, result: LaunchResult) {
  const { exitCode, timedOut, seconds, firstFailure, results } = result;
  return {
    ...{ program: resolve(file), ranks, exitCode, timedOut, seconds },
    ...{ firstFailure: firstFailure?.rank ?? null, results },
  };
}

function labelFor(stream: NodeJS.WriteStream): (label: string, rank: number) => string {
  const colours = stream.isTTY && stream.hasColors();
  return (label, rank) => {
    const text = `[${label}]`;
    return `${colours ? styleText(COLOURS[rank % COLOURS.length]!, text) : text} `;
  };
}

/** At least one millisecond, and no more than a timer takes. */
const seconds = numberIn({ from: 0.001, to: 2_000_000 });

/**
 * The advice for a program that failed because it awaits at its top level in a project of CommonJS modules; null if
 * that was not the reason.
 */
function awaitsInCommonJs(program: string): string | null {
  // .mts and .cts, .mjs and .cjs say themselves what they are.
  if (!/\.[jt]sx?$/.test(program)) return null;
  const nearest = nearestPackage(dirname(resolve(program)));
  if (nearest === null || nearest.type === 'module') return null;
  // A line without indentation is taken for one at the top level of the module.
  if (!/^((const|let|var)\b.*=\s*)?await\b/m.test(readFileSync(program, 'utf8'))) return null;
  return (
    `${program} awaits at its top level, which only modules may, and ${nearest.path} does not say ` +
    `"type": "module"; if that is why it failed: npm pkg set type=module`
  );
}

function nearestPackage(folder: string): { readonly path: string; readonly type: unknown } | null {
  const path = join(folder, 'package.json');
  try {
    return { path, type: JSON.parse(readFileSync(path, 'utf8')).type };
  } catch {
    const above = dirname(folder);
    return above === folder ? null : nearestPackage(above);
  }
}
