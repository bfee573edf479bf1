/**
 * The host in C that every export brings, behind its tables (source.ts). It is C11 and C++17, and needs nothing but the NVIDIA
 * driver, which it opens by itself. The types of the driver's calls are its own: their layout is the driver's ABI, and a test
 * compares them with cuda.h. Names begin with `heddle`, in whose place source.ts puts the prefix.
 */
export const hostSource = String.raw`
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
  int32_t process, descriptors[HEDDLE_WINDOWS];
  struct heddle_handle handles[HEDDLE_WINDOWS];
  /* The last bytes of each window, by which whoever maps it knows it. */
  struct heddle_token tokens[HEDDLE_WINDOWS];
  /* The error of this rank in words; empty where all went well. */
  char wrong[200];
};

struct heddle_rank {
  struct heddle_driver cuda;
  struct heddle_host host;
  int device;
  /* No other way would do, on any rank. */
  int hopeless;
  /* The stream is for reading failures beside whatever runs. */
  void *context, *stream;
  void *modules[HEDDLE_KERNELS], *functions[HEDDLE_KERNELS];
  /* The kernels can wait for the launch before them, so that it may still run when they begin. */
  unsigned overlaps;
  heddle_address buffers[HEDDLE_BUFFERS + 1];
  struct heddle_mapping windows[HEDDLE_RANKS][HEDDLE_WINDOWS];
  /* Open until every rank has mapped the windows. */
  int descriptors[HEDDLE_WINDOWS];
  struct heddle_card cards[HEDDLE_RANKS];
  struct heddle_slots received;
  /* The parameters of each launch, of which rounds write some. */
  uint64_t blocks[HEDDLE_LAUNCHES][(HEDDLE_MOST_PARAMETER_BYTES + 7) / 8];
};

static HEDDLE_THREAD_LOCAL char heddle_said[600];

static const char *heddle_say(const char *format, ...) {
  char words[sizeof heddle_said];
  va_list values;
  va_start(values, format);
  vsnprintf(words, sizeof words, format, values);
  va_end(values);
  return strcpy(heddle_said, words);
}

static const char *heddle_refused(const heddle_rank *h, const char *call, int result) {
  const char *name = NULL;
  h->cuda.cuGetErrorName(result, &name);
  return heddle_say("%s failed with %s (%d)", call, name == NULL ? "an unknown result" : name, result);
}

#define HEDDLE_TRY(call, arguments)                                \
  do {                                                             \
    int result_ = h->cuda.call arguments;                          \
    if (result_ != 0) return heddle_refused(h, #call, result_);    \
  } while (0)

static heddle_address heddle_at(const heddle_rank *h, struct heddle_place place) {
  return (place.in_buffer ? h->buffers[place.index] : h->windows[h->host.rank][place.index].address) + place.offset;
}

/* ---- What a rank makes alone. */

static const char *heddle_open_driver(heddle_rank *h) {
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
  HEDDLE_TRY(cuInit, (0));
  HEDDLE_TRY(cuDeviceGet, (&h->device, h->host.device));
  HEDDLE_TRY(cuDevicePrimaryCtxRetain, (&h->context, h->device));
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  return NULL;
}

/* Which image of each kernel is for this GPU; or none of them. */
static const char *heddle_choose(heddle_rank *h, int *chosen) {
  const int attribute_major = 75, attribute_minor = 76, hopper = 90;
  int major, minor;
  HEDDLE_TRY(cuDeviceGetAttribute, (&major, attribute_major, h->device));
  HEDDLE_TRY(cuDeviceGetAttribute, (&minor, attribute_minor, h->device));
  for (int a = 0; a < HEDDLE_ARCHITECTURES; a++)
    if (heddle_gpus[a].oldest <= 10 * major + minor && 10 * major + minor <= heddle_gpus[a].newest) {
      h->overlaps = heddle_gpus[a].oldest >= hopper;
      *chosen = a;
      return NULL;
    }
  return heddle_say("GPU %d has compute capability %d.%d, and the kernels of this export are for %s: export for it by --arch",
                    h->host.device, major, minor, heddle_architectures);
}

/* Kernels are loaded now: one that is loaded while another waits for a peer may wait for that one to end. */
static const char *heddle_prepare(heddle_rank *h) {
  const unsigned non_blocking = 1;
  const int most_dynamic_shared = 8;
  int chosen;
  const char *wrong = heddle_choose(h, &chosen);
  if (wrong != NULL) return wrong;
  HEDDLE_TRY(cuStreamCreate, (&h->stream, non_blocking));
  for (int b = 0; b < HEDDLE_BUFFERS; b++) HEDDLE_TRY(cuMemAlloc, (&h->buffers[b], heddle_buffer_bytes[b]));
  for (int k = 0; k < HEDDLE_KERNELS; k++) {
    HEDDLE_TRY(cuModuleLoadData, (&h->modules[k], heddle_images[k][chosen]));
    HEDDLE_TRY(cuModuleGetFunction, (&h->functions[k], h->modules[k], heddle_entries[k]));
    if (h->cuda.cuFuncLoad != NULL) HEDDLE_TRY(cuFuncLoad, (h->functions[k]));
  }
  for (int l = 0; l < HEDDLE_LAUNCHES; l++) {
    const struct heddle_launch *launch = &heddle_launches[l];
    HEDDLE_TRY(cuFuncSetAttribute,
               (h->functions[launch->kernel], most_dynamic_shared, (int)launch->dynamic_shared_bytes));
  }
  return NULL;
}

static size_t heddle_round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Maps physical memory for this GPU. The mapping keeps it, whatever becomes of its handle. */
static const char *heddle_map(heddle_rank *h, struct heddle_mapping *mapping, uint32_t way, uint64_t memory) {
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

static const char *heddle_allocate_shareable(heddle_rank *h, int w, struct heddle_card *mine) {
  struct heddle_mapping *own = &h->windows[h->host.rank][w];
  const int type = heddle_handle_type(mine->way), recommended = 1;
  struct heddle_allocation pinned = {1, type, 1, h->device, NULL, 0, 0, 0, {0, 0, 0, 0}};
  size_t unit;
  uint64_t memory;
  HEDDLE_TRY(cuMemGetAllocationGranularity, (&unit, &pinned, recommended));
  own->bytes = heddle_round_up(heddle_window_bytes[w] + sizeof *mine->tokens, unit);
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

static const char *heddle_allocate_by_ipc(heddle_rank *h, int w, struct heddle_card *mine) {
  struct heddle_mapping *own = &h->windows[h->host.rank][w];
  /* CUDA IPC shares whole blocks of 2 MiB: nothing else is to lie in them. */
  own->bytes = heddle_round_up(heddle_window_bytes[w] + sizeof *mine->tokens, (size_t)1 << 21);
  HEDDLE_TRY(cuMemAlloc, (&own->address, own->bytes));
  own->way = HEDDLE_BY_IPC;
  HEDDLE_TRY(cuIpcGetMemHandle, (&mine->handles[w], own->address));
  return NULL;
}

static heddle_address heddle_token_at(const struct heddle_mapping *window) {
  return window->address + window->bytes - sizeof(struct heddle_token);
}

/* The windows of this rank, with their start values. */
static const char *heddle_allocate(heddle_rank *h, struct heddle_card *mine) {
  const struct heddle_mapping *own = h->windows[h->host.rank];
  for (int w = 0; w < HEDDLE_WINDOWS; w++) {
    const char *wrong = mine->way == HEDDLE_BY_IPC ? heddle_allocate_by_ipc(h, w, mine)
                                                   : heddle_allocate_shareable(h, w, mine);
    if (wrong != NULL) return wrong;
    HEDDLE_TRY(cuMemsetD8, (own[w].address, 0, heddle_window_bytes[w]));
    if (getrandom(&mine->tokens[w], sizeof mine->tokens[w], 0) != (ssize_t)sizeof mine->tokens[w])
      return heddle_say("no random bytes: %s", strerror(errno));
    HEDDLE_TRY(cuMemcpyHtoD, (heddle_token_at(&own[w]), &mine->tokens[w], sizeof mine->tokens[w]));
  }
  for (int f = 0; f < HEDDLE_FILLS; f++) {
    const struct heddle_fill *fill = &heddle_fills[f];
    HEDDLE_TRY(cuMemsetD8, (own[fill->window].address + fill->offset, fill->value, fill->bytes));
  }
  HEDDLE_TRY(cuCtxSynchronize, ());
  return NULL;
}

/* Reads memory of this GPU beside whatever runs. */
static const char *heddle_read(heddle_rank *h, void *to, heddle_address from, size_t bytes) {
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

static const char *heddle_import(heddle_rank *h, const struct heddle_card *card, int w, uint64_t *memory) {
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

static const char *heddle_map_peer(heddle_rank *h, int r, int w) {
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

static const char *heddle_map_peers(heddle_rank *h) {
  const char *wrong = NULL;
  for (int r = 0; r < HEDDLE_RANKS; r++)
    for (int w = 0; w < HEDDLE_WINDOWS && wrong == NULL; w++)
      if (r != (int)h->host.rank) wrong = heddle_map_peer(h, r, w);
  return wrong;
}

static void heddle_release_windows(heddle_rank *h) {
  for (int r = 0; r < HEDDLE_RANKS; r++) {
    for (int w = 0; w < HEDDLE_WINDOWS; w++) {
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
static const char *heddle_meet(heddle_rank *h, struct heddle_card *mine, const char *wrong) {
  snprintf(mine->wrong, sizeof mine->wrong, "%s", wrong == NULL ? "" : wrong);
  h->hopeless = 1;
  if (h->host.all_gather(h->host.context, mine, h->cards, sizeof *mine) != 0)
    return heddle_say("all_gather of the host failed");
  for (int r = 0; r < HEDDLE_RANKS; r++) {
    const struct heddle_card *card = &h->cards[r];
    if ((int)card->rank != r) return heddle_say("all_gather left rank %u's bytes in rank %d's place", card->rank, r);
    if (card->plan != heddle_plan || card->asked != mine->asked)
      return heddle_say("rank %d runs another export, or has another %s in its environment", r, "HEDDLE_WINDOWS");
  }
  h->hopeless = 0;
  for (int r = 0; r < HEDDLE_RANKS; r++) h->hopeless |= h->cards[r].unfit != 0;
  for (int r = 0; r < HEDDLE_RANKS; r++)
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
static const char *heddle_share(heddle_rank *h, const char *unfit) {
  const char *asked = getenv("HEDDLE_WINDOWS");
  char before[400] = "";
  struct heddle_card mine;
  memset(&mine, 0, sizeof mine);
  while (asked != NULL && mine.asked <= HEDDLE_BY_IPC && strcmp(asked, heddle_ways[mine.asked]) != 0) mine.asked++;
  if (mine.asked > HEDDLE_BY_IPC && unfit == NULL)
    unfit = heddle_say("%s is \"%s\"; it must be auto, descriptor, fabric or ipc", "HEDDLE_WINDOWS", asked);
  mine.plan = heddle_plan;
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
    for (int w = 0; w < HEDDLE_WINDOWS; w++) {
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

/* Writes what no round changes. */
static void heddle_bind(heddle_rank *h) {
  for (int l = 0; l < HEDDLE_LAUNCHES; l++) {
    const struct heddle_launch *launch = &heddle_launches[l];
    char *block = (char *)h->blocks[l];
    for (uint32_t p = 0; p < launch->parameter_count; p++) {
      const struct heddle_parameter *parameter = &launch->parameters[p];
      uint64_t value = 0;
      switch (parameter->from) {
        case HEDDLE_FROM_WINDOW:
          for (int r = 0; r < HEDDLE_RANKS; r++)
            memcpy(block + parameter->offset + 8 * r, &h->windows[r][parameter->index].address, 8);
          continue;
        case HEDDLE_FROM_BUFFER: value = h->buffers[parameter->index]; break;
        case HEDDLE_FROM_LIMIT: value = h->host.limit_us == 0 ? 10000000 : h->host.limit_us; break;
        case HEDDLE_FROM_RANK: value = h->host.rank; break;
        case HEDDLE_FROM_CONSTANT: value = parameter->index; break;
        default: continue;
      }
      memcpy(block + parameter->offset, &value, parameter->bytes);
    }
  }
#define HEDDLE_POINT(field, type, place) h->received.field = (type)(uintptr_t)heddle_at(h, place);
  HEDDLE_RECEIVED(HEDDLE_POINT)
}

/* ---- What a host calls. */

const char *heddle_create(heddle_rank **made, const struct heddle_host *host) {
  *made = NULL;
  if (host->rank >= HEDDLE_RANKS) return heddle_say("rank is %u, and there are %d ranks", host->rank, HEDDLE_RANKS);
  if (host->all_gather == NULL) return heddle_say("all_gather is NULL");
  heddle_rank *h = (heddle_rank *)calloc(1, sizeof *h);
  if (h == NULL) return heddle_say("there is no memory for a rank");
  h->host = *host;
  for (int w = 0; w < HEDDLE_WINDOWS; w++) h->descriptors[w] = -1;
  /* A rank that cannot go on tells the others, too. */
  const char *wrong = heddle_open_driver(h);
  if (wrong == NULL) wrong = heddle_prepare(h);
  wrong = heddle_share(h, wrong);
  void *popped;
  if (h->context != NULL) h->cuda.cuCtxPopCurrent(&popped);
  if (wrong != NULL) {
    heddle_destroy(h);
    return wrong;
  }
  heddle_bind(h);
  *made = h;
  return NULL;
}

const struct heddle_slots *heddle_received(const heddle_rank *h) { return &h->received; }

static const char *heddle_check(const struct heddle_round *round, int combining) {
  if (round->tokens > HEDDLE_MAX_TOKENS)
    return heddle_say("tokens is %u, more than %d", round->tokens, HEDDLE_MAX_TOKENS);
  if (round->tokens == 0) return NULL;
  if (round->topk_ids == NULL) return heddle_say("topk_ids is NULL");
  if (combining) {
    if (round->out == NULL || (uintptr_t)round->out % HEDDLE_OUT_ALIGNMENT != 0)
      return heddle_say("out is %p, not a multiple of %d", round->out, HEDDLE_OUT_ALIGNMENT);
    return NULL;
  }
  if (HEDDLE_WEIGHTS && round->topk_weights == NULL) return heddle_say("topk_weights is NULL");
  for (int p = 0; p < HEDDLE_PAYLOADS; p++)
    if (round->rows[p] == NULL || (uintptr_t)round->rows[p] % heddle_row_alignment[p] != 0)
      return heddle_say("rows[%d] is %p, not a multiple of %u", p, round->rows[p], heddle_row_alignment[p]);
  return NULL;
}

static uint64_t heddle_value(const struct heddle_parameter *parameter, const struct heddle_round *round) {
  switch (parameter->from) {
    case HEDDLE_FROM_ROWS: return (uint64_t)(uintptr_t)round->rows[parameter->index];
    case HEDDLE_FROM_TOKENS: return round->tokens;
    case HEDDLE_FROM_TOPK_IDS: return (uint64_t)(uintptr_t)round->topk_ids;
    case HEDDLE_FROM_TOPK_WEIGHTS: return (uint64_t)(uintptr_t)round->topk_weights;
    default: return (uint64_t)(uintptr_t)round->out;
  }
}

static const char *heddle_enqueue(heddle_rank *h, int l, const struct heddle_round *round, void *stream) {
  const struct heddle_launch *launch = &heddle_launches[l];
  char *block = (char *)h->blocks[l];
  for (uint32_t p = 0; p < launch->parameter_count; p++) {
    const struct heddle_parameter *parameter = &launch->parameters[p];
    if (parameter->from >= HEDDLE_FROM_WINDOW) continue;
    uint64_t value = heddle_value(parameter, round);
    memcpy(block + parameter->offset, &value, parameter->bytes);
  }
  size_t bytes = launch->parameter_bytes;
  void *extra[] = {(void *)1, block, (void *)2, &bytes, NULL};
  struct heddle_attribute programmatic;
  memset(&programmatic, 0, sizeof programmatic);
  programmatic.id = 6;
  programmatic.value.programmatic = 1;
  struct heddle_config config = {{launch->grid, 1, 1}, {launch->block, 1, 1}, launch->dynamic_shared_bytes,
                                 stream,  &programmatic, launch->programmatic & h->overlaps};
  HEDDLE_TRY(cuLaunchKernelEx, (&config, h->functions[launch->kernel], NULL, extra));
  return NULL;
}

static const char *heddle_run(heddle_rank *h, int first, int last, const struct heddle_round *round, void *stream) {
  const char *wrong = heddle_check(round, first >= HEDDLE_COMBINE_SEND);
  if (wrong != NULL) return wrong;
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  for (int l = 0; l < HEDDLE_LAUNCHES && wrong == NULL; l++)
    if (heddle_launches[l].phase >= first && heddle_launches[l].phase <= last)
      wrong = heddle_enqueue(h, l, round, stream);
  void *popped;
  h->cuda.cuCtxPopCurrent(&popped);
  return wrong;
}

#define HEDDLE_PHASES(name, first, last)                                                       \
  const char *heddle_##name(heddle_rank *h, const struct heddle_round *round, void *stream) {       \
    return heddle_run(h, HEDDLE_##first, HEDDLE_##last, round, stream);                        \
  }
HEDDLE_PHASES(dispatch, DISPATCH_SEND, DISPATCH_RECV)
HEDDLE_PHASES(combine, COMBINE_SEND, COMBINE_RECV)
#if HEDDLE_SPLIT
HEDDLE_PHASES(dispatch_send, DISPATCH_SEND, DISPATCH_SEND)
HEDDLE_PHASES(dispatch_recv, DISPATCH_RECV, DISPATCH_RECV)
HEDDLE_PHASES(combine_send, COMBINE_SEND, COMBINE_SEND)
HEDDLE_PHASES(combine_recv, COMBINE_RECV, COMBINE_RECV)
#endif

const char *heddle_failure(heddle_rank *h, struct heddle_lost *lost) {
  uint32_t words[4] = {0, 0, 0, 0};
  HEDDLE_TRY(cuCtxPushCurrent, (h->context));
  const char *wrong = heddle_read(h, words, heddle_at(h, heddle_failure_words), sizeof words);
  void *popped;
  h->cuda.cuCtxPopCurrent(&popped);
  struct heddle_lost found = {words[0] == 0 ? -1 : (int32_t)words[1], words[0] == 0 ? 0 : words[2] + 1};
  if (lost != NULL) *lost = found;
  if (wrong != NULL || words[0] == 0) return wrong;
  return heddle_say("%s of round %u gave up waiting for rank %d",
                    words[0] == HEDDLE_OPERATION_DISPATCH ? "dispatch" : "combine", found.round, (int)found.rank);
}

void heddle_destroy(heddle_rank *h) {
  if (h == NULL) return;
  if (h->context != NULL) {
    void *popped;
    h->cuda.cuCtxPushCurrent(h->context);
    h->cuda.cuCtxSynchronize();
    heddle_release_windows(h);
    for (int b = 0; b < HEDDLE_BUFFERS; b++)
      if (h->buffers[b] != 0) h->cuda.cuMemFree(h->buffers[b]);
    for (int k = 0; k < HEDDLE_KERNELS; k++)
      if (h->modules[k] != NULL) h->cuda.cuModuleUnload(h->modules[k]);
    if (h->stream != NULL) h->cuda.cuStreamDestroy(h->stream);
    h->cuda.cuCtxPopCurrent(&popped);
    h->cuda.cuDevicePrimaryCtxRelease(h->device);
  }
  free(h);
}
`;
