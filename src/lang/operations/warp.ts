/** What the 32 lanes of a warp do together: all of them take part. */
import type { Expr } from '../expression.js';
import { like, operation, type Text, value } from './operation.js';

const ofWarp = (intrinsic: string, { prelude, args }: Text, ...operands: readonly Expr[]): string =>
  `${intrinsic}(${[prelude.use('full_warp'), args(...operands)].join(', ')})`;

/** The value of another lane; of this one where there is no such lane. */
const shuffle = (intrinsic: string) =>
  operation({
    takes: { value: value('i32', 'u32', 'f32'), lane: value('u32') },
    returns: like('value'),
    named: 'shuffled',
    cuda: { print: ({ value, lane }, text) => ofWarp(intrinsic, text, value, lane) },
  });

export const warp = {
  'warp.barrier': operation({
    takes: {},
    returns: 'void',
    cuda: { print: () => '__syncwarp()' },
    removable: true,
  }),
  'warp.shuffle': shuffle('__shfl_sync'),
  'warp.shuffleXor': shuffle('__shfl_xor_sync'),
  'warp.shuffleUp': shuffle('__shfl_up_sync'),
  'warp.ballot': operation({
    takes: { test: value('bool') },
    returns: 'u32',
    named: 'ballot',
    cuda: { print: ({ test }, text) => ofWarp('__ballot_sync', text, test) },
  }),
  'warp.any': operation({
    takes: { test: value('bool') },
    returns: 'bool',
    named: 'any',
    cuda: { print: ({ test }, text, used) => `${ofWarp('__any_sync', text, test)}${used ? ' != 0' : ''}` },
  }),
  // The lanes whose value is the same.
  'warp.match': operation({
    takes: { value: value('u32', 'i32') },
    returns: 'u32',
    named: 'matching',
    cuda: { print: ({ value }, text) => ofWarp('__match_any_sync', text, value) },
  }),
};
