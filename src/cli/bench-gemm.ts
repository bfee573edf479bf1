import { type Command, Option } from 'commander';
import { benchGemm, gemmHead, gemmLines, unitOf } from '../tools/bench/index.js';
import { closing, type Measuring, measuring, profileOption, tabulate } from './bench-common.js';
import { experts, listOfTokens } from './counts.js';

interface GemmFlags extends Measuring {
  readonly profile: string;
  readonly experts?: number;
  readonly rows?: readonly number[];
  readonly routes: 'even' | 'uniform';
}

/** Adds `heddle bench gemm`. */
export function registerGemm(bench: Command): void {
  const command = bench
    .command('gemm')
    .description('measure the experts’ GEMMs of a rank, beside every form that cuBLAS has of them')
    .addOption(profileOption('the experts of a model'))
    .option('--experts <n>', 'experts of the rank (default: 16, simulated 2)', experts)
    .option('--rows <list>', 'rows an expert (default: 16,512, simulated 2)', listOfTokens)
    .addOption(
      new Option('--routes <kind>', 'every expert gets as many; or they are drawn')
        .choices(['even', 'uniform'])
        .default('even'),
    );
  measuring(command, 'a GPU; or the simulator, to try the command with small rows', 20)
    .addHelpText(
      'after',
      `
Times are medians of launches back to back with cold caches. 'bound': the weights of experts that have rows, read once at the
bandwidth of a device copy in this run. 'of bound' and TFLOP/s, of useful rows, are Heddle's; 'of cuBLAS' is the time of the
fastest form of cuBLAS divided by Heddle's. cuBLAS finds its rows in order and leaves SwiGLU to others. GFLOP counts the rows
that routes need, 'padded' how many more are multiplied because of Heddle's tiles: no row is read for them.
${closing('a GPU', 'gemm --rows 16,512', 'gemm --experts 64 --rows 16 --routes uniform --json')}`,
    )
    .action(run);
}

async function run({ profile, routes, device, json, ...flags }: GemmFlags): Promise<void> {
  const simulated = device === 'sim';
  const plan = {
    ...{ profile, routes, device },
    experts: flags.experts ?? (simulated ? 2 : 16),
    rows: flags.rows ?? (simulated ? [2] : [16, 512]),
    iterations: flags.iterations ?? (simulated ? 1 : 20),
  };
  await tabulate(
    { device, json },
    gemmHead(unitOf(device)),
    gemmLines.bind(null, unitOf(device)),
    (on) => benchGemm(plan, on),
    ({ copyBandwidth, cublas }) =>
      `${simulated ? '' : `copy ${copyBandwidth.toFixed(0)} GB/s; `}cuBLAS ${cublas}`,
  );
}
