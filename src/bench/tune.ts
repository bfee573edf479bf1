/**
 * The search for launch parameters: coordinate descent. Starting from what ExpertParallel would take by itself, one
 * parameter after another is tried at each of its values while the others stay; the best stays. It ends when a pass
 * over all parameters gains nothing, or when the shape's share of the budget is used.
 */
import { CudaDevice } from '../cuda/index.js';
import { HeddleError } from '../errors/index.js';
import { mostInFlight } from '../kernels/index.js';
import {
  combineRowBytes,
  defaultTuning,
  dispatchRowBytes,
  type Shape,
  type TunedShape,
  type Tuning,
  tunedFor,
} from '../moe/index.js';
import { World } from '../world/index.js';
import { Noise, setsFor } from './inputs.js';
import { requireGpus } from './machine.js';
import { roundsFor } from './program.js';
import { Round } from './round.js';
import { quantile } from './statistics.js';
import { Timing, TimingCrew } from './timing.js';
import { roundBytes, routeSets, shapeOf, type Workload, type WorkloadOptions, workload } from './workload.js';

export interface TunePlan {
  readonly workload: WorkloadOptions;
  readonly tokens: readonly number[];
  /** For all numbers of tokens together. */
  readonly budgetSeconds: number;
}

export type TuneEvent =
  | {
      readonly type: 'tried';
      readonly tokens: number;
      readonly tuning: Tuning;
      readonly microseconds: number;
    }
  | {
      readonly type: 'tuned';
      readonly shape: TunedShape;
      /** With the parameters that the search started from. */
      readonly before: number;
      readonly tried: number;
      /** The budget ended the search. */
      readonly cut: boolean;
    };

/** A parameter and the values that are worth trying for a number of tokens. */
interface Coordinate {
  /** None where the parameter changes nothing. */
  values(tokens: number, tuning: Tuning): readonly (number | string)[];
  get(tuning: Tuning): number | string;
  set(tuning: Tuning, value: number | string): Tuning;
}

const partsTried = [1, 2, 4, 7, 14];
const blocksTried = [16, 32, 66, 96, 132, 198, 264, 396];
/** The odd ones divide a row of 7168 bf16, 896 vectors. */
const threadsTried = [128, 224, 256, 448, 512, 896, 1024];
/** Bulk copies want long chunks, so few warps that each have a stage. */
const bulkThreads = 128;

function launchCoordinate(
  phase: 'dispatch' | 'combine',
  name: 'blocks' | 'threads' | 'parts' | 'inFlight' | 'ahead',
  values: Coordinate['values'],
): Coordinate {
  return {
    values,
    get: (tuning) => ({ ahead: 0, ...tuning[phase] })[name],
    set: (tuning, value) => ({ ...tuning, [phase]: { ...tuning[phase], [name]: value } }),
  };
}

/** The largest effects first. Small rounds also try a block for each token or piece of one. */
export const coordinates: readonly Coordinate[] = [
  {
    values: () => ['push', 'pull'],
    get: ({ combine }) => combine.way,
    set: (tuning, way) => ({ ...tuning, combine: { ...tuning.combine, way: way as 'push' | 'pull' } }),
  },
  {
    values: () => ['store', 'bulk'],
    get: ({ dispatch }) => dispatch.way,
    set: ({ dispatch, combine }, way) =>
      way === 'bulk'
        ? { dispatch: { ...dispatch, way, threads: Math.min(dispatch.threads, bulkThreads) }, combine }
        : { dispatch: { ...dispatch, way: 'store' }, combine },
  },
  ...(['dispatch', 'combine'] as const).flatMap((phase) => [
    launchCoordinate(phase, 'parts', () => partsTried),
    launchCoordinate(phase, 'blocks', (tokens) => [
      ...new Set([...partsTried.map((parts) => tokens * parts).filter((n) => n < 396), ...blocksTried]),
    ]),
    launchCoordinate(phase, 'threads', () => threadsTried),
    launchCoordinate(phase, 'inFlight', (_, tuning) =>
      ['store', 'push'].includes(tuning[phase].way) ? [1, 2, 4, mostInFlight] : [],
    ),
  ]),
  launchCoordinate('combine', 'ahead', (_, { combine }) => (combine.way === 'push' ? [0, 1, 2, 4, 8] : [])),
];

/** Threads of one kernel that an H100 or H200 holds at once: blocks wait for each other, so all should be there. */
const residentThreads = 132 * 2048;

/**
 * Whether a tuning is worth a try: no block without work, all blocks at once on the GPU. (The stages of bulk copies take
 * no more than 48 KiB a block, of which a multiprocessor holds four: as many blocks as are ever tried.)
 */
export function sensible({ dispatch, combine }: Tuning, tokens: number): boolean {
  return [dispatch, combine].every(
    ({ blocks, threads, parts }) => blocks <= tokens * parts && blocks * threads <= residentThreads,
  );
}

/** The tunings that differ from `from` in one coordinate, in the order in which they are tried. */
export function neighbours(from: Tuning, coordinate: number, tokens: number): Tuning[] {
  const { values, get, set } = coordinates[coordinate]!;
  return values(tokens, from)
    .filter((value) => value !== get(from))
    .map((value) => set(from, value))
    .map((tuning) => withEnoughBlocks(tuning, tokens))
    .filter((tuning) => sensible(tuning, tokens));
}

/** Blocks beyond the pieces have nothing to do: fewer parts mean fewer blocks. */
function withEnoughBlocks(tuning: Tuning, tokens: number): Tuning {
  const capped = <T extends { readonly blocks: number; readonly parts: number }>(launch: T): T => ({
    ...launch,
    blocks: Math.min(launch.blocks, tokens * launch.parts),
  });
  return { dispatch: capped(tuning.dispatch), combine: capped(tuning.combine) };
}

/** A change must gain so much to be kept: less is noise. */
const leastGain = 0.005;

/** Coordinate descent over `time`, which may be asked at most until `over`. */
export async function descend(
  start: Tuning,
  tokens: number,
  time: (tuning: Tuning) => Promise<number>,
  over: () => Promise<boolean>,
): Promise<{ tuning: Tuning; microseconds: number; before: number; tried: number; cut: boolean }> {
  let best = withEnoughBlocks(start, tokens);
  const before = await time(best);
  let microseconds = before;
  const known = new Set([JSON.stringify(best)]);
  for (let gained = true; gained; ) {
    gained = false;
    for (let coordinate = 0; coordinate < coordinates.length; coordinate++) {
      for (const candidate of neighbours(best, coordinate, tokens)) {
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

/** Searches for every number of tokens, on all GPUs of the plan in this process. */
export async function runTuning(plan: TunePlan, on: (event: TuneEvent) => void): Promise<TunedShape[]> {
  const of = workload(plan.workload);
  requireGpus(of.ranks);
  const crew = new TimingCrew();
  const [found] = await World.local({ ranks: of.ranks, device: 'cuda' }, async (world) => {
    const emit = world.rank === 0 ? on : () => {};
    const timing = await Timing.create(world, crew, {
      iterations: 9,
      warmups: 2,
      l2Bytes: gpuOf(world).l2Bytes,
      pause: 300,
      limit: 20_000_000,
    });
    const noise = Noise.create(world.device, timing.stream, of.seed);
    await timing.stream.synchronize();
    const start = performance.now();
    const shapes: TunedShape[] = [];
    for (const [i, tokens] of plan.tokens.entries()) {
      // What is left goes to the remaining numbers of tokens alike.
      const used = performance.now() - start;
      const share = (plan.budgetSeconds * 1000 - used) / (plan.tokens.length - i);
      shapes.push(await tuneOne({ world, timing, noise, of }, tokens, used + share + start, emit));
    }
    await timing.check();
    await timing.dispose();
    noise.free();
    return shapes;
  });
  return found!;
}

function gpuOf({ device }: World) {
  if (device instanceof CudaDevice) return device.gpu;
  throw new HeddleError('HEDDLE_ARGUMENT', 'tuning needs GPUs');
}

async function tuneOne(
  { world, timing, noise, of }: { world: World; timing: Timing; noise: Noise; of: Workload },
  tokens: number,
  deadline: number,
  emit: (event: TuneEvent) => void,
): Promise<TunedShape> {
  const first = roundBytes(of, tokens, routeSets(of, tokens, 1));
  const rounds = Math.max(8, Math.ceil(roundsFor(first) / 2));
  const shape: Shape = shapeOf(of, tokens);
  const sets = setsFor(rounds, tokens * dispatchRowBytes(shape), timing.options.l2Bytes);
  const routes = routeSets(of, tokens, sets);
  const pushable = combineRowBytes(shape) % 16 === 0;
  const time = async (tuning: Tuning): Promise<number> => {
    if (tuning.combine.way === 'push' && !pushable) return Number.POSITIVE_INFINITY;
    const round = await Round.create(timing, noise, of, routes, tuning);
    const microseconds = quantile(await round.time(rounds, round.both), 0.5);
    await round.dispose();
    emit({ type: 'tried', tokens, tuning, microseconds });
    return microseconds;
  };
  // The ranks must agree when to stop: rank 0's clock decides.
  const over = async (): Promise<boolean> => {
    const mine = Uint8Array.of(performance.now() > deadline ? 1 : 0);
    return (await world.allGather(mine, 'is the time over'))[0]![0] === 1;
  };
  const { dispatch, combine } = tunedFor(shape, world.device) ?? defaultTuning(shape, 'cuda');
  const start: Tuning = { dispatch, combine: pushable ? combine : { ...combine, way: 'pull' } };
  const { tuning, microseconds, before, tried, cut } = await descend(start, tokens, time, over);
  const found: TunedShape = {
    gpu: gpuOf(world).name,
    ranks: of.ranks,
    topK: of.topK,
    dispatchBytes: dispatchRowBytes(shape),
    combineBytes: combineRowBytes(shape),
    maxTokens: tokens,
    tuning,
    microseconds: Math.round(microseconds * 100) / 100,
  };
  emit({ type: 'tuned', shape: found, before, tried, cut });
  return found;
}
