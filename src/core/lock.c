/*
 * With FB_DEBUG each thread keeps the ranks it holds in a small stack of its own, in the order in
 * which it took them. Unlocking may happen in any order; so the stack stays sorted, and comparing
 * with its top is enough.
 */
#include "core/lock.h"

#include <errno.h>
#include <stddef.h>

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

FB_NO_TSA void fb_mutex_unlock(struct fb_mutex *m)
{
    int rc;

    held_remove(m);
    rc = pthread_mutex_unlock(&m->mutex);
    FB_ASSERT(rc == 0);
}

void fb_cond_init(struct fb_cond *c)
{
    pthread_condattr_t attr;
    int rc;

    rc = pthread_condattr_init(&attr);
    FB_ASSERT(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    FB_ASSERT(rc == 0);
    rc = pthread_cond_init(&c->cond, &attr);
    FB_ASSERT(rc == 0);
    pthread_condattr_destroy(&attr);
}

void fb_cond_destroy(struct fb_cond *c)
{
    if (c)
        pthread_cond_destroy(&c->cond);
}

void fb_cond_signal(struct fb_cond *c)
{
    pthread_cond_signal(&c->cond);
}

void fb_cond_broadcast(struct fb_cond *c)
{
    pthread_cond_broadcast(&c->cond);
}

/* The mutex stays on the stack of held ranks while waiting: this thread takes no other
 * meanwhile. */
bool fb_cond_wait(struct fb_cond *c, struct fb_mutex *m, int64_t until_ns)
{
    struct timespec until = {0};
    int rc;

    held_check(m);
    if (until_ns == FB_NEVER_NS) {
        rc = pthread_cond_wait(&c->cond, &m->mutex);
        FB_ASSERT(rc == 0);
        return true;
    }
    if (until_ns > 0) {
        until.tv_sec = until_ns / FB_NS_PER_S;
        until.tv_nsec = until_ns % FB_NS_PER_S;
    }
    rc = pthread_cond_timedwait(&c->cond, &m->mutex, &until);
    FB_ASSERT(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
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
