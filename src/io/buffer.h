/*
 * io/buffer.h - a bounded pool of aligned, reference-counted buffers.
 *
 * Bytes on their way between source, persistent tiers and doors live here. The pool never grows:
 * who finds too few waits in line (asynchronously), so the memory budget holds whatever the load.
 *
 * A request asks for all the buffers it needs at once and gets all or none. Nobody holds some while
 * waiting for more, so requests cannot wait for each other in a circle. The line is first come,
 * first served: a large request is not starved by small ones behind it. Only those whose account is
 * used up are passed by.
 *
 * All buffers are one anonymous mapping, each aligned to FB_IO_ALIGN; reference counts are atomic.
 * A buffer in the hands of a hung source stays out until the source lets go of it. One in the hands
 * of a hung disk gets other memory; its old pages go back when the disk answers.
 */
#ifndef FB_IO_BUFFER_H
#define FB_IO_BUFFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/list.h"

#define FB_IO_ALIGN 4096

struct fb_buffer_pool;

struct fb_buffer {
    uint8_t *data;
    uint32_t size;
    struct fb_buffer_pool *pool;
    struct fb_buffer_account *account; /* whose it is while it is out; NULL: nobody's */
    _Atomic uint32_t refs;
    struct fb_list free_link;
};

/* One party's account: how many of a pool's buffers it has out, and may have. Without it a source
 * that hangs would end up with all of them. Lives in the pool, and longer than its party: until the
 * last buffer is back. */
struct fb_buffer_account {
    uint32_t out;
    uint32_t limit;
    bool open;
    bool waits; /* someone of it in line must wait for its own buffers: those behind it as well */
};

#define FB_BUFFER_ACCOUNTS_MAX 256

/* A place in line, embedded in the request that waits. `ready` is called once, by the thread that
 * gave the last buffer back, with no lock held; the buffers, one reference each, are then in
 * `buffers`. */
struct fb_buffer_wait {
    struct fb_list link;
    struct fb_buffer **buffers;
    struct fb_buffer_account *account;
    uint32_t count;
    void (*ready)(struct fb_buffer_wait *wait);
};

FB_MUST_CHECK int fb_buffer_pool_create(uint32_t count, uint32_t size,
                                        struct fb_buffer_pool **ret_pool);

/* Buffers still out (in the hands of a hung source) keep the pool's memory mapped for good. */
void fb_buffer_pool_destroy(struct fb_buffer_pool *pool);

/* NULL when there are too many. `limit` is the largest count that may be asked for. */
FB_MUST_CHECK struct fb_buffer_account *fb_buffer_account_open(struct fb_buffer_pool *pool,
                                                               uint32_t limit);
/* How many more it could have now. */
uint32_t fb_buffer_account_free(struct fb_buffer_pool *pool,
                                const struct fb_buffer_account *account);
void fb_buffer_account_close(struct fb_buffer_pool *pool, struct fb_buffer_account *account);

/* Takes `count` buffers into ret_buffers, or none and returns false: then `wait` (may be NULL),
 * whose `ready` the caller has set, stands in line, and fb_buffer_serve() is due as soon as the
 * caller holds no lock. count is at most that of the pool. */
bool fb_buffer_get_many(struct fb_buffer_pool *pool, struct fb_buffer_account *account,
                        uint32_t count, struct fb_buffer **ret_buffers,
                        struct fb_buffer_wait *wait);

/* One buffer, or NULL when none is free. */
struct fb_buffer *fb_buffer_get(struct fb_buffer_pool *pool);

/* Takes `wait` out of the line; false: it is not in line (any more), `ready` has run or is about
 * to. Calls nobody, so it may be called with locks held; follow it with fb_buffer_serve() without,
 * as those behind it may need less. */
bool fb_buffer_cancel(struct fb_buffer_pool *pool, struct fb_buffer_wait *wait);

/* Serves those in line for whom there is enough. */
void fb_buffer_serve(struct fb_buffer_pool *pool);

struct fb_buffer *fb_buffer_ref(struct fb_buffer *buffer);
void fb_buffer_put(struct fb_buffer *buffer); /* takes NULL */

/* Other memory for a buffer whose own a disk may still write to. exchange() returns the buffer's
 * old memory, which is to be freed when nobody writes to it any more. `pool`: the buffer's, NULL
 * for one that is in none and whose memory can be free()d. */
FB_MUST_CHECK uint8_t *fb_buffer_memory_new(uint32_t size);
FB_MUST_CHECK uint8_t *fb_buffer_exchange(struct fb_buffer *buffer, uint8_t *memory);
void fb_buffer_memory_free(struct fb_buffer_pool *pool, uint8_t *memory, uint32_t size);

uint32_t fb_buffer_pool_free(struct fb_buffer_pool *pool);
uint32_t fb_buffer_pool_count(const struct fb_buffer_pool *pool);

#endif
