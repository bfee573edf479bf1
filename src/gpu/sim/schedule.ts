/**
 * The choice of the task that runs next. Everything that can make progress is a `Task`: a thread, a stream's next operation, a rank's
 * block starter. A schedule holds the runnable ones and picks; all its choices come from the seed.
 */
import type { Random } from './random.js';

export abstract class Task {
  /** Larger runs first, in a priority schedule. */
  priority = 0;
  /** How often it was chosen in a priority schedule since it last fell behind. */
  chosen = 0;
  /** When it became ready, in steps of a random schedule. */
  readySince = 0;
  abstract readonly rank: number;
  /** Threads are many, the rest few: a random schedule gives both their share. */
  abstract readonly isThread: boolean;
  readonly startsBlocks: boolean = false;
}

/** A task that is not a thread: it runs one operation at a time. */
export abstract class Agent extends Task {
  readonly isThread = false;
  abstract run(): void;
}

export interface Schedule {
  add(task: Task): void;
  next(): Task | undefined;
  /** Which of `count` stores that a load may read it reads; 0 is the newest. `site`: the statement. */
  pickStore(count: number, site?: number): number;
  /** Brings in what was held back while anything else could run; false if there was nothing. */
  bringIn(): boolean;
}

/**
 * First come, first served: what fast mode uses. New blocks start only once the running ones have ended or wait, so
 * that no more threads exist at a time than have to.
 */
export class InOrder implements Schedule {
  #heldBack: Task[] = [];
  readonly #queue: Task[] = [];
  /** Index of the next task: those before it have had their turn. */
  #head = 0;

  add(task: Task): void {
    (task.startsBlocks ? this.#heldBack : this.#queue).push(task);
  }

  bringIn(): boolean {
    const tasks = this.#heldBack;
    this.#heldBack = [];
    for (const task of tasks) this.#queue.push(task);
    return tasks.length > 0;
  }

  pickStore(): number {
    return 0;
  }

  next(): Task | undefined {
    const queue = this.#queue;
    if (this.#head > 1024 && 2 * this.#head >= queue.length) {
      queue.splice(0, this.#head);
      this.#head = 0;
    }
    const task = queue[this.#head];
    if (task !== undefined) this.#head++;
    return task;
  }
}

/**
 * A schedule of random choices. Loads lag behind: in some runs never, in some more often than not, so that a chain of stale reads occurs too.
 * In half of the runs each statement has a rate of its own: one load may lag that others are far ahead of.
 */
abstract class Drawn implements Schedule {
  /** How often statements lag. Drawn when it first matters: runs in which nothing can lag stay as they are. */
  readonly #often = new Map<number, number>();
  #alike = false;

  constructor(protected readonly random: Random) {}

  abstract add(task: Task): void;
  abstract next(): Task | undefined;

  pickStore(count: number, site = 0): number {
    const key = this.#alike ? 0 : site;
    let often = this.#often.get(key);
    if (often === undefined) {
      const drawn = this.random.below(8);
      often = [0, 1 / 4, 1 / 2, 7 / 8][drawn >> 1]!;
      if (this.#often.size === 0) this.#alike = drawn % 2 === 0;
      this.#often.set(this.#alike ? 0 : site, often);
    }
    return this.random.uniform() < often ? 1 + this.random.below(count - 1) : 0;
  }

  /** Nothing is held back. */
  bringIn(): boolean {
    return false;
  }
}

/** Steps after which the task that has waited longest has its turn, and how many steps that turn has. */
const fairEvery = 64;
const fairTurn = 8;

/**
 * A random runnable task, for a random while. Ranks have random speeds, so that one may be a whole round ahead of
 * another; bursts have a random mean, so that both fine and coarse interleavings occur. It is fair: from time to time the
 * task that has waited longest runs, so each waits for so many steps at most, times the number of those that can run.
 */
export class RandomSchedule extends Drawn {
  #steps = 0;
  #nextFair = fairEvery;
  readonly #threads: Task[][];
  readonly #others: Task[][];
  readonly #weights: number[];
  readonly #meanBurst: number;
  #running: Task | undefined;
  #again = false;
  #burst = 0;

  constructor(ranks: number, random: Random) {
    super(random);
    this.#threads = Array.from({ length: ranks }, () => []);
    this.#others = Array.from({ length: ranks }, () => []);
    const spread = random.below(4) * 2;
    this.#weights = Array.from({ length: ranks }, () => 2 ** -(random.uniform() * spread));
    this.#meanBurst = [1, 2, 8, 64][random.below(4)]!;
  }

  add(task: Task): void {
    if (task === this.#running && this.#burst > 0) {
      this.#burst--;
      this.#again = true;
      return;
    }
    task.readySince = this.#steps;
    (task.isThread ? this.#threads : this.#others)[task.rank]!.push(task);
  }

  next(): Task | undefined {
    this.#steps++;
    if (this.#again) {
      this.#again = false;
      return this.#running;
    }
    if (this.#steps >= this.#nextFair) return this.#longestWaiting();
    const rank = this.#pickRank();
    if (rank < 0) return undefined;
    const threads = this.#threads[rank]!;
    const others = this.#others[rank]!;
    const from =
      others.length === 0 ? threads : threads.length === 0 || this.random.below(4) === 0 ? others : threads;
    const at = this.random.below(from.length);
    return this.#take(from, at, this.#meanBurst === 1 ? 1 : 1 + this.random.below(2 * this.#meanBurst));
  }

  /** Takes a task out and runs it for so many steps, as long as it can. */
  #take(from: Task[], at: number, steps: number): Task {
    const task = from[at]!;
    from[at] = from[from.length - 1]!;
    from.pop();
    this.#running = task;
    this.#burst = steps - 1;
    return task;
  }

  #longestWaiting(): Task | undefined {
    let count = 0;
    let from: Task[] | undefined;
    let first = 0;
    for (const tasks of [...this.#threads, ...this.#others]) {
      count += tasks.length;
      for (let i = 0; i < tasks.length; i++) {
        if (from !== undefined && tasks[i]!.readySince >= from[first]!.readySince) continue;
        from = tasks;
        first = i;
      }
    }
    // Where there are very many the search is what takes time.
    this.#nextFair = this.#steps + Math.max(fairEvery, count >>> 6);
    return from === undefined ? undefined : this.#take(from, first, fairTurn);
  }

  #pickRank(): number {
    let total = 0;
    for (let r = 0; r < this.#weights.length; r++) {
      if (this.#threads[r]!.length + this.#others[r]!.length > 0) total += this.#weights[r]!;
    }
    let left = this.random.uniform() * total;
    let last = -1;
    for (let r = 0; r < this.#weights.length; r++) {
      if (this.#threads[r]!.length + this.#others[r]!.length === 0) continue;
      last = r;
      left -= this.#weights[r]!;
      if (left < 0) break;
    }
    return last;
  }
}

/** So often a task is chosen before it falls behind all others. */
const mostTurns = 200;

/**
 * Random priorities with a few points at which the running task falls behind all others (after Burckhardt et al.,
 * 'A randomized scheduler with probabilistic guarantees of finding bugs'): it reaches the rare order in which one
 * thread, block or rank is far behind at just the wrong place. It is fair: a task falls behind too when it has had its turns,
 * in a row or not, as it may be polling for what only others can do. So each waits for so many steps of each other at most.
 */
export class PrioritySchedule extends Drawn {
  readonly #heap: Task[] = [];
  readonly #rankPriority: number[];
  readonly #changes: number[];
  readonly #byRank: boolean;
  #steps = 0;
  #lowest = 0;

  constructor(ranks: number, random: Random) {
    super(random);
    this.#rankPriority = Array.from({ length: ranks }, () => random.uniform());
    this.#byRank = random.below(2) === 0;
    // Runs differ in length by orders of magnitude, so the points are spread over orders of magnitude.
    this.#changes = Array.from({ length: 1 + random.below(4) }, () =>
      Math.floor(2 ** (random.uniform() * 16)),
    );
    this.#changes.sort((a, b) => b - a);
  }

  add(task: Task): void {
    if (task.priority === 0) {
      task.priority = this.#byRank
        ? 1 + this.#rankPriority[task.rank]! + this.random.uniform() / 1024
        : 1 + this.random.uniform();
    }
    this.#push(task);
  }

  next(): Task | undefined {
    for (;;) {
      const top = this.#pop();
      if (top === undefined) return undefined;
      this.#steps++;
      const changes = this.#changes.length > 0 && this.#steps >= this.#changes.at(-1)!;
      if (changes) this.#changes.pop();
      if (!changes && top.chosen < mostTurns) {
        top.chosen++;
        return top;
      }
      top.priority = --this.#lowest;
      top.chosen = 0;
      this.#push(top);
    }
  }

  #push(task: Task): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(task);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (heap[up]!.priority >= task.priority) break;
      heap[at] = heap[up]!;
      at = up;
    }
    heap[at] = task;
  }

  #pop(): Task | undefined {
    const heap = this.#heap;
    const top = heap[0];
    const last = heap.pop();
    if (top === undefined || heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= heap.length) break;
      if (down + 1 < heap.length && heap[down + 1]!.priority > heap[down]!.priority) down++;
      if (heap[down]!.priority <= last!.priority) break;
      heap[at] = heap[down]!;
      at = down;
    }
    heap[at] = last!;
    return top;
  }
}
