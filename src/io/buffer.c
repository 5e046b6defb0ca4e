#include "io/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "core/lock.h"
#include "core/mem.h"

struct fb_buffer_pool {
    struct fb_mutex lock; /* FB_RANK_BUFFER: free list, line */
    struct fb_list free;
    struct fb_list line;
    uint32_t free_count;
    uint32_t count;
    uint32_t size;
    uint8_t *memory;
    struct fb_buffer_account accounts[FB_BUFFER_ACCOUNTS_MAX];
    struct fb_buffer buffers[];
};

int fb_buffer_pool_create(uint32_t count, uint32_t size, struct fb_buffer_pool **ret_pool)
{
    uint32_t stride = (uint32_t)fb_align_up(size, FB_IO_ALIGN);
    FB_AUTO_FREE struct fb_buffer_pool *pool =
        fb_alloc(sizeof *pool + (size_t)count * sizeof(struct fb_buffer));

    if (!pool)
        return -ENOMEM;
    pool->memory = fb_map_large((size_t)count * stride);
    if (!pool->memory)
        return -ENOMEM;
    pool->count = count;
    pool->free_count = count;
    pool->size = stride;
    fb_mutex_init(&pool->lock, FB_RANK_BUFFER);
    fb_list_init(&pool->free);
    fb_list_init(&pool->line);
    for (uint32_t i = 0; i < count; i++) {
        struct fb_buffer *b = &pool->buffers[i];

        b->data = pool->memory + (size_t)i * stride;
        b->size = stride;
        b->pool = pool;
        atomic_init(&b->refs, 0);
        fb_list_push_back(&pool->free, &b->free_link);
    }
    *ret_pool = fb_steal(pool);
    return 0;
}

/* Whether memory is of the pool's mapping. */
static bool is_mapped(const struct fb_buffer_pool *pool, const uint8_t *memory)
{
    return memory >= pool->memory && memory < pool->memory + (size_t)pool->count * pool->size;
}

void fb_buffer_pool_destroy(struct fb_buffer_pool *pool)
{
    if (!pool)
        return;
    FB_ASSERT(fb_list_empty(&pool->line));
    if (fb_buffer_pool_free(pool) < pool->count)
        return; /* a hung source may still write into one: the memory must outlive it */
    for (uint32_t i = 0; i < pool->count; i++)
        if (!is_mapped(pool, pool->buffers[i].data))
            free(pool->buffers[i].data);
    fb_unmap_large(pool->memory, (size_t)pool->count * pool->size);
    fb_mutex_destroy(&pool->lock);
    free(pool);
}

/* The most recently used buffer first: its pages are warm. */
static void take_locked(struct fb_buffer_pool *pool, struct fb_buffer_account *account,
                        uint32_t count, struct fb_buffer **ret_buffers)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fb_buffer *b = FB_LIST_ENTRY(pool->free.next, struct fb_buffer, free_link);

        fb_list_remove(&b->free_link);
        b->account = account;
        atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
        ret_buffers[i] = b;
    }
    pool->free_count -= count;
    if (account)
        account->out += count;
}

static bool allows(const struct fb_buffer_account *account, uint32_t count)
{
    return !account || account->out + count <= account->limit;
}

struct fb_buffer_account *fb_buffer_account_open(struct fb_buffer_pool *pool, uint32_t limit)
{
    struct fb_buffer_account *account = NULL;

    fb_mutex_lock(&pool->lock);
    for (unsigned i = 0; i < FB_BUFFER_ACCOUNTS_MAX && !account; i++)
        if (!pool->accounts[i].open && pool->accounts[i].out == 0)
            account = &pool->accounts[i];
    if (account)
        *account = (struct fb_buffer_account){.limit = limit, .open = true};
    fb_mutex_unlock(&pool->lock);
    return account;
}

void fb_buffer_account_close(struct fb_buffer_pool *pool, struct fb_buffer_account *account)
{
    if (!account)
        return;
    fb_mutex_lock(&pool->lock);
    account->open = false;
    fb_mutex_unlock(&pool->lock);
}

bool fb_buffer_get_many(struct fb_buffer_pool *pool, struct fb_buffer_account *account,
                        uint32_t count, struct fb_buffer **ret_buffers, struct fb_buffer_wait *wait)
{
    bool got;

    FB_ASSERT(count <= pool->count && (!account || count <= account->limit));
    fb_mutex_lock(&pool->lock);
    got = pool->free_count >= count && allows(account, count) && fb_list_empty(&pool->line);
    if (got) {
        take_locked(pool, account, count, ret_buffers);
    } else if (wait) {
        wait->buffers = ret_buffers;
        wait->account = account;
        wait->count = count;
        fb_list_push_back(&pool->line, &wait->link);
    }
    fb_mutex_unlock(&pool->lock);
    return got;
}

struct fb_buffer *fb_buffer_get(struct fb_buffer_pool *pool)
{
    struct fb_buffer *b;

    return fb_buffer_get_many(pool, NULL, 1, &b, NULL) ? b : NULL;
}

/* Whose turn it is, with its buffers: the first in line whose account allows it, if there are
 * enough. */
static struct fb_buffer_wait *next_locked(struct fb_buffer_pool *pool)
{
    struct fb_list *it, *tmp;

    if (fb_list_empty(&pool->line))
        return NULL;
    for (unsigned i = 0; i < FB_BUFFER_ACCOUNTS_MAX; i++)
        pool->accounts[i].waits = false;
    FB_LIST_FOREACH (it, tmp, &pool->line) {
        struct fb_buffer_wait *wait = FB_LIST_ENTRY(it, struct fb_buffer_wait, link);

        if (wait->account && (wait->account->waits || !allows(wait->account, wait->count))) {
            wait->account->waits = true;
            continue;
        }
        if (wait->count > pool->free_count)
            return NULL;
        fb_list_remove(it);
        take_locked(pool, wait->account, wait->count, wait->buffers);
        return wait;
    }
    return NULL;
}

/* Frees `buffer` (if given) and serves the line for as long as there is enough, each outside the
 * lock. The pool is not touched after a look that found nobody to serve: it may be gone then. */
static void serve(struct fb_buffer_pool *pool, struct fb_buffer *buffer)
{
    struct fb_buffer_wait *wait;

    do {
        fb_mutex_lock(&pool->lock);
        if (buffer) {
            fb_list_push_front(&pool->free, &buffer->free_link);
            pool->free_count++;
            if (buffer->account)
                buffer->account->out--;
            buffer = NULL;
        }
        wait = next_locked(pool);
        fb_mutex_unlock(&pool->lock);
        if (wait)
            wait->ready(wait);
    } while (wait);
}

void fb_buffer_serve(struct fb_buffer_pool *pool)
{
    serve(pool, NULL);
}

bool fb_buffer_cancel(struct fb_buffer_pool *pool, struct fb_buffer_wait *wait)
{
    bool was_in_line;

    fb_mutex_lock(&pool->lock);
    was_in_line = fb_list_linked(&wait->link);
    if (was_in_line)
        fb_list_remove(&wait->link);
    fb_mutex_unlock(&pool->lock);
    return was_in_line;
}

struct fb_buffer *fb_buffer_ref(struct fb_buffer *buffer)
{
    atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

void fb_buffer_put(struct fb_buffer *buffer)
{
    /* Buffers put from within ready(): freed by the outermost put of this thread, so that a line of
     * requests that all give up does not become a recursion as deep as the line is long. */
    static _Thread_local struct fb_list *postponed;
    struct fb_list more = FB_LIST_INIT(more);

    /* Release: what this holder wrote is seen by whoever drops the last reference. */
    if (!buffer || atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (postponed) {
        fb_list_push_back(postponed, &buffer->free_link);
        return;
    }
    postponed = &more;
    serve(buffer->pool, buffer);
    while (!fb_list_empty(&more)) {
        struct fb_buffer *b = FB_LIST_ENTRY(more.next, struct fb_buffer, free_link);

        fb_list_remove(&b->free_link);
        serve(b->pool, b);
    }
    postponed = NULL;
}

uint8_t *fb_buffer_memory_new(uint32_t size)
{
    return aligned_alloc(FB_IO_ALIGN, fb_align_up(size, FB_IO_ALIGN));
}

uint8_t *fb_buffer_exchange(struct fb_buffer *buffer, uint8_t *memory)
{
    uint8_t *old = buffer->data;

    buffer->data = memory;
    return old;
}

void fb_buffer_memory_free(struct fb_buffer_pool *pool, uint8_t *memory, uint32_t size)
{
    if (!pool || !is_mapped(pool, memory))
        free(memory);
    else
        (void)madvise(memory, size, MADV_DONTNEED); /* the place stays, the pages go */
}

uint32_t fb_buffer_pool_free(struct fb_buffer_pool *pool)
{
    uint32_t n;

    fb_mutex_lock(&pool->lock);
    n = pool->free_count;
    fb_mutex_unlock(&pool->lock);
    return n;
}

uint32_t fb_buffer_account_free(struct fb_buffer_pool *pool,
                                const struct fb_buffer_account *account)
{
    uint32_t n;

    fb_mutex_lock(&pool->lock);
    n = (uint32_t)fb_min_u64(pool->free_count, account->limit - account->out);
    fb_mutex_unlock(&pool->lock);
    return n;
}

uint32_t fb_buffer_pool_count(const struct fb_buffer_pool *pool)
{
    return pool->count;
}
