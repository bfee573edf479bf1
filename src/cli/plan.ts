import { ArgumentError, onlyGiven, requireInteger } from '../base/errors.js';
import { families } from '../moe/families/index.js';
import { formatNames, limits, type ProfileName, profile, profiles } from '../moe/layer/index.js';
import {
  bytesOfModel,
  candidates,
  fastest,
  machineNamed,
  machines,
  mostTokens,
  named,
  nodesOf,
  placeOn,
  plan,
  type Question,
  type RoutingLaw,
  rooms,
  type WholeModel,
} from '../tools/plan/index.js';
import { type Command, type FlagsOf, Option } from './commander.js';
import { choice, doublings, dtypeOption, integerFrom, listOfTokens } from './options.js';
import { modelText, planText } from './print-plan.js';
import { version } from './start.js';

type PlanFlags = FlagsOf<typeof define>;

const ranks = integerFrom(1, limits.worldRanks);
const layers = integerFrom(1, 1024);

const known = machines.map(({ name, aliases, title }) => `  ${[name, ...aliases].join(', ')}: ${title}`);

export function register(command: Command): void {
  define(command).action(predictAll);
}

const define = (command: Command) =>
  command
    .addOption(choice('--model <name>', 'the layer of a model', Object.keys(profiles), 'deepseek_v3'))
    .option('--ep <ranks>', 'ranks, a GPU each', integerFrom(2, limits.worldRanks), 64)
    .option('--nodes <n>', 'nodes (default: as few as hold the ranks)', ranks)
    .option('--machine <name>', 'one of those below', 'h200-cx7')
    .option(
      '--layers <n>',
      'also the memory of a whole model: layers of experts over one set of buffers',
      layers,
    )
    .option('--tokens <list>', 'tokens a rank: 128, 1,8,128 or 1..4096', listOfTokens, doublings(1, 4096))
    .addOption(dtypeOption('fp8'))
    .addOption(choice('--combine-dtype <format>', 'what combine carries', formatNames, 'bf16'))
    .option(
      '--family <name>',
      `only this one: ${families.map(({ name }) => name).join(', ')}, or a published library/mode`,
    )
    .option('--replicas <n>', 'ranks that hold the same tokens', ranks, 1)
    .addOption(new Option('--perfect-router', 'every expert gets the same load').conflicts('nodesPerToken'))
    .option('--nodes-per-token <n>', 'the router picks so many nodes at most', ranks)
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
  $ heddle plan --ep 8 --tokens 512,4096 --layers 58
  $ heddle plan --model kimi_k2 --ep 32 --machine h200-cx7 --tokens 1..4096`,
    );

function predictAll(flags: PlanFlags): void {
  const question = questionOf(flags);
  const { machine, place, replicas } = question;
  const answers = plan(question, named(candidates(machine, place, replicas), flags.family));
  const model = modelOf(flags, question);
  if (flags.json !== true) {
    process.stdout.write(planText(question, answers));
    if (model !== null) process.stdout.write(modelText(model, question.tokens));
    return;
  }
  const json = {
    version: version(),
    units: { time: 'µs', low: 'µs', high: 'µs', memory: 'bytes', bytes: 'bytes', tokens: 'of a rank' },
    question: { ...question, ...place, place: undefined, machine: machine.name },
    answers,
    fastest: fastest(answers),
    ...(model !== null && { model: modelJson(model, question.tokens) }),
  };
  process.stdout.write(`${JSON.stringify(json, null, 2)}\n`);
}

/** The whole model that `--layers` asks about. */
function modelOf({ layers, model, dtype }: PlanFlags, { machine, place }: Question): WholeModel | null {
  if (layers === undefined) return null;
  if (dtype !== 'bf16' && dtype !== 'fp8')
    throw new ArgumentError('--dtype', dtype, "'bf16' or 'fp8' with --layers: weights of a layer are either");
  return { ...{ model: model as ProfileName, layers, machine, place }, dtype };
}

function modelJson(model: WholeModel, tokens: readonly number[]) {
  const { layers, dtype } = model;
  return {
    ...{ layers, weights: dtype },
    rooms: rooms.map((room) => ({
      ...{ room, most: mostTokens(model, room) },
      memory: tokens.map((count) => ({ tokens: count, ...bytesOfModel(model, count, room) })),
    })),
  };
}

function questionOf(flags: PlanFlags): Question {
  const { model, dtype, combineDtype, replicas, tokens } = flags;
  const machine = machineNamed(flags.machine);
  const place = placeOn(machine, flags.ep, flags.nodes);
  const law = lawOf(flags, nodesOf(place));
  return { model, layer: profile(model), machine, place, tokens, law, dtype, combineDtype, replicas };
}

function lawOf({ perfectRouter, nodesPerToken }: PlanFlags, nodes: number): RoutingLaw {
  if (nodesPerToken !== undefined) requireInteger('--nodes-per-token', nodesPerToken, 1, nodes);
  if (perfectRouter === true) return { kind: 'perfect' };
  return { kind: 'uniform', ...onlyGiven({ nodesAtMost: nodesPerToken }) };
}
