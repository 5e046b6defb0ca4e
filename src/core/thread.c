/*
 * Thread numbers are bits of a process-wide map: a thread takes the lowest free one when it first
 * asks and gives it back when it ends, so the numbers stay as small as the number of threads alive.
 * Past INDEX_MAX threads the numbers repeat; they pick shards, so sharing one is merely slower.
 */
#include "core/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"

#define NAME_SIZE  16 /* of the kernel, with the terminating zero */
#define INDEX_MAX  1024
#define WORD_BITS  64
#define INDEX_NONE UINT32_MAX

struct start {
    char name[NAME_SIZE];
    void *(*run)(void *);
    void *arg;
};

static _Atomic uint64_t index_map[INDEX_MAX / WORD_BITS];
static pthread_once_t index_once = PTHREAD_ONCE_INIT;
static pthread_key_t index_key;
static bool index_key_ok;
static _Thread_local unsigned thread_index = INDEX_NONE;

static void *start_run(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    pthread_setname_np(pthread_self(), start.name);
    return start.run(start.arg);
}

/* All signals but those that a thread's own fault raises, which blocking turns into a kill. */
static void signals_to_block(sigset_t *ret_set)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

    sigfillset(ret_set);
    for (size_t i = 0; i < FB_ARRAY_SIZE(own); i++)
        sigdelset(ret_set, own[i]);
}

/* The new thread inherits the mask and names itself, so both hold before its first instruction. */
static int start_thread(pthread_t *ret_thread, int detach_state, const char *name,
                        void *(*run)(void *), void *arg)
{
    FB_AUTO_FREE struct start *start = fb_alloc(sizeof *start);
    pthread_attr_t attr;
    sigset_t block;
    sigset_t before;
    int rc;

    FB_ASSERT(strlen(name) < NAME_SIZE);
    if (!start)
        return -ENOMEM;
    memcpy(start->name, name, strlen(name) + 1);
    start->run = run;
    start->arg = arg;
    rc = pthread_attr_init(&attr);
    if (rc)
        return -rc;
    pthread_attr_setdetachstate(&attr, detach_state);
    signals_to_block(&block);
    pthread_sigmask(SIG_SETMASK, &block, &before);
    rc = pthread_create(ret_thread, &attr, start_run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        (void)fb_steal(start);
    return -rc;
}

int fb_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *), void *arg)
{
    return start_thread(ret_thread, PTHREAD_CREATE_JOINABLE, name, run, arg);
}

int fb_thread_start_detached(const char *name, void *(*run)(void *), void *arg)
{
    pthread_t ignored;

    return start_thread(&ignored, PTHREAD_CREATE_DETACHED, name, run, arg);
}

static void index_release(void *arg)
{
    unsigned index = (unsigned)(uintptr_t)arg - 1;

    /* Pairs with the acquire in index_take(): the next owner sees what this one left in a shard. */
    atomic_fetch_and_explicit(&index_map[index / WORD_BITS], ~(UINT64_C(1) << index % WORD_BITS),
                              memory_order_release);
}

static void index_setup(void)
{
    index_key_ok = pthread_key_create(&index_key, index_release) == 0;
}

/* The lowest free bit, or INDEX_NONE. */
static unsigned index_take(void)
{
    for (unsigned w = 0; w < FB_ARRAY_SIZE(index_map); w++) {
        uint64_t map = atomic_load_explicit(&index_map[w], memory_order_relaxed);

        while (~map) {
            uint64_t bit = ~map & (map + 1);

            if (atomic_compare_exchange_weak_explicit(&index_map[w], &map, map | bit,
                                                      memory_order_acquire, memory_order_relaxed))
                return w * WORD_BITS + (unsigned)__builtin_ctzll(bit);
        }
    }
    return INDEX_NONE;
}

unsigned fb_thread_index(void)
{
    unsigned index;

    if (fb_likely(thread_index != INDEX_NONE))
        return thread_index;
    pthread_once(&index_once, index_setup);
    index = index_take();
    if (index == INDEX_NONE) {
        index = (unsigned)gettid() % INDEX_MAX;
    } else if (index_key_ok) {
        /* Without memory for it the number is not given back: one shard is then used less. */
        pthread_setspecific(index_key, (void *)(uintptr_t)(index + 1));
    }
    thread_index = index;
    return index;
}
