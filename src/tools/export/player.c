/* See player.h. The types of the driver's calls are its own: their layout is the driver's ABI, and a test compares them with cuda.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "player.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
#define HEDDLE_THREAD_LOCAL thread_local
#else
#define HEDDLE_THREAD_LOCAL _Thread_local
#endif

/* ---- The shape. pack.ts has the same tables, and a test compares them. */

/* Where a table begins, in bytes from the shape's begin, and how many rows it has. Strings end in a zero. */
struct heddle_table {
  uint64_t at, count;
};

struct heddle_shape {
  uint64_t magic, bytes, digest, ranks, most_tokens, failure_memory, failure_offset, architecture_names, local_ranks, wire_bytes,
    masked_memory, masked_offset;
  struct heddle_table architectures, kernels, images, windows, buffers, fills, operations, launches, parameters, tensors, numbers,
      arguments, text;
};

/* The GPUs that take the images of an architecture, by compute capability: 10 * major + minor. */
struct heddle_architecture {
  uint64_t oldest, newest;
};

struct heddle_kernel {
  uint64_t entry, has_tensors;
};

/* What every byte of a range is before the first launch; all others are 0. Behind the windows comes the wire. */
struct heddle_fill {
  uint64_t window, offset, bytes, value;
};

/* Launches that follow each other, and the arguments that must be right before the first: a bit for each. */
struct heddle_operation {
  uint64_t launch, launches, arguments;
};

struct heddle_launch {
  uint64_t kernel, grid, block, dynamic_shared_bytes, programmatic, parameter_bytes, parameter, parameters;
  /* It is made where the rank brings so many, which is the first of the arguments. */
  uint64_t least_tokens, most_tokens;
};

enum heddle_from {
  HEDDLE_FROM_ARGUMENT, /* index: which */
  HEDDLE_FROM_WINDOW,   /* index: which; value of every rank */
  HEDDLE_FROM_MEMORY,   /* index: which; value: offset */
  HEDDLE_FROM_LIMIT,
  HEDDLE_FROM_RANK,
  HEDDLE_FROM_CONSTANT, /* value */
  HEDDLE_FROM_NUMBERS,  /* index: rank 0's among the numbers */
  HEDDLE_FROM_TENSOR,   /* index: which */
  HEDDLE_FROM_WIRE
};

struct heddle_parameter {
  uint64_t from, index, value, offset, bytes;
};

/* Extents, strides and box as cuTensorMapEncodeTiled takes them: the innermost first. */
struct heddle_tensor {
  uint64_t from, index, value, type, dimensions, swizzle, extents[3], strides[2], box[3];
};

/* An address, a multiple of `alignment`, which is not looked at without tokens unless it is `always` read; alignment 0: tokens. */
struct heddle_argument {
  uint64_t name, alignment, always;
};

static const uint64_t heddle_magic = 0x3420656c64646568;

enum { HEDDLE_MOST_WINDOWS = 4, HEDDLE_MOST_BLOCK_BYTES = 4096 };

/* ---- The driver: what is needed of it. */

typedef uint64_t heddle_address;

struct heddle_allocation {
  int type, handle_types, location_type, location_id;
  void *win32;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
};

struct heddle_access {
  int location_type, location_id, flags;
};

struct heddle_attribute {
  int id, unused;
  union {
    uint64_t words[8];
    int programmatic;
  } value;
};

struct heddle_config {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  struct heddle_attribute *attributes;
  unsigned attribute_count;
};

/* Of CUDA IPC, or of the fabric. */
struct heddle_handle {
  unsigned char bytes[64];
};

struct heddle_token {
  unsigned char bytes[16];
};

#define HEDDLE_CALLS(CALL) \
  CALL(cuInit, "cuInit", (unsigned)) \
  CALL(cuGetErrorName, "cuGetErrorName", (int, const char **)) \
  CALL(cuDeviceGet, "cuDeviceGet", (int *, int)) \
  CALL(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, int)) \
  CALL(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, int)) \
  CALL(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int)) \
  CALL(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (void *)) \
  CALL(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (void **)) \
  CALL(cuCtxSynchronize, "cuCtxSynchronize", (void)) \
  CALL(cuModuleLoadData, "cuModuleLoadData", (void **, const void *)) \
  CALL(cuModuleUnload, "cuModuleUnload", (void *)) \
  CALL(cuModuleGetFunction, "cuModuleGetFunction", (void **, void *, const char *)) \
  CALL(cuFuncSetAttribute, "cuFuncSetAttribute", (void *, int, int)) \
  CALL(cuMemAlloc, "cuMemAlloc_v2", (heddle_address *, size_t)) \
  CALL(cuMemFree, "cuMemFree_v2", (heddle_address)) \
  CALL(cuMemHostRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned)) \
  CALL(cuMemHostUnregister, "cuMemHostUnregister", (void *)) \
  CALL(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (heddle_address *, void *, unsigned)) \
  CALL(cuMemsetD8, "cuMemsetD8_v2", (heddle_address, unsigned char, size_t)) \
  CALL(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (heddle_address, const void *, size_t)) \
  CALL(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, heddle_address, size_t, void *)) \
  CALL(cuStreamCreate, "cuStreamCreate", (void **, unsigned)) \
  CALL(cuStreamSynchronize, "cuStreamSynchronize", (void *)) \
  CALL(cuStreamDestroy, "cuStreamDestroy_v2", (void *)) \
  CALL(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", \
       (size_t *, const struct heddle_allocation *, int)) \
  CALL(cuMemCreate, "cuMemCreate", (uint64_t *, size_t, const struct heddle_allocation *, uint64_t)) \
  CALL(cuMemRelease, "cuMemRelease", (uint64_t)) \
  CALL(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", (void *, uint64_t, int, uint64_t)) \
  CALL(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", (uint64_t *, void *, int)) \
  CALL(cuMemAddressReserve, "cuMemAddressReserve", (heddle_address *, size_t, size_t, heddle_address, uint64_t)) \
  CALL(cuMemAddressFree, "cuMemAddressFree", (heddle_address, size_t)) \
  CALL(cuMemMap, "cuMemMap", (heddle_address, size_t, size_t, uint64_t, uint64_t)) \
  CALL(cuMemUnmap, "cuMemUnmap", (heddle_address, size_t)) \
  CALL(cuMemSetAccess, "cuMemSetAccess", (heddle_address, size_t, const struct heddle_access *, size_t)) \
  CALL(cuIpcGetMemHandle, "cuIpcGetMemHandle", (struct heddle_handle *, heddle_address)) \
  CALL(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (heddle_address *, struct heddle_handle, unsigned)) \
  CALL(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (heddle_address)) \
  CALL(cuLaunchKernelEx, "cuLaunchKernelEx", (const struct heddle_config *, void *, void **, void **))

struct heddle_driver {
#define HEDDLE_DECLARE(name, symbol, parameters) int(*name) parameters;
  HEDDLE_CALLS(HEDDLE_DECLARE)
  /* Not in drivers before CUDA 12.4. */
  int (*cuFuncLoad)(void *);
  int (*cuFuncGetParamInfo)(void *, size_t, size_t *, size_t *);
  /* Map, type and dimensions; address; extents, strides, box and steps, the innermost first; how to read it. */
  int (*cuTensorMapEncodeTiled)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                                const uint32_t *, int, int, int, int);
};

/* ---- What a rank has. */

/* How a window comes to the processes of the other ranks, in the order in which ways are tried. */
enum heddle_way { HEDDLE_UNMAPPED, HEDDLE_BY_DESCRIPTOR, HEDDLE_BY_FABRIC, HEDDLE_BY_IPC };
static const char *const heddle_ways[] = {"auto", "descriptor", "fabric", "ipc"};
static const char *const heddle_way_names[] = {"", "file descriptor", "fabric handle", "CUDA IPC"};

/* A window, as it is mapped for this GPU. */
struct heddle_mapping {
  enum heddle_way way;
  heddle_address address;
  size_t bytes;
};

/* What ranks tell each other. */
struct heddle_card {
  /* Process ids and descriptors mean something within one namespace of one host. */
  uint64_t plan, process_namespace;
  char host[40];
  uint32_t rank, asked, way, unfit;
  int32_t process, descriptors[HEDDLE_MOST_WINDOWS];
  struct heddle_handle handles[HEDDLE_MOST_WINDOWS];
  /* The last bytes of each window, by which whoever maps it knows it. */
  struct heddle_token tokens[HEDDLE_MOST_WINDOWS];
  /* The error of this rank in words; empty where all went well. */
  char wrong[200];
};

struct heddle_player {
  struct heddle_driver cuda;
  const struct heddle_shape *shape;
  struct heddle_host host;
  heddle_allocate_own *allocate;
  int device;
  /* No other way would do, on any rank. */
  int hopeless;
  /* The stream is for reading failures beside whatever runs. */
  void *context, *stream;
  void **modules, **functions;
  /* The kernels can wait for the launch before them, so that it may still run when they begin. */
  unsigned overlaps;
  heddle_address *buffers;
  /* The memory that networks reach, its file, and where the GPU has it. */
  void *wire;
  int wire_file;
  heddle_address wire_address;
  /* [rank][window] */
  struct heddle_mapping (*windows)[HEDDLE_MOST_WINDOWS];
  /* Open until every rank has mapped the windows. */
  int descriptors[HEDDLE_MOST_WINDOWS];
  struct heddle_card *cards;
  /* Where each parameter of each launch lies in its block, and the bytes of each launch's block. */
  size_t *offsets, *block_bytes;
};

#define HEDDLE_ROWS(type, name)                                       \
  static const type *heddle_##name(const struct heddle_player *h) {   \
    return (const type *)((const char *)h->shape + h->shape->name.at); \
  }
HEDDLE_ROWS(struct heddle_architecture, architectures)
HEDDLE_ROWS(struct heddle_kernel, kernels)
HEDDLE_ROWS(uint64_t, images)
HEDDLE_ROWS(uint64_t, windows)
HEDDLE_ROWS(uint64_t, buffers)
HEDDLE_ROWS(struct heddle_fill, fills)
HEDDLE_ROWS(struct heddle_operation, operations)
HEDDLE_ROWS(struct heddle_launch, launches)
HEDDLE_ROWS(struct heddle_parameter, parameters)
HEDDLE_ROWS(struct heddle_tensor, tensors)
HEDDLE_ROWS(uint64_t, numbers)
HEDDLE_ROWS(struct heddle_argument, arguments)
#define HEDDLE_COUNT(name) ((int)h->shape->name.count)

static const char *heddle_string(const struct heddle_player *h, uint64_t at) { return (const char *)h->shape + at; }

static HEDDLE_THREAD_LOCAL char heddle_said[600];

static const char *heddle_say(const char *format, ...) {
  char words[sizeof heddle_said];
  va_list values;
  va_start(values, format);
  vsnprintf(words, sizeof words, format, values);
  va_end(values);
  return strcpy(heddle_said, words);
}

static const char *heddle_refused(const heddle_player *h, const char *call, int result) {
  const char *name = NULL;
  h->cuda.cuGetErrorName(result, &name);
  return heddle_say("%s failed with %s (%d)", call, name == NULL ? "an unknown result" : name, result);
}

#define HEDDLE_TRY(call, arguments)                                \
  do {                                                             \
    int result_ = h->cuda.call arguments;                          \
    if (result_ != 0) return heddle_refused(h, #call, result_);    \
  } while (0)

/* Windows of this rank come first, then its buffers, then the wire. */
static heddle_address heddle_at(const heddle_player *h, uint64_t memory) {
  const uint64_t windows = h->shape->windows.count;
  if (memory < windows) return h->windows[h->host.rank][memory].address;
  return memory - windows < h->shape->buffers.count ? h->buffers[memory - windows] : (heddle_address)(uintptr_t)h->wire;
}

/* The rank within its node, whose ranks follow each other; and the first of them. */
static uint64_t heddle_local(const heddle_player *h) { return h->host.rank % h->shape->local_ranks; }
static uint64_t heddle_first(const heddle_player *h) { return h->host.rank - heddle_local(h); }

/* ---- What a rank makes alone. */

static const char *heddle_open_driver(heddle_player *h) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return heddle_say("there is no NVIDIA driver here: %s", dlerror());
  void *found;
#define HEDDLE_FIND(name, symbol, parameters)                                                     \
  found = dlsym(library, symbol);                                                                 \
  if (found == NULL) return heddle_say("the NVIDIA driver is too old: it lacks %s; install 525 or newer", symbol); \
  memcpy(&h->cuda.name, &found, sizeof found);
  HEDDLE_CALLS(HEDDLE_FIND)
  found = dlsym(library, "cuFuncLoad");
  memcpy(&h->cuda.cuFuncLoad, &found, sizeof found);
  found = dlsym(library, "cuFuncGetParamInfo");
  memcpy(&h->cuda.cuFuncGetParamInfo, &found, sizeof found);
  found = dlsym(library, "cuTensorMapEncodeTiled");
  memcpy(&h->cuda.cuTensorMapEncodeTiled, &found, sizeof found);
  HEDDLE_TRY(cuInit, (0));
  HEDDLE_TRY(cuDeviceGet, (&h->device, h->host.device));
  HEDDLE_TRY(cuDevicePrimaryCtxRetain, (&h->context, h->device));
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  return NULL;
}

/* Which image of each kernel is for this GPU; or none of them. */
static const char *heddle_choose(heddle_player *h, int *chosen) {
  const int attribute_major = 75, attribute_minor = 76;
  const uint64_t hopper = 90;
  int major, minor;
  HEDDLE_TRY(cuDeviceGetAttribute, (&major, attribute_major, h->device));
  HEDDLE_TRY(cuDeviceGetAttribute, (&minor, attribute_minor, h->device));
  const uint64_t capability = (uint64_t)(10 * major + minor);
  for (int a = 0; a < HEDDLE_COUNT(architectures); a++) {
    const struct heddle_architecture *of = &heddle_architectures(h)[a];
    if (capability < of->oldest || of->newest < capability) continue;
    h->overlaps = of->oldest >= hopper;
    *chosen = a;
    return NULL;
  }
  return heddle_say("GPU %d has compute capability %d.%d, and the kernels of this export are for %s: export for it by --arch",
                    h->host.device, major, minor, heddle_string(h, h->shape->architecture_names));
}

/* Where a launch's parameters lie. Maps are aligned where the GPU keeps parameters, which only the driver knows. */
static const char *heddle_place(heddle_player *h, int l) {
  const struct heddle_launch *launch = &heddle_launches(h)[l];
  const int asks = heddle_kernels(h)[launch->kernel].has_tensors != 0;
  if (asks && (h->cuda.cuFuncGetParamInfo == NULL || h->cuda.cuTensorMapEncodeTiled == NULL))
    return heddle_say("the NVIDIA driver is too old for kernels that take tensors; install one for CUDA 12.4 or newer");
  h->block_bytes[l] = launch->parameter_bytes;
  for (uint64_t p = 0; p < launch->parameters; p++) {
    size_t *offset = &h->offsets[launch->parameter + p], bytes = heddle_parameters(h)[launch->parameter + p].bytes;
    *offset = heddle_parameters(h)[launch->parameter + p].offset;
    if (asks) HEDDLE_TRY(cuFuncGetParamInfo, (h->functions[launch->kernel], p, offset, &bytes));
    if (asks) h->block_bytes[l] = *offset + bytes;
  }
  if (h->block_bytes[l] > HEDDLE_MOST_BLOCK_BYTES) return heddle_say("a launch has too many parameters");
  return NULL;
}

/* The memory that networks reach is the host's, so that the proxy, a process of its own, maps its file. */
static const char *heddle_make_wire(heddle_player *h) {
  const unsigned portable_and_mapped = 3;
  const size_t bytes = h->shape->wire_bytes;
  if (bytes == 0) return NULL;
  h->wire_file = (int)syscall(SYS_memfd_create, "heddle wire", 0);
  if (h->wire_file < 0 || ftruncate(h->wire_file, (off_t)bytes) != 0)
    return heddle_say("there is no memory of %lu bytes for a wire: %s", (unsigned long)bytes, strerror(errno));
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h->wire_file, 0);
  if (at == MAP_FAILED) return heddle_say("a wire of %lu bytes is not mapped: %s", (unsigned long)bytes, strerror(errno));
  h->wire = at;
  for (int f = 0; f < HEDDLE_COUNT(fills); f++) {
    const struct heddle_fill *fill = &heddle_fills(h)[f];
    if (fill->window == h->shape->windows.count) memset((char *)at + fill->offset, (int)fill->value, fill->bytes);
  }
  HEDDLE_TRY(cuMemHostRegister, (at, bytes, portable_and_mapped));
  HEDDLE_TRY(cuMemHostGetDevicePointer, (&h->wire_address, at, 0));
  return NULL;
}

/* Kernels are loaded now: one that is loaded while another waits for a peer may wait for that one to end. */
static const char *heddle_prepare(heddle_player *h) {
  const unsigned non_blocking = 1;
  const int most_dynamic_shared = 8;
  int chosen = 0;
  const char *wrong = heddle_choose(h, &chosen);
  if (wrong != NULL) return wrong;
  HEDDLE_TRY(cuStreamCreate, (&h->stream, non_blocking));
  wrong = heddle_make_wire(h);
  if (wrong != NULL) return wrong;
  for (int b = 0; b < HEDDLE_COUNT(buffers); b++) {
    if (h->allocate == NULL) HEDDLE_TRY(cuMemAlloc, (&h->buffers[b], heddle_buffers(h)[b]));
    else h->buffers[b] = h->allocate(h->host.context, heddle_buffers(h)[b]);
    if (h->buffers[b] == 0) return heddle_say("the host has no %lu bytes for a rank", (unsigned long)heddle_buffers(h)[b]);
  }
  for (int k = 0; k < HEDDLE_COUNT(kernels); k++) {
    const uint64_t image = heddle_images(h)[k * HEDDLE_COUNT(architectures) + chosen];
    HEDDLE_TRY(cuModuleLoadData, (&h->modules[k], heddle_string(h, image)));
    HEDDLE_TRY(cuModuleGetFunction, (&h->functions[k], h->modules[k], heddle_string(h, heddle_kernels(h)[k].entry)));
    if (h->cuda.cuFuncLoad != NULL) HEDDLE_TRY(cuFuncLoad, (h->functions[k]));
  }
  for (int l = 0; l < HEDDLE_COUNT(launches); l++) {
    const struct heddle_launch *launch = &heddle_launches(h)[l];
    HEDDLE_TRY(cuFuncSetAttribute,
               (h->functions[launch->kernel], most_dynamic_shared, (int)launch->dynamic_shared_bytes));
    wrong = heddle_place(h, l);
    if (wrong != NULL) return wrong;
  }
  return NULL;
}

static size_t heddle_round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Maps physical memory for this GPU. The mapping keeps it, whatever becomes of its handle. */
static const char *heddle_map(heddle_player *h, struct heddle_mapping *mapping, uint32_t way, uint64_t memory) {
  const struct heddle_access access = {1, h->device, 3};
  heddle_address address;
  HEDDLE_TRY(cuMemAddressReserve, (&address, mapping->bytes, 0, 0, 0));
  int result = h->cuda.cuMemMap(address, mapping->bytes, 0, memory, 0);
  if (result != 0) {
    h->cuda.cuMemAddressFree(address, mapping->bytes);
    return heddle_refused(h, "cuMemMap", result);
  }
  mapping->way = (enum heddle_way)way;
  mapping->address = address;
  HEDDLE_TRY(cuMemSetAccess, (address, mapping->bytes, &access, 1));
  return NULL;
}

/* CUDA's type of handle. */
static int heddle_handle_type(uint32_t way) { return way == HEDDLE_BY_FABRIC ? 8 : 1; }

static const char *heddle_allocate_shareable(heddle_player *h, int w, struct heddle_card *mine) {
  struct heddle_mapping *own = &h->windows[h->host.rank][w];
  const int type = heddle_handle_type(mine->way), recommended = 1;
  struct heddle_allocation pinned = {1, type, 1, h->device, NULL, 0, 0, 0, {0, 0, 0, 0}};
  size_t unit;
  uint64_t memory;
  HEDDLE_TRY(cuMemGetAllocationGranularity, (&unit, &pinned, recommended));
  own->bytes = heddle_round_up(heddle_windows(h)[w] + sizeof *mine->tokens, unit);
  HEDDLE_TRY(cuMemCreate, (&memory, own->bytes, &pinned, 0));
  const char *wrong = heddle_map(h, own, mine->way, memory);
  if (wrong == NULL) {
    void *handle = mine->way == HEDDLE_BY_FABRIC ? (void *)&mine->handles[w] : &h->descriptors[w];
    int result = h->cuda.cuMemExportToShareableHandle(handle, memory, type, 0);
    if (result != 0) wrong = heddle_refused(h, "cuMemExportToShareableHandle", result);
  }
  h->cuda.cuMemRelease(memory);
  mine->descriptors[w] = h->descriptors[w];
  return wrong;
}

static const char *heddle_allocate_by_ipc(heddle_player *h, int w, struct heddle_card *mine) {
  struct heddle_mapping *own = &h->windows[h->host.rank][w];
  /* CUDA IPC shares whole blocks of 2 MiB: nothing else is to lie in them. */
  own->bytes = heddle_round_up(heddle_windows(h)[w] + sizeof *mine->tokens, (size_t)1 << 21);
  HEDDLE_TRY(cuMemAlloc, (&own->address, own->bytes));
  own->way = HEDDLE_BY_IPC;
  HEDDLE_TRY(cuIpcGetMemHandle, (&mine->handles[w], own->address));
  return NULL;
}

static heddle_address heddle_token_at(const struct heddle_mapping *window) {
  return window->address + window->bytes - sizeof(struct heddle_token);
}

/* The windows of this rank, with their start values. */

/* Windows are as they are before the first round. */
static const char *heddle_begin(heddle_player *h) {
  const struct heddle_mapping *own = h->windows[h->host.rank];
  for (int w = 0; w < HEDDLE_COUNT(windows); w++) HEDDLE_TRY(cuMemsetD8, (own[w].address, 0, heddle_windows(h)[w]));
  for (int f = 0; f < HEDDLE_COUNT(fills); f++) {
    const struct heddle_fill *fill = &heddle_fills(h)[f];
    if (fill->window < h->shape->windows.count)
      HEDDLE_TRY(cuMemsetD8, (own[fill->window].address + fill->offset, (unsigned char)fill->value, fill->bytes));
  }
  return NULL;
}

static const char *heddle_allocate(heddle_player *h, struct heddle_card *mine) {
  const struct heddle_mapping *own = h->windows[h->host.rank];
  for (int w = 0; w < HEDDLE_COUNT(windows); w++) {
    const char *wrong = mine->way == HEDDLE_BY_IPC ? heddle_allocate_by_ipc(h, w, mine)
                                                   : heddle_allocate_shareable(h, w, mine);
    if (wrong != NULL) return wrong;
    if (getrandom(&mine->tokens[w], sizeof mine->tokens[w], 0) != (ssize_t)sizeof mine->tokens[w])
      return heddle_say("no random bytes: %s", strerror(errno));
    HEDDLE_TRY(cuMemcpyHtoD, (heddle_token_at(&own[w]), &mine->tokens[w], sizeof mine->tokens[w]));
  }
  const char *wrong = heddle_begin(h);
  if (wrong != NULL) return wrong;
  HEDDLE_TRY(cuCtxSynchronize, ());
  return NULL;
}

/* Reads memory of this GPU beside whatever runs. */
static const char *heddle_read(heddle_player *h, void *to, heddle_address from, size_t bytes) {
  HEDDLE_TRY(cuMemcpyDtoHAsync, (to, from, bytes, h->stream));
  HEDDLE_TRY(cuStreamSynchronize, (h->stream));
  return NULL;
}

/* ---- What ranks make together. */

/* Takes a duplicate of another process's descriptor. */
static const char *heddle_take(int32_t process, int32_t descriptor, int *taken) {
  const long pidfd_open = 434, pidfd_getfd = 438;
  int from = (int)syscall(pidfd_open, process, 0);
  *taken = from < 0 ? -1 : (int)syscall(pidfd_getfd, from, descriptor, 0);
  int why = errno;
  if (from >= 0) close(from);
  if (*taken >= 0) return NULL;
  return heddle_say("a descriptor of process %d cannot be taken: %s", (int)process, strerror(why));
}

static const char *heddle_import(heddle_player *h, const struct heddle_card *card, int w, uint64_t *memory) {
  const struct heddle_card *mine = &h->cards[h->host.rank];
  struct heddle_handle handle = card->handles[w];
  /* A descriptor travels in the pointer itself. */
  void *from = &handle;
  int taken = -1;
  if (card->way == HEDDLE_BY_DESCRIPTOR) {
    if (strcmp(card->host, mine->host) != 0 || card->process_namespace != mine->process_namespace)
      return heddle_say("rank %u runs on another host, or in a container whose processes this one does not see", card->rank);
    const char *wrong = heddle_take(card->process, card->descriptors[w], &taken);
    if (wrong != NULL) return wrong;
    from = (void *)(intptr_t)taken;
  }
  int result = h->cuda.cuMemImportFromShareableHandle(memory, from, heddle_handle_type(card->way));
  if (taken >= 0) close(taken);
  return result == 0 ? NULL : heddle_refused(h, "cuMemImportFromShareableHandle", result);
}

static const char *heddle_map_peer(heddle_player *h, int r, int w) {
  const struct heddle_card *card = &h->cards[r];
  struct heddle_mapping *peer = &h->windows[r][w];
  struct heddle_token found;
  const unsigned lazy_peer_access = 1;
  const char *wrong;
  peer->bytes = h->windows[h->host.rank][w].bytes;
  if (card->way == HEDDLE_BY_IPC) {
    if (strcmp(card->host, h->cards[h->host.rank].host) != 0) return heddle_say("rank %d runs on another host", r);
    HEDDLE_TRY(cuIpcOpenMemHandle, (&peer->address, card->handles[w], lazy_peer_access));
    peer->way = HEDDLE_BY_IPC;
  } else {
    uint64_t memory;
    wrong = heddle_import(h, card, w, &memory);
    if (wrong != NULL) return wrong;
    wrong = heddle_map(h, peer, card->way, memory);
    h->cuda.cuMemRelease(memory);
    if (wrong != NULL) return wrong;
  }
  wrong = heddle_read(h, &found, heddle_token_at(peer), sizeof found);
  if (wrong == NULL && memcmp(&found, &card->tokens[w], sizeof found) != 0)
    wrong = heddle_say("what rank %d gave as its window is other memory", r);
  return wrong;
}

static const char *heddle_map_peers(heddle_player *h) {
  const char *wrong = NULL;
  const int first = (int)heddle_first(h);
  for (int r = first; r < first + (int)h->shape->local_ranks; r++)
    for (int w = 0; w < HEDDLE_COUNT(windows) && wrong == NULL; w++)
      if (r != (int)h->host.rank) wrong = heddle_map_peer(h, r, w);
  return wrong;
}

static void heddle_release_windows(heddle_player *h) {
  for (int r = 0; r < (int)h->shape->ranks; r++) {
    for (int w = 0; w < HEDDLE_COUNT(windows); w++) {
      struct heddle_mapping *mapping = &h->windows[r][w];
      if (mapping->way == HEDDLE_BY_IPC) {
        if (r == (int)h->host.rank) h->cuda.cuMemFree(mapping->address);
        else h->cuda.cuIpcCloseMemHandle(mapping->address);
      } else if (mapping->way != HEDDLE_UNMAPPED) {
        h->cuda.cuMemUnmap(mapping->address, mapping->bytes);
        h->cuda.cuMemAddressFree(mapping->address, mapping->bytes);
      }
      mapping->way = HEDDLE_UNMAPPED;
    }
  }
}

/* Tells all ranks how this one fares, and waits for them. What comes back is the same for all: NULL, or the first that is wrong. */
static const char *heddle_meet(heddle_player *h, struct heddle_card *mine, const char *wrong) {
  snprintf(mine->wrong, sizeof mine->wrong, "%s", wrong == NULL ? "" : wrong);
  h->hopeless = 1;
  if (h->host.all_gather(h->host.context, mine, h->cards, sizeof *mine) != 0)
    return heddle_say("all_gather of the host failed");
  for (int r = 0; r < (int)h->shape->ranks; r++) {
    const struct heddle_card *card = &h->cards[r];
    if ((int)card->rank != r) return heddle_say("all_gather left rank %u's bytes in rank %d's place", card->rank, r);
    if (card->plan != h->shape->digest || card->asked != mine->asked)
      return heddle_say("rank %d runs another export, or has another %s in its environment", r, "HEDDLE_WINDOWS");
  }
  h->hopeless = 0;
  for (int r = 0; r < (int)h->shape->ranks; r++) h->hopeless |= h->cards[r].unfit != 0;
  for (int r = 0; r < (int)h->shape->ranks; r++)
    if (h->cards[r].wrong[0] != 0) return heddle_say("rank %d: %s", r, h->cards[r].wrong);
  return NULL;
}

/* Says which host and which namespace of process ids this process is in. */
static void heddle_locate(struct heddle_card *mine) {
  struct stat of;
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (file != NULL) {
    if (fgets(mine->host, sizeof mine->host, file) == NULL) mine->host[0] = 0;
    fclose(file);
  }
  if (stat("/proc/self/ns/pid", &of) == 0) mine->process_namespace = of.st_ino;
  mine->process = (int32_t)getpid();
}

/* Windows travel by the first way that all ranks can go, or by the one that the environment asks for. */
static const char *heddle_share(heddle_player *h, const char *unfit) {
  const char *asked = getenv("HEDDLE_WINDOWS");
  char before[400] = "";
  struct heddle_card mine;
  memset(&mine, 0, sizeof mine);
  while (asked != NULL && mine.asked <= HEDDLE_BY_IPC && strcmp(asked, heddle_ways[mine.asked]) != 0) mine.asked++;
  if (mine.asked > HEDDLE_BY_IPC && unfit == NULL)
    unfit = heddle_say("%s is \"%s\"; it must be auto, descriptor, fabric or ipc", "HEDDLE_WINDOWS", asked);
  mine.plan = h->shape->digest;
  mine.rank = h->host.rank;
  mine.unfit = unfit != NULL;
  heddle_locate(&mine);
  /* Where Yama lets only ancestors take descriptors: ranks are siblings. */
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  uint32_t last = HEDDLE_BY_IPC;
  mine.way = HEDDLE_BY_DESCRIPTOR;
  if (mine.asked != 0) mine.way = last = mine.asked;
  for (;; mine.way++) {
    const char *wrong = heddle_meet(h, &mine, unfit != NULL ? unfit : heddle_allocate(h, &mine));
    if (wrong == NULL) wrong = heddle_meet(h, &mine, heddle_map_peers(h));
    for (int w = 0; w < HEDDLE_COUNT(windows); w++) {
      if (h->descriptors[w] >= 0) close(h->descriptors[w]);
      h->descriptors[w] = -1;
    }
    if (wrong == NULL) return NULL;
    heddle_release_windows(h);
    if (h->hopeless) return wrong;
    size_t said = strlen(before);
    snprintf(before + said, sizeof before - said, "%sby %s: %s", said == 0 ? "" : "; ", heddle_way_names[mine.way], wrong);
    if (mine.way == last) return heddle_say("%s", before);
  }
}

/* ---- What a host calls. */

uint64_t heddle_player_address(const heddle_player *h, uint32_t memory) { return heddle_at(h, memory); }

int heddle_player_wire(const heddle_player *h) { return h->wire_file; }

static const char *heddle_open(heddle_player *h, const void *shape, size_t bytes) {
  const struct heddle_shape *of = (const struct heddle_shape *)shape;
  if (bytes < sizeof *of || (uintptr_t)shape % 8 != 0 || of->magic != heddle_magic || of->bytes != bytes)
    return heddle_say("this is no shape, or one of another version of Heddle, or a part of one");
  const uint64_t ranks = of->ranks;
  if (h->host.rank >= ranks) return heddle_say("rank is %u, and there are %d ranks", h->host.rank, (int)ranks);
  if (h->host.all_gather == NULL) return heddle_say("all_gather is NULL");
  h->shape = of;
  h->wire_file = -1;
  for (int w = 0; w < HEDDLE_MOST_WINDOWS; w++) h->descriptors[w] = -1;
  h->modules = (void **)calloc(of->kernels.count + 1, sizeof *h->modules);
  h->functions = (void **)calloc(of->kernels.count + 1, sizeof *h->functions);
  h->buffers = (heddle_address *)calloc(of->buffers.count + 1, sizeof *h->buffers);
  h->windows = (struct heddle_mapping(*)[HEDDLE_MOST_WINDOWS])calloc(ranks, sizeof *h->windows);
  h->cards = (struct heddle_card *)calloc(ranks, sizeof *h->cards);
  h->offsets = (size_t *)calloc(of->parameters.count + 1, sizeof *h->offsets);
  h->block_bytes = (size_t *)calloc(of->launches.count + 1, sizeof *h->block_bytes);
  if (!h->modules || !h->functions || !h->buffers || !h->windows || !h->cards || !h->offsets || !h->block_bytes)
    return heddle_say("there is no memory for a rank");
  return NULL;
}

const char *heddle_player_create(heddle_player **made, const void *shape, size_t bytes, const struct heddle_host *host,
                                 heddle_allocate_own *allocate) {
  *made = NULL;
  heddle_player *h = (heddle_player *)calloc(1, sizeof *h);
  if (h == NULL) return heddle_say("there is no memory for a rank");
  h->host = *host;
  h->allocate = allocate;
  const char *wrong = heddle_open(h, shape, bytes);
  if (wrong == NULL) {
    /* A rank that cannot go on tells the others, too. */
    wrong = heddle_open_driver(h);
    if (wrong == NULL) wrong = heddle_prepare(h);
    wrong = heddle_share(h, wrong);
    void *popped;
    if (h->context != NULL) h->cuda.cuCtxPopCurrent(&popped);
  }
  if (wrong != NULL) {
    heddle_player_destroy(h);
    return wrong;
  }
  *made = h;
  return NULL;
}

static const char *heddle_check(const heddle_player *h, const struct heddle_operation *of, const uint64_t *values) {
  for (int a = 0; a < HEDDLE_COUNT(arguments); a++) {
    const struct heddle_argument *argument = &heddle_arguments(h)[a];
    const char *name = heddle_string(h, argument->name);
    if ((of->arguments >> a & 1) == 0) continue;
    if (argument->alignment == 0) {
      if (values[a] > h->shape->most_tokens)
        return heddle_say("%s is %lu, more than %lu", name, (unsigned long)values[a], (unsigned long)h->shape->most_tokens);
    } else if ((argument->always || values[0] > 0) && (values[a] == 0 || values[a] % argument->alignment != 0))
      return heddle_say("%s is %p, not a multiple of %lu", name, (void *)(uintptr_t)values[a],
                        (unsigned long)argument->alignment);
  }
  return NULL;
}

static uint64_t heddle_value(const heddle_player *h, uint64_t from, uint64_t index, uint64_t value, const uint64_t *values) {
  switch (from) {
    case HEDDLE_FROM_ARGUMENT: return values[index];
    case HEDDLE_FROM_MEMORY: return heddle_at(h, index) + value;
    case HEDDLE_FROM_LIMIT: return h->host.limit_us == 0 ? 10000000 : h->host.limit_us;
    case HEDDLE_FROM_RANK: return heddle_local(h);
    case HEDDLE_FROM_WIRE: return h->wire_address;
    case HEDDLE_FROM_NUMBERS: return heddle_numbers(h)[index + h->host.rank];
    default: return value;
  }
}

static const char *heddle_encode(const heddle_player *h, const struct heddle_tensor *of, const uint64_t *values, char *to) {
  const int not_interleaved = 0, promotion = 3, zeros_outside = 0;
  const uint32_t steps[3] = {1, 1, 1};
  const uint32_t box[3] = {(uint32_t)of->box[0], (uint32_t)of->box[1], (uint32_t)of->box[2]};
  void *address = (void *)(uintptr_t)heddle_value(h, of->from, of->index, of->value, values);
  char room[128 + 64], *map = room + 64 - (uintptr_t)room % 64;
  HEDDLE_TRY(cuTensorMapEncodeTiled,
             (map, (int)of->type, (uint32_t)of->dimensions, address, of->extents, of->strides, box, steps, not_interleaved,
              (int)of->swizzle, promotion, zeros_outside));
  memcpy(to, map, 128);
  return NULL;
}

static const char *heddle_enqueue(const heddle_player *h, uint64_t l, const uint64_t *values, void *stream) {
  const struct heddle_launch *launch = &heddle_launches(h)[l];
  uint64_t words[HEDDLE_MOST_BLOCK_BYTES / 8];
  char *block = (char *)words;
  for (uint64_t p = launch->parameter; p < launch->parameter + launch->parameters; p++) {
    const struct heddle_parameter *parameter = &heddle_parameters(h)[p];
    char *to = block + h->offsets[p];
    if (parameter->from == HEDDLE_FROM_WINDOW) {
      for (uint64_t r = 0; r < h->shape->local_ranks; r++)
        memcpy(to + 8 * r, &h->windows[heddle_first(h) + r][parameter->index].address, 8);
    } else if (parameter->from == HEDDLE_FROM_TENSOR) {
      const char *wrong = heddle_encode(h, &heddle_tensors(h)[parameter->index], values, to);
      if (wrong != NULL) return wrong;
    } else {
      const uint64_t value = heddle_value(h, parameter->from, parameter->index, parameter->value, values);
      memcpy(to, &value, parameter->bytes < 8 ? parameter->bytes : 8);
    }
  }
  size_t bytes = h->block_bytes[l];
  void *extra[] = {(void *)1, block, (void *)2, &bytes, NULL};
  struct heddle_attribute programmatic;
  memset(&programmatic, 0, sizeof programmatic);
  programmatic.id = 6;
  programmatic.value.programmatic = 1;
  struct heddle_config config = {{(unsigned)launch->grid, 1, 1},
                                 {(unsigned)launch->block, 1, 1},
                                 (unsigned)launch->dynamic_shared_bytes,
                                 stream,
                                 &programmatic,
                                 (unsigned)launch->programmatic & h->overlaps};
  HEDDLE_TRY(cuLaunchKernelEx, (&config, h->functions[launch->kernel], NULL, extra));
  return NULL;
}

const char *heddle_player_run(const heddle_player *h, uint32_t first, uint32_t last, const uint64_t *values, void *stream) {
  const struct heddle_operation *operations = heddle_operations(h);
  const char *wrong = NULL;
  if (first > last || last >= h->shape->operations.count) return heddle_say("there is no operation %u to %u", first, last);
  for (uint32_t o = first; o <= last && wrong == NULL; o++) wrong = heddle_check(h, &operations[o], values);
  if (wrong != NULL) return wrong;
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  const uint64_t end = operations[last].launch + operations[last].launches;
  for (uint64_t l = operations[first].launch; l < end && wrong == NULL; l++) {
    const struct heddle_launch *launch = &heddle_launches(h)[l];
    if (launch->least_tokens <= values[0] && values[0] <= launch->most_tokens) wrong = heddle_enqueue(h, l, values, stream);
  }
  void *popped;
  h->cuda.cuCtxPopCurrent(&popped);
  return wrong;
}

const char *heddle_player_failure(heddle_player *h, struct heddle_lost *lost) {
  uint32_t words[4] = {0, 0, 0, 0};
  const heddle_address at = heddle_at(h, h->shape->failure_memory) + h->shape->failure_offset;
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  const char *wrong = heddle_read(h, words, at, sizeof words);
  void *popped;
  h->cuda.cuCtxPopCurrent(&popped);
  struct heddle_lost found = {words[0] == 0 ? -1 : (int32_t)words[1], words[0] == 0 ? 0 : words[2] + 1};
  if (lost != NULL) *lost = found;
  if (wrong != NULL || words[0] == 0) return wrong;
  return heddle_say("%s of round %u gave up waiting for rank %d", words[0] == 1 ? "dispatch" : "combine", found.round,
                    (int)found.rank);
}

static const char *heddle_leave_out(heddle_player *h, const uint32_t *out) {
  const char *wrong = heddle_begin(h);
  if (wrong != NULL) return wrong;
  HEDDLE_TRY(cuMemcpyHtoD, (heddle_at(h, h->shape->masked_memory) + h->shape->masked_offset, out, 16));
  HEDDLE_TRY(cuCtxSynchronize, ());
  return NULL;
}

const char *heddle_player_mask(heddle_player *h, const uint32_t out[4]) {
  if (h->shape->masked_memory == UINT64_MAX) return heddle_say("this export has no masks: export it with masks=yes");
  if (out[h->host.rank / 32] >> h->host.rank % 32 & 1) return heddle_say("rank %u is among those to leave out", h->host.rank);
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  const char *wrong = heddle_leave_out(h, out);
  void *popped;
  h->cuda.cuCtxPopCurrent(&popped);
  return wrong;
}

void heddle_player_destroy(heddle_player *h) {
  if (h == NULL) return;
  if (h->context != NULL) {
    void *popped;
    h->cuda.cuCtxPushCurrent(h->context);
    h->cuda.cuCtxSynchronize();
    heddle_release_windows(h);
    for (int b = 0; b < HEDDLE_COUNT(buffers); b++)
      if (h->allocate == NULL && h->buffers[b] != 0) h->cuda.cuMemFree(h->buffers[b]);
    if (h->wire_address != 0) h->cuda.cuMemHostUnregister(h->wire);
    for (int k = 0; k < HEDDLE_COUNT(kernels); k++)
      if (h->modules[k] != NULL) h->cuda.cuModuleUnload(h->modules[k]);
    if (h->stream != NULL) h->cuda.cuStreamDestroy(h->stream);
    h->cuda.cuCtxPopCurrent(&popped);
    h->cuda.cuDevicePrimaryCtxRelease(h->device);
  }
  if (h->wire != NULL) munmap(h->wire, h->shape->wire_bytes);
  if (h->wire_file >= 0) close(h->wire_file);
  void *rooms[] = {h->modules, h->functions, h->buffers, h->windows, h->cards, h->offsets, h->block_bytes};
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]);
  free(h);
}
