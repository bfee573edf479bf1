/**
 * The search for launch parameters: coordinate descent. Starting from what ExpertParallel would take by itself, one
 * parameter after another is tried at each of its values while the others stay; the best stays. It ends when a pass
 * over all parameters gains nothing, or when the shape's share of the budget is used.
 */
import { type Family, familyNamed, type PlanTarget, type Tuning } from '../../moe/families/index.js';
import { type TunedShape, tunedFor } from '../../moe/index.js';
import { combineRowBytes, dispatchRowBytes, type Layer, type Shape } from '../../moe/layer/index.js';
import { layerInWords } from './columns.js';
import { type Rig, setsFor } from './inputs.js';
import { roundsFor } from './program.js';
import { createRound } from './round.js';
import type { Bench, Measuring } from './run.js';
import { roundBytes, routeSets, shapeOf, type Workload, type WorkloadOptions, workload } from './workload.js';

export interface TunePlan extends Measuring {
  readonly family: string;
  readonly workload: WorkloadOptions;
  readonly tokens: readonly number[];
  /** For all numbers of tokens together. */
  readonly budgetSeconds: number;
}

/** A shape with the best parameters that were found. */
export interface Tuned {
  readonly shape: TunedShape;
  /** The time with the parameters that the search started from. */
  readonly before: number;
  readonly tried: number;
  /** The budget ended the search. */
  readonly cut: boolean;
}

interface TuningFor {
  readonly layer: Layer;
  readonly target: PlanTarget;
}

type Coordinate = ReturnType<typeof coordinatesOf>[number];

/** The family's knobs, in the order of its table: the largest effects first. */
export const coordinatesOf = ({ knobs }: Pick<Family, 'knobs'>) =>
  Object.entries(knobs).flatMap(([phase, table]) =>
    Object.entries(table).map(([key, knob]) => ({ phase, key, knob })),
  );

/** Threads that a multiprocessor of a GPU for data centres holds at once: blocks wait for each other, so all should be there. */
const residentThreads = 2048;

/** Whether a tuning is worth a try: all blocks at once on the GPU. */
export function sensible(tuning: Tuning, { multiprocessors }: Pick<PlanTarget, 'multiprocessors'>): boolean {
  return Object.values(tuning).every(
    ({ blocks, threads }) => Number(blocks) * Number(threads) <= multiprocessors * residentThreads,
  );
}

/** The tunings that differ from `from` in one knob and that the family takes, in the order in which they are tried. */
export function neighbours<T extends Tuning>(
  family: Family<T>,
  { layer, target }: TuningFor,
  from: T,
  { phase, key, knob }: Coordinate,
): T[] {
  const now = from[phase]!;
  return knob
    .tries(layer.maxTokens, now, target.multiprocessors)
    .filter((value) => value !== now[key])
    .map((value) => family.adapt({ ...from, [phase]: { ...now, [key]: value } }, layer, target))
    .filter((tuning) => sensible(tuning, target) && family.refuses(layer, target, tuning) === null);
}

/** A change must gain so much to be kept: less is noise. */
const leastGain = 0.005;

export async function descend<T extends Tuning>(
  family: Family<T>,
  searched: TuningFor,
  start: T,
  time: (tuning: T) => Promise<number>,
  over: () => Promise<boolean>,
) {
  let best = start;
  const before = await time(best);
  let microseconds = before;
  const known = new Set([JSON.stringify(best)]);
  for (let gained = true; gained; ) {
    gained = false;
    for (const coordinate of coordinatesOf(family)) {
      for (const candidate of neighbours(family, searched, best, coordinate)) {
        const key = JSON.stringify(candidate);
        if (known.has(key)) continue;
        if (await over()) return { tuning: best, microseconds, before, tried: known.size, cut: true };
        known.add(key);
        const candidateTime = await time(candidate);
        if (candidateTime >= microseconds * (1 - leastGain)) continue;
        microseconds = candidateTime;
        best = candidate;
        gained = true;
      }
    }
  }
  return { tuning: best, microseconds, before, tried: known.size, cut: false };
}

/** The search for every number of tokens, on all GPUs of the plan in this process. */
export const tuneBench: Bench<TunePlan, Tuned, { readonly workload: Workload; readonly family: string }> = {
  format: 'heddle-tune/1',
  setting: (plan) => {
    const { ranks, seed } = workload(plan.workload);
    return { ranks, seed, warmups: 2 };
  },
  members: (plan) => ({ workload: workload(plan.workload), family: plan.family }),
  async measure(rig, plan, tell) {
    const of = workload(plan.workload);
    const family = familyNamed(plan.family);
    const start = performance.now();
    for (const [i, tokens] of plan.tokens.entries()) {
      // The remaining time goes to the remaining numbers of tokens alike.
      const used = performance.now() - start;
      const share = (plan.budgetSeconds * 1000 - used) / (plan.tokens.length - i);
      tell.point(await tuneOne(rig, of, family, tokens, used + share + start, tell.doing));
    }
  },
  heading: ({ workload: of, family }) => `${layerInWords(of)}; ${family}`,
  columns: () => [
    { head: 'tokens', width: 6, cell: ({ shape }) => String(shape.maxTokens) },
    { head: 'before µs', cell: ({ before }) => before.toFixed(2) },
    { head: 'tuned µs', cell: ({ shape }) => shape.microseconds.toFixed(2) },
    { head: 'tried', width: 18, cell: ({ tried, cut }) => `${tried}${cut ? ', out of time' : ''}` },
    { head: '  parameters', width: 0, cell: ({ shape }) => `  ${inWords(shape.tuning)}` },
  ],
  lines: (point) => [point],
  results: ({ points }) => points.map(({ shape }) => shape),
};

/** A tuning in words: 'combine way push, parts 1, …; dispatch …' */
const inWords = (tuning: Tuning): string =>
  Object.entries(tuning)
    .map(([phase, knobs]) => {
      const all = Object.entries(knobs).map(([key, value]) => `${key} ${value}`);
      return `${phase} ${all.join(', ')}`;
    })
    .join('; ');

async function tuneOne(
  rig: Rig,
  of: Workload,
  family: Family,
  tokens: number,
  deadline: number,
  doing: (what: string) => void,
): Promise<Tuned> {
  const { timing } = rig;
  const { world } = timing;
  const first = roundBytes(of, tokens, routeSets(of, tokens, 1));
  const rounds = Math.max(8, Math.ceil(roundsFor(first, 1) / 2));
  const shape: Shape = shapeOf(of, tokens);
  const sets = setsFor(rounds, tokens * dispatchRowBytes(shape), timing.options.l2Bytes);
  const routes = routeSets(of, tokens, sets);
  const time = async (tuning: Tuning): Promise<number> => {
    const round = await createRound(rig, of, routes, { family: family.name, tuning });
    const { median: microseconds } = await round.time(rounds, round.both);
    await round.dispose();
    doing(`${tokens} tokens: ${microseconds.toFixed(2)} µs`);
    return microseconds;
  };
  // The ranks must agree when to stop: rank 0's clock decides.
  const over = async (): Promise<boolean> => {
    const mine = Uint8Array.of(performance.now() > deadline ? 1 : 0);
    return (await world.allGather(mine, 'is the time over'))[0]![0] === 1;
  };
  const layer = { ...shape, weights: true, counts: false };
  const target = {
    kind: 'cuda',
    multiprocessors: world.device.multiprocessors,
    capability: world.device.capability,
    rank: world.rank,
    topology: world.topology,
    split: false,
    sms: null,
    transport: 'windows',
  } as const;
  const measured = tunedFor(family, layer, world.device);
  const start = measured === null ? family.defaults(layer, target) : family.adapt(measured, layer, target);
  const { tuning, microseconds, before, tried, cut } = await descend(
    family,
    { layer, target },
    start,
    time,
    over,
  );
  const tuned: TunedShape = {
    family: family.name,
    gpu: world.device.model,
    ranks: of.ranks,
    topK: of.topK,
    dispatchBytes: dispatchRowBytes(shape),
    combineBytes: combineRowBytes(shape),
    maxTokens: tokens,
    tuning,
    microseconds: Math.round(microseconds * 100) / 100,
  };
  return { shape: tuned, before, tried, cut };
}
