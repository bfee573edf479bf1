// Bugs that were found in kernels that people use, each made small: wrong as it stands, right with -DMENDED. docs/ptx.md has the
// table. The line that the checker names has its number.
#include <cstdint>

#ifdef MENDED
#define MENDED_BY(what) what
#else
#define MENDED_BY(what)
#endif

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 1. A stage of a pipeline is read, and given back to the copy engine: reads of threads are not ordered with writes of TMA.
extern "C" __global__ void stage(const int* from, const int*, int*, int* out) {
  __shared__ alignas(16) int tile[32];
  __shared__ alignas(8) uint64_t full, empty;
  uint32_t filled = shared_address(&full), freed = shared_address(&empty), to = shared_address(tile), done;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(filled));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(freed));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  int sum = 0;
  for (int round = 0; round < 2; round++) {
    if (threadIdx.x == 0) {
      do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(freed), "r"(round ^ 1) : "memory"); while (!done);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(filled) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(to), "l"(from + 32 * round), "r"(filled) : "memory"); // 1
    }
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(filled), "r"(round) : "memory"); while (!done);
    sum += tile[threadIdx.x];
    MENDED_BY(asm volatile("fence.proxy.async.shared::cta;" ::: "memory");)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(freed) : "memory");
  }
  out[threadIdx.x] = sum;
}

// 2. All warps store rows, and one thread says so by a store that releases nothing.
extern "C" __global__ void tail(const int*, const int* mine, int* peer, int* out) {
  peer[32 + threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    MENDED_BY(__threadfence_system();)
    asm volatile("st.relaxed.sys.global.u32 [%0], 1;" ::"l"(peer) : "memory"); // 2
    int seen;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen != 1);
  }
  __syncthreads();
  out[threadIdx.x] = mine[32 + threadIdx.x];
}

// 3. All threads copy the input to where peers read it, and one releases at once: what others copied is not yet there.
extern "C" __global__ void copy_in(const int* input, const int* mine, int* peer, int* out) {
  peer[32 + threadIdx.x] = input[threadIdx.x];
  MENDED_BY(__syncthreads();)
  if (threadIdx.x == 0) { // 3
    asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(peer) : "memory");
    int seen;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen != 1);
  }
  __syncthreads();
  out[threadIdx.x] = mine[32 + threadIdx.x];
}

// 4. The last block adds up what all have stored: a fence stands before the counter, and none behind it.
__device__ unsigned count;
extern "C" __global__ void last(const int*, const int*, int* parts, int* out) {
  __shared__ bool am;
  if (threadIdx.x == 0) parts[blockIdx.x] = 1;
  __threadfence();
  if (threadIdx.x == 0) am = atomicAdd(&count, 1) == gridDim.x - 1; // 4
  __syncthreads();
  MENDED_BY(__threadfence();)
  if (!am || threadIdx.x != 0) return;
  int sum = 0;
  for (int i = 0; i < gridDim.x; i++) sum += parts[i];
  *out = sum;
}
