import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Command, Option } from 'commander';
import { families, type Tuning } from '../moe/families/index.js';
import { keepTuned, tunedIn, tuningPath } from '../moe/index.js';
import { runTuning, sweep, type TuneEvent, type WorkloadOptions } from '../tools/bench/index.js';
import {
  combineDtypeOption,
  dtypeOption,
  integerFrom,
  profileOption,
  ranks,
  requireOutputFile,
  requireOutputFolder,
  withSweep,
} from './options.js';

interface TuneFlags {
  readonly family: string;
  readonly profile: string;
  readonly ep: number;
  readonly begin: number;
  readonly end: number;
  readonly factor: number;
  readonly tokens?: readonly number[];
  readonly dtype: WorkloadOptions['dtype'];
  readonly combineDtype: WorkloadOptions['combineDtype'];
  readonly budget: number;
  readonly output?: string;
  readonly json?: boolean;
}

export function register(program: Command): void {
  const command = program
    .command('tune')
    .description('find the launch parameters that are fastest on this machine, for later runs to use')
    .addOption(profileOption('the layer of a model'))
    .addOption(
      new Option('--family <name>', 'of kernels')
        .choices(families.map(({ name }) => name))
        .default(families[0]!.name),
    )
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4);
  withSweep(command, '', 4096)
    .addOption(dtypeOption('bf16'))
    .addOption(combineDtypeOption())
    .option('--budget <seconds>', 'for all of it', integerFrom(1, 2 ** 20), 300)
    .option('-o, --output <file>', 'default: $HEDDLE_TUNING, else ~/.cache/heddle/tuning.json')
    .option('--json', 'print what was found as JSON')
    .addHelpText(
      'after',
      `
What it finds is added to the file, in place of older entries of the same shapes. ExpertParallel.create reads it.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks GPUs.

Examples:
  $ heddle tune --ep 8 --budget 600
  $ heddle tune --tokens 64,128 --dtype fp8`,
    )
    .action(tune);
}

async function tune(flags: TuneFlags): Promise<void> {
  const { profile, ep, dtype, combineDtype, begin, end, factor } = flags;
  const out = flags.json ? process.stderr : process.stdout;
  const path = flags.output ?? tuningPath();
  if (existsSync(path)) requireOutputFile('tuning file', path);
  else requireOutputFolder('folder of the tuning file', dirname(path));
  tunedIn(path);
  const hear = (event: TuneEvent): void => {
    if (event.type === 'tried') {
      if (process.stderr.isTTY)
        process.stderr.write(`\r\x1b[K${event.tokens} tokens: ${event.microseconds.toFixed(2)} µs …`);
      return;
    }
    if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
    const { shape, before, tried, cut } = event;
    out.write(
      `${String(shape.maxTokens).padStart(6)} tokens  ${before.toFixed(2)} → ${shape.microseconds.toFixed(2)} µs  ` +
        `${inWords(shape.tuning)}  (${tried} tried${cut ? ', out of time' : ''})\n`,
    );
    keepTuned(path, shape);
  };
  process.stderr.write(`heddle tune: at most ${flags.budget} s; what is found goes to ${path}\n`);
  const shapes = await runTuning(
    {
      workload: { profile, ranks: ep, dtype, combineDtype, router: 'uniform', seed: 1 },
      family: flags.family,
      tokens: flags.tokens ?? sweep(begin, end, factor),
      budgetSeconds: flags.budget,
    },
    hear,
  );
  if (flags.json) process.stdout.write(`${JSON.stringify(shapes, null, 2)}\n`);
}

/** A tuning in words: 'combine way push, parts 1, …; dispatch …' */
const inWords = (tuning: Tuning): string =>
  Object.entries(tuning)
    .map(
      ([phase, knobs]) =>
        `${phase} ${Object.entries(knobs)
          .map(([key, value]) => `${key} ${value}`)
          .join(', ')}`,
    )
    .join('; ');
