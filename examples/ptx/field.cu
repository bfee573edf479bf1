// Bugs that were found in kernels that people use, each made small: wrong as it stands, right with -DMENDED. The line that the
// checker names has its number.
#include <cstdint>

#ifdef MENDED
#define MENDED_BY(what) what
#else
#define MENDED_BY(what)
#endif

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 1. A stage of a pipeline is read, and given back to the copy engine: reads of threads are not ordered with writes of TMA.
// Met in: deepseek-ai/DeepEP#621, mended in #642; NVIDIA/nccl-extensions#8.
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
// Met in: AMD-AGI/Primus-Turbo#482, on other GPUs.
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
// Met in: The all-reduces of TensorRT-LLM as FlashInfer has them, and PyTorch's one-shot all-reduce that copies its input.
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
// Met in: The form of threadFenceReduction among CUDA's samples.
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

__device__ void load(uint32_t to, const int* from, uint32_t full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 64;" ::"r"(full) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];" ::"r"(to), "l"(from), "r"(full) : "memory"); // 5
}

// 5. Rows go through two stages. Before a stage is filled again, one store may still be under way: that which reads it.
// Met in: deepseek-ai/DeepEP#657.
extern "C" __global__ void prefetch(const int* from, const int*, int* to, int* out) {
  __shared__ alignas(16) int stages[2][16];
  __shared__ alignas(8) uint64_t full[2];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; stage++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[stage])));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (int row = 0; row < 2; row++) load(shared_address(stages[row]), from + 16 * row, shared_address(&full[row]));
    for (int row = 0; row < 4; row++) {
      uint32_t stage = shared_address(stages[row % 2]), filled = shared_address(&full[row % 2]), done;
      do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(filled), "r"(row / 2) : "memory"); while (!done);
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 64;" ::"l"(to + 16 * row), "r"(stage) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#ifdef MENDED
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#else
      asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
#endif
      if (row < 2) load(stage, from + 16 * (row + 2), filled);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  __syncthreads();
  out[threadIdx.x] = to[32 + threadIdx.x];
}

// 6. One thread stores a tile by TMA and waits for that; the others fill the tile anew at once.
// Met in: tile-ai/TileOPs#1550.
extern "C" __global__ void epilogue(const int* from, const int*, int* to, int* out) {
  __shared__ alignas(16) int tile[32];
  for (int wave = 0; wave < 2; wave++) {
    MENDED_BY(__syncthreads();)
    tile[threadIdx.x] = from[32 * wave + threadIdx.x]; // 6
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" ::"l"(to + 32 * wave), "r"(shared_address(tile)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  __syncthreads();
  out[threadIdx.x] = to[32 + threadIdx.x];
}

struct alignas(128) TensorMap { char bytes[128]; };

// 7. A tensor map goes on to the next group of rows, while the copies of the group before may still read it.
// Met in: deepseek-ai/DeepGEMM#343.
extern "C" __global__ void regroup(const __grid_constant__ TensorMap base, const int* from, TensorMap* map, int* out) {
  __shared__ alignas(128) int tiles[2][32];
  __shared__ alignas(128) TensorMap own;
  __shared__ alignas(8) uint64_t full[2];
  if (threadIdx.x == 0) {
    for (int group = 0; group < 2; group++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[group])));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    own = base;
    for (int group = 0; group < 2; group++) {
      uint32_t filled = shared_address(&full[group]);
      asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared_address(&own)), "l"(from + 32 * group) : "memory");
#ifdef MENDED
      uint32_t done;
      if (group > 0) do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared_address(&full[group - 1])) : "memory"); while (!done);
#endif
      *map = own; // 7
      asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
      asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(filled) : "memory");
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];" ::"r"(shared_address(tiles[group])), "l"(map), "r"(0), "r"(filled) : "memory");
    }
    for (int group = 0; group < 2; group++) {
      uint32_t done;
      do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared_address(&full[group])) : "memory"); while (!done);
    }
  }
  __syncthreads();
  out[threadIdx.x] = tiles[0][threadIdx.x] + tiles[1][threadIdx.x];
}

// 8. A thread counts the rounds up at the end, while other blocks may still ask which half of a buffer is the round's.
// Met in: ROCm/mori#87, on other GPUs.
__device__ int round_number = 1;
__device__ unsigned arrived;
extern "C" __global__ void meet(const int*, const int* mine, int* peer, int* out) {
  if (threadIdx.x != 0) return;
  const int at_start = round_number;
  __threadfence();
  atomicAdd(&arrived, 1);
  if (blockIdx.x == 0) {
    unsigned came;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(came) : "l"(&arrived) : "memory"); while (came % gridDim.x != 0);
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(peer), "r"(at_start) : "memory");
  }
  int seen;
  do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen != at_start);
#ifdef MENDED
  out[blockIdx.x] = at_start & 1;
#else
  out[blockIdx.x] = round_number & 1;
#endif
  if (blockIdx.x == 0) round_number = at_start + 1; // 8
}
