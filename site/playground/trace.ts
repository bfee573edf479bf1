/** What the threads of one schedule did, in order: heard from the machine, told to the page. */
import type { Finding, Site, Watcher } from '../../src/gpu/sim/index.js';

export interface Step {
  readonly kind: 'read' | 'write' | 'update' | 'fence' | 'barrier';
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
  /** 'post.ts:12:7', and its statement. */
  readonly where: string;
  readonly text: string;
  /** The step that wrote the flag which this one reads; 'older' if it reads what stood there before. */
  readonly sees: number | 'older' | null;
}

type LaunchInfo = Pick<Step, 'rank' | 'kernel' | 'stream'>;
type BlockInfo = LaunchInfo & { readonly block: number; readonly firstThread: number };

export class Trace {
  readonly steps: Step[] = [];
  readonly #launches = new Map<number, LaunchInfo>();
  readonly #blocks = new Map<number, BlockInfo>();
  readonly #blockOf = new Map<number, BlockInfo>();
  readonly #lastWrite = new Map<string, number>();

  readonly watch = (site: (id: number) => Site): Watcher => ({
    launchStarted: (launch, stream, { rank, kernel }) =>
      void this.#launches.set(launch, { rank, kernel, stream }),
    blockStarted: (id, launch, block, firstThread, threads) => {
      const info = { ...this.#launches.get(launch)!, block, firstThread };
      this.#blocks.set(id, info);
      for (let i = 0; i < threads; i++) this.#blockOf.set(firstThread + i, info);
    },
    access: (thread, { kind, order, scope }, id, buffer, offset, older = 0) => {
      const { where, text } = site(id);
      const place = `${buffer.id} ${offset}`;
      const isAtomic = order !== 'weak';
      const latest = older > 0 ? 'older' : (this.#lastWrite.get(place) ?? null);
      const sees = kind !== 'write' && isAtomic ? latest : null;
      if (kind !== 'read') this.#lastWrite.set(place, this.steps.length);
      const strength = isAtomic ? `${order} at ${scope} scope` : '';
      const { purpose } = buffer;
      this.#add(thread, {
        kind,
        strength,
        buffer: purpose,
        location: buffer.describe(offset),
        where,
        text,
        sees,
      });
    },
    fence: (thread) => this.#add(thread, { ...nothing, kind: 'fence', text: 'a fence' }),
    blockBarrier: (block) => {
      const { firstThread: _, ...info } = this.#blocks.get(block)!;
      this.steps.push({ ...nothing, ...info, thread: null, kind: 'barrier', text: 'a barrier of the block' });
    },
  });

  #add(id: number, what: Omit<Step, keyof LaunchInfo | 'block' | 'thread'>): void {
    const block = this.#blockOf.get(id);
    // Hosts have threads too, which stand in no block: the page shows the machine.
    if (block === undefined) return;
    const { firstThread, ...info } = block;
    this.steps.push({ ...info, ...what, thread: id - firstThread });
  }
}

const nothing = { strength: '', buffer: '', location: '', where: '', sees: null };

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
