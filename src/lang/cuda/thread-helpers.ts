/** Helpers that several operations share: of warps, of time and of the asynchronous copy engine. CUDA only. */
import type { HelperTable } from '../operations/parts.js';

export const threadHelpers: HelperTable = {
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

  shared_address: {
    text: 'DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }',
  },
};
