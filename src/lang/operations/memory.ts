/** Accesses of memory, and what orders them. The PTX of loads, stores and atomics is in cuda/memory.ts. */
import {
  atomicAddHelper,
  hostLoadHelper,
  hostStoreHelper,
  loadHelper,
  pointerType,
  storeHelper,
} from '../cuda/memory.js';
import { choice, like, operation, pointer, pointerIn } from './operation.js';

export const scope = choice(['cta', 'gpu', 'sys']);
const cache = choice(['keep', 'stream'], 'keep');

export const memory = {
  load: operation({
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
    host: ({ pointer }, { prelude, args }) =>
      `${hostLoadHelper(prelude, pointerType(pointer).to)}(${args(pointer)})`,
    unnoticed: ({ order }) => order === 'weak',
  }),

  store: operation({
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
    host: ({ pointer, value }, { prelude, args }) =>
      `${hostStoreHelper(prelude, pointerType(pointer).to)}(${args(pointer, value)})`,
  }),

  atomicAdd: operation({
    takes: { pointer: pointer('i32', 'u32', 'u64'), value: like('pointer') },
    options: { order: choice(['relaxed', 'acquire', 'release', 'acq_rel']), scope },
    returns: like('pointer'),
    alone: { pointer: ['reads', 'writes'] },
    named: 'before',
    cuda: {
      print(effect, { prelude, args }) {
        const { to, space } = pointerType(effect.pointer);
        return `${atomicAddHelper(prelude, to, space, effect)}(${args(effect.pointer, effect.value)})`;
      },
    },
  }),

  // It orders all earlier accesses of the thread before all later ones for observers in the scope; those that are
  // seq_cst, and include each other, stand in one order besides.
  fence: operation({
    takes: { scope },
    options: { order: choice(['acq_rel', 'seq_cst'], 'acq_rel') },
    returns: 'void',
    alone: {},
    cuda: {
      print({ scope, order }, { prelude }) {
        const name = order === 'seq_cst' ? `fence_sc_${scope}` : `fence_${scope}`;
        const ptx = order === 'seq_cst' ? 'sc' : order;
        const text = `DEVICE void ${name}() { asm volatile("fence.${ptx}.${scope};" ::: "memory"); }`;
        return `${prelude.add(name, name, { text })}()`;
      },
    },
    removable: true,
  }),

  // Of pointers into one piece of memory.
  distance: operation({
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
    unnoticed: () => true,
  }),

  // A hint: no "memory" clobber, for it reads nothing.
  prefetch: operation({
    takes: { pointer: pointerIn('global') },
    returns: 'void',
    alone: {},
    cuda: {
      name: 'prefetch',
      text: `DEVICE void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}`,
    },
  }),
};
