/** Operations that the 32 lanes of a warp do together: all of them take part. */
import type { Expr } from '../expression.js';
import type { bool, f32, i32, u32 } from '../language.js';
import type { Lanes } from './machine.js';
import { like, operation, type Text, value } from './operation.js';
import { is } from './parts.js';

const ofWarp = (intrinsic: string, { prelude, args }: Text, ...operands: readonly Expr[]): string =>
  `${intrinsic}(${[prelude.use('full_warp'), args(...operands)].join(', ')})`;

const held = new Float64Array(32);

/** The value of another lane, which `source` names; of this one where there is no such lane. */
const shuffle = <Call>(intrinsic: string, source: (lane: number, by: number) => number) =>
  operation({
    signature: is<Call>(),
    takes: { value: value('i32', 'u32', 'f32'), lane: value('u32') },
    returns: like('value'),
    named: 'shuffled',
    cuda: ({ value, lane }, text) => ofWarp(intrinsic, text, value, lane),
    simulate: ({ value, lane }, machine) => machine.meet(value, lane),
    together({ values, lanes, first, end, mask }) {
      for (let i = 0; i < end; i++) held[i] = values[first + i]!;
      for (let i = 0; i < end; i++) {
        const from = source(i, lanes[first + i]! & 31);
        // A lane that is not there leaves the value as it is, as on the GPU.
        if (from >= 0 && from < 32 && (mask >>> from) & (mask >>> i) & 1) values[first + i] = held[from]!;
      }
    },
  });

function votes({ values, first, end, mask }: Lanes): number {
  let found = 0;
  for (let i = 0; i < end; i++) if ((mask >>> i) & 1 && values[first + i] !== 0) found |= 1 << i;
  return found;
}

function give({ values, first, end, mask }: Lanes, result: number): void {
  for (let i = 0; i < end; i++) if ((mask >>> i) & 1) values[first + i] = result;
}

export const warp = {
  /** The 32 lanes meet; orders their accesses among themselves. */
  barrier: operation({
    cuda: () => '__syncwarp()',
    simulate: (_, machine) => machine.meet(),
    // CUDA promises this of the barrier alone: votes and shuffles exchange registers.
    orders: true,
    removable: true,
  }),
  shuffle: shuffle<<T extends i32 | u32 | f32>(value: T, lane: u32) => T>('__shfl_sync', (_, lane) => lane),
  shuffleXor: shuffle<<T extends i32 | u32 | f32>(value: T, mask: u32) => T>(
    '__shfl_xor_sync',
    (lane, mask) => lane ^ mask,
  ),
  shuffleUp: shuffle<<T extends i32 | u32 | f32>(value: T, by: u32) => T>(
    '__shfl_up_sync',
    (lane, by) => lane - by,
  ),
  /** Bit i: lane i said true. */
  ballot: operation({
    signature: is<(test: bool) => u32>(),
    takes: { test: value('bool') },
    returns: 'u32',
    named: 'ballot',
    cuda: ({ test }, text) => ofWarp('__ballot_sync', text, test),
    simulate: ({ test }, machine) => machine.meet(test),
    together: (warp) => give(warp, votes(warp)),
  }),
  any: operation({
    signature: is<(test: bool) => bool>(),
    takes: { test: value('bool') },
    returns: 'bool',
    named: 'any',
    cuda: ({ test }, text, used) => `${ofWarp('__any_sync', text, test)}${used ? ' != 0' : ''}`,
    simulate: ({ test }, machine) => machine.meet(test),
    together: (warp) => give(warp, votes(warp) === 0 ? 0 : 1),
  }),
  /** Mask of the lanes that hold the same value. */
  match: operation({
    signature: is<(value: i32 | u32) => u32>(),
    takes: { value: value('u32', 'i32') },
    returns: 'u32',
    named: 'matching',
    cuda: ({ value }, text) => ofWarp('__match_any_sync', text, value),
    simulate: ({ value }, machine) => machine.meet(value),
    together({ values, first, end, mask }) {
      for (let i = 0; i < end; i++) held[i] = values[first + i]!;
      let left = mask;
      // The loop runs once for each distinct value, and finds all lanes that have it.
      while (left !== 0) {
        const value = held[31 - Math.clz32(left & -left)]!;
        let same = 0;
        for (let i = 0; i < end; i++) if ((left >>> i) & 1 && held[i] === value) same |= 1 << i;
        for (let i = 0; i < end; i++) if ((same >>> i) & 1) values[first + i] = same;
        left &= ~same;
      }
    },
  }),
};
