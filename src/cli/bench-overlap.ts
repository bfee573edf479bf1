import { type Command, Option } from 'commander';
import { gemms } from '../moe/index.js';
import { formats } from '../moe/layer/index.js';
import { benchOverlap, type OverlapPlan, overlapHead, overlapLine, unitOf } from '../tools/bench/index.js';
import { closing, familyOption, type Measuring, measuring, profileOption, tabulate } from './bench-common.js';
import { elements, listOfTokens, multiprocessors, ranks } from './counts.js';

interface OverlapFlags extends Measuring {
  readonly profile: string;
  readonly ep: number;
  readonly tokens?: readonly number[];
  readonly sms?: readonly number[];
  readonly inner: number;
  readonly dtype: OverlapPlan['workload']['dtype'];
  readonly gemm: OverlapPlan['gemm'];
  readonly family?: string;
}

/** Adds `heddle bench overlap`. */
export function registerOverlap(bench: Command): void {
  const command = bench
    .command('overlap')
    .description('measure a round of split phases beside an MLP of the shared expert’s size')
    .addOption(profileOption('the layer of a model'))
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4)
    .option('--tokens <list>', 'tokens a rank (default: 128,2048, simulated 2)', listOfTokens)
    .option(
      '--sms <list>',
      'multiprocessors of the phases (default: 8,16,24,32 and all, simulated 8)',
      multiprocessors.list,
    )
    .option('--inner <n>', 'the MLP’s inner width', elements, 2048)
    .addOption(
      new Option('--dtype <format>', 'what dispatch carries').choices(Object.keys(formats)).default('fp8'),
    )
    .addOption(new Option('--gemm <whose>', 'whose GEMMs the MLP runs').choices(gemms).default('heddle'))
    .addOption(familyOption());
  measuring(command, 'GPUs; or the simulator, to try the command', 30)
    .addHelpText(
      'after',
      `
Both run in one CUDA graph, on a stream each; the MLP takes the multiprocessors that 'sms' leaves, alone all of them. 'of longer' is their time together over that of the longer one alone;
'exposed' is what the shorter one adds, of its own time.
${closing('GPUs', 'overlap --ep 2 --tokens 128,2048 --sms 16,32', 'overlap --family portable --json')}`,
    )
    .action(run);
}

async function run({
  profile,
  ep,
  inner,
  dtype,
  gemm,
  family,
  device,
  json,
  ...flags
}: OverlapFlags): Promise<void> {
  const simulated = device === 'sim';
  const plan: OverlapPlan = {
    workload: { profile, ranks: ep, dtype, combineDtype: 'bf16', router: 'uniform', seed: 1 },
    tokens: flags.tokens ?? (simulated ? [2] : [128, 2048]),
    sms: flags.sms ?? null,
    ...(family !== undefined && { family }),
    ...{ inner, gemm, device, iterations: flags.iterations ?? (simulated ? 1 : 30) },
  };
  await tabulate({ device, json }, overlapHead(unitOf(device)), overlapLine, (on) => benchOverlap(plan, on));
}
