/** The steps of the threads of one schedule, in their order, heard from the machine: for the playground, and `heddle check --trace`. */
import type { BufferInfo, Finding, Site } from './detector/detector.js';
import { wordsAt } from './detector/location.js';
import type { Watcher } from './watched.js';

export interface Step {
  /** 'wait': one that nothing ended. The others are `read`s. */
  readonly kind: 'read' | 'write' | 'update' | 'fence' | 'barrier' | 'wait';
  /** The step at which a wait began that this read has ended; null for other steps. */
  readonly since: number | null;
  readonly rank: number;
  readonly block: number;
  /** Null where all threads of the block take part. */
  readonly thread: number | null;
  readonly kernel: string;
  readonly stream: number;
  /** 'relaxed at sys scope'; '' for ordinary accesses. */
  readonly strength: string;
  readonly buffer: string;
  readonly location: string;
  /** The value that it has read, or stored: an unsigned number, four of 16 bytes; '' where that is not known. */
  readonly value: string;
  /** 'post.ts:12:7', and its statement. */
  readonly where: string;
  readonly text: string;
  /** The step that wrote the flag which this one reads; 'older' if it reads what stood there before. */
  readonly sees: number | 'older' | null;
}

type LaunchInfo = Pick<Step, 'rank' | 'kernel' | 'stream'>;
type BlockInfo = LaunchInfo & { readonly block: number; readonly firstThread: number };

type Wait = Pick<Step, 'where' | 'text' | 'buffer' | 'location' | 'value'> & { readonly since: number };

export class Trace {
  readonly steps: Step[] = [];
  /** By thread. */
  readonly #waits = new Map<number, Wait>();
  /** The last write, until the next step shows what it has stored. */
  #written: { readonly buffer: BufferInfo; readonly offset: number; readonly bytes: number } | null = null;
  readonly #launches = new Map<number, LaunchInfo>();
  readonly #blocks = new Map<number, BlockInfo>();
  readonly #blockOf = new Map<number, BlockInfo>();
  readonly #lastWrite = new Map<string, number>();

  readonly watch = (site: (id: number) => Site, seen: { readonly i32: Int32Array }): Watcher => ({
    launchStarted: (launch, stream, { rank, kernel }) =>
      void this.#launches.set(launch, { rank, kernel, stream }),
    blockStarted: (id, launch, block, firstThread, threads) => {
      const info = { ...this.#launches.get(launch)!, block, firstThread };
      this.#blocks.set(id, info);
      for (let i = 0; i < threads; i++) this.#blockOf.set(firstThread + i, info);
    },
    waitStarted: (thread, id, buffer, offset, wanted) => {
      const { where, text } = site(id);
      const value = String(wanted >>> 0);
      const what = { buffer: buffer.purpose, location: buffer.describe(offset), value };
      this.#waits.set(thread, { where, text, ...what, since: this.steps.length });
    },
    access: (thread, { kind, order, scope, bytes }, id, buffer, offset, older = 0) => {
      const { where, text } = site(id);
      const wait = this.#waits.get(thread);
      if (wait?.where === where) this.#waits.delete(thread);
      const place = `${buffer.id} ${offset}`;
      const isAtomic = order !== 'weak';
      const latest = older > 0 ? 'older' : (this.#lastWrite.get(place) ?? null);
      const sees = kind !== 'write' && isAtomic ? latest : null;
      if (kind !== 'read') this.#lastWrite.set(place, this.steps.length);
      const strength = isAtomic ? `${order} at ${scope} scope` : '';
      // An older store is not what is there.
      const words = older > 0 ? wordsAt(seen.i32, offset & 15, bytes) : wordsAt(buffer.i32, offset, bytes);
      this.#add(thread, {
        kind,
        strength,
        buffer: buffer.purpose,
        location: buffer.describe(offset),
        value: kind === 'read' ? numberAt(words, offset, bytes) : '',
        where,
        text,
        sees,
        since: wait?.where === where ? wait.since : null,
      });
      if (kind !== 'read' && older === 0) this.#written = { buffer, offset, bytes };
    },
    // Its memory may be gone before the next step.
    blockEnded: () => this.#settle(),
    fence: (thread) => this.#add(thread, { ...nothing, kind: 'fence', text: 'a fence' }),
    blockBarrier: (block) => {
      const { firstThread: _, ...info } = this.#blocks.get(block)!;
      this.#settle();
      this.steps.push({ ...nothing, ...info, thread: null, kind: 'barrier', text: 'a barrier of the block' });
    },
  });

  #add(id: number, what: Omit<Step, keyof LaunchInfo | 'block' | 'thread'>): void {
    const block = this.#blockOf.get(id);
    // Hosts have threads too, which stand in no block: the page shows the machine.
    if (block === undefined) return;
    const { firstThread, ...info } = block;
    this.#settle();
    this.steps.push({ ...info, ...what, thread: id - firstThread });
  }

  /** Nobody has taken a step since the last write, so the value there is its own. */
  #settle(): void {
    if (this.#written === null) return;
    const { buffer, offset, bytes } = this.#written;
    this.#written = null;
    const value = numberAt(wordsAt(buffer.i32, offset, bytes), offset, bytes);
    this.steps.push({ ...this.steps.pop()!, value });
  }

  /** Waits that nothing ended: steps behind all others. */
  end(): void {
    this.#settle();
    const waits = [...this.#waits];
    this.#waits.clear();
    for (const [thread, wait] of waits) this.#add(thread, { ...nothing, ...wait, kind: 'wait' });
  }
}

const nothing = { strength: '', buffer: '', location: '', value: '', where: '', sees: null, since: null };

/** The unsigned number at an offset, of the words that hold it. */
function numberAt(words: readonly number[], offset: number, bytes: number): string {
  if (bytes === 8) return String((BigInt(words[1]! >>> 0) << 32n) | BigInt(words[0]! >>> 0));
  if (bytes < 4) return String((words[0]! >>> (8 * (offset & 3))) & (2 ** (8 * bytes) - 1));
  return words.map((word) => word >>> 0).join(' ');
}

/** The steps that a finding is about: of a race both, the second as it happened, the first before that. */
export function stepsOf(finding: Finding, steps: readonly Step[]): number[] {
  if (finding.kind !== 'race') return [];
  const { first, second, location, buffer } = finding;
  const last = (access: typeof first, before: number) =>
    steps.findLastIndex(
      (step, i) =>
        i < before &&
        step.buffer === buffer &&
        step.location === location &&
        step.where === access.where &&
        step.kind === access.kind &&
        step.rank === access.rank &&
        step.block === access.block &&
        step.thread === access.thread,
    );
  for (let end = steps.length; end > 0; ) {
    const at = last(second, end);
    if (at < 0) break;
    const before = last(first, at);
    if (before >= 0) return [before, at];
    end = at;
  }
  return [];
}
