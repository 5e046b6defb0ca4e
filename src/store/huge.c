/*
 * A random hit costs more for the page tables than for the bytes, and every client process pays for
 * entries of its own: 100 KiB take 6 us instead of 13 at the first touch, 5.4 instead of 6.9 later.
 * Kernels mostly give no huge pages to shared memory by themselves (shmem_enabled is "never"), but
 * since 6.1 they make one of a stretch when asked to (MADV_COLLAPSE). Of a stretch that nobody has
 * touched that takes a quarter of a millisecond, less than its small pages would.
 *
 * On a virtual machine whose host takes free memory back, though, a huge page is always one that
 * the host has to find again: 4 ms each, 2 s of processor time a gigabyte, against 0.6 s for small
 * pages, and somebody waits for the file that is to lie there. Reads from afar, through a client
 * that is busy itself, are 10 to 20% slower by it. So once two in a row were dear, those that may
 * wait do so until nothing new was wanted for a while, and then take half of a thread at most. Not
 * all may: what a near disk gives quickly is read again as quickly, and huge pages pay at once.
 * Where no quiet moment comes, one is made now and then all the same: readers of a cache that is
 * filled for hours want theirs, too.
 *
 * The thread has the priority of any other: it holds the kernel's locks on pages that others read,
 * and one that had to stand back for them would let them wait the longer.
 *
 * Where the kernel refuses several in a row, or takes very long (memory is in pieces), it is asked
 * no more.
 *
 * Lock: FB_RANK_TIER, not held while the kernel works.
 */
#include "store/huge.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"

#ifndef MADV_POPULATE_READ
# define MADV_POPULATE_READ 22
#endif

#ifndef MADV_COLLAPSE
# define MADV_COLLAPSE 25
#endif

#define PAGE_BYTES   4096
#define SLOW_NS      (20 * FB_NS_PER_MS) /* for one: as good as refused */
#define FAILURES_MAX 4
#define DEAR_MAX     2                    /* in a row, then they are made later */
#define QUIET_NS     (100 * FB_NS_PER_MS) /* nothing wanted for so long */
#define RARELY_NS    (250 * FB_NS_PER_MS) /* one each, quiet or not */

enum {
    SMALL,
    WAITING,
    ASKED
};

struct fb_huge {
    uint8_t *map;
    int64_t cheap_ns;
    uint64_t count;
    pthread_t thread;
    bool threaded;

    struct fb_mutex lock; /* guards all that follows */
    struct fb_cond wake;
    bool stopping;
    unsigned failures; /* in a row */
    unsigned dear;     /* in a row; from DEAR_MAX on for good */
    uint64_t waiting;
    uint64_t next; /* where to look for one that waits */
    int64_t wanted_ns;
    uint8_t *state; /* of each stretch */
};

/* One stretch, whatever lies in it. Returns how long that took. */
static int64_t collapse(struct fb_huge *h, uint64_t no)
{
    uint8_t *at = h->map + no * FB_HUGE_BYTES;
    int64_t start_ns = fb_now_ns(), took_ns;
    bool made;

    /* There must be a page for the kernel to begin with. */
    (void)madvise(at, PAGE_BYTES, MADV_POPULATE_READ);
    made = madvise(at, FB_HUGE_BYTES, MADV_COLLAPSE) == 0;
    took_ns = fb_now_ns() - start_ns;
    fb_mutex_lock(&h->lock);
    h->failures = made && took_ns < SLOW_NS ? 0 : h->failures + 1;
    if (h->dear < DEAR_MAX)
        h->dear = took_ns > h->cheap_ns ? h->dear + 1 : 0;
    fb_mutex_unlock(&h->lock);
    return took_ns;
}

/* The next that waits is ours. False: there is none. */
static bool take(struct fb_huge *h, uint64_t *ret_no) FB_REQUIRES(&h->lock)
{
    if (h->failures >= FAILURES_MAX)
        h->waiting = 0;
    if (h->waiting == 0)
        return false;
    while (h->state[h->next] != WAITING)
        h->next = (h->next + 1) % h->count;
    h->state[h->next] = ASKED;
    h->waiting--;
    *ret_no = h->next;
    return true;
}

/* Until something waits, and either nothing else was wanted for a while or it has waited long; at
 * least until `rest_until_ns`. False: it is time to stop. */
static bool wait_for_work(struct fb_huge *h, int64_t rest_until_ns, int64_t rarely_ns)
    FB_REQUIRES(&h->lock)
{
    for (;;) {
        int64_t due_ns = FB_NEVER_NS;

        if (h->stopping)
            return false;
        if (h->waiting > 0) {
            due_ns = h->wanted_ns + QUIET_NS;
            if (due_ns > rarely_ns)
                due_ns = rarely_ns;
            if (due_ns < rest_until_ns)
                due_ns = rest_until_ns;
        }
        if (due_ns <= fb_now_ns())
            return true;
        (void)fb_cond_wait(&h->wake, &h->lock, due_ns);
    }
}

static void *make_later(void *arg)
{
    struct fb_huge *h = arg;
    int64_t rest_until_ns = 0, rarely_ns = fb_now_ns() + RARELY_NS, took_ns;
    uint64_t no;

    fb_mutex_lock(&h->lock);
    while (wait_for_work(h, rest_until_ns, rarely_ns)) {
        if (!take(h, &no))
            continue;
        fb_mutex_unlock(&h->lock);
        took_ns = collapse(h, no);
        rest_until_ns = fb_now_ns() + took_ns;
        rarely_ns = fb_now_ns() + RARELY_NS;
        fb_mutex_lock(&h->lock);
    }
    fb_mutex_unlock(&h->lock);
    return NULL;
}

void fb_huge_want(struct fb_huge *huge, uint64_t from, uint64_t until, bool may_wait)
{
    struct fb_huge *h = huge;
    uint64_t end = fb_min_u64(fb_div_up(until, FB_HUGE_BYTES), h->count);

    for (uint64_t i = from / FB_HUGE_BYTES; i < end; i++) {
        bool now = false;

        fb_mutex_lock(&h->lock);
        if (h->state[i] == SMALL && h->failures < FAILURES_MAX) {
            now = !may_wait || h->dear < DEAR_MAX;
            h->state[i] = now ? ASKED : WAITING;
            h->waiting += !now;
            h->wanted_ns = fb_now_ns();
            if (h->waiting == 1)
                fb_cond_signal(&h->wake);
        }
        fb_mutex_unlock(&h->lock);
        if (now)
            collapse(h, i);
    }
}

uint64_t fb_huge_waiting(struct fb_huge *huge)
{
    uint64_t waiting;

    fb_mutex_lock(&huge->lock);
    waiting = huge->waiting;
    fb_mutex_unlock(&huge->lock);
    return waiting;
}

int fb_huge_create(uint8_t *map, uint64_t bytes, int64_t cheap_ns, struct fb_huge **ret_huge)
{
    struct fb_huge *h = fb_alloc(sizeof *h);
    int r;

    if (!h)
        return -ENOMEM;
    h->map = map;
    h->cheap_ns = cheap_ns;
    h->dear = cheap_ns > 0 ? 0 : DEAR_MAX;
    h->count = bytes / FB_HUGE_BYTES;
    fb_mutex_init(&h->lock, FB_RANK_TIER);
    fb_cond_init(&h->wake);
    h->state = fb_alloc(h->count + 1);
    r = h->state ? fb_thread_start(&h->thread, "fb-huge", make_later, h) : -ENOMEM;
    h->threaded = r == 0;
    if (r < 0) {
        fb_huge_destroy(h);
        return r;
    }
    *ret_huge = h;
    return 0;
}

void fb_huge_destroy(struct fb_huge *huge)
{
    if (!huge)
        return;
    fb_mutex_lock(&huge->lock);
    huge->stopping = true;
    fb_cond_signal(&huge->wake);
    fb_mutex_unlock(&huge->lock);
    if (huge->threaded)
        pthread_join(huge->thread, NULL);
    fb_cond_destroy(&huge->wake);
    fb_mutex_destroy(&huge->lock);
    free(huge->state);
    free(huge);
}
