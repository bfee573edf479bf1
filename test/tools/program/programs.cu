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

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  if (!strcmp(name, "clean")) return one(1);
  if (!strcmp(name, "no-barrier")) return one(0);
  if (!strcmp(name, "managed")) {
    int *at;
    cudaError_t error = cudaMallocManaged(&at, BYTES);
    printf("%s\n", cudaGetErrorName(error));
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
