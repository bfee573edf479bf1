/** The arithmetic of the method: what becomes of the times that ranks measured. */
import type { World } from '../../net/world/index.js';

/** A spread of times, in the report's unit, and how many values it was made of; of sustained work also what it took of a GPU. */
export type Spread = Readonly<ReturnType<typeof spread>> & { readonly power?: Power };

/** The means over ranks while work lasted, and what one round of it took. */
export interface Power {
  readonly megahertz: number;
  readonly watts: number;
  readonly kilocycles: number;
  readonly joules: number;
}

/** A round is over when its slowest rank is: per iteration, the maximum over ranks. */
export function slowestRank(byRank: readonly ArrayLike<number>[]): number[] {
  return Array.from(byRank[0]!, (_, i) => Math.max(...byRank.map((times) => times[i]!)));
}

/** The maximum over ranks of each value that all of them measured. */
export async function slowest(world: Pick<World, 'allGather'>, mine: Float64Array): Promise<number[]> {
  const all = await world.allGather(new Uint8Array(mine.buffer), 'times');
  return slowestRank(all.map((bytes) => new Float64Array(bytes.slice().buffer)));
}

/** The value below which a share `at` (0 to 1) of the values lie, interpolated between neighbours. */
export function quantile(values: readonly number[], at: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const place = at * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.ceil(place);
  return sorted[below]! + (sorted[above]! - sorted[below]!) * (place - below);
}

export function spread(values: readonly number[]) {
  return {
    median: quantile(values, 0.5),
    p10: quantile(values, 0.1),
    p90: quantile(values, 0.9),
    min: quantile(values, 0),
    max: quantile(values, 1),
    count: values.length,
  };
}

/** A simulated launch counts steps, which give no rate. */
export type Unit = 'µs' | 'steps';
export const unitOf = (device: 'cuda' | 'sim'): Unit => (device === 'sim' ? 'steps' : 'µs');

/** Simulated events count a step as a nanosecond. */
export const perMillisecond = (device: 'cuda' | 'sim'): number => (device === 'sim' ? 1e6 : 1e3);

/** Bytes in microseconds, as GB/s (10^9 bytes a second). */
export const gigabytes = (bytes: number, microseconds: number): number => bytes / microseconds / 1000;
