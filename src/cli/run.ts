import { resolve } from 'node:path';
import { ArgumentError, onlyGiven } from '../base/errors.js';
import { Launch, type LaunchResult, MAX_RANKS } from '../net/world/index.js';
import type { Command, FlagsOf } from './commander.js';
import { choice, integerFrom, numberIn, times } from './options.js';

/** Signals that end a program, passed on to its ranks. */
const SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

const define = (command: Command) =>
  command
    .argument(
      '<program>',
      'JavaScript or TypeScript file; World.join in it joins the world. With --device sim also a CUDA program',
    )
    .argument('[args...]', 'passed on to the program')
    // Options behind the program's name are its own.
    .passThroughOptions()
    .option('-n, --ranks <count>', 'how many ranks; a CUDA program starts its own', integerFrom(1, MAX_RANKS))
    .option('--gpus <count>', 'the GPUs that a CUDA program finds (default: 2)', integerFrom(1, 128))
    .option(
      '--places <count>',
      'how many ranks there may be; more may come (default: --ranks)',
      integerFrom(1, MAX_RANKS),
    )
    .option(
      '--nodes <count>',
      'as equal nodes of consecutive ranks, however the GPUs are connected',
      integerFrom(1, MAX_RANKS),
    )
    .addOption(
      choice(
        '--device <name>',
        'simulate the GPUs; each node is one process, which runs the program once for each rank',
        ['sim'],
      ),
    )
    .option('--timeout <seconds>', 'end everything after this time (exit code 124)', seconds)
    .option('--grace <seconds>', 'how long ranks may take to end after a failure or a signal', seconds, 5)
    .option('--keep-going', "when a rank is lost the others go on: layers need onLoss: 'mask'")
    .option('--restart <times>', 'when a rank is lost start all anew, in a new world', times)
    .option('--rejoin', 'with --restart: only the failed process is started anew, in its place')
    .option('--no-prefix', 'forward output as it is, without [rank 3]')
    .option('--json', 'print a summary as JSON; the output of the ranks goes to stderr')
    .addHelpText(
      'after',
      `
Exit code:
  0    all ranks ended well; with --keep-going: at least one did
  n    otherwise that of the rank that failed first, or of the CUDA program: its own exit code, or 128 + the number of the signal that ended it
  2    a mistake in the arguments, or the machine of that rank lacks something (DEBUG=1 shows the stack)
  124  --timeout ended the run

Examples:
  $ heddle run -n 8 program.ts
  $ heddle run -n 4 --nodes 2 --device sim examples/two-nodes.ts
  $ heddle run -n 4 --timeout 60 --json train.js --steps 100
  $ heddle run --device sim --gpus 4 -- ./program --its --arguments`,
    );

export const register = (command: Command) =>
  define(command).action(async (file, args, flags) => {
    const { ranks, gpus, device, ...others } = flags;
    if (isScript.test(file)) {
      if (gpus !== undefined) throw new ArgumentError('--gpus', gpus, 'given with a CUDA program');
      if (ranks === undefined) command.error("error: required option '-n, --ranks <count>' not specified");
      process.exitCode = await run(file, args, { ...others, ...onlyGiven({ device }), ranks });
      return;
    }
    if (device === undefined)
      throw new ArgumentError(
        'program',
        file,
        'a JavaScript or TypeScript file, or with --device sim a CUDA program',
      );
    const other = command.options.find(
      (one) =>
        command.getOptionValueSource(one.attributeName() as keyof typeof flags) === 'cli' &&
        !ofPrograms.includes(one.attributeName()),
    );
    if (other !== undefined)
      throw new ArgumentError('program', file, `a script where ${other.long} is given`);
    if (others.timeout !== undefined) setTimeout(() => process.exit(124), 1000 * others.timeout).unref();
    const { runProgram } = await import('../tools/program/index.js');
    process.exitCode = await runProgram([file, ...args], gpus ?? 2);
  });

/** The options that count for CUDA programs. */
const ofPrograms: readonly string[] = ['device', 'gpus', 'timeout'];
const isScript = /\.[cm]?[jt]s$/;

async function run(
  file: string,
  args: readonly string[],
  flags: Omit<FlagsOf<typeof define>, 'gpus'> & { readonly ranks: number },
): Promise<number> {
  const { ranks, timeout, grace, restart: restarts, json, prefix, ...others } = flags;
  const launch = await Launch.start({
    ...{ ranks, args, program: file, prefix },
    ...onlyGiven({ restarts, ...others }),
    graceMs: Math.round(grace * 1000),
    ...(timeout !== undefined && { timeoutMs: Math.round(timeout * 1000) }),
    ...(json && { stdout: process.stderr }),
    onNote: (note) => process.stderr.write(`heddle run: ${note}\n`),
  });
  const forward = (signal: NodeJS.Signals) => launch.signal(signal);
  for (const signal of SIGNALS) process.on(signal, forward);
  // The reader of the output went away (`heddle run … | head`): nobody is left to run for.
  for (const output of [process.stdout, process.stderr])
    output.once('error', () => {
      launch.signal('SIGTERM');
      output.on('error', () => {});
    });
  const result = await launch.finished;
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

/** At least one millisecond, and no more than a timer takes. */
const seconds = numberIn({ from: 0.001, to: 2_000_000 });
