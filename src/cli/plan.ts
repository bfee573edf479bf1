import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { ArgumentError, FileError, requireInteger } from '../base/errors.js';
import { writeOutput } from '../base/files/index.js';
import { families } from '../moe/families/index.js';
import { formatNames, limits, type Profile, profile, profiles } from '../moe/layer/index.js';
import {
  advice,
  advised,
  type Cell,
  calibrationText,
  candidateOf,
  candidates,
  ceilingOfBench,
  cellsOfBench,
  checksText,
  type Demand,
  disagreements,
  expertLayers,
  fitGemms,
  gemmTables,
  type KnownMachine,
  knownFrom,
  knownMachine,
  lawFrom,
  machineFrom,
  machines,
  middle,
  named,
  networkOfBench,
  nodesOf,
  pareto,
  parseCells,
  parseMachine,
  placementFor,
  placeOn,
  plan,
  planPage,
  planText,
  type Question,
  type RoutingLaw,
  servePage,
  serveText,
  services,
  simulateAll,
  simulatedText,
  tokensFrom,
  validate,
  validateCells,
  validationText,
  winners,
} from '../tools/plan/index.js';
import { type Command, type FlagsOf, Option } from './commander.js';
import {
  choice,
  dtypeOption,
  integerFrom,
  numberIn,
  requireOutputFile,
  seed,
  set,
  skewOption,
} from './options.js';
import { version } from './start.js';

type PlanFlags = FlagsOf<typeof define>;
type Laws = Pick<PlanFlags, 'seed'> &
  Partial<Pick<PlanFlags, 'skew' | 'perfectRouter' | 'nodesPerToken' | 'loads'>>;

const ranks = integerFrom(1, limits.worldRanks);

const known = machines.map(({ name, aliases, title }) => `  ${[name, ...aliases].join(', ')}: ${title}`);

export function register(command: Command): void {
  define(command).action(predictAll);
  defineCalibrate(command.command('calibrate')).action(calibrateOne);
  defineServe(command.command('serve')).action(serve);
  defineValidate(command.command('validate')).action(validateAll);
}

const define = (command: Command) =>
  command
    .addOption(choice('--model <name>', 'the layer of a model', Object.keys(profiles), 'deepseek_v3'))
    .option('--ep <ranks>', 'ranks, a GPU each', integerFrom(2, limits.worldRanks), 64)
    .option('--nodes <n>', 'nodes (default: as few as hold the ranks)', ranks)
    .option('--machine <name>', 'one of those below, or a file of heddle plan calibrate', 'h200-cx7')
    .option('--tokens <list>', 'tokens a rank: 128, 1,8,128 or 1..4096', '1..4096')
    .addOption(dtypeOption('fp8'))
    .addOption(choice('--combine-dtype <format>', 'what combine carries', formatNames, 'bf16'))
    .option(
      '--family <name>',
      `only this one: ${families.map(({ name }) => name).join(', ')}, or a published library/mode`,
    )
    .option('--replicas <n>', 'ranks that hold the same tokens', ranks, 1)
    .addOption(skewOption().conflicts(['perfectRouter', 'nodesPerToken', 'loads']))
    .addOption(
      new Option('--perfect-router', 'every expert gets the same load').conflicts(['nodesPerToken', 'loads']),
    )
    .addOption(
      new Option('--nodes-per-token <n>', 'the router picks so many nodes at most')
        .argParser(ranks)
        .conflicts('loads'),
    )
    .option('--loads <file.json>', 'measured: counts of every expert, or the experts of every token')
    .addOption(
      new Option('--places <n>', 'with skewed or measured loads: experts in so many places, by rebalance')
        .argParser(integerFrom(1, limits.experts))
        .conflicts(['simulate', 'perfectRouter', 'nodesPerToken']),
    )
    .option('--seed <n>', 'who is popular, and the routes of --simulate', seed, 1)
    .option('--simulate', 'also message by message, with queues: tails over ranks, bursts')
    .option('--late <µs>', 'with --simulate: rank 0 starts so much later', numberIn({ from: 0 }), 0)
    .option('--report <file.html>', 'write a page with charts')
    .option('--json', 'print all answers as JSON')
    .addHelpText(
      'after',
      `
Machines:
${known.join('\n')}

A * marks a prediction beyond what was measured.
docs/planning.md says how far predictions were off.

Exit code: 0; 2 for a mistake in the arguments.

Examples:
  $ heddle plan --ep 64 --nodes 8 --machine p5en --tokens 128
  $ heddle plan --ep 32 --skew 1 --places 288
  $ heddle plan --model kimi_k2 --ep 32 --machine h200-cx7 --tokens 1..4096 --skew 0.5 --report plan.html
  $ heddle plan calibrate --cells cells.json --name mine -o mine.json && heddle plan --machine mine.json --ep 16
  $ heddle plan validate`,
    );

const defineCalibrate = (command: Command) =>
  command
    .description(
      'fit a machine: from cells like the published ones, or from heddle bench and heddle fabric bench',
    )
    .option('--cells <file.json>', 'a list of cells: what docs/planning.md says')
    .option('--bench <file.json>', 'of heddle bench --output-file: rounds, and what plain stores reach')
    .option('--fabric <file.json>', 'of heddle fabric bench --json: the network')
    .option('--name <name>', 'what to call the machine', 'mine')
    .option('--nvlink <GB/s>', 'nominal, a GPU and direction', numberIn({ above: 0 }))
    .option('--nic <GB/s>', 'nominal, a GPU and direction', numberIn({ above: 0 }))
    .option('-o, --output <file.json>', 'write the machine, for --machine')
    .option('--json', 'print the machine as JSON')
    .addHelpText(
      'after',
      `
Exit code: 0; 2 for a mistake in the arguments or files.

Examples:
  $ heddle plan calibrate --cells cells.json --name lab -o lab.json
  $ heddle plan calibrate --bench bench.json --fabric fabric.json --nic 25 -o lab.json`,
    );

const defineServe = (command: Command) =>
  command
    .description('how many GPUs, and which EP, serve so many tokens a second, and what a token waits')
    .addOption(choice('--model <name>', 'a model', Object.keys(expertLayers), 'deepseek_v3'))
    .option('--machine <name>', 'a machine with H200; the GEMM figures come from that GPU', 'h200-cx7')
    .requiredOption('--tokens-per-second <n>', 'of all requests together', numberIn({ above: 0 }))
    .addOption(
      choice(
        '--gemm <name>',
        'the library that multiplies, and its format',
        gemmTables.map(({ name }) => name),
        'deepgemm-fp8',
      ),
    )
    .option('--family <name>', 'only this one carries rows')
    .addOption(skewOption())
    .option('--seed <n>', 'who is popular', seed, 1)
    .option(
      '--rest <µs>',
      'what all else of a layer takes: attention, router, shared expert',
      numberIn({ from: 0 }),
      0,
    )
    .option('--report <file.html>', 'write a page: GPUs against waiting')
    .option('--json', 'print every way to serve as JSON')
    .addHelpText(
      'after',
      `
Exit code: 0; 2 for a mistake in the arguments.

Examples:
  $ heddle plan serve --tokens-per-second 100000 --rest 60
  $ heddle plan serve --machine p5en --tokens-per-second 1e6 --skew 0.5 --report serve.html`,
    );

const defineValidate = (command: Command) =>
  command
    .description('fit on a stated part of the published cells, predict the others, show the errors')
    .option('--cells <file.json>', 'fit on all shipped cells and predict the cells of this file instead')
    .option('--each', 'also every cell')
    .option('--json', 'print all results as JSON')
    .addHelpText(
      'after',
      `
Exit code: 0; 2 for a mistake in the arguments.

Examples:
  $ heddle plan validate
  $ heddle plan validate --cells new-cells.json --each`,
    );

function predictAll(flags: PlanFlags): void {
  requireOutputFile('--report', flags.report);
  if (flags.late > 0 && flags.simulate !== true)
    throw new ArgumentError('--late', flags.late, '0 without --simulate: only messages can be late');
  const question = questionOf(flags);
  const asked = named(candidates(question.known, question.place, question.replicas), flags.family);
  const answers = plan(question, asked);
  const simulated = flags.simulate === true ? simulateAll(question, asked, flags) : [];
  if (flags.report !== undefined) writeOutput(flags.report, planPage(question, asked, answers));
  if (flags.json === true) {
    const { known: on, place, ...rest } = question;
    const tokens = middle(question.tokens);
    const json = {
      version: version(),
      units: { time: 'µs', low: 'µs', high: 'µs', memory: 'bytes', bytes: 'bytes', tokens: 'of a rank' },
      question: { ...rest, ...place, machine: on.machine.name },
      answers,
      winners: winners(answers),
      advice: advised(answers, tokens).map((best) => ({
        ...{ candidate: best.candidate, source: best.source, tokens },
        changes: advice(question, candidateOf(best, asked), tokens),
      })),
      ...(flags.simulate === true ? { simulated } : {}),
    };
    process.stdout.write(`${JSON.stringify(json, null, 2)}\n`);
    return;
  }
  process.stdout.write(planText(question, asked, answers));
  if (simulated.length > 0) process.stdout.write(`\n${simulatedText(simulated)}`);
}

function questionOf(flags: PlanFlags): Question {
  const layer: Profile = profile(flags.model);
  const machine = machineFor(flags.machine);
  const place = placeOn(machine, flags.ep, flags.nodes);
  const law = lawOf(flags, nodesOf(place));
  const { model, places, dtype, combineDtype, replicas } = flags;
  const placement = places === undefined ? undefined : placementFor(layer, place, law, places);
  const tokens = tokensFrom(flags.tokens);
  return {
    ...set({ placement }),
    ...{ model, layer, known: machine, place, tokens, law, dtype, combineDtype, replicas },
  };
}

function machineFor(name: string): KnownMachine {
  return name.endsWith('.json') ? parseMachine(...read('machine', name)) : knownMachine(name);
}

function lawOf({ skew, perfectRouter, nodesPerToken, loads, seed }: Laws, nodes: number): RoutingLaw {
  if (nodesPerToken !== undefined) requireInteger('--nodes-per-token', nodesPerToken, 1, nodes);
  if (loads !== undefined) return lawFrom(...read('loads', loads));
  if (perfectRouter === true) return { kind: 'perfect' };
  if (skew !== undefined) return { kind: 'skewed', exponent: skew, seed };
  return { kind: 'uniform', ...set({ nodesAtMost: nodesPerToken }) };
}

function calibrateOne(flags: FlagsOf<typeof defineCalibrate>, command: Command): void {
  if (flags.cells === undefined && flags.bench === undefined)
    command.error("error: required option '--cells <file.json>' or '--bench <file.json>' not specified");
  requireOutputFile('--output', flags.output);
  const bench = flags.bench === undefined ? null : read('bench', flags.bench);
  const cells: Cell[] = [
    ...(flags.cells === undefined ? [] : parseCells(...read('cells', flags.cells))),
    ...(bench === null ? [] : cellsOfBench(...bench)),
  ];
  if (cells.length === 0)
    throw new ArgumentError(
      'bench',
      flags.bench,
      'a report of rounds of one-sided on one node, without --split: others have no time of dispatch alone; or given with --cells',
    );
  const { fabric, nvlink, nic } = flags;
  const machine = machineFrom(cells, {
    ...{ name: flags.name, ...set({ nvlink, nic }) },
    ...(bench !== null && { stores: ceilingOfBench(...bench) }),
    ...(fabric !== undefined && { network: networkOfBench(...read('fabric', fabric)) }),
  });
  const text = `${JSON.stringify(machine, null, 2)}\n`;
  if (flags.output !== undefined) writeOutput(flags.output, text);
  process.stdout.write(flags.json === true ? text : calibrationText(knownFrom(machine)));
}

function serve(flags: FlagsOf<typeof defineServe>): void {
  requireOutputFile('--report', flags.report);
  const demand: Demand = {
    model: flags.model,
    layer: profile(flags.model),
    known: machineFor(flags.machine),
    tokensPerSecond: flags.tokensPerSecond,
    law: lawOf(flags, 1),
    gemm: fitGemms(gemmTables.find(({ name }) => name === flags.gemm)!),
    ...set({ family: flags.family }),
    rest: flags.rest,
  };
  const all = services(demand);
  if (flags.report !== undefined) writeOutput(flags.report, servePage(demand, all));
  const { known: on, gemm, ...rest } = demand;
  const units = {
    latency: 'ms a token',
    low: 'ms a token',
    high: 'ms a token',
    layer: 'µs',
    parts: 'µs a layer',
  };
  const question = { ...rest, machine: on.machine, gemm: { name: gemm.name, src: gemm.src } };
  process.stdout.write(
    flags.json === true
      ? `${JSON.stringify({ version: version(), units, question, pareto: pareto(all), all }, null, 2)}\n`
      : serveText(demand, all),
  );
}

function validateAll(flags: FlagsOf<typeof defineValidate>): void {
  const cells = flags.cells === undefined ? null : parseCells(...read('cells', flags.cells));
  const others = cells === null ? null : validateCells(cells);
  const results = others === null ? validate() : [others.result];
  const sources = others === null ? disagreements() : [];
  const unknown = others?.unknown ?? [];
  if (flags.json === true) {
    process.stdout.write(
      `${JSON.stringify({ version: version(), results, disagreements: sources, unknown }, null, 2)}\n`,
    );
    return;
  }
  process.stdout.write(validationText(results, sources));
  if (flags.each === true || others !== null)
    for (const result of results) process.stdout.write(`\n${result.name}\n${checksText(result, unknown)}`);
}

/** A file's name, as errors call it, and its text. */
function read(name: string, path: string): [name: string, text: string] {
  try {
    return [basename(path), readFileSync(path, 'utf8')];
  } catch (error) {
    throw new FileError(`--${name} ${path}`, 'read', error);
  }
}
