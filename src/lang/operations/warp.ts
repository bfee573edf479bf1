/** Operations that the 32 lanes of a warp do together: all of them take part. */
import type { Expr } from '../expression.js';
import type { bool, f32, i32, u32 } from '../language.js';
import type { Together } from './machine.js';
import { matrixWords } from './matrices.js';
import { like, operation, type Text, value } from './operation.js';
import { calls } from './parts.js';

const ofWarp = (intrinsic: string, { prelude, args }: Text, ...operands: readonly Expr[]): string =>
  `${intrinsic}(${[prelude.use('full_warp'), args(...operands)].join(', ')})`;

type Complete = NonNullable<Together['complete']>;

function each(mask: number, run: (lane: number) => void): void {
  for (let left = mask; left !== 0; left &= left - 1) run(31 - Math.clz32(left & -left));
}

const brought = new Int32Array(32);

/** The lane to read from, by the mode of a shuffle; one beyond the limit means none. */
const sources = {
  idx: (_: number, by: number, limit: number): number => (by <= limit ? by : -1),
  up: (lane: number, by: number, limit: number): number => (lane - by >= limit ? lane - by : -1),
  down: (lane: number, by: number, limit: number): number => (lane + by <= limit ? lane + by : -1),
  bfly: (lane: number, by: number, limit: number): number => ((lane ^ by) <= limit ? lane ^ by : -1),
};
type Mode = keyof typeof sources;

/**
 * Lanes bring a value, by how much the lane that they read from is another one, and, as PTX has it, how far lanes go in which segments.
 * They get that lane's value, or their own where there is none, and whether there is one.
 */
function shuffled(mode: Mode): Complete {
  const source = sources[mode];
  return (words, first, mask) => {
    each(mask, (lane) => {
      brought[lane] = words[matrixWords * (first + lane)]!;
    });
    each(mask, (lane) => {
      const at = matrixWords * (first + lane);
      const by = words[at + 1]! & 31;
      const clamp = words[at + 2]! & 31;
      const segment = (words[at + 2]! >>> 8) & 31;
      const limit = (lane & segment) | (clamp & ~segment);
      const from = source(lane, mode === 'idx' ? (lane & segment) | (by & ~segment) : by, limit);
      // A lane that is not there leaves the value as it is, as on the GPU.
      if (from >= 0 && (mask >>> from) & 1) words[at] = brought[from]!;
      words[at + 1] = from < 0 ? 0 : 1;
    });
  };
}

export const shuffles: Readonly<Record<Mode, Complete>> = {
  idx: shuffled('idx'),
  up: shuffled('up'),
  down: shuffled('down'),
  bfly: shuffled('bfly'),
};

/** The value of another lane, which `mode` names; of this one where there is no such lane. */
const shuffle = <Call>(intrinsic: string, mode: Mode) =>
  operation({
    signature: calls<Call>(),
    takes: { value: value('i32', 'u32', 'f32'), lane: value('u32') },
    returns: like('value'),
    named: 'shuffled',
    cuda: ({ value, lane }, text) => ofWarp(intrinsic, text, value, lane),
    simulate: ({ value, lane }, machine) => machine.meet(value, lane, mode === 'up' ? '0' : '31'),
    together: { complete: shuffles[mode] },
  });

function give(words: Int32Array, first: number, mask: number, one: number, other: number): void {
  each(mask, (lane) => {
    words[matrixWords * (first + lane)] = one;
    words[matrixWords * (first + lane) + 1] = other;
  });
}

/** Which lanes said yes, and which were asked. */
const votes: Complete = (words, first, mask) => {
  let yes = 0;
  each(mask, (lane) => {
    if (words[matrixWords * (first + lane)] !== 0) yes |= 1 << lane;
  });
  give(words, first, mask, yes, mask);
};

/** Which lanes brought the same two words, and which were asked. */
const alike: Complete = (words, first, mask) => {
  // The loop runs once for each distinct pair, and finds all lanes that have it.
  for (let left = mask; left !== 0; ) {
    const at = matrixWords * (first + 31 - Math.clz32(left & -left));
    let same = 0;
    each(left, (lane) => {
      const other = matrixWords * (first + lane);
      if (words[other] === words[at] && words[other + 1] === words[at + 1]) same |= 1 << lane;
    });
    give(words, first, same, same, mask);
    left &= ~same;
  }
};

export const warp = {
  /** The 32 lanes meet; orders their accesses among themselves. */
  barrier: operation({
    cuda: () => '__syncwarp()',
    simulate: (_, machine) => machine.meet(),
    // CUDA promises this of the barrier alone: votes and shuffles exchange registers.
    together: { orders: true },
    removable: true,
  }),
  shuffle: shuffle<<T extends i32 | u32 | f32>(value: T, lane: u32) => T>('__shfl_sync', 'idx'),
  shuffleXor: shuffle<<T extends i32 | u32 | f32>(value: T, mask: u32) => T>('__shfl_xor_sync', 'bfly'),
  shuffleUp: shuffle<<T extends i32 | u32 | f32>(value: T, by: u32) => T>('__shfl_up_sync', 'up'),
  /** Bit i: lane i said true. */
  ballot: operation({
    signature: calls<(test: bool) => u32>(),
    takes: { test: value('bool') },
    returns: 'u32',
    named: 'ballot',
    cuda: ({ test }, text) => ofWarp('__ballot_sync', text, test),
    simulate: ({ test }, machine) => machine.meet(test),
    together: { complete: votes },
  }),
  any: operation({
    signature: calls<(test: bool) => bool>(),
    takes: { test: value('bool') },
    returns: 'bool',
    named: 'any',
    cuda: ({ test }, text, used) => `${ofWarp('__any_sync', text, test)}${used ? ' != 0' : ''}`,
    simulate: ({ test }, machine) => machine.meet(test),
    together: { complete: votes },
  }),
  /** Mask of the lanes that hold the same value. */
  match: operation({
    signature: calls<(value: i32 | u32) => u32>(),
    takes: { value: value('u32', 'i32') },
    returns: 'u32',
    named: 'matching',
    cuda: ({ value }, text) => ofWarp('__match_any_sync', text, value),
    simulate: ({ value }, machine) => machine.meet(value, '0'),
    together: { complete: alike },
  }),
};
