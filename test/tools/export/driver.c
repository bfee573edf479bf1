/*
 * Stands for the NVIDIA driver on machines without one: memory of GPUs is the host's, shared among processes as the driver's
 * is, and kernels do not run. A launch is written into STUB_LOG, and counted near the end of each piece of another rank's memory
 * that its parameters name: so a test sees which memory was mapped where. Calls that STUB_REFUSES names are refused. Memory has
 * fabric handles where STUB_FABRIC names a folder; with STUB_CONFUSES a handle brings other memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 2, INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_SUPPORTED = 801 };
enum { PAGE = 1 << 16, MOST = 4096 };

typedef uint64_t address;

/* Mapped memory. */
static struct piece {
  address at;
  size_t bytes;
  int descriptor, imported;
} pieces[MOST];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local uintptr_t contexts[16];
static _Thread_local int depth;

static int refuses(const char *call) {
  const char *names = getenv("STUB_REFUSES"), *rank = getenv("STUB_REFUSES_DEVICE");
  if (names == NULL || strstr(names, call) == NULL) return 0;
  return rank == NULL || (depth > 0 && contexts[depth - 1] == (uintptr_t)atoi(rank) + 1);
}
#define CHECK(call)                              \
  if (refuses(call)) return NOT_SUPPORTED;       \
  if (depth == 0) return INVALID_CONTEXT

static void say(const char *format, ...) {
  const char *path = getenv("STUB_LOG");
  if (path == NULL) return;
  char line[8192];
  va_list values;
  va_start(values, format);
  int length = vsnprintf(line, sizeof line, format, values);
  va_end(values);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (write(file, line, (size_t)length) != length) abort();
  close(file);
}

int cuInit(unsigned flags) { return flags == 0 ? 0 : INVALID_VALUE; }
int cuGetErrorName(int result, const char **name) {
  *name = result == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR_OF_THE_STUB";
  return 0;
}
int cuDeviceGetCount(int *count) {
  *count = 8;
  return 0;
}
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}
/* STUB_CAPABILITY: the compute capability, 9.0 by default. */
int cuDeviceGetAttribute(int *out, int attribute, int device) {
  const char *capability = getenv("STUB_CAPABILITY");
  if (capability == NULL) capability = "9.0";
  *out = atoi(attribute == 75 ? capability : strchr(capability, '.') + 1);
  return device < 0 || attribute < 75 || attribute > 76 ? INVALID_VALUE : 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)((uintptr_t)device + 1);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  say("released device %d\n", device);
  return 0;
}
int cuCtxSetCurrent(void *context) {
  depth = 1;
  contexts[0] = (uintptr_t)context;
  return 0;
}
int cuCtxPushCurrent_v2(void *context) {
  contexts[depth++] = (uintptr_t)context;
  return 0;
}
int cuCtxPopCurrent_v2(void **context) {
  if (depth == 0) return INVALID_CONTEXT;
  *context = (void *)contexts[--depth];
  return 0;
}
int cuCtxSynchronize(void) {
  CHECK("cuCtxSynchronize");
  return 0;
}
int cuModuleLoadData(void **module, const void *image) {
  CHECK("cuModuleLoadData");
  if (refuses("memory for kernels")) return OUT_OF_MEMORY;
  say("loaded %s\n", (const char *)image);
  *module = strdup((const char *)image);
  return 0;
}
int cuModuleUnload(void *module) {
  free(module);
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *entry) {
  /* An image is its architecture and the kernel's name. */
  const char *kernel = strchr((const char *)module, ' ') + 1;
  if (strncmp(kernel, entry, strlen(kernel)) != 0) return INVALID_VALUE;
  *function = (void *)entry;
  return 0;
}
int cuFuncLoad(void *function) { return function == NULL ? INVALID_VALUE : 0; }
/* What parameters a kernel has is not known here: each gets 128 bytes, as many as a map. */
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  *offset = 128 * index;
  *bytes = 128;
  return function == NULL ? INVALID_VALUE : 0;
}
int cuTensorMapEncodeTiled(void *map, int type, unsigned dimensions, void *memory) {
  memset(map, 0, 128);
  memcpy(map, &memory, sizeof memory);
  return type >= 0 && dimensions >= 2 && dimensions <= 3 && (uintptr_t)map % 64 == 0 ? 0 : INVALID_VALUE;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  return function != NULL && attribute == 8 && value >= 0 ? 0 : INVALID_VALUE;
}
int cuStreamCreate(void **stream, unsigned flags) {
  CHECK("cuStreamCreate");
  *stream = malloc(1);
  return flags == 1 ? 0 : INVALID_VALUE;
}
int cuStreamSynchronize(void *stream) { return stream == NULL ? INVALID_VALUE : 0; }
int cuStreamDestroy_v2(void *stream) {
  free(stream);
  return 0;
}

static int keep(address at, size_t bytes, int descriptor, int imported) {
  pthread_mutex_lock(&lock);
  if (count == MOST) abort();
  pieces[count++] = (struct piece){at, bytes, descriptor, imported};
  pthread_mutex_unlock(&lock);
  return 0;
}

static struct piece *find(address at) {
  for (int p = 0; p < count; p++)
    if (at >= pieces[p].at && at < pieces[p].at + pieces[p].bytes) return &pieces[p];
  return NULL;
}

/* Before the 16 bytes that hosts know memory by. */
static uint64_t *marks(const struct piece *piece) { return (uint64_t *)(piece->at + piece->bytes) - 3; }

static int holds(address at, size_t bytes) {
  pthread_mutex_lock(&lock);
  const struct piece *piece = find(at);
  int held = piece != NULL && piece->at == at && piece->bytes == bytes;
  pthread_mutex_unlock(&lock);
  return held;
}

/* `shared`: says how many launches of others named it. */
static int drop(address at, int shared) {
  pthread_mutex_lock(&lock);
  struct piece *piece = find(at);
  if (piece == NULL || piece->at != at) {
    pthread_mutex_unlock(&lock);
    return INVALID_VALUE;
  }
  if (shared && !piece->imported) say("freed device %d marks %lu\n", (int)contexts[depth - 1] - 1, *marks(piece));
  munmap((void *)at, piece->bytes);
  close(piece->descriptor);
  *piece = pieces[--count];
  pthread_mutex_unlock(&lock);
  return 0;
}

static int memory(size_t bytes) {
  int file = memfd_create("stub", MFD_CLOEXEC);
  return ftruncate(file, (off_t)bytes) == 0 ? file : -1;
}

int cuMemAlloc_v2(address *at, size_t bytes) {
  CHECK("cuMemAlloc");
  bytes = (bytes + PAGE) / PAGE * PAGE;
  int file = memory(bytes);
  *at = (address)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return keep(*at, bytes, file, 0);
}
int cuMemFree_v2(address at) { return drop(at, 1); }
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
  CHECK("cuMemHostRegister");
  return (uintptr_t)at % 4096 == 0 && bytes > 0 && flags == 3 ? 0 : INVALID_VALUE;
}
int cuMemHostUnregister(void *at) { return at == NULL ? INVALID_VALUE : 0; }
int cuMemHostGetDevicePointer_v2(address *out, void *at, unsigned flags) {
  *out = (address)at;
  return flags == 0 ? 0 : INVALID_VALUE;
}
int cuMemsetD8_v2(address at, unsigned char value, size_t bytes) {
  CHECK("cuMemsetD8");
  memset((void *)at, value, bytes);
  return 0;
}
static int copy(address to, address from, size_t bytes) {
  if (depth == 0) return INVALID_CONTEXT;
  memcpy((void *)to, (const void *)from, bytes);
  return 0;
}
int cuMemcpyHtoD_v2(address to, const void *from, size_t bytes) { return copy(to, (address)from, bytes); }
int cuMemcpyDtoH_v2(void *to, address from, size_t bytes) { return copy((address)to, from, bytes); }
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
  return stream == NULL ? INVALID_VALUE : copy((address)to, from, bytes);
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream) {
  return stream == NULL ? INVALID_VALUE : copy(to, from, bytes);
}

/* A handle is a descriptor; one that was imported is another rank's. */
static const uint64_t imported = 1ull << 40;

int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) {
  *bytes = PAGE;
  return properties != NULL && option == 1 ? 0 : INVALID_VALUE;
}
int cuMemCreate(uint64_t *handle, size_t bytes, const int *properties, unsigned long long flags) {
  CHECK("cuMemCreate");
  const int pinned = 1, descriptor = 1, device = 1, fabric = 8;
  const char *folder = getenv("STUB_FABRIC");
  char path[64];
  if (properties[0] != pinned || properties[2] != device || flags != 0) return INVALID_VALUE;
  if (bytes % PAGE != 0 || properties[3] != (int)contexts[depth - 1] - 1) return INVALID_VALUE;
  if (properties[1] == descriptor) *handle = (uint64_t)memory(bytes);
  else {
    if (properties[1] != fabric || folder == NULL) return NOT_SUPPORTED;
    snprintf(path, sizeof path, "%s/fabric-XXXXXX", folder);
    *handle = (uint64_t)mkstemp(path);
    if (ftruncate((int)*handle, (off_t)bytes) != 0) abort();
  }
  return 0;
}
int cuMemRelease(uint64_t handle) { return close((int)(handle & ~imported)) == 0 ? 0 : INVALID_VALUE; }
int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags) {
  char link[64];
  CHECK("cuMemExportToShareableHandle");
  snprintf(link, sizeof link, "/proc/thread-self/fd/%d", (int)handle);
  if (type == 1) *(int *)out = dup((int)handle);
  else memset(out, 0, 64), type = readlink(link, (char *)out, 63) > 0 ? 8 : 0;
  return (type == 1 || type == 8) && flags == 0 ? 0 : INVALID_VALUE;
}
int cuMemImportFromShareableHandle(uint64_t *handle, void *from, int type) {
  CHECK("cuMemImportFromShareableHandle");
  int file = type == 1 ? dup((int)(intptr_t)from) : open((const char *)from, O_RDWR);
  if (getenv("STUB_CONFUSES") != NULL) file = memory((size_t)lseek(file, 0, SEEK_END));
  *handle = (uint64_t)file | imported;
  return file >= 0 && (type == 1 || type == 8) ? 0 : INVALID_VALUE;
}
int cuMemAddressReserve(address *at, size_t bytes, size_t alignment, address wanted, unsigned long long flags) {
  if (alignment != 0 || wanted != 0 || flags != 0) return INVALID_VALUE;
  *at = (address)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return 0;
}
int cuMemAddressFree(address at, size_t bytes) { return munmap((void *)at, bytes) == 0 ? 0 : INVALID_VALUE; }
int cuMemMap(address at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
  CHECK("cuMemMap");
  int file = dup((int)(handle & ~imported));
  void *mapped = mmap((void *)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  if (mapped == MAP_FAILED || offset != 0 || flags != 0) return INVALID_VALUE;
  return keep(at, bytes, file, (handle & imported) != 0);
}
int cuMemUnmap(address at, size_t bytes) { return bytes == 0 ? INVALID_VALUE : drop(at, 1); }
int cuMemSetAccess(address at, size_t bytes, const int *access, size_t number) {
  if (!holds(at, bytes) || number != 1) return INVALID_VALUE;
  return access[0] == 1 && access[1] == (int)contexts[depth - 1] - 1 && access[2] == 3 ? 0 : INVALID_VALUE;
}

struct ipc {
  int32_t process, descriptor;
  uint64_t bytes;
  unsigned char unused[48];
};
int cuIpcGetMemHandle(struct ipc *handle, address at) {
  CHECK("cuIpcGetMemHandle");
  const struct piece *piece = find(at); /* By a process of one thread: those of several have no handles. */
  if (piece == NULL || piece->at != at) return INVALID_VALUE;
  *handle = (struct ipc){getpid(), piece->descriptor, piece->bytes, {0}};
  return 0;
}
int cuIpcOpenMemHandle_v2(address *at, struct ipc handle, unsigned flags) {
  char path[64];
  CHECK("cuIpcOpenMemHandle");
  /* As the driver has it: not in the process that exported it. */
  if (flags != 1 || handle.process == getpid()) return INVALID_CONTEXT;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.descriptor);
  int file = open(path, O_RDWR);
  if (file < 0) return INVALID_VALUE;
  *at = (address)mmap(NULL, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return keep(*at, handle.bytes, file, 1);
}
int cuIpcCloseMemHandle(address at) { return drop(at, 0); }

struct config {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  const int *attributes;
  unsigned attribute_count;
};
int cuLaunchKernelEx(const struct config *config, void *function, void **parameters, void **extra) {
  CHECK("cuLaunchKernelEx");
  if (parameters != NULL || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != NULL) return INVALID_VALUE;
  if (config->grid[1] * config->grid[2] * config->block[1] * config->block[2] != 1) return INVALID_VALUE;
  if (config->attribute_count == 1 && (config->attributes[0] != 6 || config->attributes[2] != 1)) return INVALID_VALUE;
  const unsigned char *block = (const unsigned char *)extra[1];
  const size_t bytes = *(const size_t *)extra[3];
  char hex[2 * 4096 + 1];
  for (size_t i = 0; i < bytes; i++) snprintf(hex + 2 * i, 3, "%02x", block[i]);
  say("launch device %d kernel %s grid %u block %u shared %u programmatic %u parameters %s\n", (int)contexts[depth - 1] - 1,
      (const char *)function, config->grid[0], config->block[0], config->shared_bytes, config->attribute_count, hex);
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    address word;
    memcpy(&word, block + i, 8);
    struct piece *piece = find(word);
    if (piece != NULL && piece->imported) __atomic_fetch_add(marks(piece), 1, __ATOMIC_SEQ_CST);
  }
  pthread_mutex_unlock(&lock);
  return 0;
}
