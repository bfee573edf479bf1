/*
 * The yardstick of `npm run bench:fabric`: the same raw libfabric calls from C, with the same hints, flags and
 * windows, between two processes. Built and run by the benchmark only.
 *
 *   fabric-raw PROVIDER DEVICE latency|stream|post|scatter BYTES WINDOW COUNT   prints one JSON object
 *
 * WINDOW: writes under way; in a batch (post); peers, which the second process hosts (scatter).
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                      \
  do {                                                                                   \
    long status_ = (long)(call);                                                         \
    if (status_ < 0) {                                                                   \
      fprintf(stderr, "%s: %s\n", #call, fi_strerror((int)-status_));                    \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

struct offer {
  char address[256];
  size_t address_bytes;
  uint64_t base, key;
};

/* One peer: what it is reached from, and what to write to. */
struct link {
  struct fid_ep *ep;
  struct fid_av *av;
  fi_addr_t peer;
  struct offer theirs;
};

#define MOST_LINKS 64
static struct link links[MOST_LINKS];
static struct fi_info *info;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_mr *mr;
static char *memory;
static size_t completed, arrived;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void poll_queue(void) {
  struct fi_cq_data_entry entries[64];
  ssize_t n = fi_cq_read(cq, entries, 64);
  if (n == -FI_EAGAIN) return;
  CHECK(n);
  for (ssize_t i = 0; i < n; i++) {
    if (entries[i].flags & FI_WRITE) completed++;
    else if (entries[i].flags & FI_REMOTE_CQ_DATA) arrived++;
  }
}

static ssize_t post(const struct link *link, size_t source, size_t target, size_t bytes) {
  struct iovec local = {memory + source, bytes};
  struct fi_rma_iov remote = {link->theirs.base + target, bytes, link->theirs.key};
  void *descriptor = fi_mr_desc(mr);
  struct fi_msg_rma message = {.msg_iov = &local,
                               .desc = &descriptor,
                               .iov_count = 1,
                               .addr = link->peer,
                               .rma_iov = &remote,
                               .rma_iov_count = 1,
                               .context = NULL,
                               .data = 1};
  return fi_writemsg(link->ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE);
}

static void write_to(const struct link *link, size_t source, size_t target, size_t bytes) {
  ssize_t status;
  while ((status = post(link, source, target, bytes)) == -FI_EAGAIN) poll_queue();
  CHECK(status);
}

static void write_one(size_t source, size_t target, size_t bytes) { write_to(&links[0], source, target, bytes); }

static void open_domain(const char *provider, const char *device, size_t bytes) {
  struct fi_info *hints = fi_allocinfo(), *list;
  hints->caps = FI_MSG | FI_RMA;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  hints->fabric_attr->prov_name = strdup(provider);
  CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list));
  for (info = list; info && strcmp(info->domain_attr->name, device); info = info->next) {
  }
  if (!info) info = list;
  struct fid_fabric *fabric;
  struct fi_cq_attr cq_attr = {.size = 8192, .format = FI_CQ_FORMAT_DATA};
  CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
  CHECK(fi_domain(fabric, info, &domain, NULL));
  CHECK(fi_cq_open(domain, &cq_attr, &cq, NULL));
  memory = aligned_alloc(4096, bytes);
  memset(memory, 1, bytes);
  CHECK(fi_mr_reg(domain, memory, bytes, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL));
}

static void open_endpoint(struct link *link, struct offer *mine) {
  struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
  CHECK(fi_av_open(domain, &av_attr, &link->av, NULL));
  CHECK(fi_endpoint(domain, info, &link->ep, NULL));
  CHECK(fi_ep_bind(link->ep, &cq->fid, FI_TRANSMIT | FI_RECV));
  CHECK(fi_ep_bind(link->ep, &link->av->fid, 0));
  CHECK(fi_enable(link->ep));
  mine->address_bytes = sizeof mine->address;
  CHECK(fi_getname(&link->ep->fid, mine->address, &mine->address_bytes));
  mine->base = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
  mine->key = fi_mr_key(mr);
}

static void transfer(int fd, void *bytes, size_t count, int out) {
  for (size_t done = 0; done < count;) {
    ssize_t n = out ? write(fd, (char *)bytes + done, count - done) : read(fd, (char *)bytes + done, count - done);
    if (n <= 0) exit(1);
    done += (size_t)n;
  }
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc != 7) return 2;
  const char *mode = argv[3];
  size_t bytes = strtoul(argv[4], NULL, 10), window = strtoul(argv[5], NULL, 10), count = strtoul(argv[6], NULL, 10);
  size_t half = bytes * 4 > 4096 ? bytes * 4 : 4096;
  int scatter = !strcmp(mode, "scatter");
  size_t peers = scatter ? window : 1;
  if (peers > MOST_LINKS) return 2;
  if (scatter) half = bytes * peers > 4096 ? bytes * peers : 4096;
  int up[2], down[2];
  if (pipe(up) || pipe(down)) return 1;
  pid_t child = fork();
  int me = child ? 0 : 1;
  int in = me ? down[0] : up[0], out = me ? up[1] : down[1];
  open_domain(argv[1], argv[2], 2 * half);
  /* As the engine does: shm gives a small write its own endpoint, the others reach all peers from one. */
  size_t own = me == 1 || !strcmp(argv[1], "shm") ? peers : 1;
  for (size_t i = 0; i < peers; i++) {
    struct offer mine;
    if (i < own) open_endpoint(&links[i], &mine);
    else links[i] = links[0];
    transfer(out, &mine, sizeof mine, 1);
    transfer(in, &links[i].theirs, sizeof links[i].theirs, 0);
    const char *address = links[i].theirs.address;
    if (fi_av_insert(links[i].av, address, 1, &links[i].peer, 0, NULL) != 1) return 1;
  }

  double *samples = calloc(count, sizeof *samples);
  double result = 0;
  if (!strcmp(mode, "latency")) {
    for (long i = -5000; i < (long)count; i++) {
      double begun = now();
      size_t want = arrived + 1;
      if (me == 0) write_one(0, half, bytes);
      while (arrived < want) poll_queue();
      if (me == 1) write_one(0, half, bytes);
      if (i >= 0) samples[i] = (now() - begun) * 0.5e6;
    }
    while (completed < count + 5000) poll_queue();
    qsort(samples, count, sizeof *samples, compare);
    result = samples[count / 2];
  } else if (!strcmp(mode, "stream")) {
    size_t warm = (count + 9) / 10;
    for (int pass = 0; pass < 2; pass++) {
      size_t n = pass ? count : warm, target = pass ? warm + count : warm;
      double begun = now();
      if (me == 0) {
        size_t posted = completed;
        for (size_t i = 0; i < n; i++, posted++) {
          while (posted - completed >= window) poll_queue();
          write_one((i & 3) * bytes, half + (i & 3) * bytes, bytes);
        }
        while (completed < target) poll_queue();
      } else {
        while (arrived < target) poll_queue();
      }
      result = now() - begun;
    }
  } else if (scatter) {
    const long warm = 200;
    if (me == 0) {
      for (long i = -warm; i < (long)count; i++) {
        size_t want = completed + peers;
        double begun = now();
        for (size_t n = 0; n < peers; n++) write_to(&links[n], n * bytes, half, bytes);
        if (i >= 0) samples[i] = (now() - begun) * 1e6;
        while (completed < want) poll_queue();
      }
      qsort(samples, count, sizeof *samples, compare);
      result = samples[count / 2];
    } else {
      while (arrived < (count + warm) * peers) poll_queue();
    }
  } else {
    double clock = 1;
    for (int i = 0; i < 1000; i++) {
      double a = now(), d = now() - a;
      if (d < clock) clock = d;
    }
    if (me == 0) {
      size_t posted = 0;
      for (long i = -5000; i < (long)count; i++) {
        double begun = now();
        for (size_t n = 0; n < window; n++) write_one(0, half, bytes);
        if (i >= 0) samples[i] = (now() - begun - clock) * 1e6 / window;
        posted += window;
        while (completed < posted) poll_queue();
      }
      qsort(samples, count, sizeof *samples, compare);
      result = samples[count / 2];
    } else {
      while (arrived < (count + 5000) * window) poll_queue();
    }
  }
  /* Neither side closes before the other has its last acknowledgement. */
  char done = 1;
  transfer(out, &done, 1, 1);
  for (double end = now() + 0.2; now() < end;) poll_queue();
  transfer(in, &done, 1, 0);
  /* shm keeps a file an endpoint. */
  for (size_t i = 0; i < own; i++) fi_close(&links[i].ep->fid);
  if (me == 1) _exit(0);
  printf("{\"result\":%.9g}\n", result);
  fflush(stdout);
  int status;
  waitpid(child, &status, 0);
  return 0;
}
