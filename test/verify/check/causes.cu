// Kernels with one mistake each, or none but by the letter of PTX's memory model. A line that a tried change stands beside has its name.

__device__ void meet(unsigned* mine, unsigned* peer) {
  asm volatile("st.relaxed.sys.global.u32 [%0], 1;" ::"l"(peer) : "memory");
  unsigned seen;
  do asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen != 1);
}

// Data that the stream wrote before and writes again behind, between two barriers of all GPUs that release and acquire nothing.
extern "C" __global__ void boundary(const float* theirs, unsigned* mine, unsigned* peer, float* out) {
  if (threadIdx.x == 0) meet(mine, peer);
  __syncthreads();
  out[threadIdx.x] = theirs[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) meet(mine + 1, peer + 1);
}

// Stores before a flag that releases nothing, which the peer's next launch reads: no end of its launch orders what this GPU stores.
extern "C" __global__ void unreleased(const float*, unsigned* mine, unsigned* peer, float*) {
  peer[32 + threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) meet(mine, peer);
}
extern "C" __global__ void behind(const float*, const unsigned* mine, unsigned*, unsigned* out) {
  out[threadIdx.x] = mine[32 + threadIdx.x];
}

// A word and its flag in one vector.
extern "C" __global__ void packet(const float*, uint2* mine, uint2* peer, unsigned* out) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1,%2};" ::"l"(peer + threadIdx.x), "r"(100 + threadIdx.x), "r"(7u) : "memory");
  unsigned word, flag;
  do asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];" : "=r"(word), "=r"(flag) : "l"(mine + threadIdx.x) : "memory"); while (flag != 7u);
  out[threadIdx.x] = word;
}

// A flag that is released, and seen by a volatile load.
extern "C" __global__ void waits(const float*, volatile unsigned* mine, volatile unsigned* peer, float* out) {
  peer[1] = 5;
  __threadfence_system();
  *peer = 1;
  while (*mine == 0);
  out[0] = ((const unsigned*)mine)[1];
}

__device__ unsigned count;
// The last block adds up what all wrote, and acquires nothing; or nobody releases anything either.
template <bool fences> __device__ void sum(float* parts, float* out) {
  __shared__ bool am;
  if (threadIdx.x == 0) parts[blockIdx.x] = 1;
  if (fences) __threadfence();
  if (threadIdx.x == 0) am = atomicAdd(&count, 1) == gridDim.x - 1; // acquire
  __syncthreads();
  if (am && threadIdx.x == 0) { float sum = 0; for (int i = 0; i < gridDim.x; i++) sum += parts[i]; *out = sum; }
}
extern "C" __global__ void last(const float*, float* parts, float*, float* out) { sum<true>(parts, out); }
extern "C" __global__ void bare(const float*, float* parts, float*, float* out) { sum<false>(parts, out); }

// The CUDA Programming Guide's: all threads of the last block add up by volatile loads.
extern "C" __global__ void guide(const float*, volatile unsigned* parts, unsigned*, unsigned* out) {
  __shared__ bool am;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = 1;
    __threadfence();
    am = atomicAdd(&count, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (am && threadIdx.x == 1) { unsigned sum = 0; for (int i = 0; i < gridDim.x; i++) sum += parts[i]; *out = sum; }
}

// The last block has seen the counts of all others, and sets the counter back by an ordinary store.
extern "C" __global__ void counter(const float*, unsigned* mine, unsigned*, float*) {
  if (threadIdx.x == 0 && atomicAdd(mine, 1) == gridDim.x - 1) *mine = 0;
}
// Any block sets it back.
extern "C" __global__ void careless(const float*, unsigned* mine, unsigned*, float*) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *mine = 0;
  else if (threadIdx.x == 0) atomicAdd(mine, 1);
}

// One arrival too many for a phase that lacks bytes, and a wait for its end.
extern "C" __global__ void overfull(const float*, unsigned*, unsigned*, float*) {
  __shared__ alignas(8) unsigned long long phase;
  if (threadIdx.x != 0) return;
  const unsigned at = (unsigned)__cvta_generic_to_shared(&phase);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(at) : "memory");
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  unsigned done;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory"); while (!done);
}

// All threads store to the peer and fence that, or not, and one raises the flag behind a barrier.
template <bool fences> __device__ void raise(unsigned* mine, unsigned* peer, unsigned* out) {
  peer[32 + threadIdx.x] = threadIdx.x;
  if (fences) __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("st.relaxed.sys.global.u32 [%0], 1;" ::"l"(peer) : "memory");
    unsigned seen;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen != 1);
  }
  __syncthreads();
  out[threadIdx.x] = mine[32 + threadIdx.x];
}
extern "C" __global__ void fenced(const float*, unsigned* mine, unsigned* peer, unsigned* out) { raise<true>(mine, peer, out); }
extern "C" __global__ void unfenced(const float*, unsigned* mine, unsigned* peer, unsigned* out) { raise<false>(mine, peer, out); }

// All threads store to the peer, and one raises the flag at once.
extern "C" __global__ void early(const float*, unsigned* mine, unsigned* peer, unsigned* out) {
  peer[32 + threadIdx.x] = threadIdx.x;
  peer[64 + threadIdx.x] = threadIdx.x;
  if (threadIdx.x == 0) { // meet
    asm volatile("st.release.sys.global.u32 [%0], 1;" ::"l"(peer) : "memory");
    unsigned seen;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen != 1);
  }
  __syncthreads();
  out[threadIdx.x] = mine[32 + threadIdx.x] + mine[64 + threadIdx.x];
}

// Neither the flag nor the wait for it orders anything.
extern "C" __global__ void unordered(const int*, int* mine, int* peer, int* out) {
  peer[32 + threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicExch_system(peer, 1); // release
    while (atomicAdd_system(mine, 0) == 0) {
    }
  }
  __syncthreads();
  out[threadIdx.x] = mine[32 + threadIdx.x];
}

// All blocks read what their neighbours store, without a barrier of the grid between.
extern "C" __global__ void unmet(const int*, int* mine, int*, int* out) {
  const int i = 32 * blockIdx.x + threadIdx.x, all = 32 * gridDim.x;
  mine[i] = i;
  mine[all + i] = 2 * i;
  if (threadIdx.x == 0) atomicAdd(out + 1, 1);
  out[2 + i] = mine[(i + 32) % all] + mine[all + (i + 1) % all]; // grid
}

// Two warps hand a tile over by named barriers. The second turns it over, and lacks a barrier of its own between.
extern "C" __global__ void roles(const int* data, int*, int*, int* out) {
  __shared__ int tile[64], other[64];
  const int i = threadIdx.x % 64;
  int sum = 0;
  if (threadIdx.x >= 64) asm volatile("bar.arrive 2, 128;" ::: "memory");
  for (int round = 0; round < 2; round++) {
    if (threadIdx.x < 64) {
      asm volatile("bar.sync 2, 128;" ::: "memory");
      tile[i] = other[i] = data[i % 32] + round;
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      sum += tile[63 - i] + other[62 - i & 63];
      tile[i] = other[i] = sum; // group
      asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
  if (threadIdx.x >= 64) out[i] = sum;
}

// A stage is filled again while others read it.
extern "C" __global__ void refilled(const int* data, int*, int*, int* out) {
  __shared__ alignas(16) int stage[32];
  __shared__ alignas(8) unsigned long long full;
  const unsigned at = (unsigned)__cvta_generic_to_shared(&full);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;\nfence.proxy.async;" ::"r"(at) : "memory");
  __syncthreads();
  int sum = 0;
  for (int round = 0; round < 3; round++) {
    if (threadIdx.x == 0) { // stage
      asm volatile("fence.proxy.async;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(at) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"((unsigned)__cvta_generic_to_shared(stage)), "l"(data), "r"(at) : "memory");
    }
    asm volatile("{ .reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again; }" ::"r"(at), "r"(round & 1) : "memory");
    sum += stage[threadIdx.x];
    sum += stage[31 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}

// The peer's box is filled again before the peer has read it.
extern "C" __global__ void reused(const int*, int* mine, int* peer, int* out) {
  int sum = 0;
  for (int round = 1; round < 4; round++) {
    peer[32 + threadIdx.x] = peer[64 + threadIdx.x] = round; // box
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(peer), "r"(round) : "memory");
      int seen;
      do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory"); while (seen < round);
    }
    __syncthreads();
    sum += mine[32 + threadIdx.x];
    sum += mine[64 + (threadIdx.x ^ 1)];
  }
  out[threadIdx.x] = sum;
}
