/** Accesses of memory, and what orders them. The PTX of loads, stores and atomics is in ptx.ts. */
import type { Cache, FenceOrder, Scope } from '../expression.js';
import type { MemoryName, Pointer, u32, ValueOf } from '../language.js';
import type { Space } from '../types.js';
import { choice, like, operation, pointer, pointerIn } from './operation.js';
import { calls } from './parts.js';
import { accessed, atomic, load, pointerType, store } from './ptx.js';

export const scope = choice(['cta', 'gpu', 'sys']);
const cache = choice(['keep', 'stream'], 'keep');

export interface LoadOptions {
  readonly order?: 'weak' | 'relaxed' | 'acquire';
  readonly scope?: Scope;
  readonly cache?: Cache;
}
export interface StoreOptions {
  readonly order?: 'weak' | 'relaxed' | 'release';
  readonly scope?: Scope;
  readonly cache?: Cache;
}
export interface AtomicOptions {
  readonly order: 'relaxed' | 'acquire' | 'release' | 'acq_rel';
  readonly scope: Scope;
}

type Word = 'i32' | 'u32' | 'u64';

/** The words that are changed atomically, and the common part of the operations that do so. */
const word = pointer('i32', 'u32', 'u64');
const atomics = {
  options: { order: choice(['relaxed', 'acquire', 'release', 'acq_rel']), scope },
  returns: like('pointer'),
  alone: { pointer: ['reads', 'writes'] },
  named: 'before',
} as const;

type Changing = 'add' | 'exch' | 'max' | 'min';

/** Changes a word by one other value; `change` is the JavaScript for it, of a type. */
const atomically = (what: Changing, change: (before: string, value: string, to: MemoryName) => string) =>
  operation({
    signature:
      calls<<T extends Word>(pointer: Pointer<T>, value: ValueOf[T], options: AtomicOptions) => ValueOf[T]>(),
    takes: { pointer: word, value: like('pointer') },
    ...atomics,
    cuda: (effect, { call }) => call(atomic(what, ['value'], accessed(effect)), effect),
    simulate: ({ pointer, value, order, scope }, machine) =>
      machine.update(pointer, value, order, scope, (before, by) =>
        change(before, by, pointerType(pointer).to),
      ),
  });

/** The one of two for which the comparison is true. In JavaScript a u32 is the i32 of its bits. */
const chosen = (compare: '>' | '<') => (before: string, value: string, to: MemoryName) =>
  to === 'u32'
    ? `${before} >>> 0 ${compare} ${value} >>> 0 ? ${before} : ${value}`
    : `${before} ${compare} ${value} ? ${before} : ${value}`;

export const memory = {
  load: operation({
    signature: calls<<T extends MemoryName>(pointer: Pointer<T>, options?: LoadOptions) => ValueOf[T]>(),
    takes: { pointer: pointer() },
    options: { order: choice(['weak', 'relaxed', 'acquire'], 'weak'), scope, cache },
    returns: like('pointer'),
    alone: { pointer: ['reads'] },
    named: 'loaded',
    cuda(effect, { place, call }) {
      const of = accessed(effect);
      if (of.space !== 'shared' || of.order !== 'weak') return call(load(of), effect);
      const text = place(effect.pointer);
      // C++ would promote them to a signed int.
      return of.to === 'u8' || of.to === 'u16' ? `u32(${text})` : text;
    },
    simulate: ({ pointer, order, scope }, machine) => machine.load(pointer, order, scope),
    unnoticed: ({ order }) => order === 'weak',
  }),

  store: operation({
    signature:
      calls<<T extends MemoryName>(pointer: Pointer<T>, value: ValueOf[T], options?: StoreOptions) => void>(),
    takes: { pointer: pointer(), value: like('pointer') },
    options: { order: choice(['weak', 'relaxed', 'release'], 'weak'), scope, cache },
    alone: { pointer: ['writes'] },
    cuda(effect, { place, args, call }) {
      const of = accessed(effect);
      if (of.space !== 'shared' || of.order !== 'weak') return call(store(of), effect);
      const value = args(effect.value);
      return `${place(effect.pointer)} = ${of.to === 'u8' || of.to === 'u16' ? `${of.to}(${value})` : value}`;
    },
    simulate: ({ pointer, value, order, scope }, machine) => machine.store(pointer, value, order, scope),
  }),

  /** Returns the value before. */
  atomicAdd: atomically('add', (before, value) => `${before} + ${value}`),
  /** The larger, or the smaller, of what is there and the value stays; each returns the value before. */
  atomicMax: atomically('max', chosen('>')),
  atomicMin: atomically('min', chosen('<')),
  /** Puts a value in the place of another, and returns that. */
  atomicExchange: atomically('exch', (_, value) => value),

  /** Puts `value` where `expected` is there; otherwise it writes nothing. Returns the value before. */
  atomicCas: operation({
    signature:
      calls<
        <T extends Word>(
          pointer: Pointer<T>,
          expected: ValueOf[T],
          value: ValueOf[T],
          options: AtomicOptions,
        ) => ValueOf[T]
      >(),
    takes: { pointer: word, expected: like('pointer'), value: like('pointer') },
    ...atomics,
    cuda: (effect, { call }) => call(atomic('cas', ['expected', 'value'], accessed(effect)), effect),
    simulate: ({ pointer, expected, value, order, scope }, machine) =>
      machine.update(pointer, value, order, scope, (_, value) => value, expected),
  }),

  /**
   * Orders this thread's earlier accesses before its later ones for observers in `scope`. `seq_cst` fences also stand
   * in one order: of two threads that store, fence and load, at least one sees what the other stored.
   */
  fence: operation({
    signature: calls<(scope: Scope, options?: { readonly order: FenceOrder }) => void>(),
    takes: { scope },
    options: { order: choice(['acq_rel', 'seq_cst'], 'acq_rel') },
    alone: {},
    cuda(effect, { call }) {
      const { scope, order } = effect;
      const [name, ptx] = order === 'seq_cst' ? ['sc_', 'sc'] : ['', order];
      return call(
        `DEVICE void fence_${name}${scope}() { asm volatile("fence.${ptx}.${scope};" ::: "memory"); }`,
        effect,
      );
    },
    simulate: ({ order, scope }, machine) => machine.fence(order, scope),
    removable: true,
  }),

  /**
   * Orders what this thread did in such memory, and has learned of by a barrier or an acquire, before the asynchronous
   * operations (bulk copies) behind it: this thread's, and those of others of its block that learn of it. One fence between
   * the accesses and the operations is enough: behind the barrier, by the thread that starts them.
   */
  proxyFence: operation({
    signature: calls<(space: Space) => void>(),
    takes: { space: choice(['shared', 'global']) },
    // By state space, because the general form also waits for the thread's global stores (MEMBAR.ALL.GPU).
    cuda(effect, { call }) {
      const { space } = effect;
      const ptx = `fence.proxy.async.${space === 'shared' ? 'shared::cta' : 'global'}`;
      return call(`DEVICE void proxy_fence_${space}() { asm volatile("${ptx};" ::: "memory"); }`, effect);
    },
    simulate: ({ space }, machine) => machine.proxyFence(space),
    removable: true,
  }),

  /** The bytes from one address to another of the same memory (a window, one array), to which `to` comes no earlier. */
  distance: operation({
    signature: calls<<T extends MemoryName, U extends MemoryName>(to: Pointer<T>, from: Pointer<U>) => u32>(),
    takes: { to: pointer(), from: pointer() },
    returns: 'u32',
    alone: {},
    named: 'bytes',
    cuda: `DEVICE u32 distance(const void* to, const void* from) {
  return u32(static_cast<const char*>(to) - static_cast<const char*>(from));
}`,
    refuses: ({ to, from }) => {
      const [a, b] = [to.type, from.type].map((type) => (type.kind === 'pointer' ? type.space : ''));
      return a === b ? undefined : `one address is in ${a} memory, the other in ${b} memory`;
    },
    simulate: ({ to, from }, machine) => machine.give('distance', to, from),
    unnoticed: () => true,
  }),

  /**
   * Asks for the cache line there to be brought into L2. It reads nothing: it needs no order, and comes to nothing
   * worse than a wasted fetch where it is too early.
   */
  prefetch: operation({
    signature: calls<<T extends MemoryName>(pointer: Pointer<T>) => void>(),
    takes: { pointer: pointerIn('global') },
    alone: {},
    // No "memory" clobber, for it reads nothing.
    cuda: `DEVICE void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}`,
    simulate: () => {},
  }),
};
