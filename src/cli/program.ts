/**
 * The program `heddle`. Only the module of the command that was asked for is loaded, so help is instant and a command
 * works even where another one's libraries do not.
 */
import { CommanderError } from 'commander';
import { ArgumentError, FileError, HeddleError, messageOf, UnavailableError } from '../base/errors.js';
import { Command } from './commander.js';
import { version } from './start.js';

/** Every command, which is a module of this folder, and its description. */
const descriptions = {
  demo: 'one round of a Mixture-of-Experts layer, or a whole layer: verified, and shown',
  check: 'look for races in the kernels, on the simulated machine',
  emit: 'print the CUDA C++ that a kernel becomes',
  export: 'what a runtime in another language needs to launch the kernels without Node.js',
  doctor: 'look at this machine: what Heddle can use, what each thing enables, what is missing',
  run: 'start a program as the ranks of a local world, one process each',
  bench: 'measure dispatch and combine on this machine, beside its limits and NCCL',
  tune: 'find the launch parameters that are fastest on this machine, for later runs to use',
  plan: 'predict dispatch and combine on a cluster that is not there yet, with ranges',
  proxy: 'move the messages of a rank between hosts, for kernels that Python launches',
  fabric: 'the network between machines: list what libfabric offers here',
};

/** Every command, with the module of its options, which is loaded for this command alone. */
export const commands = Object.entries(descriptions).map(([name, description]) => ({
  ...{ name, description },
  load: (): Promise<{ register(command: Command): void }> => import(`./${name}.js`),
}));

/** A mistake in how Heddle was called, or something that this machine lacks. */
const usageExitCode = 2;

/** Runs `heddle` with these arguments; resolves with the exit code. */
export async function heddle(args: readonly string[]): Promise<number> {
  const program = new Command('heddle')
    .description('Mixture-of-Experts dispatch and combine, in TypeScript from the API to the GPU warp')
    .version(version())
    .showSuggestionAfterError()
    .exitOverride()
    // Options behind a command's name belong to that command.
    .enablePositionalOptions()
    .addHelpText(
      'after',
      `
Exit code: 0 when all is well, 1 when something was found or went wrong, 2 for a mistake in the arguments or
something that this machine lacks.

Examples:
  $ heddle demo
  $ heddle check --mutants
  $ heddle emit one_sided_dispatch --shape ranks=8,topk=8 > dispatch.cu`,
    );
  const wanted = commandIn(args);
  // A `--json` that `heddle run` passes on to its program is not meant for heddle.
  const passedOn = (): number => program.commands.find((one) => one.name() === 'run')?.args.length ?? 0;
  const json = (): boolean => args.slice(0, args.length - passedOn()).includes('--json');
  // As JSON, what commander finds wrong is told like any other mistake.
  program.configureOutput({ outputError: (text, write) => (json() ? undefined : write(text)) });
  try {
    for (const { name, description, load } of commands) {
      const command = program.command(name).description(description);
      if (name === wanted) (await load()).register(command);
    }
    if (args.length === 0) {
      program.outputHelp();
      return 0;
    }
    requireSubcommand(program, args);
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (!(error instanceof CommanderError)) return report(error, json(), optionsOf(program, wanted));
    if (error.exitCode === 0) return 0;
    if (json()) printError('HEDDLE_ARGUMENT', error.message.replace(/^error: /, ''));
    return usageExitCode;
  }
}

/** `heddle check …`, `heddle help check`: the command whose module must be loaded. */
function commandIn(args: readonly string[]): string | undefined {
  const [first, second] = args.filter((arg) => !arg.startsWith('-'));
  return first === 'help' ? second : first;
}

/** A word behind a command that has commands of its own is one of these, or a module that it takes; commander would count it as an argument too many. */
function requireSubcommand(program: Command, [name, word]: readonly string[]): void {
  const { commands: known } = program.commands.find((command) => command.name() === name) ?? { commands: [] };
  if (known.length === 0 || word === undefined || word.startsWith('-')) return;
  const names = [...known.map((command) => command.name()), 'help'];
  const takesModule = name === 'bench' && /[/\\.]/.test(word);
  if (!names.includes(word) && !takesModule)
    throw new ArgumentError(`command of ${name}`, word, `one of ${names.join(', ')}`);
}

const printError = (code: string, message: string): void => {
  process.stdout.write(`${JSON.stringify({ error: { code, message } })}\n`);
};

/** Where the documentation says what to do about an error. */
const pageOf = (code: string): string =>
  `docs/${code.startsWith('HK') ? 'language' : 'troubleshooting'}.md#${code.toLowerCase()}`;

/** The options of a command, and of the commands that it has. */
function optionsOf(program: Command, name: string | undefined) {
  const command = program.commands.find((one) => one.name() === name);
  return command === undefined ? [] : [command, ...command.commands].flatMap(({ options }) => options);
}

/** Says what went wrong; returns the exit code. An argument that was given as an option is called like the option. */
function report(error: unknown, json: boolean, options: ReturnType<typeof optionsOf>): number {
  const known = error instanceof HeddleError;
  const code = known ? error.code : 'HEDDLE_INTERNAL';
  const argument = error instanceof ArgumentError ? error.argument : '';
  const option = options.find((one) => one.attributeName() === argument);
  // The message begins with the argument.
  const message = messageOf(error).replace(argument, option?.long ?? argument);
  if (json) printError(code, message);
  else if (known)
    process.stderr.write(
      `heddle: ${message}${message.includes('\n') ? '\n' : ' '}(${code}: ${pageOf(code)})\n`,
    );
  else {
    const stack = error instanceof Error ? (error.stack ?? message) : message;
    process.stderr.write(`heddle failed unexpectedly. Please report this:\n${stack}\n`);
  }
  return isMistake(error) ? usageExitCode : 1;
}

/** A mistake in the arguments, be it a file that is not there, or something that this machine lacks. */
const isMistake = (error: unknown): boolean =>
  error instanceof ArgumentError ||
  error instanceof UnavailableError ||
  (error instanceof FileError && error.done === 'read');
