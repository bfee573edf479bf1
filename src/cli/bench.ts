import { onlyGiven } from '../base/errors.js';
import { writeOutput } from '../base/files/index.js';
import { transports } from '../moe/families/index.js';
import {
  type BenchEvent,
  type BenchReport,
  columnsOf,
  detailLines,
  footnote,
  heading,
  headOf,
  htmlReport,
  lineOf,
  type Plan,
  runBenchmark,
  sweep,
} from '../tools/bench/index.js';
import { familyOption, registerParts, traceOption, writeTrace } from './bench-parts.js';
import { type Command, type FlagsOf, Option } from './commander.js';
import {
  choice,
  combineDtypeOption,
  deviceOption,
  dtypeOption,
  elements,
  experts,
  listOfTokens,
  multiprocessors,
  numberIn,
  profileOption,
  ranks,
  requireOutputFile,
  routes,
  seed,
  skewOption,
  times,
  tokens,
} from './options.js';

type BenchFlags = FlagsOf<typeof define>;

export function register(command: Command): void {
  define(command.enablePositionalOptions()).action(bench);
  registerParts(command);
}

const define = (command: Command) =>
  command
    .addOption(profileOption('the layer of a model, or custom', 'custom'))
    .option('--hidden <n>', 'elements of a row; overrides the profile', elements)
    .option('--experts <n>', 'experts of all ranks together; overrides the profile', experts)
    .option('--top-k <n>', 'experts that a token goes to; overrides the profile', routes)
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4)
    .option('--replicas <n>', 'so many ranks at a time hold the same tokens', ranks, 1)
    .option('--nodes <n>', 'as equal nodes, between which rows cross a network (HEDDLE_PROVIDER)', ranks, 1)
    .option('-b, --begin <tokens>', 'fewest tokens a rank (default: 1, or --replicas)', tokens)
    .option('-e, --end <tokens>', 'most tokens a rank (default: 4096, simulated 8)', tokens)
    .option('-f, --factor <n>', 'from one number of tokens to the next', numberIn({ above: 1, to: 1024 }), 2)
    .addOption(
      new Option('--tokens <list>', 'these numbers of tokens instead: 1,8,128')
        .argParser(listOfTokens)
        .conflicts(['begin', 'end', 'factor']),
    )
    .addOption(dtypeOption('bf16'))
    .addOption(combineDtypeOption())
    .option('--perfect-router', 'every expert gets the same load')
    .addOption(skewOption().conflicts('perfectRouter'))
    .option(
      '--places <n>',
      'also rounds with experts in so many places, by the counts of earlier routes',
      experts,
    )
    .option('--seed <n>', 'of routes and data', seed, 1)
    .addOption(
      choice(
        '--world <kind>',
        'all ranks in this process, or a process for each',
        ['local', 'processes'],
        'local',
      ),
    )
    .addOption(deviceOption('GPUs; or the simulator, for bytes and steps only'))
    .option('--iterations <n>', 'measured iterations (default: 30, simulated 1)', times)
    .addOption(familyOption())
    .addOption(
      choice(
        '--transport <name>',
        'what carries its rows (default: windows; between nodes proxy)',
        transports,
      ),
    )
    .option('--split', 'dispatch and combine as a send and a receive each, back to back')
    .option('--sms <n>', 'the most multiprocessors that a launch takes', multiprocessors.one)
    .option('--no-nccl', 'without the NCCL baselines')
    .option('--kernel-breakdown', 'also each kernel alone: time, launch, registers, spills')
    .option('--iter-stats', 'also the spread of every measurement')
    .option('--late', 'also how long ranks wait for each other, and for whom most')
    .option('--output-file <file.json>', 'write all results, after every line')
    .option('--report <file.html>', 'write a page with charts')
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .addOption(traceOption())
    .addHelpText(
      'after',
      `
Times are medians, over the iterations of a CUDA graph, of the slowest rank (docs/benchmarks.md).

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks GPUs.

Examples:
  $ heddle bench
  $ heddle bench --tokens 1,128,4096 --dtype fp8 --kernel-breakdown --report bench.html
  $ heddle bench --device sim --ep 2 --tokens 4
  $ heddle bench --device sim --ep 2 --tokens 4 --skew 1 --places 288
  $ heddle bench --device sim --ep 4 --nodes 2 --tokens 4`,
    );

async function bench(flags: BenchFlags): Promise<void> {
  requireOutputFile('--output-file', flags.outputFile);
  requireOutputFile('--report', flags.report);
  requireOutputFile('--trace', flags.trace);
  const table = flags.json ? process.stderr : process.stdout;
  const progress = showProgress();
  let started = false;
  const hear = (event: BenchEvent, soFar: BenchReport): void => {
    if (event.type === 'doing') progress.doing(event.what);
    if (event.type === 'trace' && flags.trace !== undefined) writeTrace(flags.trace, event.spans);
    if (event.type !== 'point') return;
    progress.clear();
    if (!started) table.write(`${heading(soFar)}\n\n${headOf(columnsOf(soFar))}\n`);
    started = true;
    table.write(`${lineOf(columnsOf(soFar), event.point)}\n${detailLines(soFar, event.point, flags)}`);
    save(flags, soFar);
  };
  const report = await runBenchmark(planOf(flags), hear).finally(progress.clear);
  table.write(`\n${footnote(report)}\n`);
  for (const note of report.notes) table.write(`${note}\n`);
  save(flags, report);
  if (flags.json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
}

function planOf(flags: BenchFlags): Plan {
  const { profile, hidden, experts, topK, ep, replicas, dtype, combineDtype, skew, seed } = flags;
  const { nodes, world, device, nccl, family, transport, split, sms, places } = flags;
  const simulated = device === 'sim';
  const { begin = replicas } = flags;
  const end = flags.end ?? Math.max(begin, simulated ? 8 : 4096);
  return {
    workload: {
      ...{ profile, ranks: ep, replicas, dtype, combineDtype, seed },
      ...onlyGiven({ hidden, experts, topK, skew }),
      router: flags.perfectRouter ? 'perfect' : skew === undefined ? 'uniform' : 'skewed',
    },
    ...{ nodes, world, device, nccl },
    tokens: flags.tokens ?? sweep(begin, end, flags.factor),
    iterations: flags.iterations ?? (simulated ? 1 : 30),
    how: onlyGiven({ family, transport, split, sms }),
    ...onlyGiven({ places, late: flags.late }),
    ...{ breakdown: flags.kernelBreakdown ?? false, trace: flags.trace !== undefined },
  };
}

function save({ outputFile, report }: BenchFlags, results: BenchReport): void {
  if (outputFile !== undefined) writeOutput(outputFile, `${JSON.stringify(results, null, 2)}\n`);
  if (report !== undefined) writeOutput(report, htmlReport(results));
}

/** The work that is being done: one line that changes on a terminal, a line for each number of tokens elsewhere. */
function showProgress() {
  const { stderr } = process;
  let last = '';
  return {
    doing(what: string): void {
      if (stderr.isTTY) {
        stderr.write(`\r\x1b[K${what} …`);
        return;
      }
      const subject = what.split(':')[0]!;
      if (subject !== last) stderr.write(`heddle bench: ${subject} …\n`);
      last = subject;
    },
    clear(): void {
      if (stderr.isTTY) stderr.write('\r\x1b[K');
    },
  };
}
