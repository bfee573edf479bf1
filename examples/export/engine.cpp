// An engine in C++ with Heddle's kernels: a process a GPU. Its memory across processes is what heddle_create makes of all_gather.
//
//   heddle export one-sided --shape ranks=2,tokens=128,hidden=1024,experts=16,topk=4 --arch sm_90a --out decode
//   gcc -O2 -c decode/heddle.c -o heddle.o
//   g++ -O2 -I decode -I /usr/local/cuda/include examples/export/engine.cpp heddle.o -lcuda -ldl -lpthread -o engine
//   ./engine DATA ROUNDS
//
// DATA/in-ROUND-RANK holds what a rank brings: u32 tokens, then ids, weights and the rows of each payload. The experts give
// every row back as it is. DATA/out-ROUND-RANK is what combine leaves.
#include <cuda.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "heddle.h"

static void require(CUresult result, const char *call) {
  if (result != CUDA_SUCCESS) std::fprintf(stderr, "%s: CUDA error %d\n", call, (int)result), std::exit(1);
}
static void require(const char *wrong, const char *call) {
  if (wrong != nullptr) std::fprintf(stderr, "%s: %s\n", call, wrong), std::exit(1);
}
#define REQUIRE(call) require((call), #call)

// Where the ranks of one machine meet. An engine has its own way: MPI, sockets, a store.
struct Meeting {
  pthread_barrier_t barrier;
  unsigned char bytes[1 << 20];
};
struct Rank {
  uint32_t number;
  Meeting *meeting;
};

static int all_gather(void *context, const void *mine, void *all, size_t bytes) {
  const Rank *rank = static_cast<Rank *>(context);
  if (bytes * HEDDLE_RANKS > sizeof rank->meeting->bytes) return 1;
  std::memcpy(rank->meeting->bytes + bytes * rank->number, mine, bytes);
  pthread_barrier_wait(&rank->meeting->barrier);
  std::memcpy(all, rank->meeting->bytes, bytes * HEDDLE_RANKS);
  pthread_barrier_wait(&rank->meeting->barrier);
  return 0;
}

// Memory of the GPU, with the next bytes of the input in it.
static void *on_gpu(size_t bytes, const char **input) {
  CUdeviceptr address;
  REQUIRE(cuMemAlloc(&address, bytes + 16));
  if (input != nullptr && bytes > 0) REQUIRE(cuMemcpyHtoD(address, *input, bytes));
  if (input != nullptr) *input += bytes;
  return reinterpret_cast<void *>(address);
}

static heddle_round read_round(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t row_bytes[] = {HEDDLE_ROW_BYTES};
  heddle_round round{};
  if (bytes.size() < 4) std::fprintf(stderr, "%s holds no round\n", path.c_str()), std::exit(1);
  std::memcpy(&round.tokens, bytes.data(), 4);
  const char *at = bytes.data() + 4;
  round.topk_ids = static_cast<int32_t *>(on_gpu(4 * HEDDLE_TOP_K * round.tokens, &at));
  round.topk_weights = static_cast<float *>(on_gpu(4 * HEDDLE_TOP_K * round.tokens, &at));
  for (int p = 0; p < HEDDLE_PAYLOADS; p++) round.rows[p] = on_gpu(row_bytes[p] * round.tokens, &at);
  round.out = on_gpu((size_t)HEDDLE_OUT_ROW_BYTES * round.tokens, nullptr);
  return round;
}

// Stands for a layer's experts: the row of each slot goes back as it came.
static void experts(const heddle_slots *received, CUstream stream) {
  const size_t bytes = (size_t)HEDDLE_SOURCES * HEDDLE_MAX_TOKENS * HEDDLE_OUT_ROW_BYTES;
  REQUIRE(cuMemcpyDtoDAsync((CUdeviceptr)received->output, (CUdeviceptr)received->payloads[0], bytes, stream));
}

static void run(Rank rank, const std::string &data, int count) {
  CUdevice device;
  CUcontext context;
  CUstream stream;
  REQUIRE(cuInit(0));
  REQUIRE(cuDeviceGet(&device, (int)rank.number));
  REQUIRE(cuDevicePrimaryCtxRetain(&context, device));
  REQUIRE(cuCtxSetCurrent(context));
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  heddle_host host{};
  host.rank = rank.number;
  host.device = (int)rank.number;
  host.all_gather = all_gather;
  host.context = &rank;
  heddle_rank *heddle;
  REQUIRE(heddle_create(&heddle, &host));

  const auto file = [&](const char *what, int n) {
    return data + "/" + what + "-" + std::to_string(n) + "-" + std::to_string(rank.number);
  };
  std::vector<heddle_round> rounds;
  for (int n = 0; n < count; n++) rounds.push_back(read_round(file("in", n)));
  for (const heddle_round &round : rounds) {
    REQUIRE(heddle_dispatch(heddle, &round, stream));
    experts(heddle_received(heddle), stream);
    REQUIRE(heddle_combine(heddle, &round, stream));
  }
  REQUIRE(cuStreamSynchronize(stream));
  REQUIRE(heddle_failure(heddle, nullptr));
  for (int n = 0; n < count; n++) {
    std::vector<char> out((size_t)HEDDLE_OUT_ROW_BYTES * rounds[n].tokens);
    if (!out.empty()) REQUIRE(cuMemcpyDtoH(out.data(), (CUdeviceptr)rounds[n].out, out.size()));
    std::ofstream(file("out", n), std::ios::binary).write(out.data(), (std::streamsize)out.size());
  }
  // Nobody frees a window that another rank may still write.
  pthread_barrier_wait(&rank.meeting->barrier);
  heddle_destroy(heddle);
}

int main(int argc, char **argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: engine DATA ROUNDS\n"), 2;
  auto *meeting = static_cast<Meeting *>(
      mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&meeting->barrier, &shared, HEDDLE_RANKS);
  for (uint32_t r = 0; r < HEDDLE_RANKS; r++) {
    if (fork() != 0) continue;
    run({r, meeting}, argv[1], std::atoi(argv[2]));
    std::exit(0);
  }
  int failed = 0, status;
  while (wait(&status) > 0) failed |= status != 0;
  if (!failed) std::printf("%s rounds on %d GPUs\n", argv[2], HEDDLE_RANKS);
  return failed;
}
