/** How every benchmark runs: its ranks, each with a stopwatch and random data, and what every report begins with. */
import { HeddleError } from '../../base/errors.js';
import { World } from '../../net/world/index.js';
import { createNoise, type Rig } from './inputs.js';
import { provenance, requireGpus } from './machine.js';
import { unitOf } from './statistics.js';
import { Crew, createTiming } from './timing.js';
import { type Span, trace } from './trace.js';

export type { Rig };

export interface Measuring {
  readonly device: 'cuda' | 'sim';
  readonly iterations: number;
  /** Also look at what is measured, launch by launch. */
  readonly trace?: boolean;
}

interface Setting extends Measuring {
  readonly ranks: number;
  readonly nodes?: number;
  /** Iterations before those that count, where not as many as usual. */
  readonly warmups?: number;
  readonly seed?: number;
}

/** One rank's part. Every rank of the world calls it; `crew` is shared by those of a process. */
export async function onRank<T>(
  world: World,
  crew: Crew,
  { iterations, warmups, seed = 1 }: Pick<Setting, 'iterations' | 'warmups' | 'seed'>,
  body: (rig: Rig) => Promise<T>,
): Promise<T> {
  const timing = await createTiming(world, crew, iterations, warmups);
  const noise = createNoise(world.device, timing.stream, seed);
  await timing.stream.synchronize();
  const result = await body({ timing, noise });
  await timing.check();
  await timing.dispose();
  noise.free();
  return result;
}

/**
 * All ranks in this process.
 * @throws UnavailableError where there are fewer GPUs than ranks.
 */
export function onRanks<T>(
  { ranks, nodes = 1, device, ...how }: Setting,
  body: (rig: Rig) => Promise<T>,
): Promise<T[]> {
  if (device === 'cuda') requireGpus(ranks);
  const crew = new Crew();
  return World.local({ ranks, nodes, device }, (world) => onRank(world, crew, how, body));
}

/** The error of a result that is not what it should be: figures of a wrong kernel are worth nothing. */
export const wrongResult = (what: string): HeddleError =>
  new HeddleError(
    'HEDDLE_WRONG_RESULT',
    `${what}; nothing that this run measured counts. Please report it with the output of \`heddle doctor\``,
  );

/** Traces what `enqueue` enqueues, where that was asked for. Every rank calls it. */
export type Look = (enqueue: () => void) => Promise<void>;

/** Measures point after point: `body` tells each on every rank, and `on` hears of it once; it may look at each. */
export async function pointByPoint<Name extends string, Point>(
  name: Name,
  setting: Setting,
  on: (point: Point) => void,
  body: (rig: Rig, tell: (point: Point) => void, look: Look) => Promise<void>,
) {
  const points: Point[] = [];
  const tell = (point: Point): void => {
    points.push(point);
    on(point);
  };
  /** Of the last point, where a trace was asked for. */
  let spans: readonly Span[] = [];
  await onRanks(setting, ({ timing, noise }) =>
    body({ timing, noise }, timing.world.rank === 0 ? tell : () => {}, async (enqueue) => {
      if (setting.trace) spans = await trace(timing, enqueue);
    }),
  );
  const { device, ranks, iterations } = setting;
  const head = { format: `heddle-bench-${name}/1`, unit: unitOf(device) } as const;
  return { ...head, ...(await provenance(device, ranks)), iterations, points, spans };
}
