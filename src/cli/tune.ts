import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { runTuning, sweep, type TuneEvent, type WorkloadOptions } from '../bench/index.js';
import { formats, profiles } from '../layer/index.js';
import type { Tuning } from '../moe/index.js';
import {
  readTuning,
  type TunedShape,
  type TuningFile,
  tunedH200,
  tuningFormat,
  tuningPath,
} from '../tuning/index.js';

interface TuneFlags {
  readonly profile: string;
  readonly ep: number;
  readonly begin: number;
  readonly end: number;
  readonly factor: number;
  readonly tokens?: readonly number[];
  readonly dtype: WorkloadOptions['dtype'];
  readonly combineDtype: WorkloadOptions['combineDtype'];
  readonly budget: number;
  readonly output?: string;
  readonly json?: boolean;
}

/** Adds `heddle tune`. */
export function register(program: Command): void {
  program
    .command('tune')
    .description('find the launch parameters that are fastest on this machine, for later runs to use')
    .addOption(
      new Option('--profile <name>', 'the layer of a model')
        .choices(Object.keys(profiles))
        .default('deepseek_v3'),
    )
    .option('--ep <ranks>', 'ranks, a GPU each', whole, 4)
    .option('-b, --begin <tokens>', 'fewest tokens a rank', whole, 1)
    .option('-e, --end <tokens>', 'most tokens a rank', whole, 4096)
    .option('-f, --factor <n>', 'from one number of tokens to the next', whole, 2)
    .option('--tokens <list>', 'these numbers of tokens instead: 1,8,128', (list) =>
      list.split(',').map(whole),
    )
    .addOption(
      new Option('--dtype <format>', 'what dispatch carries').choices(Object.keys(formats)).default('bf16'),
    )
    .addOption(
      new Option('--combine-dtype <dtype>', 'what combine carries')
        .choices(['bf16', 'f16', 'f32'])
        .default('bf16'),
    )
    .option('--budget <seconds>', 'for all of it', whole, 300)
    .option(
      '-o, --output <file>',
      'default: $HEDDLE_TUNING, else ~/.cache/heddle/tuning.json; .ts for a module',
    )
    .option('--json', 'print what was found as JSON')
    .addHelpText(
      'after',
      `
What it finds is added to the file, in place of older entries of the same shapes. ExpertParallel.create reads it.

Exit code: 0; 1 when something failed; 2 for a mistake in the arguments or when this machine lacks GPUs.

Examples:
  $ heddle tune --ep 8 --budget 600
  $ heddle tune --tokens 64,128 --dtype fp8`,
    )
    .action(tune);
}

async function tune(flags: TuneFlags): Promise<void> {
  const { profile, ep, dtype, combineDtype, begin, end, factor } = flags;
  const out = flags.json ? process.stderr : process.stdout;
  const path = flags.output ?? tuningPath();
  const hear = (event: TuneEvent): void => {
    if (event.type === 'tried') {
      if (process.stderr.isTTY)
        process.stderr.write(`\r\x1b[K${event.tokens} tokens: ${event.microseconds.toFixed(2)} µs …`);
      return;
    }
    if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
    const { shape, before, tried, cut } = event;
    out.write(
      `${String(shape.maxTokens).padStart(6)} tokens  ${before.toFixed(2)} → ${shape.microseconds.toFixed(2)} µs  ` +
        `${inWords(shape.tuning)}  (${tried} tried${cut ? ', out of time' : ''})\n`,
    );
    save(path, [shape]);
  };
  process.stderr.write(`heddle tune: at most ${flags.budget} s; what is found goes to ${path}\n`);
  const shapes = await runTuning(
    {
      workload: { profile, ranks: ep, dtype, combineDtype, router: 'uniform', seed: 1 },
      tokens: flags.tokens ?? sweep(begin, end, factor),
      budgetSeconds: flags.budget,
    },
    hear,
  );
  if (flags.json) process.stdout.write(`${JSON.stringify(shapes, null, 2)}\n`);
}

function inWords({ dispatch, combine }: Tuning): string {
  const launch = ({ way, blocks, threads, parts, inFlight }: Tuning['dispatch' | 'combine']): string =>
    `${way} ${blocks} × ${threads}, ${parts === 1 ? 'whole rows' : `${parts} parts`}` +
    (way === 'store' || way === 'push' ? `, ${inFlight} in flight` : '');
  const ahead = combine.way === 'push' ? `, ${combine.ahead} ahead` : '';
  return `dispatch ${launch(dispatch)}; combine ${launch(combine)}${ahead}`;
}

/** Adds shapes to a file, so that what was found survives an interruption. */
function save(path: string, found: readonly TunedShape[]): void {
  const isModule = path.endsWith('.ts');
  const same = (a: TunedShape, b: TunedShape): boolean =>
    (['gpu', 'ranks', 'topK', 'dispatchBytes', 'combineBytes', 'maxTokens'] as const).every(
      (key) => a[key] === b[key],
    );
  written.push(...found);
  const older = isModule ? tunedH200.shapes : existsSync(path) ? readTuning(path).shapes : [];
  const shapes = [...older.filter((old) => !written.some((shape) => same(old, shape))), ...written];
  const file: TuningFile = {
    format: tuningFormat,
    date: new Date().toISOString().slice(0, 10),
    shapes: shapes.sort((a, b) => a.maxTokens - b.maxTokens),
  };
  const text = JSON.stringify(file, null, 2);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, isModule ? moduleText(text) : `${text}\n`);
}

/** What this run has found. */
const written: TunedShape[] = [];

/** The shipped tunings are a module of this form. */
const moduleText = (json: string): string =>
  `/** Written by \`heddle tune\` on 4 × H200; docs/benchmarks.md says how to write it again. */
import type { TuningFile } from './tuning-file.js';

export const tunedH200: TuningFile = ${json};
`;

function whole(value: string): number {
  if (!/^\d+$/.test(value) || Number(value) < 1 || Number(value) > 2 ** 20)
    throw new InvalidArgumentError('It must be a whole number from 1 to 1048576.');
  return Number(value);
}
