import { totalmem } from 'node:os';
import { ArgumentError, requireInteger, UnavailableError } from '../base/errors.js';
import { gpusHere } from '../gpu/cuda/index.js';
import { leastWindowBytes, MoeLayer } from '../moe/index.js';
import { dtypes, limits, profiles, type RowDtype, type Shape } from '../moe/layer/index.js';
import { mostRoutedExperts } from '../moe/router/index.js';
import { shapeOfRounds } from '../verify/testing/index.js';
import { type Command, type FlagsOf, Option } from './commander.js';
import { type ChangesResult, demoChanges } from './demo-changes.js';
import { demoJoining, joiningText } from './demo-joining.js';
import { type DemoSizes, demoLayer, layerModel, layerUnit } from './demo-layer.js';
import { demoRounds } from './demo-rounds.js';
import { elements, experts as expertsOf, ranks, routes, seed, tokens } from './options.js';
import { busiest, changesText } from './print-changes.js';
import { type DemoResult, demoText, rendered } from './print-demo.js';

type Flags = FlagsOf<typeof define>;

const { hidden, experts, topK } = profiles.deepseek_v3;
/** Few enough for a busy laptop to simulate in seconds; the experts of a layer are what takes the time. */
const roundSizes = { ranks: 8, tokens: 16, hidden, experts, topk: topK };
const layerSizes = { ranks: 4, tokens: 6, hidden: 128, experts: 16, topk: 4 };
/** More experts than places on a rank, so that there is something to balance; rows that are short, of many rounds. */
const changesSizes = { ranks: 8, tokens: 16, hidden: 64, experts: 24, topk: 4 };
const rowDtypes: readonly RowDtype[] = ['bf16', 'f16', 'f32'];

const define = (command: Command) =>
  command
    .option('--layer', 'a small but whole layer: router, MLP experts, shared expert')
    .addOption(
      new Option(
        '--rebalance',
        'many rounds, simulated, in which experts move to where they are wanted',
      ).conflicts(['layer', 'nodes']),
    )
    .addOption(
      new Option('--lose <n>', 'stop this many ranks in the middle of a simulated run of many rounds')
        .argParser(ranks)
        .conflicts(['layer', 'nodes']),
    )
    .addOption(
      new Option(
        '--join',
        'processes of which one is killed, started anew and taken in again: 4, or --ranks',
      ).conflicts([
        ...['layer', 'rebalance', 'lose', 'nodes'],
        ...['tokens', 'hidden', 'experts', 'topk', 'dtype'],
      ]),
    )
    .option('--ranks <n>', `GPUs that share the experts${otherwise('ranks')}`, ranks)
    .option('--nodes <n>', 'number of equal nodes; rows cross a network between them', ranks, 1)
    .option('--tokens <n>', `tokens that each of them brings${otherwise('tokens')}`, tokens)
    .option('--hidden <n>', `elements of a row${otherwise('hidden')}`, elements)
    .option('--experts <n>', `experts of all ranks together${otherwise('experts')}`, expertsOf)
    .option('--topk <n>', `experts that a token goes to${otherwise('topk')}`, routes)
    .option(
      '--dtype <type>',
      'of the rows: bf16, f16 or f32; of a layer bf16, or fp8: rows and weights',
      'bf16',
    )
    .option('--seed <n>', 'of the routes and rows', seed, 1)
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

With --rebalance a few experts get most tokens. After some rounds a better placement is made of what was counted, and weights move to
it while rounds run. With --lose ranks stop in the middle of a round: the others leave them out, run that round again, and go on,
with the experts that live elsewhere too. A picture shows who had which expert when, and every round is compared with the reference.
With --join each rank is a process. One is killed, the others renew their world without it, and once more when it has been started
anew and waits to be taken in; a round in each of these worlds is compared with the reference. It takes --ranks, --seed and --json.

With --nodes the simulated machine has a network too. Where libfabric is installed, the second run of a round is of processes,
one for each node, and libfabric between them (HEDDLE_PROVIDER chooses its provider).

Exit code: 0 when the results are right, 1 when they are not.

Examples:
  $ heddle demo
  $ heddle demo --layer --dtype fp8
  $ heddle demo --rebalance --lose 1
  $ heddle demo --nodes 2
  $ heddle demo --ranks 64 --tokens 4 --hidden 1024
  $ heddle demo --ranks 3 --experts 10 --topk 2 --dtype f32 --json`,
    );

export const register = (command: Command) =>
  define(command).action(async (flags) => {
    const progress = (what: string): void => void process.stderr.write(`heddle demo: ${what}\n`);
    const show = flags.join ? demoOfJoining : changes(flags) ? demoOfChanges : demo;
    const { json, text, right } = await show(flags, progress);
    process.stdout.write(flags.json ? `${JSON.stringify(json, null, 2)}\n` : rendered(text));
    process.exitCode = right ? 0 : 1;
  });

const changes = ({ rebalance, lose }: Flags): boolean => rebalance === true || lose !== undefined;

interface Shown {
  readonly json: object;
  readonly text: Parameters<typeof rendered>[0];
  readonly right: boolean;
}

async function demoOfChanges(flags: Flags, progress: (what: string) => void): Promise<Shown> {
  const { rebalance = false, lose = 0 } = flags;
  requireSimulated(flags);
  const sizes = sizesOf(flags);
  const { ranks, experts } = sizes;
  if (lose >= ranks) throw new ArgumentError('--lose', lose, `less than --ranks, ${ranks}`);
  // Every expert may have two places, and every rank a place more than that.
  const most = Math.min(limits.experts / 2, limits.experts - ranks);
  requireInteger('--experts', experts, 1, most - (most % ranks));
  const shape = shapeOf(flags, sizes);
  progress(`${shape.maxTokens} tokens for each of ${ranks} simulated GPUs …`);
  const result = await demoChanges(shape, { seed: sizes.seed, rebalance, lose }, progress);
  return {
    json: changesFigures(result),
    text: (paint, columns) => changesText(result, paint, columns),
    right: result.comparison.different === 0,
  };
}

function changesFigures({ shape, comparison, stretches, ...result }: ChangesResult) {
  const { ranks, maxTokens, output, experts, topK } = shape;
  return {
    ...{ ranks, tokens: maxTokens, hidden: output.hidden, experts, topK, ...result },
    stretches: stretches.map((one) => ({ ...one, busiest: busiest(one) })),
    maxAbsError: comparison.maxAbsError,
  };
}

/** Some demos take simulated GPUs alone. */
function requireSimulated({ device }: Flags): void {
  if (device !== 'auto' && device !== 'sim')
    throw new ArgumentError('--device', device, 'auto or sim with --rebalance, --lose and --join');
}

async function demoOfJoining(flags: Flags, progress: (what: string) => void): Promise<Shown> {
  requireSimulated(flags);
  const { ranks = 4, seed } = flags;
  requireInteger('--ranks', ranks, 2, 64);
  const result = await demoJoining(ranks, seed, progress);
  return { json: result, text: () => joiningText(result), right: result.different === 0 };
}

/** The default of an option, and those of other demos where they differ. */
function otherwise(of: keyof typeof roundSizes): string {
  const others = { '--layer': layerSizes[of], '--rebalance and --lose': changesSizes[of] };
  const unlike = Object.entries(others).filter(([, size]) => size !== roundSizes[of]);
  return ` (default: ${roundSizes[of]}${unlike.map(([which, size]) => `; with ${which}: ${size}`).join('')})`;
}

async function demo(flags: Flags, progress: (what: string) => void): Promise<Shown> {
  const sizes = sizesOf(flags);
  const { ranks, nodes, seed } = sizes;
  const simulated = isSimulated(flags.device, ranks);
  const shape = shapeOf(flags, sizes);
  const gpus = `${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}${nodes > 1 ? ` on ${nodes} nodes` : ''}`;
  progress(`${shape.maxTokens} tokens for each of ${ranks} ${gpus} …`);
  const result: Result = flags.layer
    ? await demoLayer(sizes, simulated, progress)
    : await demoRounds(shape, { nodes, seed, simulated }, progress);
  return {
    json: figures(result),
    text: (paint, columns) => demoText(result, paint, columns),
    right: result.comparison.different === 0 && result.bitwiseRepeatable,
  };
}

type Result = DemoResult & { readonly network?: string | null; readonly layer?: object };

/** The output of `--json`. */
function figures({ shape, nodes, network, layer, ...result }: Result) {
  const { ranks, maxTokens, output, experts, topK } = shape;
  const { dispatch, combine, withoutDedup, between } = result.traffic;
  return {
    ...{ ranks, nodes, network, tokens: maxTokens, hidden: output.hidden, experts, topK },
    ...layer,
    maxAbsError: result.comparison.maxAbsError,
    bitwiseRepeatable: result.bitwiseRepeatable,
    bytes: { dispatch, combine, withoutDedup, betweenNodes: between.dispatch + between.combine },
    seconds: result.seconds,
  };
}

/** The options that were given, and the defaults. */
function sizesOf(all: Flags): DemoSizes {
  const { layer = false, dtype, seed, nodes, ...flags } = all;
  const defaults = layer ? layerSizes : changes(all) ? changesSizes : roundSizes;
  const { ranks, tokens, hidden, experts, topk } = { ...defaults, ...flags };
  const output = outputDtype(layer, dtype);
  const rows = dtype === 'fp8' ? dtype : 'bf16';
  const unit = layerUnit(rows);
  requireInteger('--nodes', nodes, 1, ranks);
  if (ranks % nodes !== 0)
    throw new ArgumentError('--nodes', nodes, `a divisor of ${ranks}, the number of ranks`);
  requireInteger('--hidden', hidden, 1, limits.rowBytes / dtypes[output].size);
  if (layer && hidden % unit !== 0)
    throw new ArgumentError('--hidden', hidden, `a multiple of ${unit} with --layer and rows of ${rows}`);
  requireInteger('--experts', experts, 1, layer ? mostRoutedExperts : limits.experts);
  requireInteger('--topk', topk, 1, limits.topK);
  if (topk > experts) throw new ArgumentError('--topk', topk, `at most --experts, ${experts}`);
  return { ranks, nodes, tokens, hidden, experts, topk, seed, rows };
}

/** The type of the rows that come back. Only the experts of a layer take rows of fp8, and these too make rows of bf16. */
function outputDtype(layer: boolean, dtype: string): RowDtype {
  if (layer && (dtype === 'bf16' || dtype === 'fp8')) return 'bf16';
  const found = rowDtypes.find((one) => one === dtype);
  if (!layer && found !== undefined) return found;
  const possible = layer
    ? 'bf16 or fp8 with --layer'
    : `one of ${rowDtypes.join(', ')}; with --layer also fp8`;
  throw new ArgumentError('--dtype', dtype, possible);
}

/** The rows that dispatch and combine carry: small enough for this machine's memory, where it is simulated. */
function shapeOf({ layer, dtype: asked }: Flags, sizes: DemoSizes): Shape {
  const { ranks, tokens, hidden, experts, topk, rows } = sizes;
  const dtype = outputDtype(layer === true, asked);
  const shape = shapeOfRounds({ ranks, experts, topK: topk, maxTokens: tokens, hidden, dtype });
  const windows = layer
    ? MoeLayer.memory({ model: layerModel(sizes), maxTokens: tokens, ranks, rows }).bytes
    : leastWindowBytes(shape);
  // A demo needs about three times the windows of all ranks: the windows, the copies of the reference, and two
  // results.
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

function isSimulated(device: string, ranks: number): boolean {
  if (device !== 'auto' && device !== 'sim' && device !== 'cuda') {
    throw new ArgumentError('--device', device, 'auto, sim or cuda');
  }
  const gpus = device === 'sim' ? 0 : gpusHere();
  if (device === 'cuda' && gpus < ranks)
    throw new UnavailableError(
      `${ranks} ranks need a GPU each, and this machine has ${gpus}`,
      'heddle demo --device sim simulates them; heddle doctor says what is missing',
    );
  return gpus < ranks;
}
