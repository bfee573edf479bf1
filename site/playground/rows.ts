/** What the timeline shows of a schedule: rows for threads, columns for steps, both as few as tell the story. */
import type { Step } from '../../src/gpu/sim/index.js';

export interface Row {
  readonly rank: number;
  readonly stream: number;
  readonly block: number;
  /** Null: the block's other threads together. */
  readonly thread: number | null;
  readonly label: string;
}

export interface Column {
  readonly step: Step;
  /** The first and the last step that it stands for: threads of one row that did the same, one after the other. */
  readonly first: number;
  readonly last: number;
  /** Whose steps; a barrier is on all rows of its block. */
  readonly rows: readonly number[];
}

export interface Chart {
  readonly rows: readonly Row[];
  readonly columns: readonly Column[];
}

/** At most so many threads of a block get rows of their own. */
const mostThreads = 4;

export function chartOf(steps: readonly Step[], shown: readonly number[]): Chart {
  const rows = rowsOf(steps, shown);
  const columns: { step: Step; first: number; last: number; rows: readonly number[] }[] = [];
  for (const [i, step] of steps.entries()) {
    const on = rowsWith(rows, step);
    const before = columns.at(-1);
    const together =
      before !== undefined &&
      on.length === 1 &&
      rows[on[0]!]!.thread === null &&
      before.rows[0] === on[0] &&
      before.rows.length === 1 &&
      before.step.where === step.where &&
      before.step.kind === step.kind;
    if (together) before.last = i;
    else columns.push({ step, first: i, last: i, rows: on });
  }
  return { rows, columns };
}

const sameBlock = (a: Pick<Row, 'rank' | 'stream' | 'block'>, b: Pick<Row, 'rank' | 'stream' | 'block'>) =>
  a.rank === b.rank && a.stream === b.stream && a.block === b.block;

/** Threads that race, then those that handle flags, then the first ones; the rest of a block shares a row. */
function rowsOf(steps: readonly Step[], shown: readonly number[]): Row[] {
  const blocks: Step[] = [];
  for (const step of steps) if (!blocks.some((block) => sameBlock(block, step))) blocks.push(step);
  blocks.sort((a, b) => a.rank - b.rank || a.stream - b.stream || a.block - b.block);
  return blocks.flatMap((block) => {
    const own = steps.filter((step) => sameBlock(step, block));
    const threads = new Set<number>();
    const take = (from: readonly Step[]) => {
      for (const { thread } of from) if (thread !== null && threads.size < mostThreads) threads.add(thread);
    };
    take(shown.map((i) => steps[i]!).filter((step) => sameBlock(step, block)));
    take(own.filter(({ strength }) => strength !== ''));
    const all = new Set(own.flatMap(({ thread }) => (thread === null ? [] : [thread])));
    if (all.size <= mostThreads) take(own);
    const { rank, stream } = block;
    const row = (thread: number | null, label: string): Row => ({
      rank,
      stream,
      block: block.block,
      thread,
      label,
    });
    const single = [...threads].sort((a, b) => a - b).map((thread) => row(thread, `thread ${thread}`));
    const rest = all.size - threads.size;
    if (rest === 0) return single;
    return [...single, row(null, single.length === 0 ? `${rest} threads` : `${rest} others`)];
  });
}

function rowsWith(rows: readonly Row[], step: Step): number[] {
  const inBlock = [...rows.keys()].filter((i) => sameBlock(rows[i]!, step));
  if (step.thread === null) return inBlock;
  const own = inBlock.find((i) => rows[i]!.thread === step.thread);
  return [own ?? inBlock.at(-1)!];
}
