/**
 * Accesses through multicast addresses, which stand for the same place on all ranks of a node: the switch adds what all hold, or stores
 * to all. Each is an access of every rank's memory, in no order. The simulated machine runs them (`device.multicast` gives an address
 * there), and nvcc compiles them; Heddle's own tests never run them on GPUs.
 */
import type { Scope } from '../expression.js';
import type { Pointer, u32, ValueOf, v16 } from '../language.js';
import { type LoadOptions, type StoreOptions, scope } from './memory.js';
import { choice, like, operation, pointerIn } from './operation.js';
import { calls } from './parts.js';
import { accessed, accesses, suffix } from './ptx.js';

type Summed = 'f32' | 'bf16' | 'f16';
type Stored = 'u32' | 'u64' | 'f32' | 'v16';
type Accessed = ReturnType<typeof accessed>;

const qualifiers = ({ order, scope }: Accessed): string =>
  `${order === 'weak' ? '.weak' : `.${order}.${scope}`}.global`;
const words = (of: string, register: string): string =>
  ['x', 'y', 'z', 'w'].map((word) => `"${register}"(${of}.${word})`).join(', ');

const sum = (
  of: Accessed,
  type: Summed,
): string => `DEVICE v16 multimem_load_${type}${suffix(of)}(const v16* p) {
  v16 sums;
  asm volatile("multimem.ld_reduce${qualifiers(of)}.add${type === 'f32' ? '' : '.acc::f32'}.v4.${type === 'f32' ? type : `${type}x2`} {%0, %1, %2, %3}, [%4];"
               : ${words('sums', '=r')}
               : "l"(__cvta_generic_to_global(p))
               : "memory");
  return sums;
}`;

function storing(name: 'store' | 'add', instruction: string, of: Accessed): string {
  const { to } = of;
  const [type, given, value] =
    to === 'v16'
      ? ['v4.f32', '{%1, %2, %3, %4}', words('value', 'r')]
      : [accesses[to].ptx, '%1', `"${accesses[to].constraint}"(value)`];
  return `DEVICE void multimem_${name}${suffix(of)}(${to}* p, ${to} value) {
  asm volatile("multimem.${instruction.replace('.', `${qualifiers(of)}.`)}${type} [%0], ${given};"
               :
               : "l"(__cvta_generic_to_global(p)), ${value}
               : "memory");
}`;
}

export const multimem = {
  multimem: {
    /** The sum of what all ranks hold there, of each number of the vector: bf16 and f16 are added as f32, and rounded once. */
    load: operation({
      signature: calls<(pointer: Pointer<'v16'>, of: Summed, options?: Omit<LoadOptions, 'cache'>) => v16>(),
      takes: { pointer: pointerIn('global', 'v16'), of: choice(['f32', 'bf16', 'f16']) },
      options: { order: choice(['weak', 'relaxed', 'acquire'], 'weak'), scope },
      returns: 'v16',
      named: 'sums',
      cuda: (effect, { call }) => call(sum(accessed(effect), effect.of), effect),
      only: 'hopper and later',
      simulate: ({ pointer, of, order, scope }, machine) => machine.sumEverywhere(pointer, of, order, scope),
      unnoticed: ({ order }) => order === 'weak',
    }),
    /** Stores to all ranks. */
    store: operation({
      signature:
        calls<
          <T extends Stored>(
            pointer: Pointer<T>,
            value: ValueOf[T],
            options?: Omit<StoreOptions, 'cache'>,
          ) => void
        >(),
      takes: { pointer: pointerIn('global', 'u32', 'u64', 'f32', 'v16'), value: like('pointer') },
      options: { order: choice(['weak', 'relaxed', 'release'], 'weak'), scope },
      cuda: (effect, { call }) => call(storing('store', 'st.', accessed(effect)), effect),
      only: 'hopper and later',
      simulate: ({ pointer, value, order, scope }, machine) =>
        machine.elsewhere('everywhere', pointer, [], () => machine.store(pointer, value, order, scope)),
    }),
    /** Adds to a word of each rank, atomically there: one flag for all. */
    add: operation({
      signature:
        calls<
          (
            pointer: Pointer<'u32'>,
            value: u32,
            options: { readonly order: 'relaxed' | 'release'; readonly scope: Scope },
          ) => void
        >(),
      takes: { pointer: pointerIn('global', 'u32'), value: like('pointer') },
      options: { order: choice(['relaxed', 'release']), scope },
      cuda: (effect, { call }) => call(storing('add', 'red.add.', accessed(effect)), effect),
      only: 'hopper and later',
      simulate: ({ pointer, value, order, scope }, machine) =>
        machine.elsewhere('everywhere', pointer, [], () =>
          machine.update(pointer, value, order, scope, (before, by) => `${before} + ${by}`),
        ),
    }),
  },
};
