import { totalmem } from 'node:os';
import { type Command, InvalidArgumentError } from 'commander';
import { countGpus } from '../cuda/index.js';
import { ArgumentError, requireInteger, UnavailableError } from '../errors/index.js';
import { mostRoutedExperts } from '../kernels/index.js';
import {
  type Bits,
  dtypes,
  limits,
  profiles,
  type RowDtype,
  type Shape,
  type Source,
  traffic,
} from '../layer/index.js';
import {
  ExpertParallel,
  emptyTensor,
  leastWindowBytes,
  MoeLayer,
  readBits,
  tensorFrom,
} from '../moe/index.js';
import { SimMachine } from '../sim/index.js';
import {
  compareBits,
  compareCombined,
  ExampleExperts,
  expectedRound,
  layerOf,
  makeSources,
  mergeComparisons,
  shapeOfRounds,
} from '../testing/index.js';
import { type DeviceChoice, World } from '../world/index.js';
import { type DemoSizes, demoLayer, type LayerFigures, layerModel, layerUnit } from './demo-layer.js';
import { type Bar, type DemoResult, type KernelSpan, renderDemo } from './print-demo.js';

interface Flags extends Partial<DemoSizes> {
  readonly layer?: boolean;
  readonly dtype: RowDtype;
  readonly seed: number;
  readonly device: DeviceChoice;
  readonly json?: boolean;
}

const { hidden, experts, topK } = profiles.deepseek_v3;
/** Few enough for a busy laptop to simulate in seconds; the experts of a layer are what takes the time. */
const roundSizes = { ranks: 8, tokens: 16, hidden, experts, topk: topK };
const layerSizes = { ranks: 4, tokens: 6, hidden: 128, experts: 16, topk: 4 };
const rowDtypes: readonly RowDtype[] = ['bf16', 'f16', 'f32'];

/** Adds `heddle demo`. */
export function register(program: Command): void {
  program
    .command('demo')
    .description('one round of a Mixture-of-Experts layer, or a whole layer: verified, and shown')
    .option('--layer', 'a whole layer, small: router, experts that are MLPs and a shared one, too')
    .option('--ranks <n>', `GPUs that share the experts${otherwise('ranks')}`, integer)
    .option('--tokens <n>', `tokens that each of them brings${otherwise('tokens')}`, integer)
    .option('--hidden <n>', `elements of a row${otherwise('hidden')}`, integer)
    .option('--experts <n>', `experts of all ranks together${otherwise('experts')}`, integer)
    .option('--topk <n>', `experts that a token goes to${otherwise('topk')}`, integer)
    .option('--dtype <type>', 'of the rows: bf16, f16 or f32; of a layer bf16', 'bf16')
    .option('--seed <n>', 'of the routes and rows', integer, 1)
    .option('--device <kind>', 'auto (GPUs where there are enough, else simulated ones), sim or cuda', 'auto')
    .option('--json', 'print the figures as JSON')
    .addHelpText(
      'after',
      `
Every token goes to the ranks that own its experts (dispatch), small experts compute there, and the token gets back
the sum of what they made of it (combine). The result is compared with a plain reference, bit by bit; then everything
is run a second time, the simulated machine in another order, and must give the same bits.

With --layer tokens are routed by DeepSeek-V3's router, and experts are its MLPs in small, the shared one too. First one phase
follows another, then there are two micro-batches, one of which computes while the other's rows travel: both give the same
bits, and those that plain code gives, but for rounding.

Exit code: 0 when the results are right, 1 when they are not.

Examples:
  $ heddle demo
  $ heddle demo --layer
  $ heddle demo --ranks 64 --tokens 4 --hidden 1024
  $ heddle demo --ranks 3 --experts 10 --topk 2 --dtype f32 --json`,
    )
    .action(async (flags: Flags) => {
      const result = await demo(flags, (what) => process.stderr.write(`heddle demo: ${what}\n`));
      process.stdout.write(flags.json ? `${JSON.stringify(figures(result), null, 2)}\n` : renderDemo(result));
      process.exitCode = result.comparison.different === 0 && result.bitwiseRepeatable ? 0 : 1;
    });
}

/** The default of an option, of a round and of a layer. */
const otherwise = (of: keyof typeof roundSizes): string =>
  ` (default: ${roundSizes[of]}, with --layer ${layerSizes[of]})`;

function demo(flags: Flags, progress: (what: string) => void): Promise<Result> {
  const sizes = sizesOf(flags);
  const simulated = isSimulated(flags.device, sizes.ranks);
  const shape = shapeOf(flags, sizes);
  const { ranks, maxTokens } = shape;
  const gpus = `${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}`;
  progress(`${maxTokens} tokens for each of ${ranks} ${gpus} …`);
  return flags.layer
    ? demoLayer(sizes, simulated, progress)
    : demoRound(shape, sizes.seed, simulated, progress);
}

type Result = DemoResult & { readonly layer?: LayerFigures };

/** Runs the round trip twice and compares it with the reference. */
async function demoRound(
  shape: Shape,
  seed: number,
  simulated: boolean,
  progress: (what: string) => void,
): Promise<DemoResult> {
  const started = performance.now();
  const sources = makeSources(shape, shape.maxTokens, seed);
  progress('dispatch, experts, combine …');
  const first = await runOnce(shape, sources, simulated, 'in-order');
  progress(`the same again${simulated ? ', in another order' : ''} …`);
  const second = await runOnce(shape, sources, simulated, 'random');
  progress('comparing with the reference …');
  const expected = expectedRound(shape, sources);
  const { hidden, dtype } = shape.output;
  const seconds = Math.round((performance.now() - started) / 10) / 100;
  return {
    ...{ shape, simulated, seconds },
    about: [`rows of ${hidden} ${dtype}; dispatch, experts, combine: twice, in ${seconds.toFixed(1)} s`],
    says: {
      right: 'every bit as in the reference',
      repeatable: 'the second run gave the same bits',
      notRepeatable: 'the second run gave other bits',
    },
    traffic: traffic(shape, sources),
    comparison: mergeComparisons(
      first.out.map((out, rank) => compareCombined(shape, rank, out, expected[rank]!)),
    ),
    bitwiseRepeatable: first.out.every((out, rank) => {
      return compareBits('out', shape.output.dtype, second.out[rank]!, out).different === 0;
    }),
    // The first round on GPUs also loads the kernels.
    ...{ picture: 'One round', bars, spans: second.spans },
  };
}

const bars: readonly Bar[] = [
  { name: 'dispatch', mark: '█', colour: 'cyan' },
  { name: 'experts', mark: '▒', colour: 'yellow' },
  { name: 'combine', mark: '▓', colour: 'magenta' },
];

/** What `--json` prints. */
function figures({ shape, comparison, bitwiseRepeatable, traffic, seconds, layer }: Result) {
  const { ranks, maxTokens, output, experts, topK } = shape;
  const { dispatch, combine, withoutDedup } = traffic;
  return {
    ranks,
    tokens: maxTokens,
    hidden: output.hidden,
    experts,
    topK,
    ...layer,
    maxAbsError: comparison.maxAbsError,
    bitwiseRepeatable,
    bytes: { dispatch, combine, withoutDedup },
    seconds,
  };
}

interface Run {
  /** [rank] */
  readonly out: readonly Bits[];
  readonly spans: readonly KernelSpan[];
}

async function runOnce(
  shape: Shape,
  sources: readonly Source[],
  simulated: boolean,
  schedule: 'in-order' | 'random',
): Promise<Run> {
  const { ranks } = shape;
  const machine = simulated ? SimMachine.create({ ranks, schedule }) : null;
  const device = machine === null ? { device: 'cuda' as const } : { device: 'sim' as const, sim: machine };
  const results = await World.local({ ranks, ...device }, (world) => {
    return runRank(world, shape, sources[world.rank]!);
  });
  return {
    out: results.map(({ out }) => out),
    spans: machine === null ? results.flatMap(({ spans }) => spans) : tracedSpans(machine),
  };
}

/** A kernel may be there before the one before it has ended, but only waits for that: its work begins then. */
function tracedSpans(machine: SimMachine): KernelSpan[] {
  const names: Readonly<Record<string, string>> = {
    one_sided_dispatch: 'dispatch',
    example_experts: 'experts',
    one_sided_combine: 'combine',
  };
  const ends = new Map<number, number>();
  return machine.trace.map(({ rank, kernel, start, end }) => {
    const begin = Math.max(start, ends.get(rank) ?? 0);
    ends.set(rank, end);
    return { rank, stream: 0, kernel: names[kernel] ?? kernel, start: begin, end };
  });
}

/** One rank's round: all that a user of Heddle has to write. */
async function runRank(world: World, shape: Shape, { tokens, topkIds, topkWeights, payloads }: Source) {
  const { dtype, hidden } = shape.output;
  const { device } = world;
  const stream = device.createStream();
  const ep = await ExpertParallel.create(world, layerOf(shape));
  const experts = await ExampleExperts.create(world, ep, stream);
  const x = tensorFrom(device, stream, payloads.x!, 'u8', [tokens, shape.payloads[0]!.rowBytes]);
  const out = emptyTensor(device, dtype, [tokens, hidden]);

  const clock = new KernelClock(world, stream);
  ep.dispatch({ topkIds, topkWeights: topkWeights!, payloads: { x } }, stream);
  clock.ended('dispatch');
  experts.run(stream);
  clock.ended('experts');
  ep.combine(out, stream);
  clock.ended('combine');
  await ep.synchronize(stream);

  const result = { out: await readBits(out, stream), spans: clock.spans() };
  await ep.dispose();
  return result;
}

/** When kernels began and ended on a GPU. The simulated machine knows by itself, and events would hold it up. */
class KernelClock {
  private readonly events: {
    readonly name: string;
    readonly event: ReturnType<World['device']['createEvent']>;
  }[] = [];

  constructor(
    private readonly world: World,
    private readonly stream: ReturnType<World['device']['createStream']>,
  ) {
    this.ended('');
  }

  ended(name: string): void {
    const { device } = this.world;
    if (device.kind === 'sim') return;
    const event = device.createEvent();
    this.stream.record(event);
    this.events.push({ name, event });
  }

  /** In microseconds since this rank began. */
  spans(): KernelSpan[] {
    const [zero, ...ends] = this.events;
    if (zero === undefined) return [];
    let start = 0;
    return ends.map(({ name, event }) => {
      const end = event.elapsedSince(zero.event) * 1000;
      const span = { rank: this.world.rank, stream: 0, kernel: name, start, end };
      start = end;
      return span;
    });
  }
}

/** What was asked for, and the defaults. */
function sizesOf({ layer = false, dtype, seed, ...flags }: Flags): DemoSizes {
  const { ranks, tokens, hidden, experts, topk } = { ...(layer ? layerSizes : roundSizes), ...flags };
  if (!rowDtypes.includes(dtype)) throw new ArgumentError('--dtype', dtype, `one of ${rowDtypes.join(', ')}`);
  if (layer && dtype !== 'bf16') throw new ArgumentError('--dtype', dtype, 'bf16 with --layer');
  requireInteger('--ranks', ranks, 1, limits.ranks);
  requireInteger('--tokens', tokens, 1, limits.maxTokens);
  requireInteger('--hidden', hidden, 1, limits.rowBytes / dtypes[dtype].size);
  if (layer && hidden % layerUnit !== 0)
    throw new ArgumentError('--hidden', hidden, `a multiple of ${layerUnit} with --layer`);
  requireInteger('--experts', experts, 1, layer ? mostRoutedExperts : limits.experts);
  requireInteger('--topk', topk, 1, layer ? Math.min(experts, limits.topK) : limits.topK);
  return { ranks, tokens, hidden, experts, topk, seed };
}

/** What dispatch and combine carry: small enough for this machine's memory, where it is simulated. */
function shapeOf({ dtype, layer }: Flags, sizes: DemoSizes): Shape {
  const { ranks, tokens, hidden, experts, topk } = sizes;
  const shape = shapeOfRounds({ ranks, experts, topK: topk, maxTokens: tokens, hidden, dtype });
  const windows = layer
    ? MoeLayer.memory({ model: layerModel(sizes), maxTokens: tokens, ranks }).bytes
    : leastWindowBytes(shape);
  // Windows of all ranks, the reference's copies of them and two results: about three times the windows.
  const most = totalmem() / 2;
  const bytes = 3 * ranks * windows;
  if (bytes > most) {
    throw new ArgumentError(
      '--tokens',
      tokens,
      `at most ${Math.floor(tokens * (most / bytes))} for this demo, with ${ranks} ranks and rows of ${hidden} ${dtype}`,
    );
  }
  return shape;
}

function isSimulated(device: DeviceChoice, ranks: number): boolean {
  if (device !== 'auto' && device !== 'sim' && device !== 'cuda') {
    throw new ArgumentError('--device', device, 'auto, sim or cuda');
  }
  if (device === 'sim') return true;
  try {
    return device === 'auto' && countGpus() < ranks;
  } catch (error) {
    // No driver, so no GPUs.
    if (device === 'auto' && error instanceof UnavailableError) return true;
    throw error;
  }
}

function integer(text: string): number {
  if (!/^-?\d+$/.test(text)) throw new InvalidArgumentError('It must be an integer.');
  return Number(text);
}
