/** How long the ranks' kernels waited for each other. */
import { HeddleError } from '../../base/errors.js';
import type { Stream } from '../../gpu/index.js';
import type { World } from '../../net/world/index.js';
import { notedWaits, numberOfRound, type View } from '../families/index.js';
import type { LoadedPlan } from './loaded-plan.js';

/**
 * [rank][peer]: microseconds that a rank's kernels waited for a peer: the mean of the last 64 rounds (of each two in flight), 0 before the
 * first, and of ranks that are left out. In dispatch, until what the peer sends had come; in combine, until the peer's experts were done:
 * docs/worlds.md has it by family. Of other nodes' ranks those of the hybrid family wait for the ones on their rail only.
 */
export interface Waits {
  readonly dispatch: readonly (readonly number[])[];
  readonly combine: readonly (readonly number[])[];
  /** [rank][peer][n]: how many of these rounds waited 2^(n−1) to 2^n µs. The last entry also counts all longer waits. */
  readonly histograms: Readonly<Record<'dispatch' | 'combine', readonly (readonly (readonly number[])[])[]>>;
}

/** Every bit of it is set where no round has been. */
const nothing = 2n ** 64n - 1n;

/** Rounds of a layer that count. A set of more than sixteen layers remembers fewer of each. */
const mostRounds = 64;

/** The buckets of a histogram: the last begins with a quarter of a second. */
const buckets = 20;
const bucketOf = (microseconds: number): number =>
  Math.min(buckets - 1, Math.max(0, Math.floor(Math.log2(Math.max(microseconds, 0.5))) + 1));

/** Reads the waits of all ranks, in rounds of the layer with this number, or of all. Every rank calls it. */
export async function readWaits(
  world: World,
  rounds: readonly LoadedPlan[],
  stream: Stream,
  layer: number | null,
): Promise<Waits> {
  if (rounds.some(({ plan }) => plan.waits === undefined))
    throw new HeddleError('HEDDLE_NOT_COUNTED', 'waits are not counted; create the layer with waits: true');
  const { ranks } = world;
  /** [phase][peer]: the mean, then the histogram. */
  const noted = Array.from({ length: 2 * ranks }, (): number[] => []);
  for (const loaded of rounds) {
    const { waited, waiters } = loaded.plan.waits!;
    const read = async (view: View) => {
      const { data, bytes } = loaded.tensor(view);
      return (await stream.copyOut(data, bytes)).slice().buffer;
    };
    const [words, rounds] = [new BigUint64Array(await read(waited)), new Uint32Array(await read(waiters))];
    const numberOf = (entry: number): number => numberOfRound(rounds[2 * entry]!);
    const entries = Array.from({ length: rounds.length / 2 }, (_, entry) => entry)
      .filter((entry) => layer === null || rounds[2 * entry + 1] === layer)
      .sort((a, b) => numberOf(b) - numberOf(a));
    const wanted = new Set(entries.slice(0, mostRounds));
    for (const [i, nanoseconds] of words.entries()) {
      const phase = Math.floor((2 * i) / words.length);
      if (wanted.has(Math.floor(i / ranks) % notedWaits) && nanoseconds !== nothing)
        noted[phase * ranks + (i % ranks)]!.push(Number(nanoseconds) / 1000);
    }
  }
  const mine = noted.flatMap((times) => {
    const histogram = new Array<number>(buckets).fill(0);
    for (const time of times) histogram[bucketOf(time)]! += 1;
    return [times.reduce((sum, time) => sum + time, 0) / Math.max(1, times.length), ...histogram];
  });
  const sent = new Uint8Array(Float64Array.from(mine).buffer);
  const all = (await world.allGather(sent, 'gathering waits')).map((bytes) =>
    // Of a rank that is left out nothing comes.
    bytes.length === 0 ? mine.map(() => 0) : [...new Float64Array(bytes.slice().buffer)],
  );
  const phase = <T>(n: number, cut: (peer: readonly number[]) => T): T[][] =>
    all.map((numbers) =>
      Array.from({ length: ranks }, (_, peer) => {
        const from = (n * ranks + peer) * (1 + buckets);
        return cut(numbers.slice(from, from + 1 + buckets));
      }),
    );
  const mean = ([first]: readonly number[]): number => first!;
  const histogram = ([, ...rest]: readonly number[]): readonly number[] => rest;
  return {
    dispatch: phase(0, mean),
    combine: phase(1, mean),
    histograms: { dispatch: phase(0, histogram), combine: phase(1, histogram) },
  };
}

/** The rank that the others waited for most, in both phases together, and for how long, of all of them together. */
export function latestRank({ dispatch, combine }: Pick<Waits, 'dispatch' | 'combine'>): {
  readonly rank: number;
  readonly waited: number;
} {
  const waited = dispatch.map((_, peer) =>
    [...dispatch, ...combine].reduce(
      (sum, row, i) => sum + (i % dispatch.length === peer ? 0 : row[peer]!),
      0,
    ),
  );
  const most = Math.max(...waited);
  return { rank: waited.indexOf(most), waited: most };
}
