/** The benchmarks of a part of a layer: `heddle bench experts`, `gemm`, `layer`. */
import { onlyGiven } from '../base/errors.js';
import { writeOutput } from '../base/files/index.js';
import type { Column } from '../base/table.js';
import { chromeTrace } from '../base/timeline.js';
import { families } from '../moe/families/index.js';
import {
  benchExperts,
  benchGemm,
  benchLayer,
  type ExpertsBenchPlan,
  expertsColumns,
  expertsHeading,
  gemmColumns,
  gemmHeading,
  gemmLines,
  headOf,
  layerColumns,
  layerHeading,
  lineOf,
  type Span,
  timelineOf,
  type Unit,
  unitOf,
} from '../tools/bench/index.js';
import { type Command, Option } from './commander.js';
import {
  choice,
  deviceOption,
  experts,
  listOfTokens,
  profileOption,
  ranks,
  requireOutputFile,
  times,
} from './options.js';

type Flags = ReturnType<ReturnType<typeof addPart>['opts']>;

export const familyOption = () =>
  choice(
    '--family <name>',
    'of kernels (default: the first that can)',
    families.map(({ name }) => name),
  );

export const traceOption = () =>
  new Option('--trace <file>', 'also write a timeline of the last line’s launches, for ui.perfetto.dev');

export const writeTrace = (file: string, spans: readonly Span[]): void =>
  writeOutput(file, JSON.stringify(chromeTrace(timelineOf(spans))));

/** The types that rows and weights may have. */
const types = ['bf16', 'fp8'] as const;

/** The description of a part's command, beside the options that only it has. */
interface Part {
  readonly name: string;
  readonly description: string;
  readonly of: string;
  readonly needs: 'a GPU' | 'GPUs';
  /** The purpose of the simulator. */
  readonly toTry: string;
  readonly iterations: number;
  readonly help: string;
  readonly examples: readonly string[];
}

/** Adds a part's command; its own options and action are added to what it returns. */
const addPart = (bench: Command, part: Part) =>
  bench
    .command(part.name)
    .description(part.description)
    .addOption(profileOption(part.of))
    .addOption(deviceOption(`${part.needs}; or the simulator, to try the command${part.toTry}`))
    .option('--iterations <n>', `measured iterations (default: ${part.iterations}, simulated 1)`, times)
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .addOption(traceOption())
    .addHelpText(
      'after',
      `
${part.help}

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks ${part.needs}.

Examples:
${part.examples.map((example) => `  $ heddle bench ${part.name} ${example}`).join('\n')}`,
    );

/** The default of a flag, on GPUs or on simulated ones. */
const usual = <T>({ device }: Flags, onGpus: T, simulated: T): T => (device === 'sim' ? simulated : onGpus);

/** The part of a plan that every benchmark has. */
const settingOf = (flags: Flags, iterations: number) => ({
  device: flags.device,
  iterations: flags.iterations ?? usual(flags, iterations, 1),
  trace: flags.trace !== undefined,
});

/**
 * Prints lines as they come and, if asked for, all results at the end. What is measured and the head of the table come with
 * the first line, so a measurement that fails at once prints neither.
 */
async function tabulate<Line, Report extends { readonly spans: readonly Span[] }>(
  { device, json, trace }: Flags,
  measured: string,
  columnsOf: (unit: Unit) => readonly Column<Line>[],
  measure: (on: (line: Line) => void) => Promise<Report>,
  foot?: (report: Report) => string,
): Promise<void> {
  requireOutputFile('--trace', trace);
  const table = json ? process.stderr : process.stdout;
  const columns = columnsOf(unitOf(device)).filter(({ rate }) => !(rate && device === 'sim'));
  if (device === 'sim')
    process.stderr.write('heddle bench: simulated, to try the command: figures are steps, not times\n');
  let head = `${measured}\n\n${headOf(columns)}\n`;
  const report = await measure((line) => {
    table.write(`${head}${lineOf(columns, line)}\n`);
    head = '';
  });
  if (foot !== undefined) table.write(`${foot(report)}\n`);
  if (json) process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  if (trace !== undefined) writeTrace(trace, report.spans);
}

export function registerParts(bench: Command): void {
  addExperts(bench);
  addGemm(bench);
  addLayer(bench);
}

const addExperts = (bench: Command) =>
  addPart(bench, {
    name: 'experts',
    description: 'measure what experts need of a rank’s rows: plan, expand and reduce, beside a device copy',
    ...{ of: 'the layer of a model', needs: 'a GPU', toTry: '', iterations: 30 },
    help: `Times are medians of launches back to back in a CUDA graph. 'of copy' is the time of a device copy that reads and writes
as many bytes, divided by theirs.`,
    examples: ['--tokens 128,4096 --ep 4', '--profile mixtral --json'],
  })
    .option('--ep <ranks>', 'ranks whose tokens arrive; one GPU is enough', ranks, 4)
    .option('--tokens <list>', 'tokens a rank (default: 128,4096, simulated 4)', listOfTokens)
    .action((flags) => {
      const { profile, ep } = flags;
      const plan: ExpertsBenchPlan = {
        workload: { profile, ranks: ep, dtype: 'bf16', combineDtype: 'bf16', router: 'uniform', seed: 1 },
        tokens: flags.tokens ?? usual(flags, [128, 4096], [4]),
        ...settingOf(flags, 30),
      };
      return tabulate(flags, expertsHeading(plan), expertsColumns, (on) => benchExperts(plan, on));
    });

const addGemm = (bench: Command) =>
  addPart(bench, {
    name: 'gemm',
    description: 'measure the experts’ GEMMs of a rank, beside every form that cuBLAS has of them',
    ...{ of: 'the experts of a model', needs: 'a GPU', toTry: ' with small rows', iterations: 20 },
    help: `Times are medians of launches back to back with cold caches. Two bounds: 'memory', the weights of experts that have rows, read once
at the rate of plain loads in this run; 'cores', the tensor cores at their highest clock. 'of bound' is the larger bound divided by
Heddle's time. TFLOP/s is Heddle's, and counts useful rows only. 'of cuBLAS' is the time of the fastest form of cuBLAS divided by
Heddle's. cuBLAS finds its rows in order and leaves SwiGLU to others. GFLOP counts the rows
that routes need, 'padded' how many more are multiplied because of Heddle's tiles: no row is read for them.`,
    examples: ['--rows 16,512', '--experts 64 --rows 16 --routes uniform --json'],
  })
    .option('--experts <n>', 'experts of the rank (default: 16, simulated 2)', experts)
    .option('--rows <list>', 'rows an expert (default: 16,512, simulated 2)', listOfTokens)
    .addOption(choice('--dtype <type>', 'of rows and weights; fp8: e4m3 with scales', types, 'bf16'))
    .addOption(
      choice('--routes <kind>', 'every expert gets as many; or they are drawn', ['even', 'uniform'], 'even'),
    )
    .action((flags) => {
      const { profile, routes, dtype } = flags;
      const plan = {
        ...{ profile, routes, dtype, ...settingOf(flags, 20) },
        experts: flags.experts ?? usual(flags, 16, 2),
        rows: flags.rows ?? usual(flags, [16, 512], [2]),
      };
      return tabulate(
        flags,
        gemmHeading(plan),
        gemmColumns,
        (on) => benchGemm(plan, (point) => gemmLines(point).forEach(on)),
        ({ rates, cublas }) =>
          `${usual(flags, `reads ${rates.reads.toFixed(0)} GB/s; `, '')}cuBLAS ${cublas}`,
      );
    });

const addLayer = (bench: Command) =>
  addPart(bench, {
    name: 'layer',
    description: 'measure a whole MoE layer, its parts, and how much communication is not hidden',
    ...{ of: 'the layer of a model', needs: 'GPUs', toTry: ' with small rows', iterations: 30 },
    help: `Times in µs (simulated: steps), medians of the slowest rank in CUDA graphs. First each part by itself: router, dispatch and
combine back to back with all that they round and add up (d + c), plan, experts, shared expert.
Then the layer: one phase after another; with the shared expert beside the others, where there is one; in two micro-batches; one phase after another by the one-sided
family, where another carries the layer; and with NCCL's sends and receives of as many rows, whose counts the host knows, in
place of dispatch and combine. tokens/s is of all ranks and the fastest way; 'exposed' is the part of the fastest way's time that
neither router nor experts use. 'memory' is how long rank 0 reads the weights of its experts and its shared one at the rate of plain loads, 'cores' how long its tensor
cores multiply their rows at their highest clock. GFLOP counts rank 0's rows that routes need, 'padded' how many more its GEMMs multiply because of their tiles: no
row is read for them.`,
    examples: [
      '--ep 2 --experts 4 --tokens 128 --trace layer.json',
      '--profile mixtral --device sim --ep 2 --json',
    ],
  })
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4)
    .option('--experts <n>', 'experts of each rank (default: the model’s, over the ranks)', experts)
    .option('--tokens <list>', 'tokens a rank (default: 1,8,32,128,512,4096, simulated 2)', listOfTokens)
    .addOption(familyOption())
    .addOption(choice('--rows <format>', 'as dispatch carries them', types, 'bf16'))
    .addOption(
      choice('--dtype <type>', 'of weights; fp8: e4m3 with scales, and rows travel as fp8', types, 'bf16'),
    )
    .option('--no-nccl', 'skip the run with NCCL’s exchange')
    .action((flags) => {
      const { profile, ep, nccl, family, dtype } = flags;
      const plan = {
        ...{ profile, ranks: ep, expertsHere: flags.experts ?? null, nccl, ...onlyGiven({ family }) },
        ...{ rows: dtype === 'fp8' ? dtype : flags.rows, weights: dtype, ...settingOf(flags, 30) },
        tokens: flags.tokens ?? usual(flags, [1, 8, 32, 128, 512, 4096], [2]),
      };
      return tabulate(flags, layerHeading(plan), layerColumns, (on) => benchLayer(plan, on));
    });
