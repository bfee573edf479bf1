/**
 * Matrices that a warp group, four warps of which the first is a multiple of four, multiplies on the tensor cores (wgmma):
 * operands are tiles in shared memory, which the tensor cores read beside the threads; the sums are registers of the threads.
 *
 * All that has to do with the instruction is here: how sums lie in registers, the descriptors of operands, and what keeps the
 * compiler from touching sums that are under way.
 */
import type { Expr } from '../expression.js';
import type { bool, Registers, Tiles } from '../language.js';
import { showTile } from '../tile.js';
import { array, count, operation, tiles, value } from './operation.js';
import { calls, type Helpers } from './parts.js';
import { tileOf } from './tensors.js';

/** Rows of a, and of the sums, of a warp group. */
const groupRows = 64;
/** Bytes of a row that one instruction multiplies: 16 bf16, 32 e4m3. */
const stepBytes = 32;
const mostColumns = 256;
const operandTypes: readonly string[] = ['bf16', 'e4m3'];

/** Reads and changes that the compiler sees, so that it moves no use of the registers from one side to the other. */
const hold = `template <int n>
DEVICE void hold(f32 (&sum)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}`;
const holdWords = `template <int n>
DEVICE void hold(u32 (&word)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+r"(word[i])::"memory");
}`;

/** K-major, as the copy engine leaves a tile: 8 rows are one piece, and a row is as wide as the swizzle. */
const operandHelper = `template <u32 swizzle>
DEVICE u64 wgmma_operand(const void* tile) {
  constexpr u64 kind = swizzle == 128u ? 1u : swizzle == 64u ? 2u : 3u;
  // The address of the tile, and the distance between groups of 8 rows, both in units of 16 bytes.
  return kind << 62 | u64(8u * swizzle / 16u) << 32 | 1ull << 16 | (shared_address(tile) & 0x3ffffu) >> 4;
}`;

/** Words of a thread that hold a warp group's 64 rows of 32 bytes. */
const heldWords = 4;

/** One instruction: 64 rows, n columns, 32 bytes of each row of a and of b. `held`: a lies in the threads' registers. */
function instruction(n: number, type: string, held = false): string {
  const registers = n / 2;
  const k = type === 'bf16' ? 16 : 32;
  const lines = (of: (i: number) => string, perLine: number, between: string): string => {
    const all = Array.from({ length: registers }, (_, i) => of(i));
    const rows = Array.from({ length: Math.ceil(registers / perLine) }, (_, r) =>
      all.slice(r * perLine, (r + 1) * perLine).join(', '),
    );
    return rows.join(between);
  };
  // The last two say that neither operand is transposed; types of 8 bits cannot be.
  const ends = held ? 'add, 1, 1, 0' : type === 'bf16' ? 'add, 1, 1, 0, 0' : 'add, 1, 1';
  const left = held ? heldWords : 1;
  const of = Array.from({ length: left }, (_, i) => `%${registers + i}`).join(', ');
  const words = Array.from({ length: left }, (_, i) => `"r"(a[${i}])`).join(', ');
  return `DEVICE void wgmma_m64n${n}k${k}_${type}${held ? '_held' : ''}(f32 (&sum)[${registers}], ${held ? 'const u32* a' : 'u64 a'}, u64 b, u32 add) {
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %${registers + left + 1}, 0; "
               "wgmma.mma_async.sync.aligned.m64n${n}k${k}.f32.${type}.${type} {"
               "${lines((i) => `%${i}`, 16, ', "\n               "')}"
               "}, ${held ? `{${of}}` : of}, %${registers + left}, ${ends}; }"
               : ${lines((i) => `"+f"(sum[${i}])`, 6, ',\n                 ')}
               : ${held ? words : '"l"(a)'}, "l"(b), "r"(add));
}`;
}

/** A helper for a whole tile: one instruction behind the other along its rows. */
function multiplication(prelude: Helpers, n: number, type: string, swizzle: number): string {
  prelude.add(operandHelper);
  prelude.use(type);
  const one = prelude.add(instruction(n, type));
  const steps = swizzle / stepBytes;
  return `DEVICE void wgmma_n${n}_${type}_${swizzle}(f32 (&sum)[${n / 2}], const ${type}* a, const ${type}* b, bool begin) {
  const u64 rows = wgmma_operand<${swizzle}>(a), columns = wgmma_operand<${swizzle}>(b);
  ${one}(sum, rows, columns, begin ? 0u : 1u);${Array.from(
    { length: steps - 1 },
    (_, i) => `\n  ${one}(sum, rows + ${2 * (i + 1)}u, columns + ${2 * (i + 1)}u, 1u);`,
  ).join('')}
}`;
}

/** A helper for a whole tile b, where a lies in registers. */
function multiplicationOfHeld(prelude: Helpers, n: number, swizzle: number): string {
  prelude.add(operandHelper);
  prelude.use('bf16');
  const one = prelude.add(instruction(n, 'bf16', true));
  const steps = swizzle / stepBytes;
  return `DEVICE void wgmma_n${n}_held_${swizzle}(f32 (&sum)[${n / 2}], u32 (&a)[${heldWords * steps}], const bf16* b, bool begin) {
  const u64 columns = wgmma_operand<${swizzle}>(b);${Array.from(
    { length: steps },
    (_, i) =>
      `\n  ${one}(sum, a + ${heldWords * i}, columns + ${2 * i}u, ${i === 0 ? 'begin ? 0u : 1u' : '1u'});`,
  ).join('')}
}`;
}

function wrongHeldProduct(sum: Expr, a: Expr, b: Expr): string | undefined {
  const { type, rows, swizzle } = tileOf(b);
  if (type !== 'bf16') return `registers hold pairs of bf16, so b is bf16, not ${type}`;
  if (swizzle === 0) return unswizzled;
  const words = (heldWords * swizzle) / stepBytes;
  const lengthOf = (of: Expr): number => (of.type.kind === 'registers' ? of.type.length : 0);
  if (lengthOf(a) !== words)
    return `64 rows as wide as b are ${words} registers a thread, not ${lengthOf(a)}`;
  return wrongColumns(sum, rows);
}

function wrongProduct(sum: Expr, a: Expr, b: Expr): string | undefined {
  const [left, right] = [tileOf(a), tileOf(b)];
  if (!operandTypes.includes(left.type) || left.type !== right.type)
    return `operands are both bf16 or both e4m3, not ${left.type} and ${right.type}`;
  if (left.swizzle === 0) return unswizzled;
  if (left.swizzle !== right.swizzle)
    return `a and b must be equally wide, but they are ${showTile(left)} and ${showTile(right)}`;
  if (left.rows !== groupRows)
    return `a warp group multiplies ${groupRows} rows, but a has ${left.rows}; take .rows(first, ${groupRows})`;
  return wrongColumns(sum, right.rows);
}

const unswizzled =
  'the tensor cores take 8 rows of 16 bytes as one piece, which rows as they lie are not; use a tile with a swizzle';

function wrongColumns(sum: Expr, columns: number): string | undefined {
  if (columns % 8 !== 0 || columns > mostColumns)
    return `b has ${columns} rows; it must have a multiple of 8, up to ${mostColumns}`;
  const length = sum.type.kind === 'registers' ? sum.type.length : 0;
  if (length !== columns / 2)
    return `the sums of ${columns} columns are ${columns / 2} registers a thread, not ${length}`;
  return undefined;
}

export const wgmma = {
  /** Orders what a thread did before a product: before the first, and wherever it has read or written the sums since the last. */
  fence: operation({
    cuda(effect, { prelude, heldAt }) {
      prelude.add(hold);
      prelude.add(holdWords);
      const name = prelude.add(`template <typename... held>
DEVICE void wgmma_fence(held&... sums) {
  (hold(sums), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}`);
      return `${name}(${heldAt(effect).join(', ')})`;
    },
    only: 'hopper',
    simulate: (_, machine) => machine.check('products.fence'),
    removable: true,
  }),

  /**
   * Has the compiler finish here what was computed of these registers. Else it may move that behind products that follow, and run out of
   * registers for those that it copies.
   */
  hold: operation({
    signature: calls<(values: Registers<'f32'>) => void>(),
    takes: { values: array('f32') },
    cuda: hold,
    only: 'hopper',
    simulate: () => {},
  }),

  /**
   * Starts sum += a · bᵀ, or sum = a · bᵀ where `begin` is true: a is 64 rows, b as many as there are columns; a row is as
   * long as the swizzle. Until a `wait`, a and b are read, and the sums are nobody's.
   */
  multiply: operation({
    signature:
      calls<
        <T extends 'bf16' | 'e4m3'>(sum: Registers<'f32'>, a: Tiles<T>, b: Tiles<T>, begin: bool) => void
      >(),
    takes: { sum: array('f32'), a: tiles, b: tiles, begin: value('bool') },
    cuda(effect, { prelude, call }) {
      const { rows, type, swizzle } = tileOf(effect.b);
      return call(multiplication(prelude, rows, type, swizzle), effect);
    },
    refuses: ({ sum, a, b }) => wrongProduct(sum, a, b),
    only: 'hopper',
    simulate({ sum, a, b, begin }, machine) {
      const { rows, type, swizzle } = tileOf(b);
      machine.call('bringProduct', sum, a, b, begin, rows, swizzle, type === 'e4m3', machine.site);
      machine.meet();
    },
    together: { multiplies: true },
  }),

  /**
   * Starts such a product with a in registers, as pairs of bf16: of lane l of a warp, word 4s + i is of its row l / 4, 8 further down where i is odd, and elements
   * 16s + 2 (l % 4) and the next, 8 further where i is 2 or 3. Until a `wait`, these registers are nobody's either.
   */
  multiplyHeld: operation({
    signature:
      calls<
        <T extends 'bf16' | 'e4m3'>(
          sum: Registers<'f32'>,
          a: Registers<'u32'>,
          b: Tiles<T>,
          begin: bool,
        ) => void
      >(),
    takes: { sum: array('f32'), a: array('u32'), b: tiles, begin: value('bool') },
    cuda(effect, { prelude, call }) {
      const { rows, swizzle } = tileOf(effect.b);
      return call(multiplicationOfHeld(prelude, rows, swizzle), effect);
    },
    refuses: ({ sum, a, b }) => wrongHeldProduct(sum, a, b),
    only: 'hopper',
    simulate({ sum, a, b, begin }, machine) {
      const { rows, swizzle } = tileOf(b);
      machine.call('bringHeldProduct', sum, a, b, begin, rows, swizzle, machine.site);
      machine.meet();
    },
    together: { multiplies: true },
  }),

  /** The products that this thread has started since the last commit are a group. */
  commit: operation({
    cuda: 'DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }',
    only: 'hopper',
    simulate: (_, machine) => machine.check('products.commit'),
    removable: true,
  }),

  /** Waits until at most `pending` groups of this thread are unfinished: the sums of the others are its own again, and their a and b are read. */
  wait: operation({
    signature: calls<(pending: number) => void>(),
    takes: { pending: count('the number of pending groups', 7) },
    cuda(effect, { prelude, heldAt }) {
      prelude.add(hold);
      prelude.add(holdWords);
      const name = prelude.add(`template <int pending, typename... held>
DEVICE void wgmma_wait(held&... sums) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  (hold(sums), ...);
}`);
      return `${name}<${effect.pending}>(${heldAt(effect).join(', ')})`;
    },
    only: 'hopper',
    simulate: ({ pending }, machine) => machine.check('products.wait', pending),
    removable: true,
    misgiven: [{ operand: 'pending', description: 'pending + 1', count: (was) => was + 1 }],
  }),
};
