// Measures one timer system: peers-c SYSTEM WORKLOAD, of libuv, libevent, timerfd. ../system.go and ../java do the same.
#define _GNU_SOURCE
#include <event2/event.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

typedef uint64_t u64;
typedef int64_t i64;
#define MS 1000000LL
#define SEC 1000000000LL
#define HOUR (3600 * SEC)
static int MILLION = 1000000; // timerfd: 15,000, since each is an open file

static i64 clockOf(int id) { struct timespec t; clock_gettime(id, &t); return t.tv_sec * SEC + t.tv_nsec; }
static i64 now(void) { return clockOf(CLOCK_MONOTONIC); }
static i64 cpu(void) { return clockOf(CLOCK_PROCESS_CPUTIME_ID); }
static void report(const char *work, const char *unit, double v) { printf("%s %s %.3f\n", work, unit, v); }

static u64 rng(u64 *x) { *x ^= *x << 13; *x ^= *x >> 7; *x ^= *x << 17; return *x; }
static int below(u64 *x, int n) { return (int)((rng(x) >> 33) * (u64)n >> 31); }
static i64 longDelay(u64 *x) { return 60 * SEC + (i64)((rng(x) >> 11) * 0x1p-53 * (86340.0 * SEC)); }

static void (*callback)(int slot); // of all timers
static enum { LIBUV, LIBEVENT, TIMERFD } kind;
static uv_loop_t loop;
typedef struct { uv_timer_t t; int i; } uvTimer;
static uvTimer **uvs;
static struct event_base *base;
static struct event **evs;
static int *fds, ep;

static void onFree(uv_handle_t *h) { free(h); }
static void onUv(uv_timer_t *t) { callback(((uvTimer *)t)->i); }
static void onEv(evutil_socket_t fd, short what, void *p) { callback((int)(intptr_t)p); }

static void start(const char *name) {
  struct event_config *c = event_config_new();
  event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER);
  if (!strcmp(name, "libuv")) { kind = LIBUV; uv_loop_init(&loop); }
  else if (!strcmp(name, "libevent")) { kind = LIBEVENT; base = event_base_new_with_config(c); }
  else { kind = TIMERFD; MILLION = 15000; ep = epoll_create1(0); }
}

static void keep(int n) {
  if (kind == LIBUV) uvs = memset(malloc(n * sizeof *uvs), 0, n * sizeof *uvs);
  else if (kind == LIBEVENT) evs = memset(malloc(n * sizeof *evs), 0, n * sizeof *evs);
  else fds = memset(malloc(n * sizeof *fds), 0, n * sizeof *fds);
}

static void add(int i, i64 d) {
  if (kind == LIBUV) {
    uvTimer *t = malloc(sizeof *t);
    t->i = i; uv_timer_init(&loop, &t->t);
    uv_update_time(&loop); // without it a delay counts from when the loop last read the clock
    uv_timer_start(&t->t, onUv, (d + MS - 1) / MS, 0);
    uvs[i] = t;
  } else if (kind == LIBEVENT) {
    struct timeval tv = {d / SEC, (d % SEC + 999) / 1000};
    evs[i] = event_new(base, -1, 0, onEv, (void *)(intptr_t)i);
    event_add(evs[i], &tv);
  } else {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) { perror("timerfd"); exit(1); }
    struct itimerspec s = {{0, 0}, {d / SEC, d % SEC}};
    timerfd_settime(fd, 0, &s, 0);
    struct epoll_event e = {EPOLLIN, {.u64 = (u64)i}};
    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    fds[i] = fd;
  }
}
// freed is a timer that has fired, or is canceled.
static void freed(int i) {
  if (kind == LIBUV) uv_close((uv_handle_t *)&uvs[i]->t, onFree);
  else if (kind == LIBEVENT) event_free(evs[i]);
  else close(fds[i]);
}
static void cancel(int i) {
  static long closes; // libuv frees within its loop
  freed(i);
  if (kind == LIBUV && (++closes & 255) == 0) uv_run(&loop, UV_RUN_NOWAIT);
}
static void runOnce(int wait) {
  if (kind == LIBUV) uv_run(&loop, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
  else if (kind == LIBEVENT) event_base_loop(base, wait ? EVLOOP_ONCE : EVLOOP_NONBLOCK);
  else {
    struct epoll_event e[256];
    int n = epoll_wait(ep, e, 256, wait ? -1 : 0);
    for (int k = 0; k < n; k++) callback((int)e[k].data.u64);
  }
}

static void same(u64 *r) { add(MILLION, longDelay(r)); cancel(MILLION); }
static void churn(u64 *r) { int i = below(r, MILLION); cancel(i); add(i, longDelay(r)); }
static void fill(void) { u64 r = 88172645463325252ULL; for (int i = 0; i < MILLION; i++) add(i, longDelay(&r)); }

static double timed(i64 d, void (*op)(u64 *)) {
  u64 r = (u64)now() | 1;
  i64 c = cpu(), begin = now(), n = 0;
  for (; now() - begin < d; n += 64) for (int k = 0; k < 64; k++) op(&r);
  return (double)(cpu() - c) / n;
}
static void repeat(const char *work, void (*op)(u64 *)) { timed(200 * MS, op); report(work, "cpu-ns/op", timed(400 * MS, op)); }

static i64 *late, first, last, ended, spread, *dues;
static int done, total;
#define EVERY 16
static void count(int i) {
  if (i % EVERY == 0) late[i / EVERY] = now() - (first + spread * i / total);
  freed(i);
  if (++done == total) ended = now() - last;
}
static int compare(const void *a, const void *b) { i64 x = *(i64 *)a, y = *(i64 *)b; return (x > y) - (x < y); }

// burst starts n timers due within the spread, all later than the last start; it returns the time that a start took.
static i64 burst(int tell, int n, i64 within, i64 cost) {
  keep(n); total = n; done = 0; ended = 0; spread = within; callback = count;
  late = calloc(n / EVERY + 1, sizeof *late);
  i64 c = cpu(), begin = now();
  first = begin + 300 * MS + 3 * n * cost; last = first + spread;
  for (int i = 0; i < n; i++) add(i, first + spread * i / n - now());
  i64 end = now(), added = cpu();
  while (!ended) runOnce(1);
  i64 used = cpu();
  if (!tell) return (end - begin) / n;
  report("fire", "cpu-ns/timer", (double)(used - c) / n);
  report("fire", "firing-ns/timer", (double)(used - added) / n);
  int of = (n + EVERY - 1) / EVERY;
  qsort(late, of, sizeof *late, compare);
  report("fire", "p99-ms", late[(i64)of * 99 / 100] / 1e6);
  report("fire", "last-ms", ended / 1e6);
  return 0;
}

static int tooEarly;
static void onEarly(int i) { tooEarly += now() < dues[i]; freed(i); done++; }
static void early(void) {
  int n = kind == TIMERFD ? MILLION : 20000; u64 r = 88172645463325252ULL;
  keep(n); callback = onEarly; dues = calloc(n, sizeof *dues);
  for (int i = 0; i < n; i++) {
    i64 d = (1 + below(&r, 500)) * MS;
    dues[i] = now() + d; add(i, d);
    if (i % 10 == 0) { usleep(100); runOnce(0); }
  }
  while (done < n) runOnce(1);
  report("early", "early", tooEarly * (20000.0 / n));
}

static double live(void) { struct mallinfo2 m = mallinfo2(); return m.uordblks + m.hblkhd; }
static void memory(void) {
  keep(MILLION);
  for (int i = 0; i < 1000; i++) { add(0, HOUR); cancel(0); }
  runOnce(0);
  double before = live();
  for (int i = 0; i < 1000000; i++) { add(0, HOUR); cancel(0); }
  runOnce(0);
  report("left", "MB", (live() - before) / 1e6);
  before = live();
  fill();
  if (kind != TIMERFD) report("memory", "B/timer", (live() - before) / MILLION); // those are the kernel's
}

static void onAlarm(int i) { done = i == MILLION; freed(i); }
static void sleepFor(i64 d) { for (done = 0, add(MILLION, d); !done;) runOnce(1); }
static void idle(const char *work) {
  sleepFor(300 * MS);
  i64 c = cpu();
  sleepFor(1500 * MS);
  report(work, "cpu-ms/s", (cpu() - c) / 1.5 / MS);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  start(argv[1]); const char *work = argv[2];
  if (!strcmp(work, "add")) { keep(MILLION + 1); repeat("add0", same); fill(); repeat("add1M", same); repeat("random", churn); }
  else if (!strcmp(work, "fire")) burst(1, MILLION, SEC, burst(0, MILLION / 10, 200 * MS, 1000));
  else if (!strcmp(work, "early")) early();
  else if (!strcmp(work, "memory")) memory();
  else if (!strcmp(work, "idle")) { callback = onAlarm; keep(MILLION + 1); add(0, HOUR); idle("idle"); cancel(0); fill(); idle("idle1M"); }
  else return 2;
  return 0;
}
