// Small programs with hosts of their own, one for each name in the first argument.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

__constant__ int scale;
__device__ int count;

__global__ void sum(const int *in, int *out, int synchronised) {
  extern __shared__ int held[];
  held[threadIdx.x] = in[threadIdx.x];
  if (synchronised) __syncthreads();
  atomicAdd(&count, 1);
  if (threadIdx.x != 0) return;
  int total = 0;
  for (unsigned i = 0; i < blockDim.x; i++) total += held[i]; // summed
  *out = scale * total;
}

__global__ void endless(volatile int *flag) {
  while (*flag == 0) {}
}

__global__ void fixed(int *at) {
  __shared__ int own[64];
  own[threadIdx.x % 64] = 1;
  at[threadIdx.x] = own[threadIdx.x % 32];
}

enum { N = 64, BYTES = N * sizeof(int) };

static int one(int synchronised) {
  int host[N], *in, *out, result, counted, two = 2;
  for (int i = 0; i < N; i++) host[i] = i;
  cudaMalloc(&in, BYTES);
  cudaMalloc(&out, sizeof(int));
  cudaMemcpy(in, host, BYTES, cudaMemcpyDefault);
  cudaMemcpyToSymbol(scale, &two, sizeof two);
  sum<<<1, N, BYTES>>>(in, out, synchronised);
  cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost);
  cudaMemcpyFromSymbol(&counted, count, sizeof counted);
  printf("sum %d, %d threads\n", result, counted);
  cudaFree(in);
  cudaFree(out);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

// A block's threads, and its own 256 bytes of shared memory beside what the launch adds.
static int occupancy() {
  int few, many, none, large;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&few, fixed, 1024, 0);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&many, fixed, 32, 0);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&none, fixed, 1056, 0);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&large, fixed, 128, 112 << 10);
  printf("%d, %d, %d and %d blocks\n", few, many, none, large);
  return 0;
}

static void twice(void *at) { *(int *)at *= 2; }

template <typename T>
__global__ void increase(T *at, T by) { *at += by; } // increased

// All that a graph may have, captured from two streams and made by hand: 5 → 5 · 2 + 1 + 1 + 10.
static int graph(int misses) {
  int *at, *host, made = 5, result;
  cudaStream_t one, other;
  cudaEvent_t forked, joined;
  cudaGraph_t captured, manual;
  cudaGraphExec_t first, second;
  cudaStreamCreate(&one);
  cudaStreamCreate(&other);
  cudaEventCreate(&forked);
  cudaEventCreate(&joined);
  host = (int *)malloc(sizeof(int));
  cudaMalloc(&at, sizeof(int));
  cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal);
  cudaLaunchHostFunc(one, twice, &made);
  cudaEventRecord(forked, one);
  cudaMemcpyAsync(at, &made, sizeof(int), cudaMemcpyHostToDevice, one); // copied
  cudaStreamWaitEvent(other, forked, 0);
  if (!misses) cudaEventRecord(forked, one), cudaStreamWaitEvent(other, forked, 0);
  increase<<<1, 1, 0, other>>>(at, 1);
  cudaEventRecord(joined, other);
  cudaStreamWaitEvent(one, joined, 0);
  cudaMemcpyAsync(host, at, sizeof(int), cudaMemcpyDeviceToHost, one);
  cudaStreamEndCapture(one, &captured);

  cudaGraphCreate(&manual, 0);
  cudaGraphNode_t child, kernel, copy, nodes[8];
  int by = 2;
  void *args[] = {&at, &by};
  cudaKernelNodeParams with = {(void *)increase<int>, dim3(1), dim3(1), 0, args, NULL};
  cudaGraphAddChildGraphNode(&child, manual, NULL, 0, captured);
  cudaGraphAddKernelNode(&kernel, manual, &child, 1, &with);
  cudaGraphAddMemcpyNode1D(&copy, manual, &kernel, 1, &result, at, sizeof(int), cudaMemcpyDeviceToHost);
  cudaGraphInstantiate(&first, manual, 0);
  by = 10;
  cudaGraphExecKernelNodeSetParams(first, kernel, &with);
  cudaGraphInstantiate(&second, captured, 0);
  size_t count = 8;
  cudaGraphGetNodes(captured, nodes, &count);
  cudaGraphLaunch(second, one);
  cudaStreamSynchronize(one);
  printf("%zu nodes, %d, ", count, *host);
  made = 5;
  cudaGraphLaunch(first, one);
  cudaStreamSynchronize(one);
  printf("%d and %d\n", *host, result);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

// Memory that comes and goes in a stream's order, which another stream may not follow.
static int pool(int misses) {
  int *at, result;
  cudaStream_t one, other;
  cudaEvent_t done;
  cudaStreamCreate(&one);
  cudaStreamCreate(&other);
  cudaEventCreate(&done);
  cudaMallocAsync(&at, sizeof(int), one);
  cudaMemsetAsync(at, 0, sizeof(int), one);
  cudaEventRecord(done, one);
  cudaStreamWaitEvent(other, done, 0);
  increase<<<1, 1, 0, other>>>(at, 1);
  cudaMemcpyAsync(&result, at, sizeof(int), cudaMemcpyDeviceToHost, other);
  cudaEventRecord(done, other);
  if (!misses) cudaStreamWaitEvent(one, done, 0);
  cudaFreeAsync(at, one); // freed
  cudaDeviceSynchronize();
  printf("result %d\n", result);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

// Memory that a graph makes, the host frees, and the graph makes again.
static int again() {
  int *at, results[2];
  cudaStream_t one;
  cudaGraph_t captured;
  cudaGraphExec_t made;
  cudaStreamCreate(&one);
  cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal);
  cudaMallocAsync(&at, sizeof(int), one);
  cudaMemsetAsync(at, 0, sizeof(int), one);
  increase<<<1, 1, 0, one>>>(at, 3);
  cudaStreamEndCapture(one, &captured);
  cudaGraphInstantiate(&made, captured, 0);
  for (int &result : results) {
    cudaGraphLaunch(made, one);
    cudaStreamSynchronize(one);
    cudaMemcpy(&result, at, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(at);
  }
  printf("again %d and %d\n", results[0], results[1]);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

// A copy that the host does not wait for before it writes anew.
static int reuse(int misses) {
  int host = 3, result, *at;
  cudaStream_t one;
  cudaStreamCreate(&one);
  cudaMalloc(&at, sizeof(int));
  cudaMemcpyAsync(at, &host, sizeof(int), cudaMemcpyHostToDevice, one); // reused
  if (!misses) cudaStreamSynchronize(one);
  host = 4;
  increase<<<1, 1, 0, one>>>(at, 1);
  cudaMemcpyAsync(&result, at, sizeof(int), cudaMemcpyDeviceToHost, one);
  cudaStreamSynchronize(one);
  printf("result %d\n", result);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

__global__ void answer(volatile int *mapped, int *managed) {
  while (mapped[0] == 0) {}
  *managed += 1;
  __threadfence_system();
  mapped[1] = 1;
}

// The kernel waits for the host, and the host for the kernel, without a call.
static int mapped() {
  int *mapped, *managed;
  cudaHostAlloc(&mapped, 2 * sizeof(int), cudaHostAllocMapped);
  cudaMallocManaged(&managed, sizeof(int));
  mapped[0] = mapped[1] = 0;
  *managed = 7;
  answer<<<1, 1>>>(mapped, managed);
  __atomic_store_n(mapped, 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(mapped + 1, __ATOMIC_ACQUIRE) == 0) {}
  printf("managed %d\n", *managed);
  cudaFreeHost(mapped);
  cudaFree(managed);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

__managed__ int managed = 3;

__global__ void add(int *registered) { registered[0] += managed++; }

// A variable that both have, and memory of the program's own that a kernel reaches.
static int own() {
  static int numbers[2] = {1, 2};
  int *there, before = managed;
  cudaHostRegister(&numbers[1], sizeof(int), cudaHostRegisterMapped);
  cudaHostGetDevicePointer(&there, &numbers[1], 0);
  managed += 1;
  for (int device = 0; device < 2; device++) {
    cudaSetDevice(device);
    add<<<1, 1>>>(there);
    cudaDeviceSynchronize();
  }
  printf("%d, %d, %d and ", before, managed, numbers[1]);
  cudaHostUnregister(&numbers[1]);
  printf("%d\n", numbers[0] + numbers[1]);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

__global__ void spin(long long cycles) {
  const long long begun = clock64();
  while (clock64() - begun < cycles) {}
}

// Waits by the clock alone, which events see pass. What the driver refuses is no error of the runtime's.
static int spins() {
  cudaEvent_t begun, ended;
  int *at;
  float milliseconds;
  unsigned long long handle;
  int (*retain)(unsigned long long *, void *);
  cudaDriverEntryPointQueryResult found;
  cudaMalloc(&at, sizeof(int));
  cudaGetDriverEntryPointByVersion("cuMemRetainAllocationHandle", (void **)&retain, 13000, 0, &found);
  if (retain(&handle, at) == cudaSuccess) return 2;
  cudaEventCreate(&begun);
  cudaEventCreate(&ended);
  cudaEventRecord(begun);
  spin<<<1, 1>>>(100 * 1000 * 1000);
  cudaEventRecord(ended);
  cudaEventSynchronize(ended);
  cudaEventElapsedTime(&milliseconds, begun, ended);
  printf("%.0f ms\n", milliseconds);
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

// As many launches as the argument says.
static int many(int launches) {
  int *at, result;
  cudaMalloc(&at, sizeof(int));
  cudaMemset(at, 0, sizeof(int));
  for (int i = 0; i < launches; i++) increase<<<1, 1>>>(at, 1);
  cudaMemcpy(&result, at, sizeof(int), cudaMemcpyDeviceToHost);
  printf("%d launches\n", result);
  return 0;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "clean")) return one(1);
  if (!strcmp(name, "no-barrier")) return one(0);
  const int misses = argc > 2;
  if (!strcmp(name, "graph")) return graph(misses);
  if (!strcmp(name, "occupancy")) return occupancy();
  if (!strcmp(name, "pool")) return pool(misses);
  if (!strcmp(name, "reuse")) return reuse(misses);
  if (!strcmp(name, "many")) return many(atoi(argv[2]));
  if (!strcmp(name, "mapped")) return mapped();
  if (!strcmp(name, "again")) return again();
  if (!strcmp(name, "own")) return own();
  if (!strcmp(name, "spins")) return spins();
  if (!strcmp(name, "array")) {
    cudaArray_t array;
    cudaChannelFormatDesc form = {32, 0, 0, 0, cudaChannelFormatKindSigned};
    printf("%s\n", cudaGetErrorName(cudaMallocArray(&array, &form, N)));
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("%s\n", cudaGetErrorName(cudaHostRegister(shared, 4096, cudaHostRegisterMapped)));
    return 0;
  }
  if (!strcmp(name, "sleeps")) return cudaFree(NULL), puts("asleep"), fflush(stdout), sleep(600), 0;
  int *flag;
  cudaMalloc(&flag, sizeof(int));
  cudaMemset(flag, 0, sizeof(int));
  if (!strcmp(name, "garbage")) return cudaMemcpy((void *)0x123456789abc, flag, 1 << 20, cudaMemcpyDeviceToDevice);
  endless<<<1, 1>>>(flag);
  if (!strcmp(name, "stuck")) return cudaDeviceSynchronize() == cudaSuccess;
  if (!strcmp(name, "fork")) {
    // The child's call fails; it goes on for longer than its parent.
    if (fork() == 0) return cudaDeviceSynchronize(), sleep(600), 0;
    return 4;
  }
  if (!strcmp(name, "crash")) abort();
  return 7;
}
