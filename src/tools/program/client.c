/*
 * The way from a program to the Heddle process that has the simulated GPUs. Each call becomes a message, and waits for its answer.
 * A thread that calls has a connection of its own.
 */
#include "client.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

_Thread_local int device, last;
static _Thread_local int connection = -1;
static int owner;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void leave(void *value) { close((int)(intptr_t)value - 1); }
static void prepare(void) { pthread_key_create(&key, leave); }

/* A program that Heddle has started ends with it, however that ends. */
__attribute__((constructor)) static void begin(void) {
  if (getenv("HEDDLE_PROGRAM") != NULL) prctl(PR_SET_PDEATHSIG, SIGKILL);
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

/* A request is its kind, the length of its tail, the device and five words. An answer is a result, a word, the length of its tail and
   how many pieces of memory follow that copies have brought: an address and a length each, and the bytes. */
static int exchange(int kind, const uint64_t *values, const void *tail, size_t length, uint64_t *word, void *into) {
  uint64_t head[8] = {kind, length, device}, answer[4];
  memcpy(head + 3, values, 5 * sizeof *values);
  struct iovec parts[] = {{head, sizeof head}, {(void *)tail, length}};
  send_all(parts, 2);
  receive(answer, sizeof answer);
  if (word != NULL) *word = answer[1];
  receive(into, answer[2]);
  for (uint64_t i = 0; i < answer[3]; i++) {
    uint64_t piece[2];
    receive(piece, sizeof piece);
    receive((void *)piece[0], piece[1]);
  }
  return (int)answer[0];
}

/* "name:secret", the name of an abstract socket, is in the environment. A process that was forked after its first call has no GPUs,
   as in CUDA. */
static int connected(void) {
  const char *address = getenv("HEDDLE_PROGRAM"), *secret = address ? strchr(address, ':') : NULL;
  pthread_once(&once, prepare);
  if (secret == NULL) return NO_DEVICE;
  if (owner == 0) owner = getpid();
  if (getpid() != owner) return NOT_INITIALIZED;
  if (connection >= 0) return SUCCESS;
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  size_t length = (size_t)(secret - address);
  if (length + 1 > sizeof to.sun_path) return NO_DEVICE;
  memcpy(to.sun_path + 1, address, length);
  connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(connection, (void *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0) gone();
  pthread_setspecific(key, (void *)(intptr_t)(connection + 1));
  if (exchange(HELLO, (words){owner}, secret + 1, strlen(secret + 1), NULL, NULL) != SUCCESS) gone();
  return SUCCESS;
}

static void (*pending)(void);
static _Thread_local int greets;
static pthread_mutex_t greeting = PTHREAD_MUTEX_INITIALIZER;

void tell_first(void (*what)(void)) { __atomic_store_n(&pending, what, __ATOMIC_RELEASE); }

/* Other threads wait until all is told. */
static void greet(void) {
  if (greets || __atomic_load_n(&pending, __ATOMIC_ACQUIRE) == NULL) return;
  pthread_mutex_lock(&greeting);
  greets = 1;
  if (pending != NULL) pending();
  tell_first(NULL);
  greets = 0;
  pthread_mutex_unlock(&greeting);
}

int ask(int kind, const uint64_t *values, const void *tail, size_t length, uint64_t *word, void *into) {
  int result = connected();
  if (result == SUCCESS) greet();
  if (result == SUCCESS) result = exchange(kind, values, tail, length, word, into);
  if (result != SUCCESS) last = result;
  return result;
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
  return last = NOT_SUPPORTED;
}
int wrong(int error) { return last = error; }
