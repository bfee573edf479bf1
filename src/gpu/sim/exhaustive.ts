/**
 * Trying every schedule of a tiny configuration: depth-first over the scheduler's choices, with dynamic partial-order
 * reduction (after Flanagan and Godefroid). Two schedules differ only if they order two synchronising accesses to one
 * location, at least one a write, differently; so a run is looked through for pairs whose order was a matter of
 * chance, and only those are tried the other way round. A task that was tried at a choice sleeps in the branches tried after
 * it, until something happens that it conflicts with (Godefroid's sleep sets): else each order would come up again
 * and again. Which of several stores a load reads is a choice of its own: all of them are tried.
 *
 * A thread polls if it looks where it has looked, sees what it has seen, and has written nothing since. After a few such looks
 * all others come first: without that a loop of them would be a schedule without end, and one more for each turn of it
 * (after Musuvathi and Qadeer's fair exploration).
 */
import { HeddleError } from '../../base/errors.js';
import { holds } from './compiled.js';
import type { SimBuffer } from './memory.js';
import type { Schedule, Task } from './schedule.js';
import { Thread } from './thread.js';

export interface Exploration {
  /** Schedules that were run. */
  readonly schedules: number;
  /** Whether those were all that can differ. */
  readonly complete: boolean;
}

/** So often a thread may see again what it has seen while others could go on. */
const mostLooksAgain = 1;

interface Access {
  readonly site: number;
  /** Runs that begin alike number their buffers alike, so `memory.id` names the same one in each. */
  readonly memory: SimBuffer;
  readonly offset: number;
  readonly bytes: number;
  readonly writes: boolean;
  /** The words there before. */
  readonly before: readonly number[];
  /** If it is a wait: the word it looks at, and what it waits for. */
  readonly wait: { readonly at: number; satisfiedBy(word: number): boolean } | null;
}

interface Step {
  readonly task: string;
  /** The tasks that could have been chosen instead. */
  readonly ready: readonly string[];
  readonly asleep: ReadonlySet<string>;
  /** Those that had polled long enough. */
  readonly polling: ReadonlySet<string>;
  /** The access that the thread was about to make. `access` is the one that it did make: null if it looked, and then waited. */
  readonly attempt: Access | null;
  access: Access | null;
  /** Of the load that it made: which store it read, of how many. */
  store: number;
  stores: number;
  /** Orders that the machine itself made during the step: what happens after what. */
  readonly orders: { readonly before: readonly string[]; readonly after: readonly string[] }[];
}

/** A choice to be made again: the task, and the store that it reads. */
interface Pick {
  readonly task: string;
  readonly store: number;
}

/** Follows a prefix of choices, then lets each task run as long as it can; remembers what happened. */
class RecordedSchedule implements Schedule {
  readonly steps: Step[] = [];
  readonly #ready = new Map<string, Task>();
  #running: Task | undefined;
  #asleep = new Map<string, Access | null>();
  readonly #pollers = new Pollers();
  /** When each task last ran. */
  readonly #ran = new Map<string, number>();
  /** The steps from here on were run before, in another branch. */
  redundantFrom = Number.POSITIVE_INFINITY;
  /** The run did something else than the one whose choices it was to repeat. From there on it makes its own. */
  #strayed = false;
  readonly #prefix: readonly Pick[];
  readonly #choices: readonly Choice[];

  constructor(prefix: readonly Pick[], choices: readonly Choice[]) {
    this.#prefix = prefix;
    this.#choices = choices;
  }

  add(task: Task): void {
    this.#ready.set(task.key, task);
    const step = this.steps.at(-1);
    if (step !== undefined && task !== this.#running) {
      step.orders.push({ before: [step.task], after: [task.key] });
    }
  }

  bringIn(): boolean {
    return false;
  }

  ordered(before: readonly Task[], after: readonly Task[]): void {
    this.steps.at(-1)?.orders.push({ before: before.map((t) => t.key), after: after.map((t) => t.key) });
  }

  next(): Task | undefined {
    const running = this.#running;
    if (running instanceof Thread) {
      if (running.state === 'parked') this.steps.at(-1)!.access = null;
      this.#pollers.ran(this.steps.at(-1)!, running);
    }
    if (this.#ready.size === 0) {
      this.#running = undefined;
      return undefined;
    }
    const ready = [...this.#ready.keys()];
    const at = this.steps.length;
    const wanted = this.#prefix[at]?.task;
    // Nobody could catch an error here, in the middle of a turn of the machine.
    if (wanted !== undefined && !this.#ready.has(wanted)) this.#strayed = true;
    const key = wanted === undefined || this.#strayed ? this.#pick(ready) : wanted;
    const task = this.#ready.get(key)!;
    this.#ready.delete(key);
    this.#running = task;
    const attempt = accessOf(task);
    const asleep = new Set(this.#asleep.keys());
    const polling = this.#pollers.among(ready);
    const orders: Step['orders'] = [];
    this.steps.push({
      task: key,
      ready,
      asleep,
      polling,
      attempt,
      access: attempt,
      store: 0,
      stores: 1,
      orders,
    });
    this.#ran.set(key, at);
    this.#stayAsleep(key, attempt, this.#choices[at]?.tried);
    return task;
  }

  pickStore(count: number): number {
    const step = this.steps.at(-1)!;
    step.store = this.#strayed ? 0 : (this.#prefix[this.steps.length - 1]?.store ?? 0);
    step.stores = this.#pollers.tired(step.task) ? 1 : count;
    return step.store;
  }

  /** Whether the run made all choices that it was to repeat. */
  get repeated(): boolean {
    return !this.#strayed && this.steps.length >= this.#prefix.length;
  }

  /**
   * The task that ran last, as long as it can; nobody who sleeps, as long as somebody does not; and nobody who polls, as long as
   * somebody does not.
   */
  #pick(ready: readonly string[]): string {
    const last = this.#running?.key;
    const polling = this.#pollers.among(ready);
    const busy = polling.size < ready.length ? ready.filter((key) => !polling.has(key)) : ready;
    const awake = busy.filter((key) => !this.#asleep.has(key));
    if (awake.length === 0) this.redundantFrom = Math.min(this.redundantFrom, this.steps.length);
    const some = awake.length === 0 ? busy : awake;
    if (busy === ready && polling.size > 0) return this.#longestAgo(some);
    return last !== undefined && some.includes(last) ? last : some[0]!;
  }

  #longestAgo(tasks: readonly string[]): string {
    const when = (key: string): number => this.#ran.get(key) ?? -1;
    return tasks.reduce((first, key) => (when(key) < when(first) ? key : first));
  }

  #stayAsleep(key: string, attempt: Access | null, tried: Choice['tried'] | undefined): void {
    const sleepers = [...this.#asleep, ...(tried ?? [])];
    this.#asleep = new Map(
      sleepers.filter(([task, access]) => {
        return task !== key && !(access !== null && attempt !== null && conflict(access, attempt));
      }),
    );
  }
}

/** Threads that see again and again what they have seen. */
class Pollers {
  readonly #looks = new Map<string, { readonly seen: Map<string, Look>; again: number; writes: number }>();

  ran({ task, access }: Step, { writes, seen }: Thread): void {
    let looks = this.#looks.get(task);
    if (looks === undefined || looks.writes !== writes) {
      looks = { seen: new Map(), again: 0, writes };
      this.#looks.set(task, looks);
    }
    if (access === null) return;
    const { site, offset, bytes, memory } = access;
    if (wordsOf(memory, offset, bytes).some((word, i) => word !== access.before[i])) {
      looks.seen.clear();
      looks.again = 0;
      return;
    }
    const place = `${site} ${memory.id} ${offset}`;
    const last = looks.seen.get(place);
    const words = access.writes ? access.before : wordsOf(seen, offset & 15, bytes);
    looks.again = last?.words.every((word, i) => word === words[i]) ? looks.again + 1 : 0;
    looks.seen.set(place, { memory, offset, words });
  }

  /** Those of them that have looked often enough, where nothing has changed since. */
  among(tasks: readonly string[]): ReadonlySet<string> {
    return new Set(tasks.filter((task) => this.tired(task) && !this.#changed(task)));
  }

  /** It has looked often enough. */
  tired(task: string): boolean {
    const { seen, again } = this.#looks.get(task) ?? nothing;
    return seen.size > 0 && again >= mostLooksAgain * seen.size;
  }

  #changed(task: string): boolean {
    for (const { memory, offset, words } of this.#looks.get(task)!.seen.values()) {
      if (wordsOf(memory, offset, 4 * words.length).some((word, i) => word !== words[i])) return true;
    }
    return false;
  }
}

const nothing = { seen: new Map(), again: 0 };

interface Look {
  readonly memory: SimBuffer;
  readonly offset: number;
  readonly words: readonly number[];
}

function wordsOf({ i32 }: SimBuffer, offset: number, bytes: number): number[] {
  return Array.from(i32.subarray(offset >>> 2, (offset + bytes + 3) >>> 2));
}

function accessOf(task: Task): Access | null {
  if (!(task instanceof Thread)) return null;
  const { wait, next } = task;
  if (wait === null) task.next = null;
  const at = wait ?? next;
  // Phases of an mbarrier belong to one block's threads and only move on.
  if (at === null || wait?.kind === 'phase') return null;
  const { access, buffer, offset } = at;
  const { kind, bytes, site } = access;
  const before = wordsOf(buffer, offset, bytes);
  return { site, memory: buffer, offset, bytes, writes: kind !== 'read', before, wait: wait && waitOf(wait) };
}

function waitOf(wait: NonNullable<Thread['wait']>): Access['wait'] {
  const at = wait.kind === 'filled' ? wait.offset + 12 : wait.offset;
  return { at, satisfiedBy: (word) => holds(wait, word) };
}

/** A choice on the way to the current run: what is still to be tried there. */
interface Choice {
  /** With what each did, or was about to do. */
  readonly tried: Map<string, Access | null>;
  readonly toTry: Set<string>;
}

/** Calls `run`, which does `what`, with one schedule after the other, until all that can differ were run, or `limit`. */
export async function explore(
  limit: number,
  run: (schedule: Schedule) => Promise<void>,
  what = 'the program',
): Promise<Exploration> {
  const choices: Choice[] = [];
  let prefix: Pick[] = [];
  for (let schedules = 1; ; schedules++) {
    const schedule = new RecordedSchedule(prefix, choices);
    await run(schedule);
    if (!schedule.repeated)
      throw new HeddleError(
        'HEDDLE_CHECK',
        `${what} cannot be searched exhaustively: it did not do the same in the same schedule. Let its host programs await nothing but the machine, and use neither chance nor the time`,
      );
    const steps = schedule.steps.slice(0, schedule.redundantFrom);
    const last = choices.length - 1;
    if (last >= 0) choices[last]!.tried.set(steps[last]!.task, steps[last]!.attempt);
    for (let i = choices.length; i < steps.length; i++) {
      choices.push({ tried: new Map([[steps[i]!.task, steps[i]!.attempt]]), toTry: new Set() });
    }
    findReversals(steps, choices);
    let at = choices.length - 1;
    let next = nextPick(steps[at], choices[at]);
    while (at >= 0 && next === null) {
      at--;
      next = nextPick(steps[at], choices[at]);
    }
    if (next === null) return { schedules, complete: true };
    if (schedules >= limit) return { schedules, complete: false };
    prefix = [...steps.slice(0, at), next];
    choices.length = at + 1;
  }
}

/** The next alternative at a choice: the task's next store, then the next task. */
function nextPick(step: Step | undefined, choice: Choice | undefined): Pick | null {
  if (step === undefined || choice === undefined) return null;
  if (step.store + 1 < step.stores) return { task: step.task, store: step.store + 1 };
  for (const task of choice.toTry) {
    choice.toTry.delete(task);
    return { task, store: 0 };
  }
  return null;
}

/** Which steps of each task a task knows to have happened. */
type Clock = Map<string, number>;

/** Marks, for every access, the latest conflicting one that is not ordered before it, to be tried the other way. */
function findReversals(steps: readonly Step[], choices: readonly Choice[]): void {
  const clocks = new Map<string, Clock>();
  const clockOf = (task: string): Clock => {
    let clock = clocks.get(task);
    if (clock === undefined) {
      clock = new Map();
      clocks.set(task, clock);
    }
    return clock;
  };
  const accesses: { readonly at: number; readonly access: Access; readonly clock: Clock }[] = [];
  steps.forEach((step, at) => {
    const clock = clockOf(step.task);
    const { access } = step;
    if (access !== null) {
      const conflicts = accesses.filter((other) => conflict(other.access, access));
      const chance = conflicts.findLast(
        (other) => steps[other.at]!.task !== step.task && (clock.get(steps[other.at]!.task) ?? -1) < other.at,
      );
      if (chance !== undefined && !ended(access, chance.access))
        reverse(steps, choices, chance.at, step.task);
      for (const other of conflicts) join(clock, other.clock);
    }
    clock.set(step.task, at);
    if (access !== null) accesses.push({ at, access, clock: new Map(clock) });
    for (const { before, after } of step.orders) {
      const known: Clock = new Map();
      for (const task of before) join(known, clockOf(task));
      for (const task of after) join(clockOf(task), known);
    }
  });
}

/** Whether a wait was ended by this very write, so that it cannot come before it. */
function ended({ wait }: Access, write: Access): boolean {
  if (wait === null) return false;
  const before = write.before[(wait.at - write.offset) >> 2];
  return before !== undefined && !wait.satisfiedBy(before);
}

function conflict(a: Access, b: Access): boolean {
  return (
    a.memory.id === b.memory.id &&
    (a.writes || b.writes) &&
    a.offset < b.offset + b.bytes &&
    b.offset < a.offset + a.bytes
  );
}

function join(into: Clock, from: Clock): void {
  for (const [task, at] of from) if ((into.get(task) ?? -1) < at) into.set(task, at);
}

/** Lets `task` come before what happened at step `at`; where it could not run yet, whoever might lead to it. */
function reverse(steps: readonly Step[], choices: readonly Choice[], at: number, task: string): void {
  const { ready, asleep, polling } = steps[at]!;
  const { tried, toTry } = choices[at]!;
  for (const other of ready.includes(task) ? [task] : ready) {
    if (!tried.has(other) && !asleep.has(other) && !polling.has(other)) toTry.add(other);
  }
}
