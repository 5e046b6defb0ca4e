/*
 * A thread that sleeps until the disk has answered lets its processor halt, and waking that takes
 * 20 us and more on a virtual machine, a third of what the disk takes. So the thread asks for the
 * answer again and again instead, for as long as a fast disk may take. After an answer that took
 * longer the next reads sleep, twice as many each time, up to SKIP_MAX: then a slow disk costs at
 * most SPIN_NS in SKIP_MAX + 1 reads that each take longer than that. (Without so low a bound, a
 * few late answers put a lone reader to sleep for hundreds of reads: 260 us a file for that time
 * and not 180.)
 *
 * Through Linux AIO, with a context for each thread that goes when the thread ends: completions
 * need no thread to run, and containers that forbid io_uring have it.
 */
#include "io/wait.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/limits.h"

#define SPIN_NS  (250 * FB_NS_PER_US)
#define SKIP_MAX 15u /* a power of two less one */

struct own {
    bool known;            /* whether there is a context */
    aio_context_t context; /* 0: none to be had, or one processor, which spinning would block */
    uint32_t skip;         /* reads to come that sleep */
    uint32_t penalty;
};

static _Thread_local struct own thread_own;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* for its destructor alone */
static bool key_ok;

static void context_destroy(void *context)
{
    syscall(SYS_io_destroy, (aio_context_t)(uintptr_t)context);
}

static void key_make(void)
{
    key_ok = pthread_key_create(&key, context_destroy) == 0;
}

static void context_make(struct own *own)
{
    own->known = true;
    pthread_once(&key_once, key_make);
    if (!key_ok || fb_cpu_count() < 2 || syscall(SYS_io_setup, 1, &own->context) != 0)
        own->context = 0;
    if (own->context != 0 && pthread_setspecific(key, (void *)(uintptr_t)own->context) != 0) {
        syscall(SYS_io_destroy, own->context);
        own->context = 0;
    }
}

/* What the one read under way has brought: bytes, or negative errno. */
static int64_t answer(struct own *own)
{
    struct timespec at_once = {0};
    int64_t until_ns = fb_now_ns() + SPIN_NS;
    struct io_event event;
    long got;

    do
        got = syscall(SYS_io_getevents, own->context, 1, 1, &event, &at_once);
    while (got == 0 && fb_now_ns() < until_ns);
    own->penalty = got == 1 ? own->penalty / 2 : (own->penalty * 2 + 1) & SKIP_MAX;
    own->skip = got == 1 ? 0 : own->penalty;
    while (got != 1) {
        got = syscall(SYS_io_getevents, own->context, 1, 1, &event, NULL);
        /* The disk still writes into the memory: there is no way on without the answer. */
        FB_ASSERT(got == 1 || errno == EINTR);
    }
    return event.res;
}

static bool submit(struct own *own, int fd, void *data, uint32_t length, uint64_t offset)
{
    struct iocb iocb = {0}, *iocbs[] = {&iocb};

    iocb.aio_lio_opcode = IOCB_CMD_PREAD;
    iocb.aio_fildes = (uint32_t)fd;
    iocb.aio_buf = (uintptr_t)data;
    iocb.aio_nbytes = length;
    iocb.aio_offset = (int64_t)offset;
    return syscall(SYS_io_submit, own->context, 1, iocbs) == 1;
}

int64_t fb_wait_read(int fd, void *data, uint32_t length, uint64_t offset,
                     struct fb_meanwhile *meanwhile)
{
    struct own *own = &thread_own;
    bool begun = false;
    ssize_t n;

    if (!own->known)
        context_make(own);
    if (own->skip > 0)
        own->skip--;
    else
        begun = own->context != 0 && submit(own, fd, data, length, offset);
    if (meanwhile->run)
        meanwhile->run(meanwhile);
    if (begun)
        return answer(own);
    n = pread(fd, data, length, (off_t)offset);
    return n < 0 ? -errno : n;
}
