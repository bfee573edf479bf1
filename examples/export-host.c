/*
 * Heddle's kernels without Node.js: all ranks in one process, a GPU each. It knows what `heddle export` wrote: plan.h
 * and the kernels' cubins. It is C11 and C++17.
 *
 *   heddle export one-sided --shape ranks=2,tokens=128 --arch sm_90a --out plan
 *   gcc -O2 -I plan -I /usr/local/cuda/include examples/export-host.c -lcuda -o host
 *   ./host plan sm_90a DATA ROUNDS
 *
 * DATA/in-ROUND-RANK holds what a rank brings: u32 tokens, then ids, weights and the rows of each payload. The experts
 * give every row back as it is. DATA/out-ROUND-RANK is what combine leaves.
 */
#define _POSIX_C_SOURCE 200112L /* setenv */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define LIMIT_MICROSECONDS 10000000u

#define CHECK(call) check((call), #call)
static void check(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: CUDA error %d\n", call, (int)result);
  exit(1);
}

struct rank {
  CUcontext context;
  CUstream stream;
  CUfunction kernels[HEDDLE_LAUNCHES];
  CUdeviceptr windows[HEDDLE_WINDOWS + 1], buffers[HEDDLE_BUFFERS + 1];
};

/* What a rank brings to one round, on its GPU. */
struct round {
  uint32_t tokens;
  CUdeviceptr ids, weights, out, rows[HEDDLE_PAYLOADS + 1];
};

static struct rank ranks[HEDDLE_RANKS];

static CUdeviceptr allocate(uint64_t bytes) {
  CUdeviceptr address;
  CHECK(cuMemAlloc(&address, bytes == 0 ? 16 : bytes));
  return address;
}

/* Its context, memory with start values, and kernels, which must be loaded before any of them waits for a peer. */
static void prepare(int r, const char *plan, const char *architecture) {
  struct rank *rank = &ranks[r];
  CUdevice device;
  CHECK(cuDeviceGet(&device, r));
  CHECK(cuDevicePrimaryCtxRetain(&rank->context, device));
  CHECK(cuCtxSetCurrent(rank->context));
  CHECK(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
  for (int w = 0; w < HEDDLE_WINDOWS; w++) {
    rank->windows[w] = allocate(heddle_window_bytes[w]);
    CHECK(cuMemsetD8(rank->windows[w], 0, heddle_window_bytes[w]));
  }
  for (int b = 0; b < HEDDLE_BUFFERS; b++) rank->buffers[b] = allocate(heddle_buffer_bytes[b]);
  for (int f = 0; f < HEDDLE_FILLS; f++) {
    const struct heddle_fill *fill = &heddle_fills[f];
    CHECK(cuMemsetD8(rank->windows[fill->window] + fill->offset, fill->value, fill->bytes));
  }
  for (int l = 0; l < HEDDLE_LAUNCHES; l++) {
    const struct heddle_launch *launch = &heddle_launches[l];
    char file[4096];
    CUmodule module;
    snprintf(file, sizeof file, "%s/%s.%s.cubin", plan, launch->kernel, architecture);
    CHECK(cuModuleLoad(&module, file));
    CHECK(cuModuleGetFunction(&rank->kernels[l], module, launch->entry));
    CHECK(cuFuncSetAttribute(rank->kernels[l], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               (int)launch->dynamic_shared_bytes));
  }
}

static uint64_t value_of(const struct heddle_parameter *parameter, int r, const struct round *round) {
  switch (parameter->from) {
    case HEDDLE_FROM_WINDOW: return ranks[r].windows[parameter->index];
    case HEDDLE_FROM_BUFFER: return ranks[r].buffers[parameter->index];
    case HEDDLE_FROM_ROWS: return round->rows[parameter->index];
    case HEDDLE_FROM_TOKENS: return round->tokens;
    case HEDDLE_FROM_TOPK_IDS: return round->ids;
    case HEDDLE_FROM_TOPK_WEIGHTS: return round->weights;
    case HEDDLE_FROM_OUT: return round->out;
    case HEDDLE_FROM_LIMIT: return LIMIT_MICROSECONDS;
    case HEDDLE_FROM_RANK: return (uint64_t)r;
    case HEDDLE_FROM_CONSTANT: return parameter->index;
  }
  return 0;
}

static void enqueue(int l, int r, const struct round *round) {
  const struct heddle_launch *launch = &heddle_launches[l];
  uint64_t words[(HEDDLE_MOST_PARAMETER_BYTES + 7) / 8] = {0};
  char *block = (char *)words;
  size_t bytes = launch->parameter_bytes;
  for (uint32_t p = 0; p < launch->parameter_count; p++) {
    const struct heddle_parameter *parameter = &launch->parameters[p];
    if (parameter->from == HEDDLE_FROM_WINDOW) {
      for (uint32_t peer = 0; peer < HEDDLE_RANKS; peer++)
        memcpy(block + parameter->offset + 8 * peer, &ranks[peer].windows[parameter->index], 8);
    } else {
      uint64_t value = value_of(parameter, r, round);
      memcpy(block + parameter->offset, &value, parameter->bytes);
    }
  }
  CUlaunchAttribute programmatic;
  memset(&programmatic, 0, sizeof programmatic);
  programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  programmatic.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config;
  memset(&config, 0, sizeof config);
  config.gridDimX = launch->grid;
  config.blockDimX = launch->block;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = launch->dynamic_shared_bytes;
  config.hStream = ranks[r].stream;
  config.attrs = &programmatic;
  config.numAttrs = launch->programmatic;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  CHECK(cuLaunchKernelEx(&config, ranks[r].kernels[l], NULL, extra));
}

static CUdeviceptr at(int r, struct heddle_place place) {
  return (place.in_buffer ? ranks[r].buffers : ranks[r].windows)[place.index] + place.offset;
}

/* Stands for a layer's experts: each slot's row goes back as it came. */
static void experts(int r) {
  CUdeviceptr from = at(r, heddle_payloads_x), to = at(r, heddle_output);
  CHECK(cuMemcpyDtoDAsync(to, from, heddle_output.bytes, ranks[r].stream));
}

static void run_round(int r, const struct round *round) {
  CHECK(cuCtxSetCurrent(ranks[r].context));
  int done = 0;
  for (int l = 0; l < HEDDLE_LAUNCHES; l++) {
    if (!done && heddle_launches[l].phase >= HEDDLE_COMBINE_SEND) experts(r), done = 1;
    enqueue(l, r, round);
  }
}

static FILE *open_data(const char *folder, const char *what, int n, int r, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s-%d-%d", folder, what, n, r);
  FILE *file = fopen(path, mode);
  if (file == NULL) perror(path), exit(1);
  return file;
}

static CUdeviceptr read_device(FILE *file, uint64_t bytes) {
  char *host = (char *)malloc(bytes + 1);
  if (fread(host, 1, bytes, file) != bytes) fprintf(stderr, "the input ends early\n"), exit(1);
  CUdeviceptr address = allocate(bytes);
  if (bytes > 0) CHECK(cuMemcpyHtoD(address, host, bytes));
  free(host);
  return address;
}

static void read_round(const char *folder, int n, int r, struct round *round) {
  FILE *file = open_data(folder, "in", n, r, "rb");
  CHECK(cuCtxSetCurrent(ranks[r].context));
  if (fread(&round->tokens, 4, 1, file) != 1) fprintf(stderr, "the input is empty\n"), exit(1);
  round->ids = read_device(file, 4ull * HEDDLE_TOP_K * round->tokens);
  round->weights = read_device(file, 4ull * HEDDLE_TOP_K * round->tokens);
  for (int p = 0; p < HEDDLE_PAYLOADS; p++) round->rows[p] = read_device(file, heddle_row_bytes[p] * round->tokens);
  round->out = allocate((uint64_t)HEDDLE_OUT_ROW_BYTES * round->tokens);
  fclose(file);
}

static void write_device(const char *folder, const char *what, int n, int r, CUdeviceptr from, uint64_t bytes) {
  FILE *file = open_data(folder, what, n, r, "wb");
  char *host = (char *)malloc(bytes + 1);
  if (bytes > 0) CHECK(cuMemcpyDtoH(host, from, bytes));
  fwrite(host, 1, bytes, file);
  fclose(file);
  free(host);
}

static void require_success(int r) {
  uint32_t failure[4];
  CHECK(cuCtxSetCurrent(ranks[r].context));
  CHECK(cuStreamSynchronize(ranks[r].stream));
  CHECK(cuMemcpyDtoH(failure, at(r, heddle_failure), sizeof failure));
  if (failure[0] == 0) return;
  fprintf(stderr, "rank %d waited for rank %u in vain, in round %u\n", r, failure[1], failure[2]);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 5) return fprintf(stderr, "usage: host PLAN ARCHITECTURE DATA ROUNDS\n"), 2;
  if (heddle_payloads_x.bytes != heddle_output.bytes)
    return fprintf(stderr, "these experts give back rows of x, which are not as long as those of output\n"), 2;
  const char *data = argv[3];
  int count = atoi(argv[4]);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  CHECK(cuInit(0));
  for (int r = 0; r < HEDDLE_RANKS; r++) prepare(r, argv[1], argv[2]);
  for (int r = 0; r < HEDDLE_RANKS; r++) {
    CHECK(cuCtxSetCurrent(ranks[r].context));
    for (int peer = 0; peer < HEDDLE_RANKS; peer++)
      if (peer != r) CHECK(cuCtxEnablePeerAccess(ranks[peer].context, 0));
  }
  struct round *rounds = (struct round *)calloc((size_t)count * HEDDLE_RANKS, sizeof *rounds);
  for (int n = 0; n < count; n++)
    for (int r = 0; r < HEDDLE_RANKS; r++) read_round(data, n, r, &rounds[n * HEDDLE_RANKS + r]);
  /* All rounds are enqueued before anything is waited for. */
  for (int n = 0; n < count; n++)
    for (int r = 0; r < HEDDLE_RANKS; r++) run_round(r, &rounds[n * HEDDLE_RANKS + r]);
  for (int r = 0; r < HEDDLE_RANKS; r++) require_success(r);
  for (int n = 0; n < count; n++) {
    for (int r = 0; r < HEDDLE_RANKS; r++) {
      const struct round *round = &rounds[n * HEDDLE_RANKS + r];
      CHECK(cuCtxSetCurrent(ranks[r].context));
      write_device(data, "out", n, r, round->out, (uint64_t)HEDDLE_OUT_ROW_BYTES * round->tokens);
    }
  }
  printf("%d rounds on %d GPUs\n", count, HEDDLE_RANKS);
  return 0;
}
