import { type Command, Option } from 'commander';
import { writeOutput } from '../base/files/index.js';
import { benchLayer, chromeTrace, layerHead, layerLine, unitOf } from '../tools/bench/index.js';
import { closing, familyOption, type Measuring, measuring, profileOption, tabulate } from './bench-common.js';
import { experts, listOfTokens, ranks } from './counts.js';
import { requireOutputFile } from './outputs.js';

interface LayerFlags extends Measuring {
  readonly profile: string;
  readonly ep: number;
  readonly experts?: number;
  readonly tokens?: readonly number[];
  readonly family?: string;
  readonly rows: 'bf16' | 'fp8';
  readonly nccl: boolean;
  readonly trace?: string;
}

/** Adds `heddle bench layer`. */
export function registerLayer(bench: Command): void {
  const command = bench
    .command('layer')
    .description('measure a whole MoE layer, its parts, and how much of what travels is left to see')
    .addOption(profileOption('the layer of a model'))
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4)
    .option('--experts <n>', 'experts of each rank (default: the model’s, over the ranks)', experts)
    .option('--tokens <list>', 'tokens a rank (default: 1,8,32,128,512,4096, simulated 2)', listOfTokens)
    .addOption(familyOption())
    .addOption(
      new Option('--rows <format>', 'as dispatch carries them').choices(['bf16', 'fp8']).default('bf16'),
    )
    .option('--no-nccl', 'without NCCL in Heddle’s place')
    .option('--trace <file>', 'write a timeline of one forward, for ui.perfetto.dev');
  measuring(command, 'GPUs; or the simulator, to try the command with small rows', 30)
    .addHelpText(
      'after',
      `
Times in µs (simulated: steps), medians of the slowest rank in CUDA graphs. First each part by itself: router, rows to fp8 where they travel
so, dispatch and combine back to back (d + c), plan, reduce, experts, shared expert, adding it. Then the layer: one phase after another; as sends and receives
with the shared expert between them, where there is one; in two micro-batches; one phase after another by the one-sided
family, where another carries the layer; and with NCCL's sends and receives of as many rows, whose counts the host knows, in
place of dispatch and combine. tokens/s is of all ranks and the fastest way; 'exposed' is what of that is neither router nor
experts. GFLOP counts rank 0's rows that routes need, 'padded' how many more its GEMMs multiply because of their tiles: no
row is read for them.
${closing(
  'GPUs',
  'layer --ep 2 --experts 4 --tokens 128 --trace layer.json',
  'layer --profile mixtral --device sim --ep 2 --json',
)}`,
    )
    .action(run);
}

async function run({
  profile,
  ep,
  device,
  nccl,
  family,
  rows,
  json,
  trace,
  ...flags
}: LayerFlags): Promise<void> {
  requireOutputFile('--trace', trace);
  const simulated = device === 'sim';
  const plan = {
    ...{
      profile,
      ranks: ep,
      expertsHere: flags.experts ?? null,
      nccl,
      rows,
      device,
      trace: trace !== undefined,
    },
    tokens: flags.tokens ?? (simulated ? [2] : [1, 8, 32, 128, 512, 4096]),
    ...(family !== undefined && { family }),
    iterations: flags.iterations ?? (simulated ? 1 : 30),
  };
  const { spans } = await tabulate(
    { device, json },
    layerHead(unitOf(device)),
    layerLine.bind(null, unitOf(device)),
    (on) => benchLayer(plan, on),
  );
  if (trace !== undefined) writeOutput(trace, JSON.stringify(chromeTrace(spans)));
}
