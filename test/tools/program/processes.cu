// Programs of two hosts, one for each name in the first argument: threads of a process, or processes that a shell starts.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

// Without a fence it begins when the taker runs: if its kernel had ended before, that would order the two.
__global__ void put(int *to, int *flag, int ordered) {
  if (!ordered) while (atomicAdd_system(flag + 1, 0) == 0) {}
  *to = 42; // put
  if (ordered) __threadfence_system();
  atomicExch_system(flag, 1);
}

__global__ void take(int *from, int *flag, int *out) {
  atomicExch_system(flag + 1, 1);
  while (atomicAdd_system(flag, 0) == 0) {}
  __threadfence_system();
  *out = *from; // taken
}

static int taken(int *pair) {
  int *out, result = 0;
  cudaMalloc(&out, sizeof(int));
  take<<<1, 1>>>(pair, pair + 1, out);
  cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost);
  printf("took %d, and reads %d\n", result, *out);
  return result != 42;
}

static int *pair_on(int device) {
  int *pair;
  cudaSetDevice(device);
  cudaMalloc(&pair, 3 * sizeof(int));
  cudaMemset(pair, 0, 3 * sizeof(int));
  cudaDeviceSynchronize();
  return pair;
}

static int threads() {
  int *pair = pair_on(0), failed = 1;
  std::thread taker([&] { failed = taken(pair); });
  // The taker waits in its call, and this host is busy: the kernel that ends the wait comes later.
  for (volatile long n = 0; n < 300000000; n++) {}
  cudaSetDevice(1);
  put<<<1, 1>>>(pair, pair + 1, 1);
  cudaDeviceSynchronize();
  taker.join();
  return failed;
}

// Rank 1 has memory, and takes what rank 0 puts there.
static int rank(int number, const char *file, int ordered) {
  cudaIpcMemHandle_t handle;
  if (number == 1) {
    int *pair = pair_on(1);
    cudaIpcGetMemHandle(&handle, pair);
    FILE *to = fopen(file, "wb");
    fwrite(&handle, sizeof handle, 1, to);
    fclose(to);
    return taken(pair);
  }
  FILE *from = fopen(file, "rb");
  if (fread(&handle, sizeof handle, 1, from) != 1) return 2;
  int *pair;
  cudaSetDevice(0);
  if (cudaIpcOpenMemHandle((void **)&pair, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return 3;
  if (ordered >= 0) put<<<1, 1>>>(pair, pair + 1, ordered);
  cudaDeviceSynchronize();
  return cudaIpcCloseMemHandle(pair) != cudaSuccess || cudaIpcCloseMemHandle(pair) == cudaSuccess;
}

int main(int argc, char **argv) {
  if (!strcmp(argv[1], "threads")) return threads();
  if (!strcmp(argv[1], "forks")) {
    int status, *pair = pair_on(0);
    if (fork() == 0) _exit(cudaDeviceSynchronize());
    wait(&status);
    printf("the child: %s\n", cudaGetErrorName((cudaError_t)WEXITSTATUS(status)));
    put<<<1, 1>>>(pair, pair + 1, 1);
    return taken(pair);
  }
  return rank(atoi(argv[2]), argv[3], atoi(argv[4]));
}
