/**
 * What the threads of a block do together, and with the copy engine.
 *
 * Bulk copies run in the async proxy, a separate path to memory. Accesses of the two paths are ordered only where a
 * proxy fence lies between them, so each helper that starts a copy fences first: whatever this thread wrote, or has
 * learned of through a barrier or an acquire, is then visible to the copy. One fence in the issuing thread is enough,
 * because the fence needs to lie on the causality path, not in every writer. In the other direction the completion
 * (complete_tx of the mbarrier, wait_group) is the fence, so waiting for it is enough.
 */
import type { Prelude } from '../cuda/prelude.js';
import { count, misgivenBy, type NamedHelper, operation, optional, pointerIn, value } from './operation.js';

const global = pointerIn('global', 'v16');
const shared = pointerIn('shared', 'v16');
/** mbarriers are u64 elements of shared memory. */
const barrier = pointerIn('shared', 'u64');
/** More than an hour: as good as none, for what the copy engine or the block's own threads end. */
const noLimit = 0xffff_ffff;
const pending = count('the number of pending groups', 63);

export const block = {
  barrier: operation({
    takes: {},
    returns: 'void',
    cuda: { print: () => '__syncthreads()' },
    removable: true,
  }),

  // Barrier `id` (1 to 15) of the warps that come to it, as many as make `threads`.
  'group.barrier': operation({
    takes: { id: value('u32'), threads: value('u32') },
    returns: 'void',
    cuda: {
      name: 'group_barrier',
      text: `DEVICE void group_barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}`,
    },
    removable: true,
  }),

  'bulk.load': operation({
    takes: { to: shared, from: global, bytes: value('u32'), barrier },
    returns: 'void',
    cuda: {
      name: 'bulk_load',
      text: `DEVICE void bulk_load(v16* to, const v16* from, u32 bytes, u64* barrier) {
  fence_async();
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}`,
      needs: ['v16', 'shared_address', 'fence_async'],
    },
  }),
  'bulk.store': operation({
    takes: { to: global, from: shared, bytes: value('u32') },
    returns: 'void',
    cuda: {
      name: 'bulk_store',
      text: `DEVICE void bulk_store(v16* to, const v16* from, u32 bytes) {
  fence_async();
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}`,
      needs: ['v16', 'shared_address', 'fence_async'],
    },
  }),
  'bulk.commit': operation({
    takes: {},
    returns: 'void',
    cuda: {
      name: 'bulk_commit',
      text: 'DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }',
    },
    removable: true,
  }),
  // Until at most `pending` of this thread's groups are unfinished.
  'bulk.wait': operation({
    takes: { pending },
    returns: 'void',
    cuda: {
      print: ({ pending }, { prelude }) =>
        `${groupWait(prelude, 'bulk_wait', 'cp.async.bulk.wait_group')}<${pending}>()`,
    },
    removable: true,
    weaker: { op: 'bulk.waitReads', description: 'waits for reads only' },
  }),
  // … until their sources in shared memory may be overwritten.
  'bulk.waitReads': operation({
    takes: { pending },
    returns: 'void',
    cuda: {
      print: ({ pending }, { prelude }) =>
        `${groupWait(prelude, 'bulk_wait_reads', 'cp.async.bulk.wait_group.read')}<${pending}>()`,
    },
    removable: true,
  }),

  // 16 bytes, copied beside the thread that starts it, by the path of ordinary accesses: nothing to fence.
  'async.load': operation({
    takes: { to: shared, from: global },
    returns: 'void',
    cuda: {
      name: 'async_load',
      text: `DEVICE void async_load(v16* to, const v16* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from))
               : "memory");
}`,
      needs: ['v16', 'shared_address'],
    },
  }),
  'async.commit': operation({
    takes: {},
    returns: 'void',
    cuda: {
      name: 'async_commit',
      text: 'DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }',
    },
    removable: true,
  }),
  // Until at most `pending` of this thread's groups are unfinished, and seen by it; others see them behind a barrier.
  'async.wait': operation({
    takes: { pending },
    returns: 'void',
    cuda: {
      print: ({ pending }, { prelude }) =>
        `${groupWait(prelude, 'async_wait', 'cp.async.wait_group')}<${pending}>()`,
    },
    removable: true,
    misgiven: [{ operand: 'pending', description: 'pending + 1', count: (was) => was + 1 }],
  }),

  // The fence makes the initialised barrier known to the copy engine; other threads learn of it at a block barrier.
  'mbarrier.init': operation({
    takes: { barrier, count: value('u32') },
    returns: 'void',
    cuda: {
      name: 'mbarrier_init',
      text: `DEVICE void mbarrier_init(u64* barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}`,
      needs: ['shared_address'],
    },
    removable: true,
    misgiven: [misgivenBy('count', 1)],
  }),
  // Arrives, and announces the bytes that copies will bring.
  'mbarrier.expect': operation({
    takes: { barrier, bytes: value('u32') },
    returns: 'void',
    cuda: {
      name: 'mbarrier_expect',
      text: `DEVICE void mbarrier_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}`,
      needs: ['shared_address'],
    },
    removable: true,
    // Bytes come in vectors.
    misgiven: [misgivenBy('bytes', 16), misgivenBy('bytes', -16)],
  }),
  'mbarrier.arrive': operation({
    takes: { barrier },
    returns: 'void',
    cuda: {
      name: 'mbarrier_arrive',
      text: `DEVICE void mbarrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}`,
      needs: ['shared_address'],
    },
    removable: true,
  }),
  // Until the phase of that parity is over. try_wait suspends the thread for a while in hardware and has acquire
  // order at block scope by default.
  'mbarrier.await': operation({
    takes: { barrier, parity: value('u32') },
    options: { limit: optional('u32', noLimit) },
    returns: 'bool',
    named: 'over',
    cuda: {
      print({ barrier, parity, limit }, { prelude, args }, used) {
        if (limit.kind === 'const' && limit.value === noLimit && !used) {
          return `${prelude.add(mbarrierAwait.name, mbarrierAwait.name, mbarrierAwait)}(${args(barrier, parity)})`;
        }
        const { name } = mbarrierAwaitFor;
        return `${prelude.add(name, name, mbarrierAwaitFor)}(${args(barrier, parity, limit)})`;
      },
    },
    removable: true,
  }),
};

const tryWait = `asm volatile("{ .reg .pred complete; mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2; "
                 "selp.u32 %0, 1, 0, complete; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");`;

const mbarrierAwait: NamedHelper = {
  name: 'mbarrier_await',
  text: `DEVICE void mbarrier_await(u64* barrier, u32 parity) {
  u32 done = 0u;
  while (done == 0u) {
    ${tryWait}
  }
}`,
  needs: ['shared_address'],
};

const mbarrierAwaitFor: NamedHelper = {
  name: 'mbarrier_await_for',
  text: `DEVICE bool mbarrier_await_for(u64* barrier, u32 parity, u32 limit_us) {
  u64 start = 0u;
  for (u32 done = 0u;;) {
    ${tryWait}
    if (done != 0u) return true;
    if (limit_us == 0u || past_limit(start, limit_us)) return false;
  }
}`,
  needs: ['shared_address', 'past_limit'],
};

function groupWait(prelude: Prelude, name: string, instruction: string): string {
  return prelude.add(name, name, {
    text: `template <int pending>
DEVICE void ${name}() {
  asm volatile("${instruction} %0;" ::"n"(pending) : "memory");
}`,
  });
}
