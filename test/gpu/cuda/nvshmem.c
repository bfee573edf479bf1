/*
 * A stand-in for libnvshmem_host.so.3: it says on stderr what is called, in order, and refuses what the real one would.
 * FAKE_* variables say what it is like.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int from(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
static int word(const void *at, int offset) { int v; memcpy(&v, (const char *)at + offset, 4); return v; }
static int started;

void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) {
  *major = from("FAKE_MAJOR", 3), *minor = from("FAKE_MINOR", 4), *patch = 5;
}
int nvshmemx_get_uniqueid(void *id) {
  if (word(id, 0) != 65536 + 128) return 1;
  strcpy((char *)id + 4, "where to meet");
  fprintf(stderr, "id\n");
  return 0;
}
int nvshmemx_hostlib_init_attr(unsigned flags, const void *attributes) {
  const char *id;
  memcpy(&id, (const char *)attributes + 32, 8);
  const int known = word(attributes, 0) == 65536 + 144 && word(attributes, 16) == 65536 + 128 &&
                    word(attributes, 24) == 65536 + 24 && word(id, 0) == 65536 + 128;
  fprintf(stderr, "init %u, rank %d of %d, %s, NVLS %s\n", flags, word(attributes, 40), word(attributes, 44),
          known ? id + 4 : "unknown structures", getenv("NVSHMEM_DISABLE_NVLS"));
  started = known && from("FAKE_STARTS", 1);
  return 0;
}
int nvshmemx_init_status(void) { return started ? 2 : 0; }
void nvshmemx_hostlib_finalize(void) { fprintf(stderr, "finalize\n"); }
void *nvshmem_malloc(size_t bytes) {
  fprintf(stderr, "malloc %zu\n", bytes);
  return bytes > 1 << 20 ? 0 : malloc(bytes);
}
void nvshmem_free(void *memory) { fprintf(stderr, "free\n"); }
int nvshmemx_cumodule_init(void *module) { fprintf(stderr, "module in\n"); return 0; }
int nvshmemx_cumodule_finalize(void *module) { fprintf(stderr, "module out\n"); return 0; }
int nvshmemx_alltoallmem_on_stream(int team, void *to, const void *from, size_t bytes, void *stream) { return 1; }
