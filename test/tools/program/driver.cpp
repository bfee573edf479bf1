// Calls of the driver that exported hosts do not make. The first argument is a file of PTX; with a second one the streams are in order.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <fstream>
#include <iterator>
#include <string>

static void require(CUresult result, const char *call) {
  const char *name = "?";
  cuGetErrorName(result, &name);
  if (result != CUDA_SUCCESS) printf("%s: %s\n", call, name), exit(1);
}
#define REQUIRE(call) require((call), #call)

int main(int argc, char **argv) {
  std::ifstream file(argv[1]);
  const std::string ptx{std::istreambuf_iterator<char>(file), {}};
  CUcontext context, current;
  CUmodule module;
  CUfunction add;
  CUstream first, second;
  REQUIRE(cuInit(0));
  if (cuModuleLoadData(&module, ptx.c_str()) != CUDA_ERROR_INVALID_CONTEXT) return puts("no context was needed"), 1;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0));
  REQUIRE(cuCtxPushCurrent(context));
  REQUIRE(cuCtxGetCurrent(&current));
  REQUIRE(cuModuleLoadData(&module, ptx.c_str()));
  REQUIRE(cuModuleGetFunction(&add, module, "add"));
  if (cuModuleGetFunction(&add, module, "none") != CUDA_ERROR_NOT_FOUND) return puts("a kernel that is none was found"), 1;
  REQUIRE(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  REQUIRE(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));

  CUdeviceptr at, flag;
  size_t bytes, offset;
  CUdeviceptr base;
  REQUIRE(cuMemAlloc(&at, 256));
  REQUIRE(cuMemAlloc(&flag, 16));
  REQUIRE(cuMemsetD32(at, 40, 64));
  REQUIRE(cuMemsetD8(flag, 0, 16));
  REQUIRE(cuCtxSynchronize());
  REQUIRE(cuMemGetAddressRange(&base, &bytes, at + 100));
  REQUIRE(cuFuncGetParamInfo(add, 1, &offset, nullptr));
  printf("%d, %zu bytes, the second parameter at %zu\n", base == at && context == current, bytes, offset);

  // Each stream adds 1, the second after the first: it waits for a word that the first writes.
  unsigned one = 1;
  void *values[] = {&at, &one};
  const bool ordered = argc > 2;
  if (ordered) REQUIRE(cuStreamWaitValue32(second, flag, 7, CU_STREAM_WAIT_VALUE_EQ));
  if (ordered) REQUIRE(cuStreamWaitValue64(second, flag + 8, 2, CU_STREAM_WAIT_VALUE_GEQ));
  REQUIRE(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, second, values, nullptr));
  REQUIRE(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, first, values, nullptr));
  REQUIRE(cuStreamWriteValue32(first, flag, 7, 0));
  REQUIRE(cuStreamWriteValue64(first, flag + 8, 3, 0));
  REQUIRE(cuCtxSynchronize());
  unsigned result[64];
  CUresult (*copy)(void *, CUdeviceptr, size_t);
  CUdriverProcAddressQueryResult found;
  REQUIRE(cuGetProcAddress("cuMemcpyDtoH", (void **)&copy, 13000, 0, &found));
  REQUIRE(copy(result, at, sizeof result));
  printf("each is %u\n", result[63]);

  // Memory by a handle, at two addresses one after the other.
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  REQUIRE(cuMemCreate(&handle, 1 << 16, &properties, 0));
  REQUIRE(cuMemAddressReserve(&base, 1 << 16, 0, 0, 0));
  REQUIRE(cuMemMap(base, 1 << 16, 0, handle, 0));
  REQUIRE(cuMemSetAccess(base, 1 << 16, &access, 1));
  REQUIRE(cuMemcpyDtoD(base, at, 256));
  REQUIRE(cuCtxSynchronize());
  REQUIRE(cuMemUnmap(base, 1 << 16));
  REQUIRE(cuMemAddressReserve(&at, 1 << 16, 0, 0, 0));
  REQUIRE(cuMemMap(at, 1 << 16, 0, handle, 0));
  REQUIRE(cuMemRelease(handle));
  printf("the host reads %u\n", ((unsigned *)at)[63]);
  REQUIRE(cuMemUnmap(at, 1 << 16));

  // A graph by hand in memory of a pool: a fill, a kernel behind it, and a function of the host that reads what the kernel did.
  CUmemoryPool pool;
  CUgraph graph;
  CUgraphExec executable;
  CUgraphNode filled, added, read;
  unsigned *mapped;
  REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0));
  REQUIRE(cuMemAllocFromPoolAsync(&at, 256, pool, first));
  REQUIRE(cuMemHostAlloc((void **)&mapped, 256, CU_MEMHOSTALLOC_DEVICEMAP));
  REQUIRE(cuMemHostGetDevicePointer(&base, mapped, 0));
  REQUIRE(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS with{base, 0, 5, 1, 256, 1};
  REQUIRE(cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &with, context));
  void *there[] = {&base, &one};
  CUDA_KERNEL_NODE_PARAMS kernel{add, 1, 1, 1, 64, 1, 1, 0, there, nullptr};
  REQUIRE(cuGraphAddKernelNode(&added, graph, &filled, 1, &kernel));
  CUDA_HOST_NODE_PARAMS host{[](void *of) { printf("a node of the host reads %x\n", *(unsigned *)of); }, mapped};
  REQUIRE(cuGraphAddHostNode(&read, graph, &added, 1, &host));
  REQUIRE(cuGraphInstantiate(&executable, graph, 0));
  REQUIRE(cuGraphLaunch(executable, first));
  REQUIRE(cuMemcpyAsync(at, base, 256, first));
  REQUIRE(cuLaunchHostFunc(first, [](void *) { puts("a function of the host"); }, nullptr));
  REQUIRE(cuMemFreeAsync(at, first));
  REQUIRE(cuStreamSynchronize(first));
  REQUIRE(cuMemFreeHost(mapped));

  if (cuMemMap(at, 1 << 16, 0, handle, 0) != CUDA_ERROR_INVALID_VALUE) return puts("memory without a holder is there"), 1;
  return cuModuleLoadData(&module, "\177ELF") == CUDA_ERROR_INVALID_PTX && cuMulticastCreate(&handle, nullptr) == CUDA_ERROR_NOT_SUPPORTED ? 0 : 1;
}
