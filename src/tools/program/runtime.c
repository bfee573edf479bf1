/*
 * Stands for the shared CUDA runtime, libcudart.so, of a program that `heddle check -- ./program` runs.
 * No header of CUDA is needed: what is declared here has the layout that CUDA 12 and 13 have on 64-bit Linux.
 */
#include "client.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_FUNCTION = 98 };

typedef struct { unsigned x, y, z; } dim3;
typedef void *stream;
typedef void *event;

/* Fat binaries, and by the address of its stub, or of the variable on the host, what else they have. Heddle is told at the first call:
   until then a process may fork. */

struct wrapper { int magic, version; const unsigned char *data; void *files; };

static struct registered { int kind; uint64_t binary, at; const void *what; size_t bytes; } *registered;
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

static void keep(int kind, uint64_t binary, const void *at, const void *what, size_t bytes) {
  pthread_mutex_lock(&lock);
  if ((registrations & (registrations + 1)) == 0) registered = realloc(registered, (2 * registrations + 2) * sizeof *registered);
  registered[registrations++] = (struct registered){kind, binary, U(at), what, bytes};
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
    keep(BINARY, number, NULL, data, bytes + *(uint16_t *)(data + 6));
  } while (files != NULL);
  return (void **)number;
}
API void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
API void __cudaUnregisterFatBinary(void **binary) { (void)binary; }
API char __cudaInitModule(void **binary) { return binary != NULL; }
API void __cudaRegisterFunction(void **binary, const char *stub, char *there, const char *name, int limit, void *t, void *b, void *d, void *g, int *w) {
  keep(FUNCTION, U(binary), stub, name, strlen(name));
}
API void __cudaRegisterVar(void **binary, char *host, char *there, const char *name, int external, size_t bytes, int constant, int global) {
  keep(VARIABLE, U(binary), host, name, strlen(name));
}
API void __cudaRegisterManagedVar(void **binary, void **host, char *there, const char *name, int external, size_t bytes, int constant, int global) { refuse("__managed__"); }

/* Launches. */

static _Thread_local struct { dim3 grid, block; size_t shared; stream on; } pushed;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, stream on) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.on = on;
  return 0;
}
API int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *on) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared;
  *(stream *)on = pushed.on;
  return SUCCESS;
}

struct attribute { int id, pad, flag; char rest[60]; };
struct driver_configuration { dim3 grid, block; unsigned shared; stream on; const struct attribute *attributes; unsigned count; };
int cuLaunchKernelEx(const struct driver_configuration *with, const void *stub, void **args, void **extra);

static int launch(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on, const struct attribute *attributes, unsigned count) {
  return wrong(cuLaunchKernelEx(&(struct driver_configuration){grid, block, (unsigned)shared, on, attributes, count}, stub, args, NULL));
}

API int cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on) {
  return launch(stub, grid, block, args, shared, on, NULL, 0);
}
API int __cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on) {
  return launch(stub, grid, block, args, shared, on, NULL, 0);
}
API int cudaLaunchCooperativeKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, stream on) {
  const struct attribute cooperative = {.id = 2, .flag = 1};
  return launch(stub, grid, block, args, shared, on, &cooperative, 1);
}
struct configuration { dim3 grid, block; size_t shared; stream on; struct attribute *attributes; unsigned count; };
API int cudaLaunchKernelExC(const struct configuration *with, const void *stub, void **args) {
  return launch(stub, with->grid, with->block, args, with->shared, with->on, with->attributes, with->count);
}
API int __cudaGetKernel(const void **kernel, const void *stub) { return *kernel = stub, SUCCESS; }
API int cudaGetKernel(const void **kernel, const void *stub) { return *kernel = stub, SUCCESS; }
API int cudaFuncSetAttribute(const void *stub, int attribute, int value) { return SUCCESS; }
API int cudaFuncSetCacheConfig(const void *stub, int config) { return SUCCESS; }
struct function { size_t shared, constant, local; int threads, registers, ptx, binary; };
API int cudaFuncGetAttributes(struct function *to, const void *stub) {
  *to = (struct function){.threads = 1024, .registers = 32, .ptx = 90, .binary = 90};
  return SUCCESS;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub, int block, size_t shared) { return *blocks = 2, SUCCESS; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *stub, int block, size_t shared, unsigned flags) { return *blocks = 2, SUCCESS; }

/* Memory. What the host has is the process's own. */

API int cudaMalloc(void **to, size_t bytes) { return get(MALLOC, bytes, 0, to); }
API int cudaFree(void *at) { return at == NULL ? SUCCESS : ASK(FREE, U(at)); }
/* Memory of the host that kernels reach, and managed memory, lie where both the program and Heddle see them. */
API int cudaMallocHost(void **to, size_t bytes) { return get(MALLOC, bytes, 1, to); }
API int cudaHostAlloc(void **to, size_t bytes, unsigned flags) { return get(MALLOC, bytes, 1, to); }
API int cudaFreeHost(void *at) { return cudaFree(at); }
API int cudaHostGetDevicePointer(void **to, void *at, unsigned flags) {
  uint64_t where = 0;
  int error = get(WHERE, U(at), 0, &where);
  return *to = at, error == SUCCESS && where == 0 ? refuse("cudaHostGetDevicePointer of registered memory") : error;
}
API int cudaMallocManaged(void **to, size_t bytes, unsigned flags) { return get(MALLOC, bytes, 2, to); }
API int cudaMemPrefetchAsync(void) { return SUCCESS; }
API int cudaMemAdvise(void) { return SUCCESS; }
API int cudaHostRegister(void *at, size_t bytes, unsigned flags) { return (flags & 2) ? refuse("cudaHostRegister of mapped memory") : SUCCESS; }
API int cudaHostUnregister(void *at) { return SUCCESS; }
API int cudaMemGetInfo(size_t *left, size_t *total) { return *left = *total = 1UL << 31, SUCCESS; }

/* 1: to a device, 2: from one, 3: between two, 0: neither, 4: see where the addresses lie. */
static int copy(void *to, const void *from, size_t bytes, int kind, stream on, int waits) {
  if (kind < 0 || kind > 4) return wrong(21);
  return bytes == 0 ? SUCCESS : ASK(COPY, U(to), U(from), bytes, U(on), 2 * kind + waits);
}
API int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { return copy(to, from, bytes, kind, NULL, 1); }
API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, stream on) { return copy(to, from, bytes, kind, on, 0); }
static int rows(char *to, size_t step, const char *from, size_t pitch, size_t width, size_t height, int kind, stream on, int waits) {
  int error = SUCCESS;
  for (; height > 0 && error == SUCCESS; height--, to += step, from += pitch) error = copy(to, from, width, kind, on, waits);
  return error;
}
API int cudaMemcpy2D(void *to, size_t step, const void *from, size_t pitch, size_t width, size_t height, int kind) {
  return rows(to, step, from, pitch, width, height, kind, NULL, 1);
}
API int cudaMemcpy2DAsync(void *to, size_t step, const void *from, size_t pitch, size_t width, size_t height, int kind, stream on) {
  return rows(to, step, from, pitch, width, height, kind, on, 0);
}
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

API int cudaGetDeviceCount(int *count) {
  uint64_t word = 0;
  int error = get(COUNT, 0, 0, &word);
  return *count = (int)word, error;
}
API int cudaSetDevice(int number) {
  int count, error = cudaGetDeviceCount(&count);
  if (error != SUCCESS || number < 0 || number >= count) return error ? error : wrong(INVALID_DEVICE);
  return device = number, SUCCESS;
}
API int cudaGetDevice(int *number) { return *number = device, SUCCESS; }
API int cudaSetDeviceFlags(unsigned flags) { return SUCCESS; }
API int cudaDeviceSynchronize(void) { return ASK(DEVICE_SYNCHRONIZE, 0); }
API int cudaDeviceReset(void) { return ASK(DEVICE_SYNCHRONIZE, 0); }
API int cudaDeviceCanAccessPeer(int *can, int here, int there) { return *can = here != there, SUCCESS; }
API int cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return peer == device ? wrong(INVALID_DEVICE) : SUCCESS; }
API int cudaDeviceDisablePeerAccess(int peer) { return SUCCESS; }
API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
API int cudaDeviceGetLimit(size_t *value, int limit) { return *value = limit == 2 ? 8 << 20 : 1 << 10, SUCCESS; }
API int cudaDeviceSetLimit(int limit, size_t value) { return SUCCESS; }
API int cudaProfilerStart(void) { return SUCCESS; }
API int cudaProfilerStop(void) { return SUCCESS; }
API int cudaDriverGetVersion(int *version) { return *version = RUNTIME * 1000, SUCCESS; }
API int cudaRuntimeGetVersion(int *version) { return *version = RUNTIME * 1000, SUCCESS; }

API int cudaDeviceGetAttribute(int *value, int id, int number) { return *value = attribute_of(id), SUCCESS; }

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

/* Streams and events: numbers that Heddle gives. */

API int cudaStreamCreate(stream *to) { return get(STREAM, 0, 0, to); }
API int cudaStreamCreateWithFlags(stream *to, unsigned flags) { return get(STREAM, flags, 0, to); }
API int cudaStreamCreateWithPriority(stream *to, unsigned flags, int priority) { return get(STREAM, flags, 0, to); }
API int cudaStreamDestroy(stream of) { return ASK(STREAM_DESTROY, U(of)); }
API int cudaStreamSynchronize(stream of) { return ASK(STREAM_SYNCHRONIZE, U(of)); }
API int cudaStreamQuery(stream of) { return ASK(STREAM_QUERY, U(of)); }
API int cudaStreamWaitEvent(stream of, event on, unsigned flags) { return ASK(WAIT, U(of), U(on)); }
API int cudaEventCreate(event *to) { return get(EVENT, 0, 0, to); }
API int cudaEventCreateWithFlags(event *to, unsigned flags) { return get(EVENT, 0, 0, to); }
API int cudaEventDestroy(event of) { return ASK(EVENT_DESTROY, U(of)); }
API int cudaEventRecord(event of, stream on) { return ASK(RECORD, U(of), U(on)); }
API int cudaEventRecordWithFlags(event of, stream on, unsigned flags) { return ASK(RECORD, U(of), U(on)); }
API int cudaEventSynchronize(event of) { return ASK(EVENT_SYNCHRONIZE, U(of)); }
API int cudaEventQuery(event of) { return ASK(EVENT_QUERY, U(of)); }
int cuEventElapsedTime_v2(float *to, event from, event until);
API int cudaEventElapsedTime(float *to, event from, event until) { return wrong(cuEventElapsedTime_v2(to, from, until)); }
API int cudaEventElapsedTime_v2(float *to, event from, event until) { return cudaEventElapsedTime(to, from, until); }

/* Memory in a stream's order. A pool is the number of its device + 1. */

typedef uintptr_t pool;
API int cudaMallocAsync(void **to, size_t bytes, stream on) { return get(MALLOC_ASYNC, bytes, U(on), to); }
API int cudaMallocFromPoolAsync(void **to, size_t bytes, pool from, stream on) {
  return ask(MALLOC_ASYNC, (words){bytes, U(on), from}, NULL, 0, (uint64_t *)to, NULL);
}
API int cudaFreeAsync(void *at, stream on) { return ASK(FREE_ASYNC, U(at), U(on)); }
API int cudaDeviceGetDefaultMemPool(pool *to, int number) { return *to = number + 1, SUCCESS; }
API int cudaDeviceGetMemPool(pool *to, int number) { return *to = number + 1, SUCCESS; }
API int cudaDeviceSetMemPool(int number, pool from) { return SUCCESS; }
API int cudaMemPoolCreate(pool *to, const int *properties) { return *to = properties[3] + 1, SUCCESS; }
API int cudaMemPoolDestroy(pool of) { return SUCCESS; }
API int cudaMemPoolSetAttribute(pool of, int attribute, const void *value) { return SUCCESS; }
API int cudaMemPoolGetAttribute(pool of, int attribute, void *value) { return memset(value, 0, attribute <= 3 ? 4 : 8), SUCCESS; }
API int cudaMemPoolSetAccess(pool of, const void *access, size_t count) { return SUCCESS; }
API int cudaMemPoolTrimTo(pool of, size_t least) { return SUCCESS; }

/* Functions of the host in streams: a thread of their own runs them, one after the other. */

static void *run_host_functions(void *nothing) {
  uint64_t run, value;
  while (ask(NEXT_HOST_FUNCTION, (words){0}, NULL, 0, &run, &value) == SUCCESS) ((void (*)(void *))run)((void *)value);
  return nothing;
}
static void start_host_functions(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_host_functions, NULL) == 0) pthread_detach(thread);
}
API int cudaLaunchHostFunc(stream on, void (*run)(void *), void *value) {
  static pthread_once_t started = PTHREAD_ONCE_INIT;
  pthread_once(&started, start_host_functions);
  return ASK(HOST_FUNCTION, U(on), U(run), U(value));
}
struct callback { void (*run)(stream, int, void *); stream on; void *value; };
static void run_callback(void *given) {
  struct callback of = *(struct callback *)given;
  free(given);
  of.run(of.on, SUCCESS, of.value);
}
API int cudaStreamAddCallback(stream on, void (*run)(stream, int, void *), void *value, unsigned flags) {
  struct callback *of = malloc(sizeof *of);
  *of = (struct callback){run, on, value};
  return cudaLaunchHostFunc(on, run_callback, of);
}

/* Graphs. Work that is enqueued in a node as in a stream becomes the node's. */

typedef void *graph;
typedef void *node;

API int cudaStreamBeginCapture(stream on, int mode) { return ASK(CAPTURE, U(on)); }
API int cudaStreamEndCapture(stream on, graph *to) { return get(CAPTURE_END, U(on), 0, to); }
API int cudaStreamIsCapturing(stream on, int *state) {
  uint64_t word = 0;
  int error = get(CAPTURE_STATE, U(on), 0, &word);
  return *state = (int)word, error;
}
API int cudaThreadExchangeStreamCaptureMode(int *mode) { return SUCCESS; }
API int cudaGraphCreate(graph *to, unsigned flags) { return get(GRAPH, 0, 0, to); }
API int cudaGraphDestroy(graph of) { return ASK(GRAPH_DESTROY, U(of)); }
API int cudaGraphClone(graph *to, graph from) { return get(GRAPH_CLONE, U(from), 0, to); }
API int cudaGraphInstantiate(graph *to, graph from, unsigned long long flags) { return get(GRAPH_INSTANTIATE, U(from), 0, to); }
API int cudaGraphInstantiateWithFlags(graph *to, graph from, unsigned long long flags) { return get(GRAPH_INSTANTIATE, U(from), 0, to); }
API int cudaGraphExecDestroy(graph of) { return ASK(GRAPH_DESTROY, U(of)); }
API int cudaGraphUpload(graph of, stream on) { return SUCCESS; }
API int cudaGraphLaunch(graph of, stream on) { return ASK(GRAPH_LAUNCH, U(of), U(on)); }
API int cudaGraphExecUpdate(graph of, graph from, int *result) {
  int error = ASK(GRAPH_UPDATE, U(of), U(from));
  return *result = error == SUCCESS ? 0 : 2, error;
}
API int cudaGraphGetNodes(graph of, node *to, size_t *count) {
  uint64_t all = 0, *nodes = malloc(8 << 16);
  int error = ask(GRAPH_NODES, (words){U(of), 1 << 16}, NULL, 0, &all, nodes);
  if (error == SUCCESS && to != NULL) memcpy(to, nodes, 8 * (*count < all ? *count : all));
  if (error == SUCCESS && (to == NULL || *count > all)) *count = all;
  return free(nodes), error;
}
enum { KERNEL_NODE, COPY_NODE, FILL_NODE, HOST_NODE, GRAPH_NODE_KIND, EMPTY_NODE, MALLOC_NODE = 10, FREE_NODE };
static int add(node *to, graph in, const node *after, size_t count, int kind) {
  return ask(GRAPH_NODE, (words){U(in), kind}, after, 8 * count, (uint64_t *)to, NULL);
}
/* The node, in the graph or in what was made of it, as it takes new work. */
static node edited(graph in, node of) {
  node to = NULL;
  return get(GRAPH_EDIT, U(in), U(of), &to) == SUCCESS ? to : NULL;
}
#define ADD(kind, work) { int error = add(to, in, after, count, kind); return error == SUCCESS ? (work) : error; }
#define EDIT(work) { node to = edited(in, of); return to == NULL ? last : (work); }
struct kernel_node { const void *stub; dim3 grid, block; unsigned shared; void **args, **extra; };
static int kernel_in(node at, const struct kernel_node *with) {
  return launch(with->stub, with->grid, with->block, with->args, with->shared, at, NULL, 0);
}
struct pitched { char *at; size_t pitch, width, height; };
struct copy_node { void *from_array; size_t from_at[3]; struct pitched from; void *to_array; size_t to_at[3]; struct pitched to; size_t extent[3]; int kind; };
static int copy_in(node at, const struct copy_node *of, int waits) {
  const size_t *from = of->from_at, *to = of->to_at, *extent = of->extent;
  if (of->from_array != NULL || of->to_array != NULL || extent[2] > 1 || extent[1] > 1) return refuse("copies of arrays, of rows and of boxes");
  return copy(of->to.at + to[0] + to[1] * of->to.pitch, of->from.at + from[0] + from[1] * of->from.pitch, extent[0], of->kind, at, waits);
}
API int cudaMemcpy3D(const struct copy_node *of) { return copy_in(NULL, of, 1); }
API int cudaMemcpy3DAsync(const struct copy_node *of, stream on) { return copy_in(on, of, 0); }
struct fill_node { void *at; size_t pitch; unsigned value, element; size_t width, height; };
static int fill_in(node at, const struct fill_node *of) {
  unsigned char byte = of->value;
  if (of->height > 1 || (of->element > 1 && of->value != byte * (of->element == 2 ? 0x101u : 0x1010101u))) return refuse("a fill with more than one byte");
  return ASK(FILL, U(of->at), byte, of->element * of->width, U(at));
}
struct host_node { void (*run)(void *); void *value; };
#define NODE node *to, graph in, const node *after, size_t count
API int cudaGraphAddKernelNode(NODE, const struct kernel_node *with) ADD(KERNEL_NODE, kernel_in(*to, with))
API int cudaGraphAddMemcpyNode(NODE, const struct copy_node *with) ADD(COPY_NODE, copy_in(*to, with, 0))
API int cudaGraphAddMemcpyNode1D(NODE, void *at, const void *from, size_t bytes, int kind) ADD(COPY_NODE, copy(at, from, bytes, kind, *to, 0))
API int cudaGraphAddMemsetNode(NODE, const struct fill_node *with) ADD(FILL_NODE, fill_in(*to, with))
API int cudaGraphAddHostNode(NODE, const struct host_node *with) ADD(HOST_NODE, cudaLaunchHostFunc(*to, with->run, with->value))
API int cudaGraphAddChildGraphNode(NODE, graph child) ADD(GRAPH_NODE_KIND, ASK(GRAPH_CHILD, U(child), U(*to)))
API int cudaGraphAddEmptyNode(NODE) ADD(EMPTY_NODE, SUCCESS)
struct malloc_node { int properties[22]; const void *access; size_t count, bytes; void *at; };
API int cudaGraphAddMemAllocNode(NODE, struct malloc_node *with) ADD(MALLOC_NODE, cudaMallocFromPoolAsync(&with->at, with->bytes, with->properties[3] + 1, *to))
API int cudaGraphAddMemFreeNode(NODE, void *at) ADD(FREE_NODE, cudaFreeAsync(at, *to))
API int cudaGraphKernelNodeSetParams(node of, const struct kernel_node *with) { return kernel_in(of, with); }
API int cudaGraphExecKernelNodeSetParams(graph in, node of, const struct kernel_node *with) EDIT(kernel_in(to, with))
API int cudaGraphExecMemcpyNodeSetParams(graph in, node of, const struct copy_node *with) EDIT(copy_in(to, with, 0))
API int cudaGraphExecMemcpyNodeSetParams1D(graph in, node of, void *at, const void *from, size_t bytes, int kind) EDIT(copy(at, from, bytes, kind, to, 0))
API int cudaGraphExecMemsetNodeSetParams(graph in, node of, const struct fill_node *with) EDIT(fill_in(to, with))
API int cudaGraphExecHostNodeSetParams(graph in, node of, const struct host_node *with) EDIT(cudaLaunchHostFunc(to, with->run, with->value))
API int cudaDeviceGetGraphMemAttribute(int number, int attribute, uint64_t *value) { return *value = 0, SUCCESS; }
API int cudaDeviceSetGraphMemAttribute(int number, int attribute, const void *value) { return SUCCESS; }
API int cudaDeviceGraphMemTrim(int number) { return SUCCESS; }

/* What is the driver's as it is. Handles of memory and of events have 64 bytes. */

typedef struct { char bytes[64]; } handle;
int cuIpcGetMemHandle(handle *to, void *at);
int cuIpcOpenMemHandle_v2(void **to, handle from, unsigned flags);
int cuIpcCloseMemHandle(void *at);
int cuIpcGetEventHandle(handle *to, event of);
int cuIpcOpenEventHandle(event *to, handle from);
int cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status);
API int cudaIpcGetMemHandle(handle *to, void *at) { return wrong(cuIpcGetMemHandle(to, at)); }
API int cudaIpcOpenMemHandle(void **to, handle from, unsigned flags) { return wrong(cuIpcOpenMemHandle_v2(to, from, flags)); }
API int cudaIpcCloseMemHandle(void *at) { return wrong(cuIpcCloseMemHandle(at)); }
API int cudaIpcGetEventHandle(handle *to, event of) { return wrong(cuIpcGetEventHandle(to, of)); }
API int cudaIpcOpenEventHandle(event *to, handle from) { return wrong(cuIpcOpenEventHandle(to, from)); }
API int cudaGetDriverEntryPoint(const char *name, void **to, uint64_t flags, int *status) { return wrong(cuGetProcAddress_v2(name, to, 0, flags, status)); }
API int cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned version, uint64_t flags, int *status) { return cudaGetDriverEntryPoint(name, to, flags, status); }

/* Errors. */

static const struct { int number; const char *name, *text; } errors[] = {
  {SUCCESS, "cudaSuccess", "no error"},
  {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
  {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
  {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
  {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
  {NOT_INITIALIZED, "cudaErrorInitializationError", "initialization error"},
  {INVALID_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"},
  {NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
  {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
  {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
  {600, "cudaErrorNotReady", "device not ready"},
  {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
  {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
};
API int cudaPeekAtLastError(void) { return last; }
API int cudaGetLastError(void) {
  int error = last;
  return last = SUCCESS, error;
}
API const char *cudaGetErrorName(int error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].number == error) return errors[i].name;
  return "cudaErrorUnknown";
}
API const char *cudaGetErrorString(int error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].number == error) return errors[i].text;
  return "unknown error";
}

/* Calls that programs make and that are not there. */
#define NONE(call) API int call(void) { return refuse(#call); }
NONE(cudaHostGetFlags) NONE(cudaMalloc3D) NONE(cudaMallocArray) NONE(cudaFreeArray) NONE(cudaMemcpyToArray) NONE(cudaMemcpy2DToArray) NONE(cudaCreateTextureObject)
NONE(cudaDestroyTextureObject) NONE(cudaCreateSurfaceObject) NONE(cudaDestroySurfaceObject)
NONE(cudaGraphAddNode) NONE(cudaGetSymbolSize) NONE(cudaOccupancyMaxActiveClusters)
NONE(cudaOccupancyMaxPotentialClusterSize) NONE(cudaDeviceGetPCIBusId) NONE(cudaStreamSetAttribute) NONE(cudaGraphConditionalHandleCreate)
NONE(cudaStreamBeginCaptureToGraph) NONE(cudaStreamGetCaptureInfo) NONE(cudaStreamUpdateCaptureDependencies) NONE(cudaGraphAddDependencies)
NONE(cudaGraphGetRootNodes) NONE(cudaGraphGetEdges) NONE(cudaGraphNodeGetType) NONE(cudaGraphKernelNodeGetParams)
NONE(cudaGraphAddEventRecordNode) NONE(cudaGraphAddEventWaitNode) NONE(cudaGraphNodeSetEnabled) NONE(cudaGraphDebugDotPrint)
NONE(cudaMemPoolExportToShareableHandle) NONE(cudaMemPoolImportFromShareableHandle) NONE(cudaMemPoolExportPointer)
NONE(cudaMemPoolImportPointer) NONE(cudaCtxResetPersistingL2Cache) NONE(cudaDeviceGetP2PAttribute)
