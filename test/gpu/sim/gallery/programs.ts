/** The gallery's programs: each a file of its own to read and to play with, and what mends it. */
import type { Finding } from '../../../../src/gpu/sim/index.js';

export interface ShownProgram {
  /** Its file in `programs`. */
  readonly file: string;
  readonly title: string;
  /** What to look for, and why it matters. */
  readonly about: string;
  /** Pieces of its text, and what must stand in their place. */
  readonly mend: readonly { readonly from: string; readonly to: string }[];
  readonly expect: {
    readonly kind: Finding['kind'];
    /** How the lines to which the finding points begin. */
    readonly lines: readonly string[];
    readonly hint?: RegExp;
  };
}

const dataWrite = 'g.store(there.data.at(i)';
const dataRead = 'g.store(out.at(i), g.load(there.data.at(i))';

export const programs: readonly ShownProgram[] = [
  {
    file: 'missing-acquire.ts',
    title: 'A wait that acquires nothing',
    about:
      'The flag arrives, but a relaxed wait promises nothing about what was written before it: on a GPU the numbers may still be the old ones. An acquire makes everything before the release visible.',
    mend: [
      { from: "{ order: 'relaxed', scope: 'sys', limit", to: "{ order: 'acquire', scope: 'sys', limit" },
    ],
    expect: { kind: 'race', lines: [dataWrite, dataRead], hint: /no acquire.*make it acquire/ },
  },
  {
    file: 'narrow-release.ts',
    title: 'A release that does not reach',
    about:
      'Orders have a scope. A release at gpu scope is for threads of the same GPU; the one that waits runs on another.',
    mend: [{ from: "{ order: 'release', scope: 'gpu' }", to: "{ order: 'release', scope: 'sys' }" }],
    expect: { kind: 'race', lines: [dataWrite, dataRead], hint: /gpu scope.*another rank: use sys/ },
  },
  {
    file: 'barrier-before-the-flag.ts',
    title: 'One thread speaks for all',
    about:
      'Thread 0 may raise the flag while others have written nothing yet. A barrier puts the stores of the whole block before the release of one thread.',
    mend: [
      {
        from: 'g.store(there.data.at(i), i * i);\n',
        to: 'g.store(there.data.at(i), i * i);\n      g.barrier();\n',
      },
    ],
    expect: {
      kind: 'race',
      lines: [dataWrite, dataRead],
      hint: /a barrier must come after the store and before the publication/,
    },
  },
  {
    file: 'double-checked-flag.ts',
    title: 'The fast path without a fence',
    about:
      'Who finds the flag up at the first, relaxed look has acquired nothing. Only schedules in which rank 0 is early show it: step through one.',
    mend: [
      {
        from: 'limit: 1000 });\n      }\n',
        to: "limit: 1000 });\n      } else {\n        g.fence('sys');\n      }\n",
      },
    ],
    expect: { kind: 'race', lines: [dataWrite, dataRead], hint: /no acquire/ },
  },
  {
    file: 'reuse-too-early.ts',
    title: 'A place used again too early',
    about:
      'Every round waits for its numbers, and still the next round may overwrite them before they were read. The reader has to say that it is done, and the writer to wait for that.',
    mend: [
      {
        from: '      g.store(there.data.at(i), round * 100 + i);\n',
        to: "      if (i === 0) g.awaitEpoch(mine.taken, round - 1, { order: 'acquire', scope: 'sys', limit: 1000 });\n      g.barrier();\n      g.store(there.data.at(i), round * 100 + i);\n",
      },
    ],
    expect: { kind: 'race', lines: [dataRead, dataWrite], hint: /overwrites what rank 1 read before/ },
  },
  {
    file: 'hopeless-wait.ts',
    title: 'A wait that nobody ends',
    about:
      'Each rank is told in its own window, and looks in the window of the other. Nothing can run any more and both wait: the checker says for what, and what is there instead.',
    mend: [{ from: 'win.at(other).there.at(other)', to: 'win.at(g.rank).there.at(other)' }],
    expect: { kind: 'stuck-wait', lines: ['g.awaitEpoch('] },
  },
  {
    file: 'reverse-in-shared-memory.ts',
    title: 'Shared memory without a barrier',
    about:
      'Each thread reads what another one wrote. Within a warp that often works by luck; between the two warps of this block nothing orders it.',
    mend: [
      {
        from: 'g.load(input.at(i)));\n',
        to: 'g.load(input.at(i)));\n    g.barrier();\n',
      },
    ],
    expect: {
      kind: 'race',
      lines: ['g.store(tile.at(i)', 'g.store(out.at(i), g.load(tile'],
      hint: /a block barrier between/,
    },
  },
  {
    file: 'divergent-barrier.ts',
    title: 'A barrier that not all reach',
    about:
      'A barrier is for all threads of the block. Those that skip it leave the others waiting, or worse.',
    mend: [
      {
        from: '  if (i < 40) {\n    const before = g.load(numbers.at(i));\n    g.barrier();\n    if (i < 39) g.store(numbers.at(i + 1), before);\n  }\n',
        to: '  let before = g.u32(0);\n  if (i < 40) before = g.load(numbers.at(i));\n  g.barrier();\n  if (i < 39) g.store(numbers.at(i + 1), before);\n',
      },
    ],
    expect: { kind: 'divergence', lines: ['g.barrier()'] },
  },
  {
    file: 'last-block-sums.ts',
    title: 'The last block adds up',
    about:
      'Counting is atomic, so there is one last block. But a relaxed count passes on nothing: it needs the release of who counts and the acquire of who reads.',
    mend: [{ from: "{ order: 'relaxed', scope: 'gpu' }", to: "{ order: 'acq_rel', scope: 'gpu' }" }],
    expect: {
      kind: 'race',
      lines: ['g.store(parts.at(g.blockIdx.x)', 'for (let i = 0'],
      hint: /releases nothing: make it a release/,
    },
  },
  {
    file: 'two-streams.ts',
    title: 'Two streams, one event too early',
    about:
      'Streams run side by side. The second waits for an event, but that was recorded before the kernel it should wait for.',
    mend: [
      {
        from: '  host.stream.record(ready);\n  await host.launch(copy, {}, { from: input, to: between });\n',
        to: '  await host.launch(copy, {}, { from: input, to: between });\n  host.stream.record(ready);\n',
      },
    ],
    expect: {
      kind: 'race',
      lines: ['g.store(to.at(g.threadIdx.x)', 'g.store(to.at(g.threadIdx.x)'],
      hint: /run side by side; record an event/,
    },
  },
  {
    file: 'kernel-in-ptx.ts',
    title: 'A kernel of CUDA, as PTX',
    about:
      'The reader has its fence, the writer has none: __syncthreads() orders its stores for the block, not for the other GPU. A __threadfence_system() before the flag is what is missing.',
    mend: [{ from: '  st.volatile.global', to: '  membar.sys;\n  st.volatile.global' }],
    expect: {
      kind: 'race',
      lines: ['st.global.u32 [%rd2], %r5', 'ld.global.u32 %r4'],
      hint: /but releases nothing: make it a release/,
    },
  },
];

/** The text of a program as it should be. */
export function mended(text: string, { file, mend }: ShownProgram): string {
  return mend.reduce((before, { from, to }) => {
    if (before.split(from).length !== 2) throw new Error(`${file} has to have this once: ${from}`);
    return before.replace(from, () => to);
  }, text);
}
