import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { families, type Tuning } from '../moe/families/index.js';
import { keepTuned, tunedIn, tuningPath } from '../moe/index.js';
import { runTuning, sweep, type TuneEvent } from '../tools/bench/index.js';
import type { Command, FlagsOf } from './commander.js';
import {
  choice,
  combineDtypeOption,
  dtypeOption,
  integerFrom,
  listOfTokens,
  profileOption,
  ranks,
  requireOutputFile,
  requireOutputFolder,
} from './options.js';

const define = (command: Command) =>
  command
    .addOption(profileOption('the layer of a model'))
    .addOption(
      choice(
        '--family <name>',
        'of kernels',
        families.map(({ name }) => name),
        families[0]!.name,
      ),
    )
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4)
    .option('--tokens <list>', 'tokens a rank (default: 1, 2, 4 … 4096)', listOfTokens)
    .addOption(dtypeOption('bf16'))
    .addOption(combineDtypeOption())
    .option('--budget <seconds>', 'for all of it', integerFrom(1, 2 ** 20), 300)
    .option('-o, --output <file>', 'default: $HEDDLE_TUNING, else tuning.json beside the compiled kernels')
    .option('--json', 'print what was found as JSON')
    .addHelpText(
      'after',
      `
What it finds is added to the file, in place of older entries of the same shapes. ExpertParallel.create reads it.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks GPUs.

Examples:
  $ heddle tune --ep 8 --budget 600
  $ heddle tune --tokens 64,128 --dtype fp8`,
    );

export const register = (command: Command) => define(command).action(tune);

async function tune(flags: FlagsOf<typeof define>): Promise<void> {
  const { profile, ep, dtype, combineDtype } = flags;
  const out = flags.json ? process.stderr : process.stdout;
  const path = flags.output ?? tuningPath();
  if (path === '' || existsSync(path)) requireOutputFile('tuning file', path);
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
      tokens: flags.tokens ?? sweep(1, 4096, 2),
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
