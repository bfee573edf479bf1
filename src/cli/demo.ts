import { totalmem } from 'node:os';
import { type Command, InvalidArgumentError } from 'commander';
import { countGpus } from '../cuda/index.js';
import { ArgumentError, requireInteger, UnavailableError } from '../errors/index.js';
import type { ProviderName } from '../fabric/index.js';
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
import { leastWindowBytes } from '../moe/index.js';
import { SimMachine } from '../sim/index.js';
import {
  compareCombined,
  expectedRound,
  makeSources,
  mergeComparisons,
  shapeOfRounds,
} from '../testing/index.js';
import { type DeviceChoice, World } from '../world/index.js';
import { digestOf, networkHere, runNodes } from './demo-nodes.js';
import { runRank } from './demo-round.js';
import { type DemoResult, type KernelSpan, renderDemo } from './print-demo.js';

interface Options {
  readonly ranks: number;
  readonly nodes: number;
  readonly tokens: number;
  readonly hidden: number;
  readonly experts: number;
  readonly topk: number;
  readonly dtype: RowDtype;
  readonly seed: number;
  readonly device: DeviceChoice;
  readonly json?: boolean;
}

const { hidden, experts, topK } = profiles.deepseek_v3;
const rowDtypes: readonly RowDtype[] = ['bf16', 'f16', 'f32'];

/** Adds `heddle demo`. */
export function register(program: Command): void {
  program
    .command('demo')
    .description('one round of a Mixture-of-Experts layer: verified, and shown')
    .option('--ranks <n>', 'GPUs that share the experts', integer, 8)
    .option('--nodes <n>', 'of so many equal nodes, between which rows cross a network', integer, 1)
    // Few enough for a busy laptop to simulate in seconds.
    .option('--tokens <n>', 'tokens that each of them brings', integer, 16)
    .option('--hidden <n>', 'elements of a row', integer, hidden)
    .option('--experts <n>', 'experts of all ranks together', integer, experts)
    .option('--topk <n>', 'experts that a token goes to', integer, topK)
    .option('--dtype <type>', 'of the rows: bf16, f16 or f32', 'bf16')
    .option('--seed <n>', 'of the routes and rows', integer, 1)
    .option('--device <kind>', 'auto (GPUs where there are enough, else simulated ones), sim or cuda', 'auto')
    .option('--json', 'print the figures as JSON')
    .addHelpText(
      'after',
      `
Every token goes to the ranks that own its experts (dispatch), small experts compute there, and the token gets back
the sum of what they made of it (combine). The result is compared with a plain reference, bit by bit; then everything
is run a second time, the simulated machine in another order, and must give the same bits.

With --nodes the simulated machine has a network too. Where libfabric is installed, the second run is of processes, one
for each node, and libfabric between them (HEDDLE_PROVIDER chooses its provider).

Exit code: 0 when the results are right, 1 when they are not.

Examples:
  $ heddle demo
  $ heddle demo --nodes 2
  $ heddle demo --ranks 64 --tokens 4 --hidden 1024
  $ heddle demo --ranks 3 --experts 10 --topk 2 --dtype f32 --json`,
    )
    .action(async (options: Options) => {
      const result = await demo(options, (what) => process.stderr.write(`heddle demo: ${what}\n`));
      process.stdout.write(
        options.json ? `${JSON.stringify(figures(result), null, 2)}\n` : renderDemo(result),
      );
      process.exitCode = result.comparison.different === 0 && result.bitwiseRepeatable ? 0 : 1;
    });
}

/** Runs the round trip twice and compares it with the reference. */
export async function demo(options: Options, progress: (what: string) => void): Promise<DemoResult> {
  const started = performance.now();
  const shape = shapeOf(options);
  const { nodes, seed } = options;
  const simulated = isSimulated(options);
  const provider = nodes > 1 ? networkHere() : null;
  const { ranks, maxTokens } = shape;
  const gpus = `${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}`;
  progress(`${maxTokens} tokens for each of ${ranks} ${gpus}${nodes > 1 ? ` on ${nodes} nodes` : ''} …`);
  const sources = makeSources(shape, maxTokens, seed);
  const here = (schedule: 'in-order' | 'random') =>
    simulated ? simulate(shape, sources, nodes, schedule) : runOnGpus(shape, sources, nodes, provider);
  progress('dispatch, experts, combine …');
  const first = await here('in-order');
  let again: Run;
  if (simulated && provider !== null) {
    progress(`the same again, in ${nodes} processes over ${provider} …`);
    again = { digests: await runNodes(nodes, { shape, seed, provider }), spans: first.spans };
  } else {
    progress(`the same again${simulated ? ', in another order' : ''} …`);
    again = await here('random');
  }
  progress('comparing with the reference …');
  const expected = expectedRound(shape, sources, true, nodes);
  return {
    shape,
    nodes,
    simulated,
    network: provider,
    traffic: traffic(shape, sources, nodes),
    comparison: mergeComparisons(
      first.out.map((out, rank) => compareCombined(shape, rank, out, expected[rank]!)),
    ),
    bitwiseRepeatable: first.digests.every((digest, rank) => digest === again.digests[rank]),
    // The first round on GPUs also loads the kernels.
    spans: again.spans,
    seconds: Math.round((performance.now() - started) / 10) / 100,
  };
}

/** What `--json` prints. */
function figures({ shape, nodes, network, comparison, bitwiseRepeatable, traffic, seconds }: DemoResult) {
  const { ranks, maxTokens, output, experts, topK } = shape;
  const { dispatch, combine, withoutDedup, between } = traffic;
  return {
    ranks,
    nodes,
    network,
    tokens: maxTokens,
    hidden: output.hidden,
    experts,
    topK,
    maxAbsError: comparison.maxAbsError,
    bitwiseRepeatable,
    bytes: { dispatch, combine, withoutDedup, betweenNodes: between.dispatch + between.combine },
    seconds,
  };
}

/** By rank. */
interface Run {
  readonly digests: readonly string[];
  readonly spans: readonly KernelSpan[];
}

interface RunHere extends Run {
  readonly out: readonly Bits[];
}

async function simulate(
  shape: Shape,
  sources: readonly Source[],
  nodes: number,
  schedule: 'in-order' | 'random',
): Promise<RunHere> {
  const { ranks } = shape;
  const sim = SimMachine.create({ ranks, schedule });
  const results = await World.local({ ranks, nodes, device: 'sim', sim }, (world) =>
    runRank(world, shape, sources[world.rank]!),
  );
  return { ...outOf(results), spans: tracedSpans(sim) };
}

async function runOnGpus(
  shape: Shape,
  sources: readonly Source[],
  nodes: number,
  provider: ProviderName | null,
): Promise<RunHere> {
  const fabric = provider === null ? {} : { provider };
  const results = await World.local({ ranks: shape.ranks, nodes, device: 'cuda', fabric }, (world) =>
    runRank(world, shape, sources[world.rank]!),
  );
  return { ...outOf(results), spans: results.flatMap(({ spans }) => spans) };
}

function outOf(results: readonly { readonly out: Bits }[]) {
  const out = results.map((result) => result.out);
  return { out, digests: out.map(digestOf) };
}

/** A kernel may be there before the one before it has ended, but only waits for that: its work begins then. */
function tracedSpans(machine: SimMachine): KernelSpan[] {
  const part = (kernel: string): string => /dispatch|experts|combine/.exec(kernel)?.[0] ?? kernel;
  const ends = new Map<number, number>();
  return machine.trace.map(({ rank, kernel, start, end }) => {
    const span = { rank, kernel: part(kernel), start: Math.max(start, ends.get(rank) ?? 0), end };
    ends.set(rank, end);
    return span;
  });
}

function shapeOf({ ranks, nodes, tokens, hidden, experts, topk, dtype }: Options): Shape {
  if (!rowDtypes.includes(dtype)) throw new ArgumentError('--dtype', dtype, `one of ${rowDtypes.join(', ')}`);
  requireInteger('--ranks', ranks, 1, limits.ranks);
  requireInteger('--nodes', nodes, 1, ranks);
  if (ranks % nodes !== 0)
    throw new ArgumentError('--nodes', nodes, `a divisor of ${ranks}, the number of ranks`);
  requireInteger('--tokens', tokens, 1, limits.maxTokens);
  requireInteger('--hidden', hidden, 1, limits.rowBytes / dtypes[dtype].size);
  requireInteger('--experts', experts, 1, limits.experts);
  requireInteger('--topk', topk, 1, limits.topK);
  const shape = shapeOfRounds({ ranks, experts, topK: topk, maxTokens: tokens, hidden, dtype });
  // Windows of all ranks, the reference's copies of them and two results: about three times the windows.
  const most = totalmem() / 2;
  const bytes = 3 * ranks * leastWindowBytes(shape);
  if (bytes > most) {
    throw new ArgumentError(
      '--tokens',
      tokens,
      `at most ${Math.floor(tokens * (most / bytes))} for this demo, with ${ranks} ranks and rows of ${hidden} ${dtype}`,
    );
  }
  return shape;
}

function isSimulated({ device, ranks }: Options): boolean {
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
