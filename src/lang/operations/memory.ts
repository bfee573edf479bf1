/** Accesses of memory, and what orders them. The PTX of loads, stores and atomics is in ptx.ts. */
import type { Cache, FenceOrder, Scope } from '../expression.js';
import type { MemoryName, Pointer, u32, ValueOf } from '../language.js';
import type { Space } from '../types.js';
import { choice, like, operation, pointer, pointerIn } from './operation.js';
import { is } from './parts.js';
import { atomicHelper, loadHelper, pointerType, storeHelper } from './ptx.js';

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

export const memory = {
  load: operation({
    signature: is<<T extends MemoryName>(pointer: Pointer<T>, options?: LoadOptions) => ValueOf[T]>(),
    takes: { pointer: pointer() },
    options: { order: choice(['weak', 'relaxed', 'acquire'], 'weak'), scope, cache },
    returns: like('pointer'),
    alone: { pointer: ['reads'] },
    named: 'loaded',
    cuda: {
      print(effect, { prelude, place, args }) {
        const { to, space } = pointerType(effect.pointer);
        if (space === 'shared' && effect.order === 'weak') return place(effect.pointer);
        return `${loadHelper(prelude, to, space, effect)}(${args(effect.pointer)})`;
      },
    },
    simulate: ({ pointer, order, scope }, machine) => machine.load(pointer, order, scope),
    unnoticed: ({ order }) => order === 'weak',
  }),

  store: operation({
    signature:
      is<<T extends MemoryName>(pointer: Pointer<T>, value: ValueOf[T], options?: StoreOptions) => void>(),
    takes: { pointer: pointer(), value: like('pointer') },
    options: { order: choice(['weak', 'relaxed', 'release'], 'weak'), scope, cache },
    returns: 'void',
    alone: { pointer: ['writes'] },
    cuda: {
      print(effect, { prelude, place, args }) {
        const { to, space } = pointerType(effect.pointer);
        if (space === 'shared' && effect.order === 'weak') {
          const cut = to === 'u8' || to === 'u16' ? `${to}(${args(effect.value)})` : args(effect.value);
          return `${place(effect.pointer)} = ${cut}`;
        }
        return `${storeHelper(prelude, to, space, effect)}(${args(effect.pointer, effect.value)})`;
      },
    },
    simulate: ({ pointer, value, order, scope }, machine) => machine.store(pointer, value, order, scope),
  }),

  /** Returns the value before. */
  atomicAdd: operation({
    signature:
      is<
        <T extends 'i32' | 'u32' | 'u64'>(
          pointer: Pointer<T>,
          value: ValueOf[T],
          options: AtomicOptions,
        ) => ValueOf[T]
      >(),
    takes: { pointer: pointer('i32', 'u32', 'u64'), value: like('pointer') },
    options: { order: choice(['relaxed', 'acquire', 'release', 'acq_rel']), scope },
    returns: like('pointer'),
    alone: { pointer: ['reads', 'writes'] },
    named: 'before',
    cuda: {
      print(effect, { prelude, args }) {
        const { to, space } = pointerType(effect.pointer);
        return `${atomicHelper(prelude, 'add', to, space, effect)}(${args(effect.pointer, effect.value)})`;
      },
    },
    simulate: ({ pointer, value, order, scope }, machine) =>
      machine.update(pointer, value, order, scope, (before, value) => `${before} + ${value}`),
  }),

  /** Puts a value in the place of another, and returns that. */
  atomicExchange: operation({
    signature:
      is<
        <T extends 'i32' | 'u32' | 'u64'>(
          pointer: Pointer<T>,
          value: ValueOf[T],
          options: AtomicOptions,
        ) => ValueOf[T]
      >(),
    takes: { pointer: pointer('i32', 'u32', 'u64'), value: like('pointer') },
    options: { order: choice(['relaxed', 'acquire', 'release', 'acq_rel']), scope },
    returns: like('pointer'),
    alone: { pointer: ['reads', 'writes'] },
    named: 'before',
    cuda: {
      print(effect, { prelude, args }) {
        const { to, space } = pointerType(effect.pointer);
        return `${atomicHelper(prelude, 'exch', to, space, effect)}(${args(effect.pointer, effect.value)})`;
      },
    },
    simulate: ({ pointer, value, order, scope }, machine) =>
      machine.update(pointer, value, order, scope, (_, value) => value),
  }),

  /** The same where `expected` is there; otherwise it reads, and writes nothing. Returns the value before. */
  atomicCas: operation({
    signature:
      is<
        <T extends 'i32' | 'u32' | 'u64'>(
          pointer: Pointer<T>,
          expected: ValueOf[T],
          value: ValueOf[T],
          options: AtomicOptions,
        ) => ValueOf[T]
      >(),
    takes: { pointer: pointer('i32', 'u32', 'u64'), expected: like('pointer'), value: like('pointer') },
    options: { order: choice(['relaxed', 'acquire', 'release', 'acq_rel']), scope },
    returns: like('pointer'),
    alone: { pointer: ['reads', 'writes'] },
    named: 'before',
    cuda: {
      print(effect, { prelude, args }) {
        const { to, space } = pointerType(effect.pointer);
        const helper = atomicHelper(prelude, 'cas', to, space, effect);
        return `${helper}(${args(effect.pointer, effect.expected, effect.value)})`;
      },
    },
    simulate: ({ pointer, expected, value, order, scope }, machine) =>
      machine.update(pointer, value, order, scope, (_, value) => value, expected),
  }),

  /**
   * Orders this thread's earlier accesses before its later ones for observers in `scope`. `seq_cst` fences also stand
   * in one order: of two threads that store, fence and load, at least one sees what the other stored.
   */
  fence: operation({
    signature: is<(scope: Scope, options?: { readonly order: FenceOrder }) => void>(),
    takes: { scope },
    options: { order: choice(['acq_rel', 'seq_cst'], 'acq_rel') },
    returns: 'void',
    alone: {},
    cuda: {
      print({ scope, order }, { prelude }) {
        const name = order === 'seq_cst' ? `fence_sc_${scope}` : `fence_${scope}`;
        const ptx = order === 'seq_cst' ? 'sc' : order;
        const text = `DEVICE void ${name}() { asm volatile("fence.${ptx}.${scope};" ::: "memory"); }`;
        return `${prelude.add({ name, text })}()`;
      },
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
    signature: is<(space: Space) => void>(),
    takes: { space: choice(['shared', 'global']) },
    returns: 'void',
    cuda: {
      // By state space, because the general form also waits for the thread's global stores (MEMBAR.ALL.GPU).
      print({ space }, { prelude }) {
        const name = `proxy_fence_${space}`;
        const ptx = space === 'shared' ? 'shared::cta' : 'global';
        const text = `DEVICE void ${name}() { asm volatile("fence.proxy.async.${ptx};" ::: "memory"); }`;
        return `${prelude.add({ name, text })}()`;
      },
    },
    simulate: ({ space }, machine) => machine.proxyFence(space),
    removable: true,
  }),

  /** The bytes from one address to another of the same memory, to which `to` comes no earlier: a place in a window, say. */
  distance: operation({
    signature: is<<T extends MemoryName, U extends MemoryName>(to: Pointer<T>, from: Pointer<U>) => u32>(),
    takes: { to: pointer(), from: pointer() },
    returns: 'u32',
    alone: {},
    named: 'bytes',
    cuda: {
      name: 'distance',
      text: `DEVICE u32 distance(const void* to, const void* from) {
  return u32(static_cast<const char*>(to) - static_cast<const char*>(from));
}`,
    },
    simulate: ({ to, from }, machine) => machine.give('distance', to, from),
    unnoticed: () => true,
  }),

  /**
   * Asks for the cache line there to be brought into L2. It reads nothing: it needs no order, and comes to nothing
   * worse than a wasted fetch where it is too early.
   */
  prefetch: operation({
    signature: is<<T extends MemoryName>(pointer: Pointer<T>) => void>(),
    takes: { pointer: pointerIn('global') },
    returns: 'void',
    alone: {},
    cuda: {
      name: 'prefetch',
      // No "memory" clobber, for it reads nothing.
      text: `DEVICE void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}`,
    },
    simulate: () => {},
  }),
};
