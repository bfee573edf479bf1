import { type Command, Option } from 'commander';
import { type Alignment, alignments, type ExpertForm, expertForms } from '../moe/layer/index.js';
import {
  benchExperts,
  type ExpertsBenchPlan,
  expertsHead,
  expertsLine,
  unitOf,
} from '../tools/bench/index.js';
import { closing, type Measuring, measuring, profileOption, tabulate } from './bench-common.js';
import { integerFrom, listOfTokens, ranks } from './counts.js';

interface ExpertsFlags extends Measuring {
  readonly profile: string;
  readonly ep: number;
  readonly tokens?: readonly number[];
  readonly form: ExpertForm;
  readonly alignment: string;
  readonly capacity?: number;
}

/** Adds `heddle bench experts`. */
export function registerExperts(bench: Command): void {
  const command = bench
    .command('experts')
    .description('measure what experts need of a rank’s rows: plan, expand and reduce, beside a device copy')
    .addOption(profileOption('the layer of a model'))
    .option('--ep <ranks>', 'ranks whose tokens arrive; one GPU is enough', ranks, 4)
    .option('--tokens <list>', 'tokens a rank (default: 128,4096, simulated 4)', listOfTokens)
    .addOption(new Option('--form <form>', 'how rows lie').choices(expertForms).default('contiguous'))
    .addOption(
      new Option('--alignment <rows>', 'an expert begins at a multiple of it')
        .choices(alignments.map(String))
        .default('1'),
    )
    .option(
      '--capacity <rows>',
      'of all experts; of each, if masked (default: room for any round)',
      integerFrom(1, 2 ** 31),
    );
  measuring(command, 'a GPU; or the simulator, to try the command', 30)
    .addHelpText(
      'after',
      `
Times are medians of launches back to back in a CUDA graph. 'of copy' is the time of a device copy that reads and writes
as many bytes, divided by theirs.
${closing('a GPU', 'experts --tokens 128,4096 --ep 4', 'experts --alignment 128 --json')}`,
    )
    .action(run);
}

async function run({ profile, ep, form, capacity, device, json, ...flags }: ExpertsFlags): Promise<void> {
  const simulated = device === 'sim';
  const plan: ExpertsBenchPlan = {
    workload: { profile, ranks: ep, dtype: 'bf16', combineDtype: 'bf16', router: 'uniform', seed: 1 },
    tokens: flags.tokens ?? (simulated ? [4] : [128, 4096]),
    rows: {
      ...{ form, alignment: Number(flags.alignment) as Alignment },
      ...(capacity === undefined ? {} : { capacity }),
    },
    ...{ device, iterations: flags.iterations ?? (simulated ? 1 : 30) },
  };
  await tabulate(
    { device, json },
    expertsHead(unitOf(device)),
    expertsLine.bind(null, unitOf(device)),
    (on) => benchExperts(plan, on),
  );
}
