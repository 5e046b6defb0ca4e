#include "store/late.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "io/buffer.h"
#include "io/wait.h"

struct batch;

struct part {
    struct fb_io io;
    struct batch *batch;
    struct fb_tier_read *read; /* NULL: told */
};

/* Reads into one buffer. In the list until the last has been answered, or they are given up. */
struct batch {
    struct fb_list link;
    struct fb_late *late;
    unsigned stripe;
    int64_t due_ns;
    struct fb_buffer *buffer; /* held by who reads, until told */
    bool given_up;
    unsigned left; /* parts that the engine has */
    /* Given up: what the engine may still write to. */
    struct fb_buffer_pool *pool;
    uint8_t *memory;
    uint32_t size;
    struct part parts[FB_LATE_PARTS];
};

struct fb_late {
    struct fb_engine *engine;
    int64_t timeout_ns;
    pthread_t thread;
    _Atomic unsigned stuck[FB_TIER_DIRS_MAX]; /* batches given up and not yet answered */

    struct fb_mutex lock; /* FB_RANK_TIER: guards all that follows, and the batches */
    struct fb_cond wake;
    struct fb_list waiting; /* batches, oldest first */
    uint32_t refs;          /* the tier's, and one a batch */
    bool idle;              /* the thread waits for a batch to come */
    bool stop;
};

static void late_free(struct fb_late *late)
{
    fb_cond_destroy(&late->wake);
    fb_mutex_destroy(&late->lock);
    free(late);
}

static void batch_free(struct batch *b)
{
    if (b->given_up)
        fb_buffer_memory_free(b->pool, b->memory, b->size);
    free(b);
}

/* ---- an answer of the disk ---- */

static void finish(struct part *part, int32_t result)
{
    struct batch *b = part->batch;
    struct fb_late *late = b->late;
    struct fb_tier_read *read;
    bool last, ends = false;

    fb_mutex_lock(&late->lock);
    read = fb_steal(part->read);
    last = --b->left == 0;
    if (last) {
        if (b->given_up)
            atomic_fetch_sub_explicit(&late->stuck[b->stripe], 1, memory_order_relaxed);
        else
            fb_list_remove(&b->link);
        ends = --late->refs == 0;
    }
    fb_mutex_unlock(&late->lock);
    if (last)
        batch_free(b);
    if (ends)
        late_free(late);
    if (!read)
        return;
    /* Short: somebody truncated the file. A time-out of the kernel's own is an answer. */
    if (result == -ETIMEDOUT || (result >= 0 && (uint32_t)result < read->length))
        result = -EIO;
    read->result = result;
    read->done(read);
}

static void io_done(struct fb_io *io)
{
    finish(FB_CONTAINER_OF(io, struct part, io), io->result);
}

/* ---- reading ---- */

bool fb_late_is_stuck(const struct fb_late *late, unsigned stripe)
{
    /* Relaxed: a hint. */
    return atomic_load_explicit(&late->stuck[stripe], memory_order_relaxed) > 0;
}

static void tell(struct fb_tier_read *const *reads, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        reads[i]->result = -ETIMEDOUT;
        reads[i]->done(reads[i]);
    }
}

static struct batch *batch_new(struct fb_late *late, const struct fb_late_place *place,
                               struct fb_tier_read *const *reads, unsigned count)
{
    struct batch *b = fb_alloc(sizeof *b);

    if (!b)
        return NULL;
    b->late = late;
    b->stripe = place->stripe;
    b->due_ns = late->timeout_ns > 0 ? fb_now_ns() + late->timeout_ns : FB_NEVER_NS;
    b->buffer = reads[0]->buffer;
    b->left = count;
    for (unsigned i = 0; i < count; i++) {
        b->parts[i].batch = b;
        b->parts[i].read = reads[i];
        b->parts[i].io = (struct fb_io){
            .op = FB_IO_READ,
            .fd = place->fd,
            .lane = place->stripe,
            .data = reads[i]->data,
            .offset = place->offset + reads[i]->offset,
            .length = reads[i]->length,
            .done = io_done,
        };
    }
    return b;
}

/* The thread sleeps without a limit only while there is nothing to look after. */
static void enlist(struct fb_late *late, struct batch *b)
{
    fb_mutex_lock(&late->lock);
    late->refs++;
    fb_list_push_back(&late->waiting, &b->link);
    if (late->idle)
        fb_cond_signal(&late->wake);
    late->idle = false;
    fb_mutex_unlock(&late->lock);
}

/* In the calling thread. False: not, or not wholly, done; the engine knows what to do then. */
static bool read_here(struct part *part, struct fb_meanwhile *meanwhile)
{
    const struct fb_io *io = &part->io;
    int64_t n = fb_wait_read(io->fd, io->data, io->length, io->offset, meanwhile);

    if (n != io->length)
        return false;
    finish(part, (int32_t)n);
    return true;
}

bool fb_late_read(struct fb_late *late, const struct fb_late_place *place,
                  struct fb_tier_read *const *reads, unsigned count)
{
    struct fb_io *ios[FB_LATE_PARTS];
    struct fb_meanwhile *meanwhile = reads[0]->meanwhile;
    struct batch *b;

    if (count > FB_LATE_PARTS || !reads[0]->buffer)
        return false;
    if (fb_late_is_stuck(late, place->stripe)) {
        tell(reads, count);
        return true;
    }
    b = batch_new(late, place, reads, count);
    if (!b)
        return false;
    for (unsigned i = 0; i < count; i++)
        ios[i] = &b->parts[i].io;
    enlist(late, b); /* from here on the reads may be given up, and gone */
    if (count != 1 || !meanwhile || !read_here(&b->parts[0], meanwhile))
        fb_engine_submit(late->engine, ios, count);
    return true;
}

/* ---- giving up ---- */

/* Returns how many are to be told. */
static unsigned give_up(struct fb_late *late, struct batch *b, uint8_t *memory,
                        struct fb_tier_read *ret_reads[FB_LATE_PARTS]) FB_REQUIRES(&late->lock)
{
    unsigned count = 0;

    fb_list_remove(&b->link);
    b->given_up = true;
    b->pool = b->buffer->pool;
    b->size = b->buffer->size;
    b->memory = fb_buffer_exchange(b->buffer, memory);
    atomic_fetch_add_explicit(&late->stuck[b->stripe], 1, memory_order_relaxed);
    for (unsigned i = 0; i < FB_LATE_PARTS; i++)
        if (b->parts[i].read)
            ret_reads[count++] = fb_steal(b->parts[i].read);
    return count;
}

static void *watch(void *arg)
{
    struct fb_late *late = arg;
    uint8_t *spare = NULL; /* memory for the next buffer that needs other */
    uint32_t spare_bytes = 0;

    fb_mutex_lock(&late->lock);
    while (!late->stop) {
        struct batch *b = FB_LIST_ENTRY(late->waiting.next, struct batch, link);
        struct fb_tier_read *reads[FB_LATE_PARTS];
        unsigned count;
        uint32_t size;

        late->idle = fb_list_empty(&late->waiting);
        if (late->idle || fb_now_ns() < b->due_ns) {
            fb_cond_wait(&late->wake, &late->lock, late->idle ? FB_NEVER_NS : b->due_ns);
            continue;
        }
        size = b->buffer->size;
        if (spare_bytes < size) {
            fb_mutex_unlock(&late->lock);
            free(spare);
            spare = fb_buffer_memory_new(size);
            spare_bytes = spare ? size : 0;
            if (!spare)
                fb_sleep_ns(late->timeout_ns); /* without memory they have to wait */
            fb_mutex_lock(&late->lock);
            continue; /* the batch may be gone */
        }
        count = give_up(late, b, fb_steal(spare), reads);
        spare_bytes = 0;
        fb_mutex_unlock(&late->lock);
        tell(reads, count);
        fb_mutex_lock(&late->lock);
    }
    fb_mutex_unlock(&late->lock);
    free(spare);
    return NULL;
}

/* ---- life ---- */

int fb_late_create(struct fb_engine *engine, int64_t timeout_ns, struct fb_late **ret_late)
{
    struct fb_late *late = fb_alloc(sizeof *late);
    int rc;

    if (!late)
        return -ENOMEM;
    late->engine = engine;
    late->timeout_ns = timeout_ns;
    late->refs = 1;
    fb_mutex_init(&late->lock, FB_RANK_TIER);
    fb_cond_init(&late->wake);
    fb_list_init(&late->waiting);
    rc = fb_thread_start(&late->thread, "fb-late", watch, late);
    if (rc < 0) {
        late_free(late);
        return rc;
    }
    *ret_late = late;
    return 0;
}

void fb_late_close(struct fb_late *late)
{
    bool ends;

    if (!late)
        return;
    fb_mutex_lock(&late->lock);
    late->stop = true;
    fb_cond_signal(&late->wake);
    fb_mutex_unlock(&late->lock);
    pthread_join(late->thread, NULL);
    fb_mutex_lock(&late->lock);
    ends = --late->refs == 0;
    fb_mutex_unlock(&late->lock);
    if (ends)
        late_free(late);
}
