// Two GPUs in one process: the first sends numbers to the second, which doubles them.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    cudaError_t error = (call);                                                         \
    if (error != cudaSuccess) {                                                         \
      printf("%s: %s\n", #call, cudaGetErrorString(error));                             \
      return 1;                                                                         \
    }                                                                                   \
  } while (0)

__global__ void twice(int *numbers) {
  numbers[threadIdx.x] *= 2;
}

int main() {
  const int count = 64, bytes = count * sizeof(int);
  int host[count], *here, *there;
  for (int i = 0; i < count; i++) host[i] = i;
  cudaStream_t sending, doubling;
  cudaEvent_t sent;
  CHECK(cudaMalloc(&here, bytes));
  CHECK(cudaMemcpy(here, host, bytes, cudaMemcpyHostToDevice));
  CHECK(cudaStreamCreate(&sending));
  CHECK(cudaEventCreate(&sent));
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&there, bytes));
  CHECK(cudaStreamCreate(&doubling));

  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpyPeerAsync(there, 1, here, 0, bytes, sending));
  CHECK(cudaEventRecord(sent, sending));
  CHECK(cudaSetDevice(1));
#ifdef MENDED
  CHECK(cudaStreamWaitEvent(doubling, sent, 0));
#endif
  twice<<<1, count, 0, doubling>>>(there);
  CHECK(cudaGetLastError());
  CHECK(cudaStreamSynchronize(sending));
  CHECK(cudaMemcpyAsync(host, there, bytes, cudaMemcpyDeviceToHost, doubling));
  CHECK(cudaStreamSynchronize(doubling));
  printf("the last number is %d\n", host[count - 1]);
  return 0;
}
