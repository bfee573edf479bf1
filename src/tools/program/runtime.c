/*
 * Stands for the shared CUDA runtime, libcudart.so, of a program that `heddle check -- ./program` runs.
 * No header of CUDA is needed: what is declared here has the layout that CUDA 12 and 13 have on 64-bit Linux.
 */
#include "client.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "both.h"

typedef struct { unsigned of[3]; } dim3;

/* Fat binaries, and by the address of its stub, or of the variable on the host, what else they have. Heddle is told at the first call:
   until then a process may fork. */

struct wrapper { int magic, version; const unsigned char *data; void *files; };

static struct registered { int kind; uint64_t binary, at; const void *what; size_t bytes; int managed; } *registered;
static size_t registrations, told;
static uint64_t binaries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void tell_registered(void) {
  for (pthread_mutex_lock(&lock); told < registrations; told++) {
    const struct registered *of = &registered[told];
    ask(of->kind, (words){of->binary, of->at}, of->what, of->bytes, NULL, NULL);
  }
  pthread_mutex_unlock(&lock);
}

static void keep(int kind, uint64_t binary, const void *at, const void *what, size_t bytes, int managed) {
  pthread_mutex_lock(&lock);
  if ((registrations & (registrations + 1)) == 0) registered = realloc(registered, (2 * registrations + 2) * sizeof *registered);
  registered[registrations++] = (struct registered){kind, binary, U(at), what, bytes, managed};
  pthread_mutex_unlock(&lock);
  tell_first(tell_registered);
}

API void **__cudaRegisterFatBinary(struct wrapper *wrapper) {
  uint64_t number = __atomic_add_fetch(&binaries, 1, __ATOMIC_RELAXED);
  const unsigned char *data = wrapper->data;
  /* Linked of several files (-rdc=true): their binaries, up to a null. */
  const unsigned char **files = wrapper->version == 2 && wrapper->files ? wrapper->files : NULL;
  do {
    if (files != NULL && (data = *files++) == NULL) break;
    uint64_t bytes;
    memcpy(&bytes, data + 8, 8);
    keep(BINARY, number, NULL, data, bytes + *(uint16_t *)(data + 6), 0);
  } while (files != NULL);
  return (void **)number;
}
API void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
API void __cudaUnregisterFatBinary(void **binary) { (void)binary; }
/* The program is about to use the binary's managed variables, through pointers. */
API char __cudaInitModule(void **binary) {
  for (const struct registered *of = registered; of < registered + registrations; of++)
    if (of->managed && of->binary == U(binary)) get(SYMBOL, of->at, 0, (void *)of->at);
  return 1;
}
API void __cudaRegisterFunction(void **binary, const char *stub, char *there, const char *name, int limit, void *t, void *b, void *d, void *g, int *w) { keep(FUNCTION, U(binary), stub, name, strlen(name), 0); }
API void __cudaRegisterVar(void **binary, char *host, char *there, const char *name, int external, size_t bytes, int constant, int global) { keep(VARIABLE, U(binary), host, name, strlen(name), 0); }
API void __cudaRegisterManagedVar(void **binary, void **host, char *there, const char *name, int external, size_t bytes, int constant, int global) { keep(VARIABLE, U(binary), host, name, strlen(name), 1); }

/* Launches. */

static _Thread_local struct { dim3 grid, block; size_t shared; stream on; } pushed;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, stream on) {
  return pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.on = on, 0;
}
API int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *on) {
  return *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *(stream *)on = pushed.on, SUCCESS;
}

static int launch(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on, const struct attribute *attributes, unsigned count) {
  struct config with = {.shared = (unsigned)shared, .on = on, .attributes = attributes, .count = count};
  memcpy(with.grid, grid.of, sizeof grid), memcpy(with.block, block.of, sizeof block);
  return wrong(cuLaunchKernelEx(&with, stub, args, NULL));
}

API int cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on) { return launch(stub, grid, block, args, shared, on, NULL, 0); }
API int __cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on) { return launch(stub, grid, block, args, shared, on, NULL, 0); }
API int cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on) {
  const struct attribute cooperative = {.id = 2, .value.flag = 1};
  return launch(stub, grid, block, args, shared, on, &cooperative, 1);
}
struct configuration { dim3 grid, block; size_t shared; stream on; struct attribute *attributes; unsigned count; };
API int cudaLaunchKernelExC(const struct configuration *with, const void *stub, void **args) { return launch(stub, with->grid, with->block, args, with->shared, with->on, with->attributes, with->count); }
API int __cudaGetKernel(const void **kernel, const void *stub) { return *kernel = stub, SUCCESS; }
API int cudaGetKernel(const void **kernel, const void *stub) { return *kernel = stub, SUCCESS; }
struct function { size_t shared, constant, local; int threads, registers, ptx, binary; };
API int cudaFuncGetAttributes(struct function *to, const void *stub) { return *to = (struct function){.threads = 1024, .registers = 32, .ptx = 90, .binary = 90}, SUCCESS; }

/* Memory. */

API int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { return copy(to, from, bytes, kind, NULL, 1); }
API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, stream on) { return copy(to, from, bytes, kind, on, 0); }
static int rows(char *to, size_t step, const char *from, size_t pitch, size_t width, size_t height, int kind, stream on, int waits) {
  int error = SUCCESS;
  for (; height > 0 && error == SUCCESS; height--, to += step, from += pitch) error = copy(to, from, width, kind, on, waits);
  return error;
}
API int cudaMemcpy2D(void *to, size_t step, const void *from, size_t pitch, size_t width, size_t height, int kind) { return rows(to, step, from, pitch, width, height, kind, NULL, 1); }
API int cudaMemcpy2DAsync(void *to, size_t step, const void *from, size_t pitch, size_t width, size_t height, int kind, stream on) { return rows(to, step, from, pitch, width, height, kind, on, 0); }
API int cudaMemcpyPeer(void *to, int there, const void *from, int here, size_t bytes) { return ASK(PEER_COPY, U(to), U(from), bytes, there, here); }
API int cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t bytes, stream on) { return copy(to, from, bytes, 3, on, 0); }
static int filled(char *to, size_t pitch, unsigned value, size_t width, size_t height, stream on) {
  int error = SUCCESS;
  if (height > 1 && pitch == width) width *= height, height = 1;
  for (; height > 0 && error == SUCCESS; height--, to += pitch) error = ASK(FILL, U(to), value & 255, width, U(on));
  return error;
}
API int cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) { return filled(to, pitch, value, width, height, NULL); }
API int cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, stream on) { return filled(to, pitch, value, width, height, on); }
API int cudaMallocPitch(void **to, size_t *pitch, size_t width, size_t height) { return cudaMalloc(to, (*pitch = (width + 511) / 512 * 512) * height); }
API int cudaMemset(void *to, int value, size_t bytes) { return ASK(FILL, U(to), value & 255, bytes, 0); }
API int cudaMemsetAsync(void *to, int value, size_t bytes, stream on) { return ASK(FILL, U(to), value & 255, bytes, U(on)); }
API int cudaGetSymbolAddress(void **to, const void *symbol) { return get(SYMBOL, U(symbol), 0, to); }
static int at_symbol(void *host, const void *symbol, size_t bytes, size_t offset, int kind, stream on, int waits, int into) {
  char *there;
  int error = cudaGetSymbolAddress((void **)&there, symbol);
  if (error != SUCCESS) return error;
  return into ? copy(there + offset, host, bytes, kind, on, waits) : copy(host, there + offset, bytes, kind, on, waits);
}
API int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind) { return at_symbol((void *)from, symbol, bytes, offset, kind, NULL, 1, 1); }
API int cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, int kind, stream on) { return at_symbol((void *)from, symbol, bytes, offset, kind, on, 0, 1); }
API int cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind) { return at_symbol(to, symbol, bytes, offset, kind, NULL, 1, 0); }
API int cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset, int kind, stream on) { return at_symbol(to, symbol, bytes, offset, kind, on, 0, 0); }
struct pointer { int type, device; void *there, *host; };
API int cudaPointerGetAttributes(struct pointer *to, const void *at) {
  uint64_t where = 0;
  int error = get(WHERE, U(at), 0, &where);
  int kind = where >> 32;
  *to = where ? (struct pointer){kind, (int)where - 1, (void *)at, kind == 2 ? NULL : (void *)at} : (struct pointer){0, -2, NULL, (void *)at};
  return error;
}

/* Devices. */

API int cudaSetDevice(int number) {
  int count, error = cudaGetDeviceCount(&count);
  if (error != SUCCESS || number < 0 || number >= count) return error ? error : wrong(INVALID_DEVICE);
  return device = number, SUCCESS;
}
API int cudaGetDevice(int *number) { return *number = device, SUCCESS; }
API int cudaDeviceReset(void) { return ASK(DEVICE_SYNCHRONIZE, 0); }
API int cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return peer == device ? wrong(INVALID_DEVICE) : SUCCESS; }
API int cudaDriverGetVersion(int *version) { return *version = RUNTIME * 1000, SUCCESS; }
API int cudaRuntimeGetVersion(int *version) { return *version = RUNTIME * 1000, SUCCESS; }

/* A device's properties: where each stands in CUDA 13 and in CUDA 12, and its value. */
static const struct { int at[2], bytes; uint64_t value; } properties[] = {
  {{288, 288}, 8, 1UL << 31}, {{296, 296}, 8, 49152}, {{304, 304}, 4, 65536}, {{308, 308}, 4, 32}, {{312, 312}, 8, 2147483647},
  {{320, 320}, 4, 1024}, {{324, 324}, 4, 1024}, {{328, 328}, 4, 1024}, {{332, 332}, 4, 64}, {{336, 336}, 4, 2147483647},
  {{340, 340}, 4, 65535}, {{344, 344}, 4, 65535}, {{352, 352}, 8, 65536}, {{360, 360}, 4, 9}, {{384, 388}, 4, 4},
  {{392, 400}, 4, 1}, {{560, 576}, 4, 1}, {{584, 600}, 4, 3}, {{588, 604}, 4, 1}, {{604, 624}, 4, 2048}, {{624, 640}, 8, 233472},
  {{632, 648}, 4, 65536}, {{636, 652}, 4, 1}, {{656, 676}, 4, 1}, {{668, 688}, 4, 1}, {{672, 696}, 8, 232448}, {{720, 744}, 4, 1},
};
static int properties_of(char *to, int form) {
  strcpy(memset(to, 0, form == 0 ? 1008 : 1032), "simulated GPU");
  for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
    memcpy(to + properties[i].at[form], &properties[i].value, properties[i].bytes);
  return SUCCESS;
}
API int cudaGetDeviceProperties(char *to, int number) { return properties_of(to, 0); }
API int cudaGetDeviceProperties_v2(char *to, int number) { return properties_of(to, 1); }

API int cudaStreamCreate(stream *to) { return get(STREAM, 0, 0, to); }
API int cudaEventCreate(event *to) { return get(EVENT, 0, 0, to); }

API int cudaGraphInstantiate(graph *to, graph from, unsigned long long flags) { return get(GRAPH_INSTANTIATE, U(from), 0, to); }
struct pitched { char *at; size_t pitch, width, height; };
struct copy_node { void *from_array; size_t from_at[3]; struct pitched from; void *to_array; size_t to_at[3]; struct pitched to; size_t extent[3]; int kind; };
static int copy_in(node at, const struct copy_node *of, int waits) {
  const size_t *from = of->from_at, *to = of->to_at, *extent = of->extent;
  if (of->from_array != NULL || of->to_array != NULL || extent[2] > 1 || extent[1] > 1) return refuse("copies of arrays, of rows and of boxes");
  return copy(of->to.at + to[0] + to[1] * of->to.pitch, of->from.at + from[0] + from[1] * of->from.pitch, extent[0], of->kind, at, waits);
}
API int cudaMemcpy3D(const struct copy_node *of) { return copy_in(NULL, of, 1); }
API int cudaMemcpy3DAsync(const struct copy_node *of, stream on) { return copy_in(on, of, 0); }
API int cudaGraphAddMemcpyNode(NODE, const struct copy_node *with) ADD(COPY_NODE, copy_in(*to, with, 0))
API int cudaGraphAddMemcpyNode1D(NODE, void *at, const void *from, size_t bytes, int kind) ADD(COPY_NODE, copy(at, from, bytes, kind, *to, 0))
API int cudaGraphExecMemcpyNodeSetParams(graph in, node of, const struct copy_node *with) EDIT(copy_in(to, with, 0))
API int cudaGraphExecMemcpyNodeSetParams1D(graph in, node of, void *at, const void *from, size_t bytes, int kind) EDIT(copy(at, from, bytes, kind, to, 0))

int cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status);
API int cudaGetDriverEntryPoint(const char *name, void **to, uint64_t flags, int *status) { return wrong(cuGetProcAddress_v2(name, to, 0, flags, status)); }
API int cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned version, uint64_t flags, int *status) { return cudaGetDriverEntryPoint(name, to, flags, status); }

/* Errors. */

API int cudaPeekAtLastError(void) { return last; }
API int cudaGetLastError(void) { int error = last; return last = SUCCESS, error; }
API const char *cudaGetErrorName(int error) { return known_error(error) < 0 ? "cudaErrorUnknown" : errors[known_error(error)].name; }
API const char *cudaGetErrorString(int error) { return known_error(error) < 0 ? "unknown error" : errors[known_error(error)].text; }

NOTHING(cudaSetDeviceFlags) NOTHING(cudaDeviceDisablePeerAccess) NOTHING(cudaProfilerStart) NOTHING(cudaProfilerStop)
NONE(cudaHostGetFlags) NONE(cudaMalloc3D) NONE(cudaMallocArray) NONE(cudaFreeArray) NONE(cudaMemcpyToArray) NONE(cudaMemcpy2DToArray)
NONE(cudaCreateTextureObject) NONE(cudaDestroyTextureObject) NONE(cudaCreateSurfaceObject) NONE(cudaDestroySurfaceObject)
NONE(cudaGraphAddNode) NONE(cudaGetSymbolSize) NONE(cudaOccupancyMaxPotentialClusterSize) NONE(cudaStreamSetAttribute)
NONE(cudaGraphConditionalHandleCreate) NONE(cudaStreamBeginCaptureToGraph) NONE(cudaStreamUpdateCaptureDependencies)
NONE(cudaGraphKernelNodeGetParams) NONE(cudaGraphAddEventRecordNode) NONE(cudaGraphAddEventWaitNode) NONE(cudaGraphNodeSetEnabled)
NONE(cudaGraphDebugDotPrint) NONE(cudaMemPoolExportToShareableHandle) NONE(cudaMemPoolImportFromShareableHandle)
NONE(cudaMemPoolExportPointer) NONE(cudaMemPoolImportPointer) NONE(cudaCtxResetPersistingL2Cache) NONE(cudaDeviceGetP2PAttribute)
