import { writeFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { benchLayer, chromeTrace, layerHead, layerLine } from '../bench/index.js';
import { families } from '../kernels/index.js';
import { profiles } from '../layer/index.js';
import { integer, integers } from './counts.js';
import { growingTable } from './growing-table.js';

interface LayerFlags {
  readonly profile: string;
  readonly ep: number;
  readonly experts?: number;
  readonly tokens?: readonly number[];
  readonly family?: string;
  readonly nccl: boolean;
  readonly device: 'cuda' | 'sim';
  readonly iterations?: number;
  readonly trace?: string;
  readonly json?: boolean;
}

/** Adds `heddle bench layer`. */
export function registerLayer(bench: Command): void {
  bench
    .command('layer')
    .description('measure a whole MoE layer, its parts, and how much of what travels is left to see')
    .addOption(
      new Option('--profile <name>', 'the layer of a model')
        .choices(Object.keys(profiles))
        .default('deepseek_v3'),
    )
    .option('--ep <ranks>', 'ranks, a GPU each', integer, 4)
    .option('--experts <n>', 'experts of each rank (default: the model’s, over the ranks)', integer)
    .option('--tokens <list>', 'tokens a rank (default: 1,8,32,128,512,4096, simulated 2)', integers)
    .addOption(
      new Option('--family <name>', 'of kernels (default: the first that can)').choices(
        families.map(({ name }) => name),
      ),
    )
    .option('--no-nccl', 'without NCCL in Heddle’s place')
    .addOption(
      new Option('--device <kind>', 'GPUs; or the simulator, to try the command with small rows')
        .choices(['cuda', 'sim'])
        .default('cuda'),
    )
    .option('--iterations <n>', 'measured iterations (default: 30, simulated 1)', integer)
    .option('--trace <file>', 'write a timeline of one forward, for ui.perfetto.dev')
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .addHelpText(
      'after',
      `
Times in µs, medians of the slowest rank in CUDA graphs. First each part by itself: router, dispatch and combine back to
back (d + c), plan, reduce, experts, shared expert, adding it. Then the layer: one phase after another, as sends and receives
with the shared expert between them, in two micro-batches, and with NCCL's sends and receives of as many rows, whose counts
the host knows, in place of dispatch and combine. 'exposed' is what of the fastest way is neither router nor experts.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks GPUs.

Examples:
  $ heddle bench layer --ep 2 --experts 4 --tokens 128 --trace layer.json
  $ heddle bench layer --profile mixtral --device sim --ep 2 --json`,
    )
    .action(run);
}

async function run({ profile, ep, device, nccl, family, json, trace, ...flags }: LayerFlags): Promise<void> {
  const simulated = device === 'sim';
  const row = growingTable(json ? process.stderr : process.stdout, layerHead());
  const report = await benchLayer(
    {
      ...{ profile, ranks: ep, expertsHere: flags.experts ?? null, nccl, device, trace: trace !== undefined },
      tokens: flags.tokens ?? (simulated ? [2] : [1, 8, 32, 128, 512, 4096]),
      ...(family !== undefined && { family }),
      iterations: flags.iterations ?? (simulated ? 1 : 30),
    },
    (point) => row(layerLine(point)),
  );
  if (trace !== undefined) writeFileSync(trace, JSON.stringify(chromeTrace(report.spans)));
  if (json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}
