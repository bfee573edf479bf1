import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { families } from '../moe/families/index.js';
import { keepTuned, tunedIn, tuningPath } from '../moe/index.js';
import { sweep, type TunePlan, tuneBench } from '../tools/bench/index.js';
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
import { showBench } from './show-bench.js';

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
  const { profile, ep, dtype, combineDtype, family } = flags;
  const path = flags.output ?? tuningPath();
  if (path === '' || existsSync(path)) requireOutputFile('tuning file', path);
  else requireOutputFolder('folder of the tuning file', dirname(path));
  tunedIn(path);
  const plan: TunePlan = {
    workload: { profile, ranks: ep, dtype, combineDtype, router: 'uniform', seed: 1 },
    tokens: flags.tokens ?? sweep(1, 4096, 2),
    ...{ family, budgetSeconds: flags.budget, device: 'cuda', iterations: 9 },
  };
  process.stderr.write(`heddle tune: at most ${flags.budget} s; what is found goes to ${path}\n`);
  await showBench(tuneBench, plan, flags, {
    each(_, { shape }) {
      keepTuned(path, shape);
      return '';
    },
  });
}
