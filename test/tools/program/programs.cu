// Small programs with hosts of their own, one for each name in the first argument.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
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

__global__ void twice(int *at) { at[threadIdx.x] *= 2; } // doubled

__global__ void endless(volatile int *flag) {
  while (*flag == 0) {}
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

// The second device doubles what the first has sent.
static int two(int waits) {
  int host[N], *there, *here, devices;
  for (int i = 0; i < N; i++) host[i] = i;
  cudaStream_t first, second;
  cudaEvent_t sent;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) return 1;
  cudaMalloc(&here, BYTES);
  cudaStreamCreate(&first);
  cudaEventCreateWithFlags(&sent, cudaEventDisableTiming);
  cudaMemcpy(here, host, BYTES, cudaMemcpyHostToDevice);
  cudaSetDevice(1);
  cudaDeviceEnablePeerAccess(0, 0);
  cudaMalloc(&there, BYTES);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  cudaSetDevice(0);
  cudaMemcpyPeerAsync(there, 1, here, 0, BYTES, first);
  cudaEventRecord(sent, first);
  cudaSetDevice(1);
  if (waits) cudaStreamWaitEvent(second, sent, 0);
  twice<<<1, N, 0, second>>>(there);
  cudaMemcpyAsync(host, there, BYTES, cudaMemcpyDeviceToHost, second);
  cudaStreamSynchronize(second);
  if (waits && (host[N - 1] != 2 * (N - 1) || cudaEventQuery(sent) != cudaSuccess)) return 1;
  return 0;
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "clean")) return one(1);
  if (!strcmp(name, "no-barrier")) return one(0);
  if (!strcmp(name, "events")) return two(1);
  if (!strcmp(name, "no-event")) return two(0);
  if (!strcmp(name, "managed")) {
    int *at;
    cudaError_t error = cudaMallocManaged(&at, BYTES);
    printf("%s\n", cudaGetErrorName(error));
    return 0;
  }
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
