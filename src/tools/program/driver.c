/*
 * Stands for the CUDA driver, libcuda.so.1, of a program that `heddle check -- ./program` runs; the runtime stands on the same client.
 * No header of CUDA is needed: what is declared here has the layout that CUDA 12 and 13 have on 64-bit Linux.
 */
#include "client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 1 << 16, MOST_DEVICES = 128 };

typedef uint64_t address;

/* Contexts: the primary one of each device, and the stack of this thread, whose top is the device. */

static int primaries[MOST_DEVICES];
static _Thread_local int below[16], depth;

static int is_here(void) { return depth > 0 || has_runtime; }
#include "both.h"

API int cuInit(unsigned flags) {
  uint64_t count;
  return flags != 0 ? INVALID_VALUE : get(COUNT, 0, 0, &count);
}
API int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
API int cuDeviceGet(int *to, int ordinal) {
  int count, error = cuDeviceGetCount(&count);
  if (error != SUCCESS || ordinal < 0 || ordinal >= count) return error ? error : INVALID_DEVICE;
  return *to = ordinal, SUCCESS;
}
API int cuDeviceGetName(char *name, int length, int of) { return snprintf(name, (size_t)length, "simulated GPU"), SUCCESS; }
API int cuDeviceGetUuid_v2(char *to, int of) { return memset(to, 0, 16), to[15] = (char)of, SUCCESS; }
API int cuDeviceTotalMem_v2(size_t *bytes, int of) { return *bytes = 1UL << 31, SUCCESS; }
API int cuDeviceComputeCapability(int *major, int *minor, int of) { return *major = 9, *minor = 0, SUCCESS; }
API int cuDeviceGetP2PAttribute(int *value, int attribute, int here, int there) { return *value = attribute != 1, SUCCESS; }

API int cuDevicePrimaryCtxRetain(void **context, int of) {
  int error = cuDeviceGet(&of, of);
  return error ? error : (*context = &primaries[of], SUCCESS);
}
API int cuDevicePrimaryCtxGetState(int of, unsigned *flags, int *active) { return *flags = 0, *active = 1, SUCCESS; }
API int cuCtxPushCurrent_v2(void *context) {
  if (context == NULL || depth == 16) return INVALID_VALUE;
  below[depth++] = device, device = (int)((int *)context - primaries);
  return SUCCESS;
}
API int cuCtxPopCurrent_v2(void **context) {
  if (depth == 0) return INVALID_CONTEXT;
  if (context != NULL) *context = &primaries[device];
  return device = below[--depth], SUCCESS;
}
API int cuCtxSetCurrent(void *context) {
  if (context == NULL) return depth = 0, SUCCESS;
  if (depth == 0) below[depth++] = device;
  return device = (int)((int *)context - primaries), SUCCESS;
}
API int cuCtxGetCurrent(void **context) { return *context = is_here() ? &primaries[device] : NULL, SUCCESS; }
API int cuCtxCreate_v2(void **context, unsigned flags, int of) {
  int error = cuDevicePrimaryCtxRetain(context, of);
  return error ? error : cuCtxPushCurrent_v2(*context);
}
API int cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int of) { return cuCtxCreate_v2(context, flags, of); }
API int cuCtxDestroy_v2(void *context) {
  if (depth > 0 && context == &primaries[device]) device = below[--depth];
  return SUCCESS;
}
API int cuCtxGetDevice(int *of) { IN_CONTEXT; return *of = device, SUCCESS; }
API int cuCtxGetApiVersion(void *context, unsigned *version) { return *version = 13000, SUCCESS; }

/* Modules and functions. A module is the number of its binary; those of the runtime are small. */

struct function { uint64_t module; char name[]; };
struct parameter { uint64_t offset, bytes; };
enum { MOST_PARAMETERS = 1 << 11, MOST_BYTES = 1 << 15 };

static uint64_t modules = 1ULL << 32;

/* The parameters of kernels, asked for once: by the address that stands for the function. */
static struct kernel { const void *function; uint64_t count; struct parameter all[]; } *known[1024];
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

static const struct kernel *kernel_of(const void *function, int *error) {
  size_t at = (U(function) >> 4) % 1024, tried = 0;
  *error = SUCCESS;
  pthread_mutex_lock(&asking);
  while (known[at] != NULL && known[at]->function != function && tried++ < 1024) at = (at + 1) % 1024;
  if (known[at] == NULL || known[at]->function != function) {
    struct kernel *made = malloc(sizeof *made + MOST_PARAMETERS * sizeof *made->all);
    *error = ask(PARAMETERS, (words){U(function), MOST_PARAMETERS}, NULL, 0, &made->count, made->all);
    made->function = function;
    if (*error == SUCCESS) known[at] = realloc(made, sizeof *made + made->count * sizeof *made->all);
    else free(made);
  }
  const struct kernel *found = *error == SUCCESS ? known[at] : NULL;
  pthread_mutex_unlock(&asking);
  return found;
}

API int cuModuleLoadData(void **module, const void *image) {
  IN_CONTEXT;
  uint64_t number = __atomic_add_fetch(&modules, 1, __ATOMIC_RELAXED), bytes;
  const struct { int magic, version; const char *data; } *wrapper = image;
  const char *data = wrapper->magic == 0x466243b1 ? wrapper->data : image;
  int isFat = *(const unsigned *)data == 0xba55ed50;
  if (memcmp(data, "\177ELF", 4) == 0) return refuse("a module of machine code alone: it needs PTX, as -arch=compute_90 makes it"), NO_PTX;
  if (isFat) memcpy(&bytes, data + 8, 8), bytes += *(const uint16_t *)(data + 6);
  else bytes = strlen(data);
  int error = ask(isFat ? BINARY : PTX, (words){number}, data, bytes, NULL, NULL);
  return *module = (void *)number, error;
}
API int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) { return cuModuleLoadData(module, image); }
API int cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }
API int cuModuleLoad(void **module, const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return 301;
  fseek(file, 0, SEEK_END);
  size_t bytes = (size_t)ftell(file);
  char *image = calloc(1, bytes + 1);
  rewind(file);
  int error = fread(image, 1, bytes, file) == bytes ? cuModuleLoadData(module, image) : 301;
  return fclose(file), free(image), error;
}
API int cuModuleGetFunction(void **to, void *module, const char *name) {
  IN_CONTEXT;
  int error;
  struct function *made = malloc(sizeof *made + strlen(name) + 1);
  made->module = U(module);
  strcpy(made->name, name);
  ask(FUNCTION, (words){U(module), U(made)}, name, strlen(name), NULL, NULL);
  if (kernel_of(made, &error) == NULL) return free(made), NOT_FOUND;
  return *to = made, SUCCESS;
}
API int cuModuleGetGlobal_v2(address *at, size_t *bytes, void *module, const char *name) {
  IN_CONTEXT;
  /* A variable is known by where its name lies. */
  char *kept = strdup(name);
  uint64_t of[2] = {0, 0};
  ask(VARIABLE, (words){U(module), U(kept)}, name, strlen(name), NULL, NULL);
  int error = get(SYMBOL, U(kept), 0, &of[0]);
  if (error != SUCCESS) return NOT_FOUND;
  if (at != NULL) *at = of[0];
  return bytes == NULL ? SUCCESS : get(LENGTH, of[0], 0, bytes);
}
API int cuLibraryLoadData(void **library, const void *code, int *a, void **b, unsigned c, int *d, void **e, unsigned f) { return cuModuleLoadData(library, code); }
API int cuLibraryGetModule(void **module, void *library) { return *module = library, SUCCESS; }
API int cuLibraryGetKernel(void **kernel, void *library, const char *name) { return cuModuleGetFunction(kernel, library, name); }
API int cuLibraryGetGlobal(address *at, size_t *bytes, void *library, const char *name) { return cuModuleGetGlobal_v2(at, bytes, library, name); }
API int cuKernelGetFunction(void **to, void *kernel) { return *to = kernel, SUCCESS; }
API int cuFuncGetModule(void **module, struct function *of) { return *module = (void *)of->module, SUCCESS; }
API int cuFuncGetName(const char **name, struct function *of) { return *name = of->name, SUCCESS; }
API int cuFuncGetAttribute(int *value, int attribute, void *function) {
  static const int values[] = {1024, 0, 0, 0, 32, 90, 90, 0, 232448, -1};
  return *value = attribute < 10 ? values[attribute] : 0, SUCCESS;
}

API int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  int error;
  const struct kernel *of = kernel_of(function, &error);
  if (of == NULL || index >= of->count) return error ? error : INVALID_VALUE;
  *offset = of->all[index].offset;
  if (bytes != NULL) *bytes = of->all[index].bytes;
  return SUCCESS;
}

API int cuLaunchKernelEx(const struct config *with, const void *function, void **values, void **extra) {
  IN_CONTEXT;
  int error;
  char message[48 + MOST_BYTES];
  unsigned shape[12] = {with->grid[0], with->grid[1], with->grid[2], with->block[0], with->block[1], with->block[2], 0, 0, 0, with->shared, 0, 0};
  for (const struct attribute *of = with->attributes; of < with->attributes + with->count; of++) {
    if (of->id == 2) shape[10] = (unsigned)of->value.flag;
    if (of->id == 4) memcpy(shape + 6, of->value.extent, 12);
    if (of->id == 6) shape[11] = (unsigned)of->value.flag;
    if (of->id == 7 || of->id == 11 || of->id == 12) return refuse("an attribute of a launch");
  }
  memcpy(message, shape, sizeof shape);
  const char *block = NULL;
  for (; extra != NULL && *extra != NULL; extra += 2)
    if (*extra == (void *)1) block = extra[1];
  const struct kernel *kernel = kernel_of(function, &error);
  if (kernel == NULL) return error;
  size_t end = sizeof shape;
  for (const struct parameter *of = kernel->all; of < kernel->all + kernel->count; end += of++->bytes) {
    if (end + of->bytes > sizeof message || (block == NULL && values == NULL)) return wrong(INVALID_VALUE);
    memcpy(message + end, block != NULL ? block + of->offset : values[of - kernel->all], of->bytes);
  }
  return ask(LAUNCH, (words){U(function), U(with->on)}, message, end, NULL, NULL);
}
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, stream on, void **values, void **extra) {
  return cuLaunchKernelEx(&(struct config){{gx, gy, gz}, {bx, by, bz}, shared, on, NULL, 0}, function, values, extra);
}
API int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, stream on, void **values) {
  const struct attribute cooperative = {.id = 2, .value.flag = 1};
  return cuLaunchKernelEx(&(struct config){{gx, gy, gz}, {bx, by, bz}, shared, on, &cooperative, 1}, function, values, NULL);
}

API int cuStreamGetCtx(stream of, void **context) { return cuCtxGetCurrent(context); }

/* Waits for values and writes of them are kernels of one thread. Values of 32 bits stand in the upper half of a word. */
static const char kernels_of_streams[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n"
  ".visible .entry wait_value(.param .u64 at, .param .u64 value, .param .u32 how, .param .u32 wide) {\n"
  ".reg .pred %p<5>;\n.reg .b32 %r<5>;\n.reg .b64 %rd<6>;\n"
  "ld.param.u64 %rd1, [at];\nld.param.u64 %rd2, [value];\nld.param.u32 %r1, [how];\nld.param.u32 %r2, [wide];\n"
  "setp.ne.u32 %p1, %r2, 0;\nmov.u32 %r4, 0;\n"
  "again:\n@%p1 bra wide;\nld.acquire.sys.global.u32 %r3, [%rd1];\nmov.b64 %rd3, {%r4, %r3};\nbra.uni look;\n"
  "wide:\nld.acquire.sys.global.u64 %rd3, [%rd1];\n"
  "look:\nsub.s64 %rd4, %rd3, %rd2;\nsetp.ge.s64 %p2, %rd4, 0;\nsetp.eq.u32 %p3, %r1, 0;\n@%p3 bra.uni known;\n"
  "setp.eq.s64 %p2, %rd4, 0;\nsetp.eq.u32 %p3, %r1, 1;\n@%p3 bra.uni known;\n"
  "and.b64 %rd5, %rd3, %rd2;\nsetp.ne.s64 %p2, %rd5, 0;\nsetp.eq.u32 %p3, %r1, 2;\n@%p3 bra.uni known;\n"
  "or.b64 %rd5, %rd3, %rd2;\nsetp.ne.s64 %p2, %rd5, -1;\n"
  "known:\n@!%p2 bra again;\nret;\n}\n"
  ".visible .entry write_value(.param .u64 at, .param .u64 value, .param .u32 wide) {\n"
  ".reg .pred %p<2>;\n.reg .b32 %r<3>;\n.reg .b64 %rd<3>;\n"
  "ld.param.u64 %rd1, [at];\nld.param.u64 %rd2, [value];\nld.param.u32 %r1, [wide];\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra wide;\n"
  "cvt.u32.u64 %r2, %rd2;\nst.release.sys.global.u32 [%rd1], %r2;\nret;\nwide:\nst.release.sys.global.u64 [%rd1], %rd2;\nret;\n}\n";

static int on_stream(stream on, const char *name, void **values) {
  static _Thread_local void *module;
  void *function;
  int error = module != NULL ? SUCCESS : cuModuleLoadData(&module, kernels_of_streams);
  if (error == SUCCESS) error = cuModuleGetFunction(&function, module, name);
  return error ? error : cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, on, values, NULL);
}
static int wait_value(stream on, address at, uint64_t value, unsigned flags, unsigned wide) {
  unsigned how = flags & 3;
  if (!wide) value = value << 32 | (how == 3 ? 0xffffffff : 0);
  return on_stream(on, "wait_value", (void *[]){&at, &value, &how, &wide});
}
API int cuStreamWaitValue32_v2(stream on, address at, uint32_t value, unsigned flags) { return wait_value(on, at, value, flags, 0); }
API int cuStreamWaitValue64_v2(stream on, address at, uint64_t value, unsigned flags) { return wait_value(on, at, value, flags, 1); }
static int write_value(stream on, address at, uint64_t value, unsigned wide) { return on_stream(on, "write_value", (void *[]){&at, &value, &wide}); }
API int cuStreamWriteValue64_v2(stream on, address at, uint64_t value, unsigned flags) { return write_value(on, at, value, 1); }
API int cuStreamWriteValue32_v2(stream on, address at, uint32_t value, unsigned flags) { return write_value(on, at, value, 0); }

/* Memory. */

API int cuMemGetAddressRange_v2(address *base, size_t *bytes, address at) {
  uint64_t found[2] = {0, 0}, word;
  int error = ask(BASE, (words){at}, NULL, 0, &word, found);
  if (base != NULL) *base = word;
  if (bytes != NULL) *bytes = found[0];
  return error;
}
API int cuPointerGetAttribute(void *to, int attribute, address at) {
  uint64_t where = 0, base, bytes;
  int error = get(WHERE, at, 0, &where);
  if (error != SUCCESS || where == 0) return error ? error : INVALID_VALUE;
  switch (attribute) {
    case 1: return *(void **)to = &primaries[(int)where - 1], SUCCESS;
    case 2: return *(int *)to = 2, SUCCESS;
    case 3: return *(address *)to = at, SUCCESS;
    case 6: return SUCCESS;
    case 7: return *(uint64_t *)to = at >> 32, SUCCESS;
    case 8: return *(int *)to = 0, SUCCESS;
    case 9: return *(int *)to = (int)where - 1, SUCCESS;
    case 11: return error = cuMemGetAddressRange_v2(&base, NULL, at), *(address *)to = base, error;
    case 12: return error = cuMemGetAddressRange_v2(NULL, &bytes, at), *(size_t *)to = bytes, error;
    default: return refuse("an attribute of a pointer");
  }
}

static int move(address to, address from, size_t bytes, int kind, stream on, int waits) { return copy((void *)to, (const void *)from, bytes, kind, on, waits); }
API int cuMemcpyHtoD_v2(address to, const void *from, size_t bytes) { return move(to, U(from), bytes, 1, NULL, 1); }
API int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, stream on) { return move(to, U(from), bytes, 1, on, 0); }
API int cuMemcpyDtoH_v2(void *to, address from, size_t bytes) { return move(U(to), from, bytes, 2, NULL, 1); }
API int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, stream on) { return move(U(to), from, bytes, 2, on, 0); }
API int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, stream on) { return move(to, from, bytes, 3, on, 0); }
API int cuMemcpyDtoD_v2(address to, address from, size_t bytes) { return move(to, from, bytes, 3, NULL, 0); }
API int cuMemcpyPeerAsync(address to, void *there, address from, void *here, size_t bytes, stream on) { return move(to, from, bytes, 3, on, 0); }
API int cuMemcpyPeer(address to, int *there, address from, int *here, size_t bytes) { return ASK(PEER_COPY, to, from, bytes, there - primaries, here - primaries); }
API int cuMemcpyAsync(address to, address from, size_t bytes, stream on) { return move(to, from, bytes, 4, on, 0); }
API int cuMemcpy(address to, address from, size_t bytes) { return move(to, from, bytes, 4, NULL, 1); }

/* Words that are not one byte again and again come by a copy. */
static int fill(address at, uint32_t value, size_t width, size_t count, stream on) {
  unsigned char bytes[4], *all;
  memcpy(bytes, &value, 4);
  if (memcmp(bytes, bytes + 1, width - 1) == 0) return ASK(FILL, at, bytes[0], width * count, U(on));
  if ((all = malloc(width * count)) == NULL) return OUT_OF_MEMORY;
  for (size_t i = 0; i < count; i++) memcpy(all + width * i, bytes, width);
  int error = move(at, U(all), width * count, 1, on, 1);
  return free(all), error;
}
#define FILLS(bits, width)                                                                                                         \
  API int cuMemsetD##bits##_v2(address at, uint##bits##_t value, size_t count) { return fill(at, value, width, count, NULL); }      \
  API int cuMemsetD##bits##Async(address at, uint##bits##_t value, size_t count, stream on) { return fill(at, value, width, count, on); }
FILLS(8, 1) FILLS(16, 2) FILLS(32, 4)

/* Memory that processes share. A handle is where it lies first of all; a descriptor holds a handle, and so do 64 bytes. */

API int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option) { return *bytes = PAGE, SUCCESS; }
API int cuMemCreate(address *handle, size_t bytes, const int *properties, unsigned long long flags) {
  IN_CONTEXT;
  if (properties[0] != 1 || properties[2] != 1) return refuse("cuMemCreate of memory that is not a device's");
  return bytes % PAGE != 0 ? INVALID_VALUE : get(CREATE, bytes, (uint64_t)properties[3], handle);
}
API int cuMemRelease(address handle) { return ASK(RELEASE, handle); }
API int cuMemRetainAllocationHandle(address *handle, void *at) {
  int error = cuMemGetAddressRange_v2(handle, NULL, U(at));
  return error ? error : ASK(HOLD, *handle);
}
API int cuMemExportToShareableHandle(void *to, address origin, int type, unsigned long long flags) {
  struct handle handle = {.origin = origin};
  memcpy(handle.mark, mark, sizeof mark);
  if (type == 8) return memcpy(to, &handle, sizeof handle), SUCCESS;
  int file = type == 1 ? memfd_create("heddle handle", MFD_CLOEXEC) : -1;
  if (file < 0 || write(file, &handle, sizeof handle) != sizeof handle) return INVALID_VALUE;
  return *(int *)to = file, SUCCESS;
}
API int cuMemImportFromShareableHandle(address *to, void *from, int type) {
  struct handle handle;
  if (type == 8) memcpy(&handle, from, sizeof handle);
  else if (pread((int)(intptr_t)from, &handle, sizeof handle, 0) != sizeof handle) return INVALID_VALUE;
  if (memcmp(handle.mark, mark, sizeof mark) != 0) return INVALID_VALUE;
  return *to = handle.origin, ASK(HOLD, handle.origin);
}
API int cuMemAddressReserve(address *at, size_t bytes, size_t alignment, address wanted, unsigned long long flags) { return get(RESERVE, bytes, 0, at); }
API int cuMemAddressFree(address at, size_t bytes) { return ASK(UNRESERVE, at); }
API int cuMemMap(address at, size_t bytes, size_t offset, address handle, unsigned long long flags) {
  if (offset != 0) return refuse("cuMemMap from within a handle");
  int error = ASK(MAP, at, handle);
  if (error == SUCCESS) show(at, handle, bytes);
  return error;
}
API int cuMemUnmap(address at, size_t bytes) {
  int error = ASK(UNMAP, at);
  if (error == SUCCESS) show(at, at, bytes);
  return error;
}

/* The order of a map's fields is that of the simulated machine (tensor-maps.ts), and types have PTX's numbers. */
API int cuTensorMapEncodeTiled(char *to, int type, uint32_t rank, void *at, const uint64_t *extents, const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
  static const char types[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 11, 12};
  if (type < 0 || type >= (int)sizeof types || rank < 1 || rank > 5 || U(to) % 64 != 0 || U(at) % 16 != 0) return INVALID_VALUE;
  memset(to, 0, 128);
  memcpy(to, &at, 8);
  to[8] = (char)(rank - 1), to[9] = types[type], to[10] = (char)interleave, to[11] = (char)swizzle, to[12] = (char)fill;
  for (uint32_t i = 0; i < rank; i++) {
    memcpy(to + 16 + 4 * i, &extents[i], 4);
    if (i + 1 < rank) memcpy(to + 40 + 8 * i, &strides[i], 8);
    memcpy(to + 72 + 4 * i, &box[i], 4);
    memcpy(to + 92 + 4 * i, &steps[i], 4);
  }
  return SUCCESS;
}

/* Errors, and calls by name. */

API int cuGetErrorName(int error, const char **name) {
  int at = known_error(error);
  return *name = at < 0 ? NULL : errors[at].name, at < 0 ? INVALID_VALUE : SUCCESS;
}
API int cuGetErrorString(int error, const char **text) {
  int at = known_error(error);
  return *text = at < 0 ? NULL : errors[at].text, at < 0 ? INVALID_VALUE : SUCCESS;
}

API int cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status) {
  Dl_info self;
  char newer[128];
  void *library = dladdr(&errors, &self) ? dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  snprintf(newer, sizeof newer, "%s_v2", name);
  *to = library ? dlsym(library, newer) : NULL;
  if (*to == NULL && library) *to = dlsym(library, name);
  if (status != NULL) *status = *to ? 0 : 1;
  return *to ? SUCCESS : NOT_FOUND;
}
API int cuGetProcAddress(const char *name, void **to, int version, uint64_t flags) { return cuGetProcAddress_v2(name, to, version, flags, NULL); }

NOTHING(cuCtxEnablePeerAccess) NOTHING(cuCtxDisablePeerAccess) NOTHING(cuDevicePrimaryCtxRelease_v2) NOTHING(cuDevicePrimaryCtxReset_v2)
NOTHING(cuDevicePrimaryCtxSetFlags_v2) NOTHING(cuCtxSetFlags) NOTHING(cuCtxSetCacheConfig) NOTHING(cuModuleUnload) NOTHING(cuLibraryUnload)
NOTHING(cuFuncLoad) NOTHING(cuPointerSetAttribute) NOTHING(cuMemSetAccess)
NONE(cuMemAllocPitch_v2) NONE(cuMemcpy2D_v2) NONE(cuMemcpy2DAsync_v2) NONE(cuMemcpy3D_v2) NONE(cuArrayCreate_v2) NONE(cuTexObjectCreate)
NONE(cuStreamBatchMemOp_v2) NONE(cuGraphAddMemcpyNode) NONE(cuLinkCreate_v2) NONE(cuLinkAddData_v2) NONE(cuLinkComplete)
NONE(cuMulticastCreate) NONE(cuMulticastAddDevice) NONE(cuMulticastBindMem) NONE(cuMulticastBindAddr) NONE(cuMulticastUnbind) NONE(cuPointerGetAttributes)
NONE(cuMulticastGetGranularity) NONE(cuTensorMapEncodeIm2col) NONE(cuDeviceGetLuid) NONE(cuGetExportTable)
