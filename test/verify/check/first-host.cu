// Kernels of several GPUs, each in another shape, each without an order.
#include <cuda/atomic>
constexpr int most = 8;
struct Signal {
  unsigned epoch;
};
struct Nothing {};
struct __align__(16) Peers {
  using Value = float;
  float* inbox[most];
  Signal* signal[most];
};

extern "C" __global__ void push(Peers peers, Signal* self_sg, const float* in, float* out, int n, int me, int ranks, unsigned epoch) {
  const int other = (me + 1) % ranks;
  for (int i = threadIdx.x; i < n; i += blockDim.x) peers.inbox[other][i] = in[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    *(volatile unsigned*)&peers.signal[other]->epoch = epoch; // push
    while (*(volatile unsigned*)&self_sg->epoch != epoch) {
    }
    __threadfence_system();
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = peers.inbox[me][i];
}

template <typename T>
__global__ void one_shot(T** boxes, T* out, unsigned** signals, size_t numel, size_t rank, size_t world_size) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < numel; i += gridDim.x * blockDim.x) boxes[rank][i] = T(i);
  __syncthreads();
  if (threadIdx.x < world_size) {
    using Flag = cuda::atomic_ref<unsigned, cuda::thread_scope_system>;
    Flag(signals[threadIdx.x][blockIdx.x * world_size + rank]).store(1, cuda::memory_order_release);
    Flag here(signals[rank][blockIdx.x * world_size + threadIdx.x]);
    while (here.load(cuda::memory_order_relaxed) != 1) { // one_shot
    }
  }
  __syncthreads();
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < numel; i += gridDim.x * blockDim.x) {
    T sum = 0;
    for (size_t from = 0; from < world_size; from++) sum += boxes[from][i];
    out[i] = sum;
  }
}
template __global__ void one_shot<float>(float**, float*, unsigned**, size_t, size_t, size_t);

// Both ranks address the same memory.
__global__ void hand_over(int* data, volatile int* flag, int* out, int rank, Nothing nothing) {
  if (rank == 0) {
    data[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) *flag = 1; // hand_over
  } else {
    if (threadIdx.x == 0) {
      while (*flag == 0) {
      }
      __threadfence_system();
    }
    __syncthreads();
    out[threadIdx.x] = data[threadIdx.x];
  }
}

// Each rank runs one of these.
using Ready = cuda::atomic<int, cuda::thread_scope_system>;
__global__ void producer(float* data, Ready* ready, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) data[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) ready->store(1, cuda::memory_order_release);
}
__global__ void consumer(const float* data, Ready* ready, float* result, int n) {
  if (threadIdx.x == 0)
    while (ready->load(cuda::memory_order_relaxed) == 0) { // consumer
    }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) result[i] = data[i];
}

__global__ void swap(const float* mine, float* my_box, float* peer_box, unsigned* my_flag, unsigned* peer_flag, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) peer_box[i] = mine[i];
  if (threadIdx.x == 0) { // swap
    __threadfence_system();
    atomicExch_system(peer_flag, 1u);
    while (atomicAdd_system(my_flag, 0u) == 0) {
    }
    __threadfence_system();
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) my_box[i] += mine[i];
}

// What comes is for whoever is behind the launch.
__global__ void gather(Peers all, const float* send, int count, int my_rank, int n_ranks, unsigned epoch) {
  for (int peer = 0; peer < n_ranks; peer++) all.inbox[peer][my_rank * count + threadIdx.x] = send[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n_ranks) {
    *(volatile unsigned*)&all.signal[threadIdx.x][my_rank].epoch = epoch; // gather
    while (*(volatile unsigned*)&all.signal[my_rank][threadIdx.x].epoch != epoch) {
    }
    __threadfence_system();
  }
}
