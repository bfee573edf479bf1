/* What the libraries that stand for CUDA share: how they ask the Heddle process that has the simulated GPUs. */
#ifndef HEDDLE_CLIENT_H
#define HEDDLE_CLIENT_H
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

/* Results that both the runtime and the driver have, by the same numbers. */
enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201, NO_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_SUPPORTED = 801
};

/* What a message asks for: session.ts says which there are. */
enum { KINDS };

/* These names are seen by the program, too. */
#define device heddle_device
#define ask heddle_ask
#define get heddle_get
#define refuse heddle_refuse
#define show heddle_show
#define attribute_of heddle_attribute_of
#define has_runtime heddle_has_runtime
#define tell_first heddle_tell_first
#define call_host heddle_call_host

typedef uint64_t words[5];

/* The device of this thread. */
extern API _Thread_local int device;

/* Whether the runtime is in this process, which needs no context. */
extern API int has_runtime;

/* Before this process asks for anything else, it tells this: what was registered before its first call, and may be before a fork. */
API void tell_first(void (*what)(void));
/* Asks with five words and a tail; an answer has a word, and a tail that goes to `into`. Gives CUDA's result. */
API int ask(int kind, const uint64_t *values, const void *tail, size_t length, uint64_t *word, void *into);
/* Asks for the word of 8 bytes that goes to `result`. */
API int get(int kind, uint64_t a, uint64_t b, void *result);
/* A call that is not there: Heddle names it at the end. */
API int refuse(const char *call);
/* Has this process see at an address of the room what lies at another one. */
API void show(uint64_t at, uint64_t origin, size_t bytes);
/* An attribute of all devices, by its number. */
API int attribute_of(int id);
/* Enqueues a function of the host. A thread of their own runs them, one after the other. */
API int call_host(void *stream, void (*run)(void *), void *value);

#define ASK(kind, ...) ask(kind, (words){__VA_ARGS__}, NULL, 0, NULL, NULL)
#define U(value) ((uint64_t)(uintptr_t)(value))

#endif
