/*
 * The calls that the runtime and the driver have alike. Each stands here once, by its name in the runtime and that in the driver, and
 * is compiled into both libraries.
 */
#ifdef RUNTIME
#define BOTH(runtime, driver) runtime
#define IN_CONTEXT
/* The runtime alone keeps an error for cudaGetLastError. */
static _Thread_local int last;
static int wrong(int error) { return error == SUCCESS ? error : (last = error); }
#undef ask
#undef get
#undef refuse
#undef call_host
#define ask(...) wrong(heddle_ask(__VA_ARGS__))
#define get(...) wrong(heddle_get(__VA_ARGS__))
#define refuse(call) wrong(heddle_refuse(call))
#define call_host(...) wrong(heddle_call_host(__VA_ARGS__))
#else
#define BOTH(runtime, driver) driver
#define wrong(error) (error)
/* The driver alone has contexts. */
#define IN_CONTEXT \
  if (!is_here()) return INVALID_CONTEXT
#endif

typedef void *stream;
typedef void *event;

/* Devices. */

static int get_int(int kind, uint64_t a, uint64_t b, uint64_t c, int *to) {
  uint64_t word = 0;
  int error = ask(kind, (words){a, b, c}, NULL, 0, &word, NULL);
  return *to = (int)word, error;
}
API int BOTH(cudaGetDeviceCount, cuDeviceGetCount)(int *count) { return get_int(COUNT, 0, 0, 0, count); }
API int BOTH(cudaDeviceGetAttribute, cuDeviceGetAttribute)(int *value, int id, int number) { return *value = attribute_of(id), SUCCESS; }
API int BOTH(cudaDeviceCanAccessPeer, cuDeviceCanAccessPeer)(int *can, int here, int there) { return *can = here != there, SUCCESS; }
API int BOTH(cudaDeviceGetStreamPriorityRange, cuCtxGetStreamPriorityRange)(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
API int BOTH(cudaDeviceGetLimit, cuCtxGetLimit)(size_t *value, int limit) { return *value = limit == 2 ? 8 << 20 : 1 << 10, SUCCESS; }
API int BOTH(cudaDeviceSynchronize, cuCtxSynchronize)(void) { IN_CONTEXT; return ASK(DEVICE_SYNCHRONIZE, 0); }
API int BOTH(cudaOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, const void *stub, int block, size_t shared) { return get_int(OCCUPANCY, U(stub), (uint64_t)block, shared, blocks); }
API int BOTH(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *blocks, const void *stub, int block, size_t shared, unsigned flags) { return BOTH(cudaOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, stub, block, shared); }

/* Memory. What kernels reach of the host's, and managed memory, lie where both the program and Heddle see them. */

static int allocate(void **to, size_t bytes, int of) { IN_CONTEXT; return get(MALLOC, bytes, of, to); }
API int BOTH(cudaMalloc, cuMemAlloc_v2)(void **to, size_t bytes) { return allocate(to, bytes, 0); }
API int BOTH(cudaMallocHost, cuMemAllocHost_v2)(void **to, size_t bytes) { return allocate(to, bytes, 1); }
API int BOTH(cudaHostAlloc, cuMemHostAlloc)(void **to, size_t bytes, unsigned flags) { return allocate(to, bytes, 1); }
API int BOTH(cudaMallocManaged, cuMemAllocManaged)(void **to, size_t bytes, unsigned flags) { return allocate(to, bytes, 2); }
API int BOTH(cudaFree, cuMemFree_v2)(void *at) { return at == NULL ? SUCCESS : ASK(FREE, U(at)); }
API int BOTH(cudaFreeHost, cuMemFreeHost)(void *at) { return at == NULL ? SUCCESS : ASK(FREE, U(at)); }

/* Registered memory of the host lies where GPUs reach it, too, once a kernel's pointer to it is asked for. The program sees it where it did. */
static struct pages { char *at, *from, *there; size_t bytes; struct pages *next; } *registered_pages;

API int BOTH(cudaHostRegister, cuMemHostRegister_v2)(void *at, size_t bytes, unsigned flags) {
  char *from = (char *)(U(at) & -4096UL), *twin;
  /* Pages that others may map have to stay where those see them. They alone can be mapped twice. */
  if ((twin = mremap(from, 0, 4096, MREMAP_MAYMOVE)) != MAP_FAILED) return munmap(twin, 4096), refuse("cudaHostRegister of shared memory");
  struct pages *made = malloc(sizeof *made);
  *made = (struct pages){at, from, NULL, (U(at) + bytes - U(from) + 4095) & -4096UL, registered_pages};
  return registered_pages = made, SUCCESS;
}
API int BOTH(cudaHostUnregister, cuMemHostUnregister)(void *at) {
  struct pages **of = &registered_pages, *found;
  while (*of != NULL && (*of)->at != at) of = &(*of)->next;
  if ((found = *of) == NULL) return wrong(712);
  if (found->there != NULL) {
    mmap(found->from, found->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memcpy(found->from, found->there, found->bytes);
    ASK(FREE, U(found->there));
  }
  return *of = found->next, free(found), SUCCESS;
}
API int BOTH(cudaHostGetDevicePointer, cuMemHostGetDevicePointer_v2)(void **to, char *at, unsigned flags) {
  struct pages *of = registered_pages;
  int error = SUCCESS;
  while (of != NULL && (at < of->at || at >= of->from + of->bytes)) of = of->next;
  if (of != NULL && of->there == NULL && (error = allocate((void **)&of->there, of->bytes, 1)) == SUCCESS) {
    memcpy(of->there, of->from, of->bytes);
    show(U(of->from), U(of->there), of->bytes);
  }
  return *to = of == NULL ? at : of->there + (at - of->from), error;
}
API int BOTH(cudaMemGetInfo, cuMemGetInfo_v2)(size_t *left, size_t *total) { return *left = *total = 1UL << 31, SUCCESS; }

/* 1: to a device, 2: from one, 3: between two, 0: neither, 4: see where the addresses lie. */
static int copy(void *to, const void *from, size_t bytes, int kind, stream on, int waits) {
  IN_CONTEXT;
  if (kind < 0 || kind > 4) return wrong(21);
  return bytes == 0 ? SUCCESS : ASK(COPY, U(to), U(from), bytes, U(on), 2 * kind + waits);
}

/* Memory in a stream's order. A pool is the number of its device + 1. */

typedef uintptr_t pool;
API int BOTH(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync)(void **to, size_t bytes, pool from, stream on) { IN_CONTEXT; return ask(MALLOC_ASYNC, (words){bytes, U(on), from}, NULL, 0, (uint64_t *)to, NULL); }
API int BOTH(cudaMallocAsync, cuMemAllocAsync)(void **to, size_t bytes, stream on) { return BOTH(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync)(to, bytes, 0, on); }
API int BOTH(cudaFreeAsync, cuMemFreeAsync)(void *at, stream on) { return ASK(FREE_ASYNC, U(at), U(on)); }
API int BOTH(cudaDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool)(pool *to, int number) { return *to = number + 1, SUCCESS; }
API int BOTH(cudaDeviceGetMemPool, cuDeviceGetMemPool)(pool *to, int number) { return *to = number + 1, SUCCESS; }
API int BOTH(cudaMemPoolCreate, cuMemPoolCreate)(pool *to, const int *properties) { return *to = properties[3] + 1, SUCCESS; }
API int BOTH(cudaMemPoolGetAttribute, cuMemPoolGetAttribute)(pool of, int attribute, void *value) { return memset(value, 0, attribute <= 3 ? 4 : 8), SUCCESS; }

/* Streams and events: numbers that Heddle gives. */

API int BOTH(cudaStreamCreateWithFlags, cuStreamCreate)(stream *to, unsigned flags) { IN_CONTEXT; return get(STREAM, flags, 0, to); }
API int BOTH(cudaStreamCreateWithPriority, cuStreamCreateWithPriority)(stream *to, unsigned flags, int priority) { return BOTH(cudaStreamCreateWithFlags, cuStreamCreate)(to, flags); }
API int BOTH(cudaStreamDestroy, cuStreamDestroy_v2)(stream of) { return ASK(STREAM_DESTROY, U(of)); }
API int BOTH(cudaStreamSynchronize, cuStreamSynchronize)(stream of) { return ASK(STREAM_SYNCHRONIZE, U(of)); }
API int BOTH(cudaStreamQuery, cuStreamQuery)(stream of) { return ASK(STREAM_QUERY, U(of)); }
API int BOTH(cudaStreamWaitEvent, cuStreamWaitEvent)(stream of, event on, unsigned flags) { return ASK(WAIT, U(of), U(on)); }
API int BOTH(cudaEventCreateWithFlags, cuEventCreate)(event *to, unsigned flags) { IN_CONTEXT; return get(EVENT, 0, 0, to); }
API int BOTH(cudaEventDestroy, cuEventDestroy_v2)(event of) { return ASK(EVENT_DESTROY, U(of)); }
API int BOTH(cudaEventRecord, cuEventRecord)(event of, stream on) { return ASK(RECORD, U(of), U(on)); }
API int BOTH(cudaEventRecordWithFlags, cuEventRecordWithFlags)(event of, stream on, unsigned flags) { return ASK(RECORD, U(of), U(on)); }
API int BOTH(cudaEventSynchronize, cuEventSynchronize)(event of) { return ASK(EVENT_SYNCHRONIZE, U(of)); }
API int BOTH(cudaEventQuery, cuEventQuery)(event of) { return ASK(EVENT_QUERY, U(of)); }
API int BOTH(cudaEventElapsedTime, cuEventElapsedTime)(float *to, event from, event until) {
  uint64_t nanoseconds = 0;
  int error = get(ELAPSED, U(from), U(until), &nanoseconds);
  return *to = (float)nanoseconds / 1e6f, error;
}
API int BOTH(cudaEventElapsedTime_v2, cuEventElapsedTime_v2)(float *to, event from, event until) { return BOTH(cudaEventElapsedTime, cuEventElapsedTime)(to, from, until); }

/* Functions of the host in streams. */

API int BOTH(cudaLaunchHostFunc, cuLaunchHostFunc)(stream on, void (*run)(void *), void *value) { return call_host(on, run, value); }
struct callback { void (*run)(stream, int, void *); stream on; void *value; };
static void run_callback(void *given) {
  struct callback of = *(struct callback *)given;
  free(given);
  of.run(of.on, SUCCESS, of.value);
}
API int BOTH(cudaStreamAddCallback, cuStreamAddCallback)(stream on, void (*run)(stream, int, void *), void *value, unsigned flags) {
  struct callback *of = malloc(sizeof *of);
  *of = (struct callback){run, on, value};
  return call_host(on, run_callback, of);
}

/* Launches. */

struct attribute { int id, pad; union { int flag; unsigned extent[3]; char bytes[64]; } value; };
struct config { unsigned grid[3], block[3], shared; stream on; const struct attribute *attributes; unsigned count; };
int cuLaunchKernelEx(const struct config *with, const void *function, void **values, void **extra);

/* Graphs. Work that is enqueued in a node as in a stream becomes the node's. */

typedef void *graph;
typedef void *node;

API int BOTH(cudaStreamBeginCapture, cuStreamBeginCapture_v2)(stream on, int mode) { return ASK(CAPTURE, U(on)); }
API int BOTH(cudaStreamEndCapture, cuStreamEndCapture)(stream on, graph *to) { return get(CAPTURE_END, U(on), 0, to); }
API int BOTH(cudaStreamIsCapturing, cuStreamIsCapturing)(stream on, int *state) { return get_int(CAPTURE_STATE, U(on), 0, 0, state); }
API int BOTH(cudaGraphCreate, cuGraphCreate)(graph *to, unsigned flags) { return get(GRAPH, 0, 0, to); }
API int BOTH(cudaGraphDestroy, cuGraphDestroy)(graph of) { return ASK(GRAPH_DESTROY, U(of)); }
API int BOTH(cudaGraphClone, cuGraphClone)(graph *to, graph from) { return get(GRAPH_CLONE, U(from), 0, to); }
API int BOTH(cudaGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)(graph *to, graph from, unsigned long long flags) { return get(GRAPH_INSTANTIATE, U(from), 0, to); }
API int BOTH(cudaGraphExecDestroy, cuGraphExecDestroy)(graph of) { return ASK(GRAPH_DESTROY, U(of)); }
API int BOTH(cudaGraphLaunch, cuGraphLaunch)(graph of, stream on) { return ASK(GRAPH_LAUNCH, U(of), U(on)); }
API int BOTH(cudaGraphExecUpdate, cuGraphExecUpdate_v2)(graph of, graph from, int *result) {
  int error = ASK(GRAPH_UPDATE, U(of), U(from));
  return *result = error == SUCCESS ? 0 : 2, error;
}
API int BOTH(cudaGraphGetNodes, cuGraphGetNodes)(graph of, node *to, size_t *count) {
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
#define ADD(kind, work) { int error = add(to, in, after, count, kind); return error == SUCCESS ? (work) : error; }
/* The node, in what was made of the graph, takes new work. */
#define EDIT(work) { node to; int error = get(GRAPH_EDIT, U(in), U(of), &to); return error == SUCCESS ? (work) : error; }
#define NODE node *to, graph in, const node *after, size_t count
struct kernel_node { const void *stub; unsigned grid[3], block[3], shared; void **args, **extra; };
static int kernel_in(node at, const struct kernel_node *of) {
  struct config with = {.shared = of->shared, .on = at};
  memcpy(with.grid, of->grid, sizeof with.grid), memcpy(with.block, of->block, sizeof with.block);
  return wrong(cuLaunchKernelEx(&with, of->stub, of->args, of->extra));
}
struct fill_node { void *at; size_t pitch; unsigned value, element; size_t width, height; };
static int fill_in(node at, const struct fill_node *of) {
  unsigned char byte = of->value;
  if (of->height > 1 || (of->element > 1 && of->value != byte * (of->element == 2 ? 0x101u : 0x1010101u))) return refuse("a fill with more than one byte");
  return ASK(FILL, U(of->at), byte, of->element * of->width, U(at));
}
struct host_node { void (*run)(void *); void *value; };
struct malloc_node { int properties[22]; const void *access; size_t count, bytes; void *at; };
API int BOTH(cudaGraphAddKernelNode, cuGraphAddKernelNode_v2)(NODE, const struct kernel_node *with) ADD(KERNEL_NODE, kernel_in(*to, with))
API int BOTH(cudaGraphAddMemsetNode, cuGraphAddMemsetNode)(NODE, const struct fill_node *with) ADD(FILL_NODE, fill_in(*to, with))
API int BOTH(cudaGraphAddHostNode, cuGraphAddHostNode)(NODE, const struct host_node *with) ADD(HOST_NODE, call_host(*to, with->run, with->value))
API int BOTH(cudaGraphAddChildGraphNode, cuGraphAddChildGraphNode)(NODE, graph child) ADD(GRAPH_NODE_KIND, ASK(GRAPH_CHILD, U(child), U(*to)))
API int BOTH(cudaGraphAddEmptyNode, cuGraphAddEmptyNode)(NODE) ADD(EMPTY_NODE, SUCCESS)
API int BOTH(cudaGraphAddMemAllocNode, cuGraphAddMemAllocNode)(NODE, struct malloc_node *with) ADD(MALLOC_NODE, BOTH(cudaMallocFromPoolAsync, cuMemAllocFromPoolAsync)(&with->at, with->bytes, with->properties[3] + 1, *to))
API int BOTH(cudaGraphAddMemFreeNode, cuGraphAddMemFreeNode)(NODE, void *at) ADD(FREE_NODE, ASK(FREE_ASYNC, U(at), U(*to)))
API int BOTH(cudaGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2)(node of, const struct kernel_node *with) { return kernel_in(of, with); }
API int BOTH(cudaGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2)(graph in, node of, const struct kernel_node *with) EDIT(kernel_in(to, with))
API int BOTH(cudaGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams)(graph in, node of, const struct fill_node *with) EDIT(fill_in(to, with))
API int BOTH(cudaGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams)(graph in, node of, const struct host_node *with) EDIT(call_host(to, with->run, with->value))
API int BOTH(cudaDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute)(int number, int attribute, uint64_t *value) { return *value = 0, SUCCESS; }

/* Memory and events of other processes: a handle says where the memory lies first of all, or the event's number. */

struct handle { char mark[16]; uint64_t origin, bytes; int32_t process; char unused[28]; };
static const char mark[16] = "heddle memory";
int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t at);

API int BOTH(cudaIpcGetMemHandle, cuIpcGetMemHandle)(struct handle *to, void *at) {
  *to = (struct handle){.process = getpid()};
  memcpy(to->mark, mark, sizeof mark);
  return wrong(cuMemGetAddressRange_v2(&to->origin, &to->bytes, U(at)));
}
API int BOTH(cudaIpcOpenMemHandle, cuIpcOpenMemHandle_v2)(uint64_t *to, struct handle handle, unsigned flags) {
  if (memcmp(handle.mark, mark, sizeof mark) != 0) return wrong(INVALID_VALUE);
  /* As the driver has it: not in the process that exported it. */
  if (handle.process == getpid()) return wrong(INVALID_CONTEXT);
  int error = get(ALIAS, handle.origin, 0, to);
  if (error == SUCCESS) show(*to, handle.origin, handle.bytes);
  return error;
}
API int BOTH(cudaIpcCloseMemHandle, cuIpcCloseMemHandle)(void *at) {
  uint64_t base;
  size_t bytes;
  int error = wrong(cuMemGetAddressRange_v2(&base, &bytes, U(at)));
  if (error == SUCCESS) error = ASK(UNRESERVE, base);
  if (error == SUCCESS) show(base, base, bytes);
  return error;
}
API int BOTH(cudaIpcGetEventHandle, cuIpcGetEventHandle)(struct handle *to, event of) {
  *to = (struct handle){.origin = U(of), .process = getpid()};
  return memcpy(to->mark, mark, sizeof mark), SUCCESS;
}
API int BOTH(cudaIpcOpenEventHandle, cuIpcOpenEventHandle)(event *to, struct handle handle) {
  return memcmp(handle.mark, mark, sizeof mark) != 0 ? wrong(INVALID_VALUE) : get(EVENT_AGAIN, handle.origin, 0, to);
}

/* Errors: their numbers, their names in the runtime and in the driver, and what they say. */

#define ERROR(number, runtime, driver, text) {number, BOTH("cuda" runtime, "CUDA_" driver), text},
static const struct { int number; const char *name, *text; } errors[] = {
  ERROR(SUCCESS, "Success", "SUCCESS", "no error")
  ERROR(INVALID_VALUE, "ErrorInvalidValue", "ERROR_INVALID_VALUE", "invalid argument")
  ERROR(OUT_OF_MEMORY, "ErrorMemoryAllocation", "ERROR_OUT_OF_MEMORY", "out of memory")
  ERROR(9, "ErrorInvalidConfiguration", "ERROR_INVALID_CONFIGURATION", "invalid configuration argument")
  ERROR(13, "ErrorInvalidSymbol", "ERROR_INVALID_SYMBOL", "invalid device symbol")
  ERROR(NOT_INITIALIZED, "ErrorInitializationError", "ERROR_NOT_INITIALIZED", "initialization error")
  ERROR(98, "ErrorInvalidDeviceFunction", "ERROR_INVALID_DEVICE_FUNCTION", "invalid device function")
  ERROR(NO_DEVICE, "ErrorNoDevice", "ERROR_NO_DEVICE", "no CUDA-capable device is detected")
  ERROR(INVALID_DEVICE, "ErrorInvalidDevice", "ERROR_INVALID_DEVICE", "invalid device ordinal")
  ERROR(INVALID_IMAGE, "ErrorInvalidKernelImage", "ERROR_INVALID_IMAGE", "device kernel image is invalid")
  ERROR(INVALID_CONTEXT, "ErrorDeviceUninitialized", "ERROR_INVALID_CONTEXT", "invalid device context")
  ERROR(NO_PTX, "ErrorInvalidPtx", "ERROR_INVALID_PTX", "a PTX JIT compilation failed")
  ERROR(301, "ErrorFileNotFound", "ERROR_FILE_NOT_FOUND", "file not found")
  ERROR(INVALID_HANDLE, "ErrorInvalidResourceHandle", "ERROR_INVALID_HANDLE", "invalid resource handle")
  ERROR(NOT_FOUND, "ErrorSymbolNotFound", "ERROR_NOT_FOUND", "named symbol not found")
  ERROR(600, "ErrorNotReady", "ERROR_NOT_READY", "device not ready")
  ERROR(719, "ErrorLaunchFailure", "ERROR_LAUNCH_FAILED", "unspecified launch failure")
  ERROR(NOT_SUPPORTED, "ErrorNotSupported", "ERROR_NOT_SUPPORTED", "operation not supported")
};
/* The number of the error in the table; −1: it is not there. */
static int known_error(int error) {
  for (int i = 0; i < (int)(sizeof errors / sizeof *errors); i++)
    if (errors[i].number == error) return i;
  return -1;
}

/* Calls after which nothing is different here. */
#define NOTHING(call) NOTHING_AS(call)
#define NOTHING_AS(call) API int call(void) { return SUCCESS; }
NOTHING(BOTH(cudaDeviceSetLimit, cuCtxSetLimit)) NOTHING(BOTH(cudaFuncSetAttribute, cuFuncSetAttribute))
NOTHING(BOTH(cudaFuncSetCacheConfig, cuFuncSetCacheConfig)) NOTHING(BOTH(cudaMemPrefetchAsync, cuMemPrefetchAsync))
NOTHING(BOTH(cudaMemAdvise, cuMemAdvise)) NOTHING(BOTH(cudaDeviceSetMemPool, cuDeviceSetMemPool)) NOTHING(BOTH(cudaMemPoolDestroy, cuMemPoolDestroy))
NOTHING(BOTH(cudaMemPoolSetAttribute, cuMemPoolSetAttribute)) NOTHING(BOTH(cudaMemPoolSetAccess, cuMemPoolSetAccess))
NOTHING(BOTH(cudaMemPoolTrimTo, cuMemPoolTrimTo)) NOTHING(BOTH(cudaThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode))
NOTHING(BOTH(cudaGraphUpload, cuGraphUpload)) NOTHING(BOTH(cudaDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute))
NOTHING(BOTH(cudaDeviceGraphMemTrim, cuDeviceGraphMemTrim))

/* Calls that programs make and that are not there. */
#define NONE(call) NONE_OF(call)
#define NONE_OF(call) API int call(void) { return refuse(#call); }
NONE(BOTH(cudaStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2)) NONE(BOTH(cudaGraphAddDependencies, cuGraphAddDependencies))
NONE(BOTH(cudaGraphGetRootNodes, cuGraphGetRootNodes)) NONE(BOTH(cudaGraphGetEdges, cuGraphGetEdges)) NONE(BOTH(cudaGraphNodeGetType, cuGraphNodeGetType))
NONE(BOTH(cudaOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters)) NONE(BOTH(cudaDeviceGetPCIBusId, cuDeviceGetPCIBusId))
