/*
 * Plays a shape, the file that pack.ts writes: one host for every layer. It is C11 and C++17, and needs nothing but the NVIDIA
 * driver, which it opens by itself. These return NULL, or what is wrong in words, which stand until the next call of the thread.
 */
#ifndef HEDDLE_PLAYER_H
#define HEDDLE_PLAYER_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rank: its windows, its kernels, and the windows of all other ranks. */
typedef struct heddle_player heddle_player;

/* The header of an export has these two, too. */
#ifndef HEDDLE_H
struct heddle_host {
  uint32_t rank;
  int device;
  /* Microseconds that a wait for a peer may take before it gives up; 0 for ten seconds. */
  uint32_t limit_us;
  /* Brings the `bytes` bytes at `mine` to all ranks: leaves those of every rank in `all`, by rank, and returns 0. */
  int (*all_gather)(void *context, const void *mine, void *all, size_t bytes);
  void *context;
};
struct heddle_lost {
  int32_t rank;
  uint32_t round;
};
#endif

/* Memory of the GPU for the rank alone, which stays until the rank is destroyed; 0 where there is none. */
typedef uint64_t heddle_allocate_own(void *context, size_t bytes);
/*
 * Makes a rank, together with all others. The shape stays where it is as long as the rank lives, at a multiple of 8. `allocate` gives the memory that no
 * other rank reaches; where it is NULL that is the driver's.
 */
const char *heddle_player_create(heddle_player **made, const void *shape, size_t bytes, const struct heddle_host *,
                                 heddle_allocate_own *allocate);
/* The address of the rank's own memory: windows first, then buffers, in the order of the plan; last the wire, as the host has it. */
uint64_t heddle_player_address(const heddle_player *, uint32_t memory);
/* The file of the memory that networks reach, which a proxy maps; -1 where none does. The player closes it. */
int heddle_player_wire(const heddle_player *);
/* Enqueues the operations `first` to `last`. `values` are the arguments, in the order of the shape. Several threads may call it. */
const char *heddle_player_run(const heddle_player *, uint32_t first, uint32_t last, const uint64_t *values, void *stream);
/* NULL as long as no wait gave up. `lost` may be NULL. It does not wait for rounds. */
const char *heddle_player_failure(heddle_player *, struct heddle_lost *lost);
/*
 * Has rounds leave out ranks, a bit for each. Windows are then as before the first round: no rank that stays has one under way, and none makes
 * another before all have called it.
 */
const char *heddle_player_mask(heddle_player *, const uint32_t out[4]);
/* Waits for what this rank has enqueued, and frees all. */
void heddle_player_destroy(heddle_player *);

#ifdef __cplusplus
}
#endif
#endif
