import { type Command, Option } from 'commander';
import { benchOverlap, type OverlapPlan, overlapHead, overlapLine } from '../bench/index.js';
import { families } from '../kernels/index.js';
import { formats, profiles } from '../layer/index.js';
import { integer, integers } from './counts.js';
import { growingTable } from './growing-table.js';

interface OverlapFlags {
  readonly profile: string;
  readonly ep: number;
  readonly tokens?: readonly number[];
  readonly sms?: readonly number[];
  readonly inner: number;
  readonly dtype: OverlapPlan['workload']['dtype'];
  readonly family?: string;
  readonly device: 'cuda' | 'sim';
  readonly iterations?: number;
  readonly json?: boolean;
}

/** Adds `heddle bench overlap`. */
export function registerOverlap(bench: Command): void {
  bench
    .command('overlap')
    .description('measure a round of split phases beside an MLP of the shared expert’s size')
    .addOption(
      new Option('--profile <name>', 'the layer of a model')
        .choices(Object.keys(profiles))
        .default('deepseek_v3'),
    )
    .option('--ep <ranks>', 'ranks, a GPU each', integer, 4)
    .option('--tokens <list>', 'tokens a rank (default: 128,2048, simulated 2)', integers)
    .option('--sms <list>', 'multiprocessors of the phases (default: 8,16,24,32,132, simulated 8)', integers)
    .option('--inner <n>', 'the MLP’s inner width', integer, 2048)
    .addOption(
      new Option('--dtype <format>', 'what dispatch carries').choices(Object.keys(formats)).default('fp8'),
    )
    .addOption(
      new Option('--family <name>', 'of kernels (default: the first that can)').choices(
        families.map(({ name }) => name),
      ),
    )
    .addOption(
      new Option('--device <kind>', 'GPUs; or the simulator, to try the command')
        .choices(['cuda', 'sim'])
        .default('cuda'),
    )
    .option('--iterations <n>', 'measured iterations (default: 30, simulated 1)', integer)
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .addHelpText(
      'after',
      `
Both run in one CUDA graph, on a stream each. 'of longer' is their time together over that of the longer one alone;
'exposed' is what the shorter one adds, of its own time.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks GPUs.

Examples:
  $ heddle bench overlap --ep 2 --tokens 128,2048 --sms 16,32
  $ heddle bench overlap --family portable --json`,
    )
    .action(run);
}

async function run({
  profile,
  ep,
  inner,
  dtype,
  family,
  device,
  json,
  ...flags
}: OverlapFlags): Promise<void> {
  const simulated = device === 'sim';
  const row = growingTable(json ? process.stderr : process.stdout, overlapHead());
  const report = await benchOverlap(
    {
      workload: { profile, ranks: ep, dtype, combineDtype: 'bf16', router: 'uniform', seed: 1 },
      tokens: flags.tokens ?? (simulated ? [2] : [128, 2048]),
      sms: flags.sms ?? (simulated ? [8] : [8, 16, 24, 32, 132]),
      ...(family !== undefined && { family }),
      ...{ inner, device, iterations: flags.iterations ?? (simulated ? 1 : 30) },
    },
    (point) => row(overlapLine(point)),
  );
  if (json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}
