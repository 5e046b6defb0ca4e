/*
 * With FB_DEBUG each thread keeps the ranks it holds in a small stack of its own, in the order in
 * which it took them. Unlocking may happen in any order; so the stack stays sorted, and comparing
 * with its top is enough.
 *
 * Conditions are futexes of our own: glibc's lose a wake-up once in a while (its bug 25847, there
 * before 2.41), and a worker that sleeps through a job costs a program its deadline. A waiter notes
 * the count of signals under the mutex and sleeps only while it stands, so none is missed between
 * the two; whom a signal wakes in vain looks again, as all do.
 */
#include "core/lock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/clock.h"

#ifdef FB_DEBUG

# define HELD_MAX 16

struct held {
    unsigned depth;
    const struct fb_mutex *mutex[HELD_MAX];
};

static _Thread_local struct held held;

static unsigned held_position(const struct fb_mutex *m)
{
    unsigned i = 0;

    while (i < held.depth && held.mutex[i] != m)
        i++;
    return i;
}

static void held_check(const struct fb_mutex *m)
{
    FB_ASSERT(held_position(m) < held.depth);
}

/* Before the lock is taken: a thread that would deadlock must not get as far as waiting. */
static void held_push(const struct fb_mutex *m)
{
    FB_ASSERT(held.depth == 0 || held.mutex[held.depth - 1]->rank < m->rank);
    FB_ASSERT(held.depth < HELD_MAX);
    held.mutex[held.depth++] = m;
}

static void held_remove(const struct fb_mutex *m)
{
    held_check(m);
    held.depth--;
    for (unsigned i = held_position(m); i < held.depth; i++)
        held.mutex[i] = held.mutex[i + 1];
}

#else

static void held_check(const struct fb_mutex *m)
{
    (void)m;
}

static void held_push(const struct fb_mutex *m)
{
    (void)m;
}

static void held_remove(const struct fb_mutex *m)
{
    (void)m;
}

#endif

void fb_mutex_init(struct fb_mutex *m, enum fb_lock_rank rank)
{
    int rc = pthread_mutex_init(&m->mutex, NULL);

    FB_ASSERT(rc == 0);
    m->rank = rank;
}

void fb_mutex_destroy(struct fb_mutex *m)
{
    int rc;

    if (!m)
        return;
    rc = pthread_mutex_destroy(&m->mutex);
    FB_ASSERT(rc == 0);
}

FB_NO_TSA void fb_mutex_lock(struct fb_mutex *m)
{
    int rc;

    held_push(m);
    rc = pthread_mutex_lock(&m->mutex);
    FB_ASSERT(rc == 0);
}

FB_NO_TSA bool fb_mutex_try(struct fb_mutex *m)
{
    int rc = pthread_mutex_trylock(&m->mutex);

    FB_ASSERT(rc == 0 || rc == EBUSY);
    if (rc == 0)
        held_push(m);
    return rc == 0;
}

FB_NO_TSA void fb_mutex_unlock(struct fb_mutex *m)
{
    int rc;

    held_remove(m);
    rc = pthread_mutex_unlock(&m->mutex);
    FB_ASSERT(rc == 0);
}

void fb_cond_init(struct fb_cond *c)
{
    atomic_init(&c->signals, 0);
    atomic_init(&c->waiters, 0);
}

void fb_cond_destroy(struct fb_cond *c)
{
    (void)c;
}

static long futex(struct fb_cond *c, int op, uint32_t value, const struct timespec *until)
{
    return syscall(SYS_futex, &c->signals, op | FUTEX_PRIVATE_FLAG, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

/* Who changed something under the mutex sees all who had looked before: they had counted themselves
 * when they let go of it. */
static void wake(struct fb_cond *c, uint32_t most)
{
    if (atomic_load(&c->waiters) == 0)
        return;
    atomic_fetch_add(&c->signals, 1);
    futex(c, FUTEX_WAKE, most, NULL);
}

void fb_cond_signal(struct fb_cond *c)
{
    wake(c, 1);
}

void fb_cond_broadcast(struct fb_cond *c)
{
    wake(c, INT_MAX);
}

/* The mutex stays on the stack of held ranks while waiting: this thread takes no other
 * meanwhile. */
bool fb_cond_wait(struct fb_cond *c, struct fb_mutex *m, int64_t until_ns)
{
    struct timespec until = {0};
    uint32_t seen;
    bool in_time;
    int rc;

    held_check(m);
    if (until_ns > 0) {
        until.tv_sec = until_ns / FB_NS_PER_S;
        until.tv_nsec = until_ns % FB_NS_PER_S;
    }
    atomic_fetch_add(&c->waiters, 1);
    seen = atomic_load(&c->signals);
    rc = pthread_mutex_unlock(&m->mutex);
    FB_ASSERT(rc == 0);
    in_time = futex(c, FUTEX_WAIT_BITSET, seen, until_ns == FB_NEVER_NS ? NULL : &until) == 0 ||
              errno != ETIMEDOUT;
    rc = pthread_mutex_lock(&m->mutex);
    FB_ASSERT(rc == 0);
    atomic_fetch_sub(&c->waiters, 1);
    return in_time;
}

void fb_event_init(struct fb_event *e)
{
    fb_mutex_init(&e->lock, FB_RANK_EVENT);
    fb_cond_init(&e->cond);
    e->happened = false;
}

void fb_event_set(struct fb_event *e)
{
    fb_mutex_lock(&e->lock);
    e->happened = true;
    fb_cond_signal(&e->cond);
    fb_mutex_unlock(&e->lock);
}

void fb_event_wait(struct fb_event *e)
{
    fb_mutex_lock(&e->lock);
    while (!e->happened)
        fb_cond_wait(&e->cond, &e->lock, INT64_MAX);
    fb_mutex_unlock(&e->lock);
    fb_cond_destroy(&e->cond);
    fb_mutex_destroy(&e->lock);
}
