/*
 * The way from a program to the Heddle process that has the simulated GPUs. Each call becomes a message, and waits for its answer.
 * A thread that calls has a connection of its own.
 */
#include "client.h"

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

_Thread_local int device;
static _Thread_local int connection = -1;
static int owner, room = -1;
static uint64_t first_of_room;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t entering = PTHREAD_MUTEX_INITIALIZER;

static void leave(void *value) { close((int)(intptr_t)value - 1); }
static void look(void);
static void prepare(void) {
  pthread_key_create(&key, leave);
  look();
}

/* "name:secret", the name of an abstract socket, is in the environment. */
static int reach(const char **secret) {
  const char *address = getenv("HEDDLE_PROGRAM");
  *secret = address ? strchr(address, ':') : NULL;
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  size_t length = *secret ? (size_t)((*secret)++ - address) : sizeof to.sun_path;
  if (length + 1 > sizeof to.sun_path) return -1;
  memcpy(to.sun_path + 1, address, length);
  int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(made, (void *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0) return made;
  return close(made), -1;
}

/* Nothing is ever said here: when Heddle ends, however it does, the system ends this process. What that prints comes when it does. */
__attribute__((constructor)) static void begin(void) {
  const char *secret;
  int watch = reach(&secret);
  if (watch < 0) return;
  setvbuf(stdout, NULL, _IOLBF, 0);
  fcntl(watch, F_SETOWN, getpid());
  fcntl(watch, F_SETSIG, SIGKILL);
  fcntl(watch, F_SETFL, O_ASYNC);
}

static void gone(void) {
  fprintf(stderr, "heddle has ended: so does this program\n");
  _exit(1);
}

static void send_all(struct iovec *parts, int count) {
  while (count > 0) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    if (sent < 0) gone();
    for (; count > 0 && (size_t)sent >= parts->iov_len; parts++, count--) sent -= parts->iov_len;
    if (count > 0) parts->iov_base = (char *)parts->iov_base + sent, parts->iov_len -= sent;
  }
}

static void receive(void *into, size_t bytes) {
  for (char *to = into; bytes > 0;) {
    ssize_t got = recv(connection, to, bytes, 0);
    if (got <= 0) gone();
    to += got, bytes -= got;
  }
}

/* The GPUs that CUDA_VISIBLE_DEVICES lists, by their own numbers; all where it is not there. */
static int visible[128], shown = -1;

static void look(void) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  char *end = NULL;
  for (shown = list == NULL ? 128 : 0; list != NULL && shown < 128; list = end + 1) {
    long number = strtol(list, &end, 10);
    if (end == list || number < 0) break;
    visible[shown++] = (int)number;
    if (*end != ',') break;
  }
  if (list == NULL) for (int i = 0; i < 128; i++) visible[i] = i;
}
static int own_number(int number) { return number >= 0 && number < shown ? visible[number] : -1; }

enum { FRAMES = 10 };

/* A request is its kind, the length of its tail, the device, five words, and the places in code from which it comes. An answer is a result, a word and the length of its tail.
   Heddle itself reads and writes what copies move. */
static int exchange(int kind, const uint64_t *values, const void *tail, size_t length, uint64_t *word, void *into) {
  uint64_t head[8 + FRAMES] = {kind, length, own_number(device)}, answer[3];
  memcpy(head + 3, values, 5 * sizeof *values);
  backtrace((void **)head + 8, FRAMES);
  if (kind == CREATE) head[4] = own_number((int)values[1]);
  if (kind == PEER_COPY) head[6] = own_number((int)values[3]), head[7] = own_number((int)values[4]);
  struct iovec parts[] = {{head, sizeof head}, {(void *)tail, length}};
  send_all(parts, 2);
  receive(answer, sizeof answer);
  if (kind == COUNT && shown < (int)answer[1]) answer[1] = shown;
  if (kind == WHERE && answer[1] > 0)
    for (int i = 0; i < shown; i++)
      if (visible[i] == (int)answer[1] - 1) {
        answer[1] = answer[1] >> 32 << 32 | (uint64_t)(i + 1);
        break;
      }
  if (word != NULL) *word = answer[1];
  receive(into, answer[2]);
  return (int)answer[0];
}

/* Memory of GPUs has the same addresses in all processes. Debuggers and core files leave it out. */
static void enter(const uint64_t *of) {
  char path[64];
  pthread_mutex_lock(&entering);
  if (room < 0) {
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)of[0], (int)of[1]);
    first_of_room = of[2];
    room = open(path, O_RDWR | O_CLOEXEC);
    void *at = mmap((void *)of[2], of[3], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, room, 0);
    if (at == MAP_FAILED) perror("heddle: this process does not see the memory of simulated GPUs");
    else madvise(at, of[3], MADV_DONTDUMP);
  }
  pthread_mutex_unlock(&entering);
}

void show(uint64_t at, uint64_t origin, size_t bytes) {
  mmap((void *)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, room, (off_t)(origin - first_of_room));
  madvise((void *)at, bytes, MADV_DONTDUMP);
}

/* A process that was forked after its first call has no GPUs, as in CUDA. */
static int connected(void) {
  const char *secret;
  uint64_t answer[4];
  if (connection >= 0 && getpid() == owner) return SUCCESS;
  if (getenv("HEDDLE_PROGRAM") == NULL) return NO_DEVICE;
  pthread_once(&once, prepare);
  if (owner == 0) owner = getpid();
  if (getpid() != owner) return NOT_INITIALIZED;
  connection = reach(&secret);
  if (connection < 0) gone();
  pthread_setspecific(key, (void *)(intptr_t)(connection + 1));
  if (exchange(HELLO, (words){owner}, secret, strlen(secret), NULL, answer) != SUCCESS) gone();
  enter(answer);
  return SUCCESS;
}

static void (*pending)(void);
static _Thread_local int greets;
static pthread_mutex_t greeting = PTHREAD_MUTEX_INITIALIZER;

int has_runtime;

void tell_first(void (*what)(void)) {
  has_runtime = 1;
  __atomic_store_n(&pending, what, __ATOMIC_RELEASE);
}

/* Other threads wait until all is told. */
static void greet(void) {
  if (greets || __atomic_load_n(&pending, __ATOMIC_ACQUIRE) == NULL) return;
  pthread_mutex_lock(&greeting);
  greets = 1;
  if (pending != NULL) pending();
  __atomic_store_n(&pending, NULL, __ATOMIC_RELEASE);
  greets = 0;
  pthread_mutex_unlock(&greeting);
}

int ask(int kind, const uint64_t *values, const void *tail, size_t length, uint64_t *word, void *into) {
  int result = connected();
  if (result == SUCCESS) greet();
  return result == SUCCESS ? exchange(kind, values, tail, length, word, into) : result;
}

int get(int kind, uint64_t a, uint64_t b, void *result) {
  uint64_t word = 0;
  int error = ask(kind, (words){a, b}, NULL, 0, &word, NULL);
  if (error == SUCCESS) memcpy(result, &word, 8);
  return error;
}

/* What is not there: told to Heddle, which names it at the end. */
int refuse(const char *call) {
  ask(REFUSED, (words){0}, call, strlen(call), NULL, NULL);
  return NOT_SUPPORTED;
}

static void *run_host_functions(void *nothing) {
  uint64_t run, value;
  while (ask(NEXT_HOST_FUNCTION, (words){0}, NULL, 0, &run, &value) == SUCCESS) ((void (*)(void *))run)((void *)value);
  return nothing;
}
static void start_host_functions(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_host_functions, NULL) == 0) pthread_detach(thread);
}
int call_host(void *stream, void (*run)(void *), void *value) {
  static pthread_once_t started = PTHREAD_ONCE_INIT;
  pthread_once(&started, start_host_functions);
  return ASK(HOST_FUNCTION, U(stream), U(run), U(value));
}

/* The attributes of a device that are not 0. */
static const struct { int id, value; } attributes[] = {
  {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536}, {10, 32},
  {11, 2147483647}, {12, 65536}, {13, 1000000}, {14, 512}, {15, 1}, {16, 4}, {19, 1}, {31, 1}, {39, 2048}, {40, 3}, {41, 1}, {75, 9},
  {78, 1}, {81, 233472}, {82, 65536}, {83, 1}, {89, 1}, {95, 1}, {97, 232448}, {106, 32}, {111, 1024}, {115, 1},
};
int attribute_of(int id) {
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].id == id) return attributes[i].value;
  return 0;
}
