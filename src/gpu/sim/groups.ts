/** Barriers of groups of warps: who waits at which, until as many have come as the barrier is for. */
import { getOrMake } from '../../base/maps.js';

const mostGroups = 15;

interface Group<Thread> {
  readonly wanted: number;
  /** The threads that wait; others have come and gone on. */
  readonly there: Thread[];
  come: number;
}

export class Groups<Thread> {
  readonly #waiting = new Map<number, Group<Thread>>();

  /**
   * The threads that may go on now that `thread` has come, which itself waits unless `waits` is false; nobody while some are missing.
   * `least`: 1 where barrier 0 is only the block's own. In PTX it may be a group's as well.
   */
  arrive(thread: Thread, id: number, wanted: number, waits: boolean, least: number): readonly Thread[] {
    if (id < least || id > mostGroups)
      throw new Error(`barrier ${id} of a group: it must be ${least} to ${mostGroups}`);
    if (wanted % 32 !== 0 || wanted < 32) {
      throw new Error(
        `barrier ${id} is for ${wanted} threads: groups are of whole warps, so a multiple of 32`,
      );
    }
    const group = getOrMake(this.#waiting, id, () => ({ wanted, there: [], come: 0 }));
    if (group.wanted !== wanted) {
      throw new Error(`barrier ${id} is for ${group.wanted} threads to some and for ${wanted} to others`);
    }
    if (waits) group.there.push(thread);
    return ++group.come === wanted ? this.#take(id) : [];
  }

  /** Takes out threads that wait in vain, a barrier at a time, so that they go on. */
  *abandoned(): Iterable<{ readonly id: number; readonly there: readonly Thread[] }> {
    for (const id of [...this.#waiting.keys()]) {
      const there = this.#take(id);
      if (there.length > 0) yield { id, there };
    }
  }

  #take(id: number): readonly Thread[] {
    const there = this.#waiting.get(id)?.there ?? [];
    this.#waiting.delete(id);
    return there;
  }
}
