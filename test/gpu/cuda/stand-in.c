/*
 * A stand-in for libcuda.so.1, of which only the calls below do anything: enough to be opened, to disappoint, and to
 * share windows, in the memory of processes in place of GPUs. FAKE_* variables say what it is like.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long u64;
static int from(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }

int cuDriverGetVersion(int *out) { *out = from("FAKE_VERSION", 13000); return 0; }
/* Wants to be told to load kernels eagerly. */
int cuInit(unsigned flags) { return strcmp(getenv("CUDA_MODULE_LOADING"), "EAGER") ? 999 : from("FAKE_INIT", 0); }
int cuGetErrorName(int result, const char **out) {
  *out = result == 100 ? "CUDA_ERROR_NO_DEVICE" : result == 800 ? "CUDA_ERROR_NOT_PERMITTED" : "CUDA_ERROR";
  return 0;
}

int cuDeviceGetCount(int *out) { *out = from("FAKE_COUNT", 0); return 0; }
int cuDeviceGetName(char *out, int size, int gpu) { strcpy(out, "Stand-in"); return 0; }
int cuDeviceGetPCIBusId(char *out, int size, int gpu) { strcpy(out, "0000:00:00.0"); return 0; }
int cuDeviceGetUuid_v2(char *out, int gpu) { memset(out, gpu + 1, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *out, int gpu) { *out = 1ull << 37; return 0; }
int cuDeviceCanAccessPeer(int *out, int gpu, int peer) { *out = from("FAKE_PEERS", 1); return 0; }
int cuDeviceGetAttribute(int *out, int id, int gpu) {
  int sharing = id == 102 || id == 103 || id == 128; /* virtual memory, by descriptor, by fabric handle */
  *out = id == 75 ? from("FAKE_MAJOR", 9) : sharing ? from("FAKE_VIRTUAL", 0) : 0; /* of the compute capability */
  return 0;
}

static long current;
int cuDevicePrimaryCtxRetain(long *out, int gpu) { *out = gpu + 1; return 0; }
int cuDevicePrimaryCtxRelease_v2(int gpu) { return 0; }
int cuCtxSetCurrent(long context) { current = context; return 0; }
int cuCtxEnablePeerAccess(long context, unsigned flags) { return 0; }
int cuStreamCreate(long *out, unsigned flags) { *out = 1; return 0; }
int cuStreamDestroy_v2(long stream) { return 0; }
int cuStreamSynchronize(long stream) { return 0; }
int cuStreamQuery(long stream) { return 0; }

int cuMemGetInfo_v2(size_t *left, size_t *all) { *left = 3ull << 30; *all = 141ull << 30; return 0; }
int cuMemAlloc_v2(void **out, size_t bytes) {
  if (current - 1 == from("FAKE_FULL", -1)) return 2;
  *out = malloc(bytes);
  return 0;
}
int cuMemFree_v2(void *memory) { free(memory); return 0; }
int cuIpcGetMemHandle(void *out, void *memory) { return 0; }
int cuPointerGetAttribute(void *out, int id, void *memory) { return 0; }
int cuMemcpyHtoD_v2(void *to, void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemsetD8Async(void *to, unsigned char value, size_t bytes, void *stream) { memset(to, value, bytes); return 0; }

/* Shareable memory is a file without a name; its handle here is the descriptor, its fabric handle the way to that. */
int cuMemGetAllocationGranularity(size_t *out, int *properties, int option) { *out = 2 << 20; return 0; }
int cuMemCreate(u64 *out, size_t bytes, int *properties, u64 flags) {
  /* FAKE_FABRIC: the result for memory with a fabric handle; on FAKE_FABRIC_RANK alone where that is set. */
  int here = from("FAKE_FABRIC_RANK", -1) < 0 || from("FAKE_FABRIC_RANK", -1) == from("HEDDLE_RANK", -1);
  if (here && (properties[1] & 8) && from("FAKE_FABRIC", 0)) return from("FAKE_FABRIC", 0);
  int fd = memfd_create("window", 0);
  if (fd < 0 || ftruncate(fd, bytes)) return 2;
  *out = fd;
  return 0;
}
int cuMemExportToShareableHandle(void *out, u64 memory, int type, u64 flags) {
  if (type == 1) *(int *)out = dup(memory);
  else snprintf(out, 64, "/proc/%d/fd/%d", getpid(), (int)memory);
  return 0;
}
int cuMemImportFromShareableHandle(u64 *out, void *handle, int type) {
  int fd = type == 1 ? dup((long)handle) : open(handle, O_RDWR);
  if (fd < 0) return 800;
  *out = fd;
  return 0;
}
int cuMemRelease(u64 memory) { return close(memory) ? 1 : 0; }
int cuMemAddressReserve(void **out, size_t bytes, size_t alignment, void *at, u64 flags) {
  *out = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return *out == MAP_FAILED ? 2 : 0;
}
int cuMemAddressFree(void *at, size_t bytes) { return munmap(at, bytes) ? 1 : 0; }
int cuMemMap(void *at, size_t bytes, size_t offset, u64 memory, u64 flags) {
  return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) == at ? 0 : 1;
}
int cuMemUnmap(void *at, size_t bytes) {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at ? 0 : 1;
}
int cuMemSetAccess(void *at, size_t bytes, void *access, size_t count) { return 0; }

/* Modules and the function of each are numbers; stderr says which come and go. */
static long modules;
int cuModuleLoadData(long *out, void *image) { *out = ++modules; return fprintf(stderr, "load %ld\n", modules) < 0; }
int cuModuleUnload(long module) { return fprintf(stderr, "unload %ld\n", module) < 0; }
int cuModuleGetFunction(long *out, long module, char *name) { *out = module; return 0; }
int cuFuncLoad(long function) { return 0; }
int cuFuncGetAttribute(int *out, int id, long function) { *out = 0; return 0; }
