/**
 * Helpers for what a thread does with other threads, with time and with the asynchronous copy engine. CUDA only.
 *
 * Bulk copies run in the async proxy, a separate path to memory. Accesses of the two paths are ordered only where a
 * proxy fence lies between them, so each helper that starts a copy fences first: whatever this thread wrote, or has
 * learned of through a barrier or an acquire, is then visible to the copy. One fence in the issuing thread is enough,
 * because the fence needs to lie on the causality path, not in every writer. In the other direction the completion
 * (complete_tx of the mbarrier, wait_group) is the fence, so waiting for it is enough.
 */
import type { HelperTable } from './helper.js';

export const threadHelpers: HelperTable = {
  // fence.acq_rel orders all earlier accesses of the thread before all later ones for observers in the scope.
  fence_cta: { text: 'DEVICE void fence_cta() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }' },
  fence_gpu: { text: 'DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }' },
  fence_sys: { text: 'DEVICE void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }' },
  // fence.sc does that too, and all of them that include each other stand in one order.
  fence_sc_cta: { text: 'DEVICE void fence_sc_cta() { asm volatile("fence.sc.cta;" ::: "memory"); }' },
  fence_sc_gpu: { text: 'DEVICE void fence_sc_gpu() { asm volatile("fence.sc.gpu;" ::: "memory"); }' },
  fence_sc_sys: { text: 'DEVICE void fence_sc_sys() { asm volatile("fence.sc.sys;" ::: "memory"); }' },

  // All 32 lanes take part in a warp operation.
  full_warp: { text: 'constexpr u32 full_warp = 0xffffffffu;' },

  // The clock that the GPUs of a node roughly share; the SM's own counter (clock64) differs between SMs.
  clock_ns: {
    text: `DEVICE u64 clock_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}`,
  },

  /** Whether a wait has lasted too long; the first look starts the clock. */
  past_limit: {
    text: `DEVICE bool past_limit(u64& start, u32 limit_us) {
  const u64 now = clock_ns();
  if (start == 0u) start = now;
  return now - start >= u64(limit_us) * 1000u;
}`,
    needs: ['clock_ns'],
  },

  // A hint: no "memory" clobber, for it reads nothing.
  prefetch: {
    text: `DEVICE void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)));
}`,
  },

  // Programmatic dependent launch. wait returns when the grids before have ended and their writes are visible.
  await_previous: {
    text: 'DEVICE void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }',
  },
  release_next: {
    text: 'DEVICE void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }',
  },

  shared_address: {
    text: 'DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }',
  },
  // Two fences by state space, because the general form also waits for the thread's global stores (MEMBAR.ALL.GPU).
  fence_async: {
    text: `DEVICE void fence_async() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}`,
  },
  bulk_load: {
    text: `DEVICE void bulk_load(v16* to, const v16* from, u32 bytes, u64* barrier) {
  fence_async();
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}`,
    needs: ['v16', 'shared_address', 'fence_async'],
  },
  bulk_store: {
    text: `DEVICE void bulk_store(v16* to, const v16* from, u32 bytes) {
  fence_async();
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}`,
    needs: ['v16', 'shared_address', 'fence_async'],
  },
  bulk_commit: {
    text: 'DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }',
  },
  bulk_wait: {
    text: `template <int pending>
DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}`,
  },
  bulk_wait_reads: {
    text: `template <int pending>
DEVICE void bulk_wait_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}`,
  },

  // The fence makes the initialised barrier known to the copy engine; other threads learn of it at a block barrier.
  mbarrier_init: {
    text: `DEVICE void mbarrier_init(u64* barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}`,
    needs: ['shared_address'],
  },
  mbarrier_expect: {
    text: `DEVICE void mbarrier_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}`,
    needs: ['shared_address'],
  },
  // try_wait suspends the thread for a while in hardware and has acquire order at block scope by default.
  mbarrier_await: {
    text: `DEVICE void mbarrier_await(u64* barrier, u32 parity) {
  u32 done = 0u;
  while (done == 0u) {
    asm volatile("{ .reg .pred complete; mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2; "
                 "selp.u32 %0, 1, 0, complete; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  }
}`,
    needs: ['shared_address'],
  },
};
