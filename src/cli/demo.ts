import { totalmem } from 'node:os';
import { ArgumentError, requireInteger, UnavailableError } from '../base/errors.js';
import { gpusHere } from '../gpu/cuda/index.js';
import { leastWindowBytes } from '../moe/index.js';
import { dtypes, limits, profiles, type RowDtype, type Shape } from '../moe/layer/index.js';
import { shapeOfRounds } from '../verify/testing/index.js';
import type { Command, FlagsOf } from './commander.js';
import { type DemoResult, demoRounds } from './demo-rounds.js';
import { choice, elements, experts, ranks, routes, seed, tokens } from './options.js';
import { demoText } from './print-demo.js';

type Flags = FlagsOf<typeof define>;

const model = profiles.deepseek_v3;
const rowDtypes: readonly RowDtype[] = ['bf16', 'f16', 'f32'];

// Few enough ranks and tokens for a busy laptop to simulate in seconds.
const define = (command: Command) =>
  command
    .option('--ranks <n>', 'GPUs that share the experts', ranks, 8)
    .option('--tokens <n>', 'tokens that each of them brings', tokens, 16)
    .option('--hidden <n>', 'elements of a row', elements, model.hidden)
    .option('--experts <n>', 'experts of all ranks together', experts, model.experts)
    .option('--topk <n>', 'experts that a token goes to', routes, model.topK)
    .addOption(choice('--dtype <type>', 'of the rows', rowDtypes, 'bf16'))
    .option('--seed <n>', 'of the routes and rows', seed, 1)
    .addOption(
      choice(
        '--device <kind>',
        'GPUs where there are enough, else simulated ones, or one of the two',
        ['auto', 'sim', 'cuda'],
        'auto',
      ),
    )
    .option('--json', 'print the figures as JSON')
    .addHelpText(
      'after',
      `
Every token goes to the ranks that own its experts (dispatch), small experts compute there, and the token gets back
the sum of what they made of it (combine). The result is compared with a plain reference, bit by bit; then everything
is run a second time, the simulated machine in another order, and must give the same bits.

Exit code: 0 when the results are right, 1 when they are not.

Examples:
  $ heddle demo
  $ heddle demo --ranks 64 --tokens 4 --hidden 1024
  $ heddle demo --ranks 3 --experts 10 --topk 2 --dtype f32 --json`,
    );

export const register = (command: Command) =>
  define(command).action(async (flags) => {
    const progress = (what: string): void => void process.stderr.write(`heddle demo: ${what}\n`);
    const { ranks, seed, device, json } = flags;
    const simulated = isSimulated(device, ranks);
    const shape = shapeOf(flags);
    const gpus = `${simulated ? 'simulated ' : ''}GPU${ranks === 1 ? '' : 's'}`;
    progress(`${shape.maxTokens} tokens for each of ${ranks} ${gpus} …`);
    const result = await demoRounds(shape, { seed, simulated }, progress);
    process.stdout.write(json ? `${JSON.stringify(figures(result), null, 2)}\n` : demoText(result));
    process.exitCode = result.comparison.different === 0 && result.bitwiseRepeatable ? 0 : 1;
  });

/** The output of `--json`. */
function figures({ shape, traffic, comparison, bitwiseRepeatable, seconds }: DemoResult) {
  const { ranks, maxTokens, output, experts, topK } = shape;
  const { dispatch, combine, withoutDedup } = traffic;
  return {
    ...{ ranks, tokens: maxTokens, hidden: output.hidden, experts, topK },
    ...{ maxAbsError: comparison.maxAbsError, bitwiseRepeatable },
    ...{ bytes: { dispatch, combine, withoutDedup }, seconds },
  };
}

/** The rows that dispatch and combine carry: small enough for this machine's memory, where it is simulated. */
function shapeOf({ ranks, tokens, hidden, experts, topk, dtype }: Flags): Shape {
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

function isSimulated(device: Flags['device'], ranks: number): boolean {
  const gpus = device === 'sim' ? 0 : gpusHere();
  if (device === 'cuda' && gpus < ranks)
    throw new UnavailableError(
      `${ranks} ranks need a GPU each, and this machine has ${gpus}`,
      'heddle demo --device sim simulates them; heddle doctor says what is missing',
    );
  return gpus < ranks;
}
