import { type Command, Option } from 'commander';
import { benchGemm, gemmHead, gemmLines } from '../bench/index.js';
import { profiles } from '../layer/index.js';
import { integer, integers } from './counts.js';
import { growingTable } from './growing-table.js';

interface GemmFlags {
  readonly profile: string;
  readonly experts?: number;
  readonly rows?: readonly number[];
  readonly routes: 'even' | 'uniform';
  readonly device: 'cuda' | 'sim';
  readonly iterations?: number;
  readonly json?: boolean;
}

/** Adds `heddle bench gemm`. */
export function registerGemm(bench: Command): void {
  bench
    .command('gemm')
    .description('measure the experts’ GEMMs of a rank, beside every form that cuBLAS has of them')
    .addOption(
      new Option('--profile <name>', 'the experts of a model')
        .choices(Object.keys(profiles))
        .default('deepseek_v3'),
    )
    .option('--experts <n>', 'experts of the rank (default: 16, simulated 2)', integer)
    .option('--rows <list>', 'rows an expert (default: 16,512, simulated 2)', integers)
    .addOption(
      new Option('--routes <kind>', 'every expert gets as many; or they are drawn')
        .choices(['even', 'uniform'])
        .default('even'),
    )
    .addOption(
      new Option('--device <kind>', 'a GPU; or the simulator, to try the command (slow: experts are large)')
        .choices(['cuda', 'sim'])
        .default('cuda'),
    )
    .option('--iterations <n>', 'measured iterations (default: 20, simulated 1)', integer)
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .addHelpText(
      'after',
      `
Times are medians of launches back to back with cold caches. 'bound': the weights of experts that have rows, read once at the
bandwidth of a device copy in this run. 'of bound' and TFLOP/s, of useful rows, are Heddle's; 'of cuBLAS' is the time of the
fastest form of cuBLAS divided by Heddle's. cuBLAS finds its rows in order and leaves SwiGLU to others.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks a GPU.

Examples:
  $ heddle bench gemm --rows 16,512
  $ heddle bench gemm --experts 64 --rows 16 --routes uniform --json`,
    )
    .action(run);
}

async function run({ profile, routes, device, json, ...flags }: GemmFlags): Promise<void> {
  const simulated = device === 'sim';
  const table = json ? process.stderr : process.stdout;
  const row = growingTable(table, gemmHead());
  const report = await benchGemm(
    {
      ...{ profile, routes, device },
      experts: flags.experts ?? (simulated ? 2 : 16),
      rows: flags.rows ?? (simulated ? [2] : [16, 512]),
      iterations: flags.iterations ?? (simulated ? 1 : 20),
    },
    (point) => row(gemmLines(point)),
  );
  table.write(`copy ${report.copyBandwidth.toFixed(0)} GB/s; cuBLAS ${report.cublas}\n`);
  if (json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}
