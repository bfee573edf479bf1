/** `heddle bench`, of a layer's rounds or of kernels of one's own, and the benchmarks of parts of a layer: `heddle bench gemm`, `layer`, `model`. */
import { ArgumentError, onlyGiven } from '../base/errors.js';
import { families, transports } from '../moe/families/index.js';
import { weightsTypes } from '../moe/index.js';
import {
  detailLines,
  gemmBench,
  layerBench,
  modelBench,
  ownBench,
  type RoundsPlan,
  roundBench,
  sweep,
} from '../tools/bench/index.js';
import { loadOwnModule, type TimedConfiguration } from '../verify/check/index.js';
import { htmlReport } from './bench-page.js';
import { type Command, Option } from './commander.js';
import {
  choice,
  combineDtypeOption,
  deviceOption,
  dtypeOption,
  elements,
  experts,
  isModule,
  listOfTokens,
  multiprocessors,
  numberIn,
  profileOption,
  ranks,
  routes,
  seed,
  skewOption,
  times,
  tokens,
} from './options.js';
import { showBench } from './show-bench.js';

type Flags = ReturnType<ReturnType<typeof described>['opts']>;

const familyOption = () =>
  choice(
    '--family <name>',
    'of kernels (default: the first that can)',
    families.map(({ name }) => name),
  );

const sustainedSaid = 'repeat each for two seconds without a pause; shows clock, cycles, watts and joules';

/** The types that rows and weights may have. */
const types = ['bf16', 'fp8'] as const;

/** The options and the help that every benchmark's command has. */
interface Described {
  readonly of: string;
  /** Profiles besides those of models. */
  readonly profiles?: readonly string[];
  readonly needs: 'a GPU' | 'GPUs';
  /** The purpose of the simulator. */
  readonly simulated: string;
  readonly iterations: number;
  readonly help: string;
  readonly examples: readonly string[];
}

/** Describes a benchmark's command; its own options and action are added to what it returns. */
const described = (command: Command, of: Described) =>
  command
    .addOption(profileOption(of.of, ...(of.profiles ?? [])))
    .addOption(deviceOption(`${of.needs}; or the simulator, ${of.simulated}`))
    .option('--iterations <n>', `measured iterations (default: ${of.iterations}, simulated 1)`, times)
    .option('--json', 'print all results as JSON; the table goes to stderr')
    .option('--trace <file>', 'also write a timeline of the last line’s launches, for ui.perfetto.dev')
    .addHelpText(
      'after',
      `
${of.help}

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks ${of.needs}.

Examples:
${of.examples.map((example) => `  $ heddle bench ${example}`.trimEnd()).join('\n')}`,
    );

/** The default of a flag, on GPUs or on simulated ones. */
const usual = <T>({ device }: Flags, onGpus: T, simulated: T): T => (device === 'sim' ? simulated : onGpus);

/** The part of a plan that every benchmark has. */
const measuring = (flags: Flags, iterations: number) => ({
  device: flags.device,
  iterations: flags.iterations ?? usual(flags, iterations, 1),
  trace: flags.trace !== undefined,
});

/** Describes the command of a benchmark of whole layers, as `described`. */
const ofLayers = (command: Command, of: Omit<Described, 'of' | 'needs' | 'simulated'>) =>
  described(command, {
    ...of,
    ...{ of: 'the layer of a model', needs: 'GPUs', simulated: 'to try the command with small rows' },
  })
    .option('--ep <ranks>', 'ranks, a GPU each', ranks, 4)
    .option('--experts <n>', 'experts of each rank (default: the model’s, over the ranks)', experts)
    .addOption(familyOption())
    .addOption(choice('--rows <format>', 'as dispatch carries them', types, 'bf16'))
    .addOption(
      choice(
        '--dtype <type>',
        'of weights; fp8: e4m3 with scales, and rows travel as fp8',
        weightsTypes,
        'bf16',
      ),
    );

/** The part of a plan that the benchmarks of whole layers have. */
const layersOf = (flags: ReturnType<ReturnType<typeof ofLayers>['opts']>, iterations: number) => ({
  ...{ profile: flags.profile, ranks: flags.ep, expertsHere: flags.experts ?? null },
  ...{ rows: flags.dtype === 'fp8' ? flags.dtype : flags.rows, weights: flags.dtype },
  ...{ ...onlyGiven({ family: flags.family }), ...measuring(flags, iterations) },
});

export function register(bench: Command): void {
  addRound(bench.enablePositionalOptions());
  addGemm(bench);
  addLayer(bench);
  addModel(bench);
}

const addRound = (bench: Command) =>
  described(bench, {
    ...{ of: 'the layer of a model, or custom', profiles: ['custom'], needs: 'GPUs', iterations: 30 },
    simulated: 'for bytes and steps only',
    help: `Times are medians, over the iterations of a CUDA graph, of the slowest rank (docs/benchmarks.md).

Of a module only --configuration, --device, --iterations, --json, --trace and --output-file matter. The program of the configuration runs first,
and fails if its results are wrong; then the rounds that it returns are timed, 20 back to back in an iteration.`,
    examples: [
      '',
      '--tokens 1,128,4096 --dtype fp8 --kernel-breakdown --report bench.html',
      '--device sim --ep 2 --tokens 4',
      '--device sim --ep 2 --tokens 4 --skew 1 --places 288',
      '--device sim --ep 4 --nodes 2 --tokens 4',
      "./mine.ts --configuration 'ring of 2' --json",
    ],
  })
    .argument('[module]', 'kernels of one’s own, whose configuration returns a round to be timed: ./mine.ts')
    .option('--configuration <name>', 'of the module (default: the first that heddle check --list shows)')
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
    .action(async (module, flags) => {
      if (module !== undefined) {
        const configuration = await timedConfiguration(module, flags.configuration);
        return showBench(ownBench, { configuration, ...measuring(flags, 30) }, flags);
      }
      const { profile, hidden, experts, topK, ep, replicas, dtype, combineDtype, skew, seed } = flags;
      const { nodes, world, nccl, family, transport, split, sms, places, begin = replicas } = flags;
      const end = flags.end ?? Math.max(begin, usual(flags, 4096, 8));
      const router = flags.perfectRouter ? 'perfect' : skew === undefined ? 'uniform' : 'skewed';
      const plan: RoundsPlan = {
        workload: {
          ...{ profile, ranks: ep, replicas, dtype, combineDtype, router, seed },
          ...onlyGiven({ hidden, experts, topK, skew }),
        },
        ...{ nodes, world, nccl, ...measuring(flags, 30) },
        tokens: flags.tokens ?? sweep(begin, end, flags.factor),
        how: onlyGiven({ family, transport, split, sms }),
        ...{ breakdown: flags.kernelBreakdown ?? false, ...onlyGiven({ places, late: flags.late }) },
      };
      return showBench(roundBench, plan, flags, {
        each: (report, point) => detailLines(report, point, flags.iterStats),
        page: htmlReport,
      });
    });

async function timedConfiguration(module: string, name?: string): Promise<TimedConfiguration> {
  if (!isModule(module)) throw new ArgumentError('module', module, 'a file: ./mine.ts');
  const { configurations } = (await loadOwnModule(module)).subject;
  const timed = configurations.filter((one): one is TimedConfiguration => 'program' in one);
  const found = timed.find((one) => name === undefined || one.name === name);
  if (found !== undefined) return found;
  if (name === undefined)
    throw new ArgumentError(
      'module',
      module,
      "one that exports what configuration of 'heddle/check' makes; hosts of PTX run on the simulated machine alone",
    );
  throw new ArgumentError('configuration', name, `one of ${timed.map((one) => one.name).join(', ')}`);
}

const addGemm = (bench: Command) =>
  described(
    bench
      .command('gemm')
      .description('measure the experts’ GEMMs of a rank, beside every form that cuBLAS has of them'),
    {
      ...{
        of: 'the experts of a model',
        needs: 'a GPU',
        simulated: 'to try the command with small rows',
        iterations: 20,
      },
      help: `Times are medians of launches back to back with cold caches. Two bounds: 'memory', the weights of experts that have rows, read once
at the rate of plain loads in this run; 'cores', the tensor cores at their highest clock. 'of bound' is the larger bound divided by
Heddle's time. TFLOP/s is Heddle's, and counts useful rows only. 'of cuBLAS' is the time of the fastest form of cuBLAS divided by
Heddle's. cuBLAS finds its rows in order and leaves SwiGLU to others. GFLOP counts the rows
that routes need, 'padded' how many more are multiplied because of Heddle's tiles: no row is read for them. With --sustained
caches are warm and clocks those of steady work; cycles, watts and joules are of one launch of Heddle's.`,
      examples: [
        'gemm --rows 16,512',
        'gemm --dtype fp8 --rows 2048 --sustained',
        'gemm --experts 64 --rows 16 --routes uniform --json',
      ],
    },
  )
    .option('--sustained', sustainedSaid)
    .option('--experts <n>', 'experts of the rank (default: 16, simulated 2)', experts)
    .option('--rows <list>', 'rows an expert (default: 16,512, simulated 2)', listOfTokens)
    .addOption(
      choice(
        '--dtype <type>',
        'of rows and weights; fp8: e4m3 with scales; mxfp4: with rows of bf16',
        weightsTypes,
        'bf16',
      ),
    )
    .addOption(
      choice('--routes <kind>', 'every expert gets as many; or they are drawn', ['even', 'uniform'], 'even'),
    )
    .action((flags) => {
      const { profile, routes, dtype, sustained } = flags;
      const plan = {
        ...{ profile, routes, dtype, ...measuring(flags, 20), ...onlyGiven({ sustained }) },
        experts: flags.experts ?? usual(flags, 16, 2),
        rows: flags.rows ?? usual(flags, [16, 512], [2]),
      };
      return showBench(gemmBench, plan, flags);
    });

const addModel = (bench: Command) =>
  ofLayers(
    bench
      .command('model')
      .description('measure the layers of a model over one set of buffers, beside a layer with its own'),
    {
      iterations: 10,
      help: `'own' is a layer with buffers of its own, 'shared' one of --layers over one set, both in µs (simulated: steps) of the slowest rank in a CUDA graph of as
many forwards. With --max-tokens below the tokens of a forward 'shared' goes in chunks, and with --rounds 2 two of them are in flight; above, it
shows what buffers cost that are larger than need be. 'set' and 'a layer' are what the host takes to create the set and a further layer, in ms.`,
      examples: [
        'model --ep 2 --experts 4 --layers 48 --tokens 128',
        'model --ep 2 --experts 4 --tokens 4096 --max-tokens 512 --rounds 2',
        'model --device sim --ep 2 --layers 2 --tokens 4 --json',
      ],
    },
  )
    .option('--nodes <n>', 'as equal nodes, between which rows cross a network (HEDDLE_PROVIDER)', ranks, 1)
    .option('--layers <n>', 'layers of the model', times, 8)
    .option('--tokens <list>', 'tokens a rank (default: 1,128,4096, simulated 2)', listOfTokens)
    .option('--max-tokens <n>', 'the most of a round (default: all of them)', tokens)
    .addOption(choice('--rounds <n>', 'rounds in flight', ['1', '2'], '1'))
    .action((flags) => {
      const { nodes, layers, maxTokens = null } = flags;
      const plan = {
        ...{ ...layersOf(flags, 10), nodes, layers, maxTokens },
        rounds: flags.rounds === '2' ? 2 : 1,
        tokens: flags.tokens ?? usual(flags, [1, 128, 4096], [2]),
      } as const;
      return showBench(modelBench, plan, flags);
    });

const addLayer = (bench: Command) =>
  ofLayers(
    bench
      .command('layer')
      .description('measure a whole MoE layer, its parts, and how much communication is not hidden'),
    {
      iterations: 30,
      help: `Times in µs (simulated: steps), medians of the slowest rank in CUDA graphs. First each part by itself: router, dispatch and
combine back to back with all that they round and add up (d + c), plan, experts, shared expert.
Then the layer: one phase after another; with the shared expert beside the others, where there is one; in two chunks; one phase after another by the one-sided
family, where another carries the layer; and with NCCL's sends and receives of as many rows, whose counts the host knows, in
place of dispatch and combine. tokens/s is of all ranks and the fastest way; 'exposed' is the part of the fastest way's time that
neither router nor experts use. 'memory' is how long the rank with most experts in use reads their weights and its shared one's at the rate of plain loads, 'cores' how long tensor
cores multiply the rows of the rank with most at their highest clock. GFLOP counts rank 0's rows that routes need, 'padded' how many more its GEMMs multiply because of their tiles: no
row is read for them.`,
      examples: [
        'layer --ep 2 --experts 4 --tokens 128 --trace layer.json',
        'layer --profile mixtral --device sim --ep 2 --json',
      ],
    },
  )
    .option('--tokens <list>', 'tokens a rank (default: 1,8,32,128,512,4096, simulated 2)', listOfTokens)
    .option('--no-nccl', 'skip the run with NCCL’s exchange')
    .option('--invariant', 'a token has the same bits in every batch')
    .option('--sustained', sustainedSaid)
    .action((flags) => {
      const { nccl, sustained, invariant = false } = flags;
      const plan = {
        ...{ ...layersOf(flags, 30), nccl, invariant, ...onlyGiven({ sustained }) },
        tokens: flags.tokens ?? usual(flags, [1, 8, 32, 128, 512, 4096], [2]),
      };
      return showBench(layerBench, plan, flags);
    });
