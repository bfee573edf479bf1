import { totalmem } from 'node:os';
import { ArgumentError, requireInteger } from '../base/errors.js';
import { gpusHere } from '../gpu/cuda/index.js';
import { leastWindowBytes } from '../moe/index.js';
import { dtypes, limits, profiles, type RowDtype, type Shape } from '../moe/layer/index.js';
import { shapeOfRounds } from '../verify/testing/index.js';
import { type Command, type FlagsOf, Option } from './commander.js';
import { changesRanks, demoChanges } from './demo-changes.js';
import { demoJoining, joiningText } from './demo-joining.js';
import { demoLayer } from './demo-layer.js';
import { demoRounds } from './demo-rounds.js';
import {
  choice,
  elements,
  experts as expertsOf,
  integerFrom,
  ranks,
  routes,
  seed,
  tokens,
} from './options.js';
import { busiest, changesText } from './print-changes.js';
import { type DemoResult, demoText, rendered } from './print-demo.js';

type Flags = FlagsOf<typeof define>;

const { hidden, experts, topK } = profiles.deepseek_v3;
const rowDtypes: readonly RowDtype[] = ['bf16', 'f16', 'f32'];

/** The options of a round. The other demonstrations have sizes of their own, and are simulated. */
const ofRound = ['ranks', 'nodes', 'tokens', 'hidden', 'experts', 'topk', 'dtype', 'device'];

const another = <const Usage extends string>(usage: Usage, summary: string, ...others: readonly string[]) =>
  new Option(usage, summary).conflicts([...ofRound, ...others]);

const define = (command: Command) =>
  command
    .addOption(
      another(
        '--layer',
        'a whole layer, small: router, experts that are MLPs and a shared one, too',
        ...['rebalance', 'lose', 'join'],
      ),
    )
    .addOption(another('--rebalance', 'many rounds, in which experts move to where they are wanted', 'join'))
    .addOption(
      another('--lose <n>', 'many rounds, in the midst of which so many ranks stop', 'join').argParser(
        integerFrom(1, changesRanks - 1),
      ),
    )
    .addOption(another('--join', 'processes of which one is killed, started anew and taken in again'))
    // Few tokens, so that a busy laptop simulates them in seconds.
    .option('--ranks <n>', 'GPUs that share the experts', ranks, 8)
    .option('--nodes <n>', 'of so many equal nodes, between which rows cross a network', ranks, 1)
    .option('--tokens <n>', 'tokens that each of them brings', tokens, 16)
    .option('--hidden <n>', 'elements of a row', elements, hidden)
    .option('--experts <n>', 'experts of all ranks together', expertsOf, experts)
    .option('--topk <n>', 'experts that a token goes to', routes, topK)
    .addOption(choice('--dtype <type>', 'of the rows', rowDtypes, 'bf16'))
    .addOption(
      choice('--device <kind>', 'auto: GPUs where there are enough', ['auto', 'sim', 'cuda'], 'auto'),
    )
    .option('--seed <n>', 'of the routes and rows', seed, 1)
    .option('--json', 'print the figures as JSON')
    .addHelpText(
      'after',
      `
Every token goes to the ranks that own its experts (dispatch), small experts compute there, and the token gets back
the sum of what they made of it (combine). The result is compared with a plain reference, bit by bit; then everything
is run a second time, the simulated machine in another order, and must give the same bits.

With --nodes the simulated machine has a network too. Where libfabric is installed, the second run of a round is of processes,
one for each node, and libfabric between them (HEDDLE_PROVIDER chooses its provider).

The others have sizes of their own, and need no GPU. With --layer tokens are routed by DeepSeek-V3's router, and experts are its MLPs in
small, the shared one too. First one phase follows another, then there are two micro-batches, one of which computes while the other's
rows travel: both give the same bits, and those that plain code gives, but for rounding.

With --rebalance a few experts get most tokens. After some rounds a better placement is made of what was counted, and weights move to
it while rounds run. With --lose ranks stop in the middle of a round: the others leave them out, run that round again, and go on,
with the experts that live elsewhere too. A picture shows who had which expert when, and every round is compared with the reference.
With --join each rank is a process. One is killed, the others renew their world without it, and once more when it has been started
anew and waits to be taken in; a round in each of these worlds is compared with the reference.

Exit code: 0 when the results are right, 1 when they are not.

Examples:
  $ heddle demo
  $ heddle demo --layer
  $ heddle demo --rebalance --lose 1
  $ heddle demo --nodes 2
  $ heddle demo --ranks 64 --tokens 4 --hidden 1024
  $ heddle demo --ranks 3 --experts 10 --topk 2 --dtype f32 --json`,
    );

export const register = (command: Command) =>
  define(command).action(async (flags) => {
    const progress = (what: string): void => void process.stderr.write(`heddle demo: ${what}\n`);
    const { json, text, right } = await showing(flags)(flags, progress);
    process.stdout.write(flags.json ? `${JSON.stringify(json, null, 2)}\n` : rendered(text));
    process.exitCode = right ? 0 : 1;
  });

interface Shown {
  readonly json: object;
  readonly text: Parameters<typeof rendered>[0];
  readonly right: boolean;
}

type Show = (flags: Flags, progress: (what: string) => void) => Promise<Shown>;

function showing({ join, layer, rebalance, lose }: Flags): Show {
  if (join) return joining;
  if (rebalance || lose !== undefined) return changes;
  return layer ? wholeLayer : round;
}

const wholeLayer: Show = async ({ seed }, progress) => shown(await demoLayer(seed, progress));

const joining: Show = async ({ seed }, progress) => {
  const result = await demoJoining(seed, progress);
  return { json: result, text: () => joiningText(result), right: result.different === 0 };
};

const changes: Show = async ({ rebalance = false, lose = 0, seed }, progress) => {
  const result = await demoChanges({ seed, rebalance, lose }, progress);
  const { shape, comparison, stretches, ...others } = result;
  const { ranks, maxTokens, output, experts, topK } = shape;
  return {
    json: {
      ...{ ranks, tokens: maxTokens, hidden: output.hidden, experts, topK, ...others },
      stretches: stretches.map((one) => ({ ...one, busiest: busiest(one) })),
      maxAbsError: comparison.maxAbsError,
    },
    text: (paint, columns) => changesText(result, paint, columns),
    right: comparison.different === 0,
  };
};

const round: Show = async (flags, progress) => {
  const { ranks, nodes, device, seed } = flags;
  const shape = shapeOf(flags);
  const simulated = device === 'sim' || (device === 'auto' && gpusHere() < ranks);
  const gpus = `${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}${nodes > 1 ? ` on ${nodes} nodes` : ''}`;
  progress(`${shape.maxTokens} tokens for each of ${ranks} ${gpus} …`);
  return shown(await demoRounds(shape, { nodes, seed, simulated }, progress));
};

function shown(result: DemoResult & { readonly network?: string | null; readonly layer?: object }): Shown {
  const { shape, nodes, network, layer, comparison, bitwiseRepeatable, seconds } = result;
  const { ranks, maxTokens, output, experts, topK } = shape;
  const { dispatch, combine, withoutDedup, between } = result.traffic;
  return {
    json: {
      ...{ ranks, nodes, network, tokens: maxTokens, hidden: output.hidden, experts, topK },
      ...{ ...layer, maxAbsError: comparison.maxAbsError, bitwiseRepeatable },
      bytes: { dispatch, combine, withoutDedup, betweenNodes: between.dispatch + between.combine },
      seconds,
    },
    text: (paint, columns) => demoText(result, paint, columns),
    right: comparison.different === 0 && bitwiseRepeatable,
  };
}

/** The rows that dispatch and combine carry: small enough for this machine's memory, where it is simulated. */
function shapeOf({ ranks, nodes, tokens, hidden, experts, topk, dtype }: Flags): Shape {
  if (ranks % nodes !== 0)
    throw new ArgumentError('--nodes', nodes, `a divisor of ${ranks}, the number of ranks`);
  requireInteger('--hidden', hidden, 1, limits.rowBytes / dtypes[dtype].size);
  if (topk > experts) throw new ArgumentError('--topk', topk, `at most --experts, ${experts}`);
  const shape = shapeOfRounds({ ranks, experts, topK: topk, maxTokens: tokens, hidden, dtype });
  // A demo needs about three times the windows of all ranks: the windows, the copies of the reference, and two
  // results.
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
