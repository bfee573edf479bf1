// Mistakes of kernels that pass data on, each beside the form without it. A line that the finding must name ends in its number.

struct Peers {
  unsigned* box[2];
};

constexpr unsigned flag_at = 64;

__device__ void store_release_sys(unsigned* p, unsigned v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ unsigned load_acquire_sys(unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

template <bool wrong>
__device__ void missing_fence(Peers peers, unsigned rank, unsigned* out) {
  peers.box[1 - rank][0] = 7;  // 1
  if (!wrong) __threadfence_system();
  *(volatile unsigned*)&peers.box[1 - rank][flag_at] = 1;
  while (*(volatile unsigned*)&peers.box[rank][flag_at] == 0) {
  }
  __threadfence_system();
  out[0] = peers.box[rank][0];  // 1
}

template <bool wrong>
__device__ void relaxed_flag(Peers peers, unsigned rank, unsigned* out) {
  peers.box[1 - rank][0] = 7;  // 2
  unsigned* there = peers.box[1 - rank] + flag_at;
  if (wrong) asm volatile("st.relaxed.sys.global.u32 [%0], 1;" ::"l"(there) : "memory");
  else store_release_sys(there, 1);
  while (load_acquire_sys(peers.box[rank] + flag_at) == 0) {
  }
  out[0] = peers.box[rank][0];  // 2
}

template <bool wrong>
__device__ void relaxed_wait(Peers peers, unsigned rank, unsigned* out) {
  peers.box[1 - rank][0] = 7;  // 3
  store_release_sys(peers.box[1 - rank] + flag_at, 1);
  unsigned seen = 0;
  while (seen == 0) {
    unsigned* here = peers.box[rank] + flag_at;
    if (wrong) asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(here) : "memory");
    else seen = load_acquire_sys(here);
  }
  out[0] = peers.box[rank][0];  // 3
}

template <bool wrong>
__device__ void narrow_scope(Peers peers, unsigned rank, unsigned* out) {
  peers.box[1 - rank][0] = 7;  // 4
  if (wrong) __threadfence();
  else __threadfence_system();
  *(volatile unsigned*)&peers.box[1 - rank][flag_at] = 1;
  while (*(volatile unsigned*)&peers.box[rank][flag_at] == 0) {
  }
  __threadfence_system();
  out[0] = peers.box[rank][0];  // 4
}

template <bool wrong>
__device__ void early_signal(Peers peers, unsigned rank, unsigned* out) {
  if (wrong) store_release_sys(peers.box[1 - rank] + flag_at, 1);
  peers.box[1 - rank][0] = 7;  // 5
  if (!wrong) store_release_sys(peers.box[1 - rank] + flag_at, 1);
  while (load_acquire_sys(peers.box[rank] + flag_at) == 0) {
  }
  out[0] = peers.box[rank][0];  // 5
}

template <bool wrong>
__device__ void barrier_in_branch(unsigned* out) {
  __shared__ unsigned tile[32];
  tile[threadIdx.x] = threadIdx.x;
  if (!wrong || threadIdx.x < 16) __syncthreads();  // 6
  const unsigned other = tile[31 - threadIdx.x];
  __syncthreads();
  tile[threadIdx.x] = other;
  out[threadIdx.x] = tile[threadIdx.x];
}

template <bool wrong>
__device__ void no_barrier(unsigned* out) {
  __shared__ unsigned tile[64];
  tile[threadIdx.x] = threadIdx.x;  // 7
  if (!wrong) __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];  // 7
}

template <bool wrong>
__device__ void no_proxy_fence(unsigned* out) {
  __shared__ alignas(16) unsigned tile[64];
  tile[threadIdx.x] = threadIdx.x;  // 8
  if (!wrong) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out), "r"((unsigned)__cvta_generic_to_shared(tile)) : "memory");  // 8
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

template <bool wrong>
__device__ void no_wait(Peers peers, unsigned* out) {
  __shared__ alignas(16) unsigned tile[64];
  if (threadIdx.x < 16) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(tile + 4 * threadIdx.x);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(peers.box[0] + 4 * threadIdx.x) : "memory");  // 9
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (!wrong) asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // 9
}

template <bool wrong>
__device__ void last_block(Peers peers, unsigned* out) {
  unsigned* count = peers.box[0] + flag_at;
  __shared__ bool last;
  if (threadIdx.x == 0) {
    peers.box[0][blockIdx.x] = blockIdx.x;  // 10
    if (!wrong) __threadfence();
    last = atomicAdd(count, 1) == gridDim.x - 1;
    if (!wrong) __threadfence();
    if (last)
      for (unsigned i = 0; i < gridDim.x; ++i) out[0] += peers.box[0][i];  // 10
  }
}

#define KERNELS(name, call)                                                                                   \
  extern "C" __global__ void name(Peers peers, unsigned rank, unsigned* out) {                                \
    constexpr bool wrong = false;                                                                             \
    name<wrong> call;                                                                                         \
  }                                                                                                           \
  extern "C" __global__ void name##_wrong(Peers peers, unsigned rank, unsigned* out) {                        \
    constexpr bool wrong = true;                                                                              \
    name<wrong> call;                                                                                         \
  }

KERNELS(missing_fence, (peers, rank, out))
KERNELS(relaxed_flag, (peers, rank, out))
KERNELS(relaxed_wait, (peers, rank, out))
KERNELS(narrow_scope, (peers, rank, out))
KERNELS(early_signal, (peers, rank, out))
KERNELS(barrier_in_branch, (out))
KERNELS(no_barrier, (out))
KERNELS(no_proxy_fence, (out))
KERNELS(no_wait, (peers, out))
KERNELS(last_block, (peers, out))
