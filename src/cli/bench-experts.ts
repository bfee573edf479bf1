import { type Command, Option } from 'commander';
import { benchExperts, expertsHead, expertsLine } from '../bench/index.js';
import { type Alignment, alignments, type ExpertForm, expertForms, profiles } from '../layer/index.js';
import { integer, integers } from './counts.js';
import { growingTable } from './growing-table.js';

interface ExpertsFlags {
  readonly profile: string;
  readonly ep: number;
  readonly tokens?: readonly number[];
  readonly form: ExpertForm;
  readonly alignment: string;
  readonly capacity?: number;
  readonly device: 'cuda' | 'sim';
  readonly iterations?: number;
  readonly json?: boolean;
}

/** Adds `heddle bench experts`. */
export function registerExperts(bench: Command): void {
  bench
    .command('experts')
    .description('measure what experts need of a rank’s rows: plan, expand and reduce, beside a device copy')
    .addOption(
      new Option('--profile <name>', 'the layer of a model')
        .choices(Object.keys(profiles))
        .default('deepseek_v3'),
    )
    .option('--ep <ranks>', 'ranks whose tokens arrive; one GPU is enough', integer, 4)
    .option('--tokens <list>', 'tokens a rank (default: 128,4096, simulated 4)', integers)
    .addOption(new Option('--form <form>', 'how rows lie').choices(expertForms).default('contiguous'))
    .addOption(
      new Option('--alignment <rows>', 'an expert begins at a multiple of it')
        .choices(alignments.map(String))
        .default('1'),
    )
    .option('--capacity <rows>', 'of all experts; of each, if masked (default: room for any round)', integer)
    .addOption(
      new Option('--device <kind>', 'a GPU; or the simulator, to try the command')
        .choices(['cuda', 'sim'])
        .default('cuda'),
    )
    .option('--iterations <n>', 'measured iterations (default: 30, simulated 1)', integer)
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .addHelpText(
      'after',
      `
Times are medians of launches back to back in a CUDA graph. 'of copy' is the time of a device copy that reads and writes
as many bytes, divided by theirs.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks a GPU.

Examples:
  $ heddle bench experts --tokens 128,4096 --ep 4
  $ heddle bench experts --alignment 128 --json`,
    )
    .action(run);
}

async function run({ profile, ep, form, capacity, device, json, ...flags }: ExpertsFlags): Promise<void> {
  const simulated = device === 'sim';
  const row = growingTable(json ? process.stderr : process.stdout, expertsHead());
  const report = await benchExperts(
    {
      workload: { profile, ranks: ep, dtype: 'bf16', combineDtype: 'bf16', router: 'uniform', seed: 1 },
      tokens: flags.tokens ?? (simulated ? [4] : [128, 4096]),
      rows: {
        ...{ form, alignment: Number(flags.alignment) as Alignment },
        ...(capacity === undefined ? {} : { capacity }),
      },
      ...{ device, iterations: flags.iterations ?? (simulated ? 1 : 30) },
    },
    (point) => row(expertsLine(point)),
  );
  if (json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}
