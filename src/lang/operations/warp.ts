/** What the 32 lanes of a warp do together: all of them take part. */
import type { Expr } from '../expression.js';
import { count, like, type NamedHelper, operation, pointerIn, type Text, value } from './operation.js';

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

  // Four 8×8 matrices of 16-bit elements, their rows 16 bytes each: lane 8 · m + r names row r of matrix m. Word m of
  // lane 4 · r + c is then elements 2 · c and 2 · c + 1 of that row.
  'warp.ldmatrix': operation({
    takes: { row: pointerIn('shared', 'v16') },
    returns: 'v16',
    named: 'matrices',
    cuda: {
      name: 'ldmatrix',
      text: `DEVICE v16 ldmatrix(const v16* row) {
  v16 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(shared_address(row))
               : "memory");
  return m;
}`,
      needs: ['v16', 'shared_address'],
    },
  }),
  // a · bᵀ + sum: 16×16 and 8×16 elements of bf16, 16×8 of f32, spread over the lanes as docs/language.md says.
  'warp.mma': operation({
    takes: { a: value('v16'), b: value('v16'), half: count('the half of b', 1), sum: value('v16') },
    returns: 'v16',
    named: 'product',
    cuda: {
      print({ a, b, half, sum }, { prelude, args }) {
        return `${prelude.add(multiply.name, multiply.name, multiply)}<${half}>(${args(a, b, sum)})`;
      },
    },
  }),
};

const multiply: NamedHelper = {
  name: 'mma',
  text: `template <int half>
DEVICE v16 mma(v16 a, v16 b, v16 sum) {
  f32 d0 = bits_f32(sum.x), d1 = bits_f32(sum.y), d2 = bits_f32(sum.z), d3 = bits_f32(sum.w);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(half == 0 ? b.x : b.z), "r"(half == 0 ? b.y : b.w));
  return v16{bits_u32(d0), bits_u32(d1), bits_u32(d2), bits_u32(d3)};
}`,
  needs: ['v16', 'bits_f32', 'bits_u32'],
};
