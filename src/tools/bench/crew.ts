/**
 * The ranks of this process. In a world of one process all ranks share a thread, and some calls must be made for all
 * of them at once: a rank that waited inside such a call for the others would keep them from ever making theirs.
 */
import type { World } from '../../net/world/index.js';

export class Crew<T> {
  readonly #brought = new Map<number, T>();

  /**
   * When every rank of the world has come, runs `body` once in each process, with what its ranks brought, in the
   * order of their ranks. Resolves when that is done everywhere. An error of `body` reaches the rank that ran it.
   */
  async together(world: World, mine: T, body: (all: readonly T[]) => void): Promise<void> {
    this.#brought.set(world.rank, mine);
    await world.barrier('gathering ranks');
    const ranks = [...this.#brought.keys()].sort((a, b) => a - b);
    if (ranks[0] === world.rank) body(ranks.map((rank) => this.#brought.get(rank)!));
    await world.barrier('ranks gathered');
  }
}
