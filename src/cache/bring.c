#include "cache/bring.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define BUCKETS     256u
#define ORIGINS     64u
#define BROUGHT     (ORIGINS * FB_BROUGHT_BACK)
#define WASTED      256u
#define PASSED      256u
#define STALE_NS    (2 * FB_NS_PER_S) /* in the queue: the reader has passed by */
#define ACTIVE_NS   FB_NS_PER_S
#define STRETCH_MAX 2u  /* blocks read at once: a buffer each */
#define SPARE_MIN   4u  /* of a source's buffers stay free for programs, */
#define SPARE_SHARE 16u /* and one part in so many */
#define BLOCKS_LOOK 64u /* of a large file, from its front; the last two besides */

/* One file; in the queue, or under way. */
struct file {
    struct fb_list link;  /* in its bucket */
    struct fb_list queue; /* while it waits */
    struct fb_bring *bring;
    struct fb_volume *volume; /* entered, while under way */
    struct fb_lookup lookup;
    struct fb_bring_order order; /* its path is ours */
    uint64_t hash;
    int64_t asked_ns;
    uint32_t id; /* with a reference, once it was looked up */
    uint32_t blocks;
    uint64_t next; /* block to look at */
    char path[];
};

struct brought {
    uint64_t key; /* 0: none */
    uint32_t origin;
    uint32_t place;
};

/* What an origin has brought lately, in that order. */
struct latest {
    uint64_t keys[FB_BROUGHT_BACK];
    uint32_t next;   /* to be brought; counts on */
    uint32_t passed; /* those before it are read, or were in vain */
};

struct fb_bring {
    struct fb_cache *cache;
    _Atomic int64_t wanted_ns; /* last, by a reader */
    struct fb_mutex lock;      /* FB_RANK_BRING: what follows */
    struct fb_cond taken;      /* from the queue */
    struct fb_list buckets[BUCKETS];
    struct fb_list queue; /* what readers want next comes before what fills want */
    struct fb_list fills;
    unsigned queued;
    bool pumping;
    bool again;
    struct brought brought[BROUGHT]; /* by the hash of the key */
    struct latest latest[ORIGINS];
    uint16_t wasted[WASTED];
    unsigned wasted_count;
    uint64_t passed[PASSED]; /* items whose buffers are to be let go */
    unsigned passed_count;
};

static void pump(struct fb_bring *bring);

/* ---- worth ----------------------------------------------------------------------------------- */

static struct brought *slot_of(struct fb_bring *bring, uint64_t key) FB_REQUIRES(&bring->lock)
{
    return &bring->brought[fb_mix64(key) % BROUGHT];
}

static void count_wasted(struct fb_bring *bring, uint32_t origin) FB_REQUIRES(&bring->lock)
{
    if (bring->wasted_count < WASTED)
        bring->wasted[bring->wasted_count++] = (uint16_t)origin;
}

/* It was brought in vain, unless it has been read. */
static bool give_up(struct fb_bring *bring, uint64_t key) FB_REQUIRES(&bring->lock)
{
    struct brought *b = slot_of(bring, key);

    if (key == 0 || b->key != key)
        return false;
    count_wasted(bring, b->origin);
    b->key = 0;
    return true;
}

/* Somebody is followed, who will be there soon. */
static bool has_reader(const struct fb_bring_order *order)
{
    return order->origin < FB_BRING_NEAR;
}

static void remember(struct fb_bring *bring, uint64_t key, uint32_t bytes,
                     const struct fb_bring_order *order)
{
    struct latest *l = &bring->latest[order->origin % ORIGINS];

    if (order->origin == FB_BRING_NEAR)
        fb_near_brought(bring->cache->near, order->source, key, bytes);
    if (!has_reader(order))
        return;
    fb_mutex_lock(&bring->lock);
    give_up(bring, l->keys[l->next % FB_BROUGHT_BACK]);
    l->keys[l->next++ % FB_BROUGHT_BACK] = key;
    if (l->next - l->passed > FB_BROUGHT_BACK)
        l->passed = l->next - FB_BROUGHT_BACK;
    *slot_of(bring, key) =
        (struct brought){.key = key, .origin = order->origin, .place = order->place};
    fb_mutex_unlock(&bring->lock);
}

static bool is_passed(uint32_t place, uint32_t reader)
{
    return place <= reader && reader - place < FB_BRING_PASSED;
}

/* Those that are not begun yet; the next ones are first in the queue. */
static void drop_passed(struct fb_bring *bring, uint16_t origin, uint32_t reader)
    FB_REQUIRES(&bring->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &bring->queue) {
        struct file *f = FB_LIST_ENTRY(it, struct file, queue);

        if (f->order.origin != origin)
            continue;
        if (!is_passed(f->order.place, reader))
            return;
        fb_list_remove(&f->queue);
        fb_list_remove(&f->link);
        bring->queued--;
        free(f);
    }
}

void fb_bring_passed(struct fb_bring *bring, uint16_t origin, uint32_t place)
{
    struct latest *l = &bring->latest[origin % ORIGINS];

    fb_mutex_lock(&bring->lock);
    drop_passed(bring, origin, place);
    for (; l->passed != l->next && bring->passed_count < PASSED; l->passed++) {
        uint64_t key = l->keys[l->passed % FB_BROUGHT_BACK];
        const struct brought *b = slot_of(bring, key);

        /* The one at the place itself is being read: its access is told after this. */
        if (b->key == key && (b->place == place || !is_passed(b->place, place)))
            break;
        if (give_up(bring, key))
            bring->passed[bring->passed_count++] = key;
    }
    fb_mutex_unlock(&bring->lock);
}

/* A buffer that is let go serves who waits for one, whose read may be answered at once: so nobody
 * who holds a lock comes here. */
static void let_passed_go(struct fb_bring *bring)
{
    uint64_t key;

    do {
        fb_mutex_lock(&bring->lock);
        key = bring->passed_count > 0 ? bring->passed[--bring->passed_count] : 0;
        fb_mutex_unlock(&bring->lock);
        if (key != 0)
            fb_fetch_unpark_key(bring->cache, key);
    } while (key != 0);
}

bool fb_bring_forget(struct fb_bring *bring, uint64_t key, uint16_t *ret_origin)
{
    struct brought *b;
    bool found;

    fb_mutex_lock(&bring->lock);
    b = slot_of(bring, key);
    found = b->key == key;
    if (found) {
        *ret_origin = (uint16_t)b->origin;
        b->key = 0;
    }
    fb_mutex_unlock(&bring->lock);
    return found;
}

bool fb_bring_wasted(struct fb_bring *bring, uint16_t *ret_origin)
{
    bool more;

    fb_mutex_lock(&bring->lock);
    more = bring->wasted_count > 0;
    if (more)
        *ret_origin = bring->wasted[--bring->wasted_count];
    fb_mutex_unlock(&bring->lock);
    return more;
}

/* ---- one file -------------------------------------------------------------------------------- */

static void file_free(struct file *f)
{
    if (f->order.origin == FB_BRING_NEAR)
        fb_near_ended(f->bring->cache->near);
    free(f);
}

static void end(struct file *f)
{
    struct fb_bring *bring = f->bring;
    struct fb_volume *volume = f->volume;

    if (f->id != FB_FILE_NONE)
        fb_files_unref(bring->cache->files, f->id, 1);
    fb_mutex_lock(&bring->lock);
    fb_list_remove(&f->link);
    if (volume)
        volume->bringing--;
    fb_mutex_unlock(&bring->lock);
    file_free(f);
    pump(bring);
    if (volume)
        fb_volume_leave(volume);
}

static bool is_wanted(struct file *f, uint64_t block)
{
    const struct fb_prefetch_range *r = &f->order.blocks;

    if (r->count > 0)
        return block >= r->first && (block - r->first) % r->stride == 0 &&
               (block - r->first) / r->stride < r->count;
    if (f->order.node == 0 || f->blocks == 1)
        return true;
    return (block < BLOCKS_LOOK || block + 2 >= f->blocks) &&
           fb_steer_wants_block(f->bring->cache->steer, f->order.node, (uint32_t)block, f->blocks);
}

static bool is_missing(struct file *f, uint64_t block)
{
    return is_wanted(f, block) && !fb_item_is_there(f->bring->cache, f->id, (uint32_t)block);
}

/* The next stretch to read; false: there is none. */
static bool next_stretch(struct file *f, uint64_t *ret_first, uint64_t *ret_count)
{
    uint64_t most = fb_min_u64(FB_READ_MAX / f->bring->cache->config.block_bytes, STRETCH_MAX);
    uint64_t count = 0;

    while (f->next < f->blocks && !is_missing(f, f->next)) {
        /* Nothing is asked of the middle of a large file. */
        if (f->order.node != 0 && f->order.blocks.count == 0 && f->next >= BLOCKS_LOOK &&
            f->next + 2 < f->blocks)
            f->next = f->blocks - 2;
        else
            f->next++;
    }
    *ret_first = f->next;
    do {
        count++;
        f->next++;
    } while (count < most && f->next < f->blocks && is_missing(f, f->next));
    *ret_count = count;
    return *ret_first < f->blocks;
}

static void go_on(struct file *f);

static void read_done(struct fb_read *read)
{
    struct file *f = read->arg;
    struct fb_cache *cache = f->bring->cache;
    uint32_t block_bytes = cache->config.block_bytes;
    bool good = read->result == 0;

    for (uint64_t at = 0; good && at < read->bytes; at += block_bytes)
        remember(f->bring, fb_item_key(read->file, (uint32_t)((read->offset + at) / block_bytes)),
                 (uint32_t)fb_min_u64(read->bytes - at, block_bytes), &f->order);
    if (good)
        fb_metric_add(&cache->metrics,
                      f->order.origin == FB_BRING_FILL ? FB_CM_FILLED_BYTES : FB_CM_PREFETCH_BYTES,
                      read->bytes);
    fb_read_release(read);
    free(read);
    if (good)
        go_on(f);
    else
        end(f);
}

/* What would find no place is not fetched: a fill must stay within its stream's quota; what is
 * wanted next may wait in its buffer instead. */
static bool has_place(struct file *f, uint64_t bytes)
{
    struct fb_cache *cache = f->bring->cache;

    return has_reader(&f->order) ||
           fb_steer_would_admit(cache->steer, f->id, (uint32_t)bytes, fb_place_is_full(cache));
}

static void go_on(struct file *f)
{
    struct fb_cache *cache = f->bring->cache;
    uint64_t block_bytes = cache->config.block_bytes, first, count;
    uint64_t size = fb_files_version(cache->files, f->id)->size;
    struct fb_volume *volume = f->volume;
    struct fb_read *read = NULL;

    if (!next_stretch(f, &first, &count) ||
        !has_place(f, fb_min_u64(count * block_bytes, size - first * block_bytes)) ||
        !(read = fb_alloc(sizeof *read)) || !fb_volume_hold(volume)) {
        free(read);
        end(f);
        return;
    }
    *read = (struct fb_read){
        .volume = volume,
        .file = f->id,
        .offset = first * block_bytes,
        .length = (uint32_t)(count * block_bytes),
        .early = true,
        .park = has_reader(&f->order),
        .done = read_done,
        .arg = f,
    };
    fb_cache_read(read); /* the file may be gone when this returns */
    fb_volume_let_go(volume);
}

static void looked_up(struct fb_lookup *lookup)
{
    struct file *f = lookup->arg;
    struct fb_cache *cache = f->bring->cache;
    uint64_t block_bytes = cache->config.block_bytes, blocks;

    if (lookup->result == 0)
        f->id = lookup->file;
    if (lookup->result < 0 || !S_ISREG(lookup->attr.mode) || lookup->attr.version.size == 0 ||
        !fb_version_settled(&lookup->attr.version, fb_wall_ns())) {
        end(f);
        return;
    }
    blocks = (lookup->attr.version.size + block_bytes - 1) / block_bytes;
    f->blocks = (uint32_t)fb_min_u64(blocks, UINT32_MAX);
    f->next = f->order.blocks.count ? f->order.blocks.first : 0;
    go_on(f);
}

static void start(struct file *f)
{
    struct fb_volume *volume = f->volume; /* held for us */

    f->lookup = (struct fb_lookup){.volume = volume, .path = f->path, .done = looked_up, .arg = f};
    fb_cache_lookup(&f->lookup);
    fb_volume_let_go(volume);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* Whether another file may be brought from there. A file that is looked up runs no request. */
static bool has_room(struct fb_bring *bring, struct fb_volume *volume, bool parks)
    FB_REQUIRES(&bring->lock)
{
    uint32_t most = volume->cache->config.max_fetches, bringing = volume->bringing;
    uint32_t files = volume->account->limit / 2 / STRETCH_MAX, running = fb_volume_running(volume);
    uint32_t demand = running > bringing ? running - bringing : 0;

    /* Who waits for a buffer of ours waits for a trip that is not its own. */
    if (fb_buffer_account_free(bring->cache->fetch_pool, volume->account) <=
        SPARE_MIN + volume->account->limit / SPARE_SHARE)
        return false;
    if (parks && fb_place_is_full(bring->cache) && !fb_fetch_may_park(volume, bringing))
        return false;
    return bringing < fb_max_u64(files, 1) && fb_prefetch_room(most, demand, bringing) > 0 &&
           !fb_pipe_yields(volume);
}

/* The first in the queue that may begin, taken out of it, with its volume held and entered. */
static struct file *take_from(struct fb_bring *bring, struct fb_list *queue)
    FB_REQUIRES(&bring->lock)
{
    int64_t now_ns = fb_now_ns();
    struct fb_list *it, *tmp;
    int busy = -1; /* the last source that has no room: no other waits for it */

    FB_LIST_FOREACH (it, tmp, queue) {
        struct file *f = FB_LIST_ENTRY(it, struct file, queue);
        bool stale = has_reader(&f->order) && f->asked_ns + STALE_NS < now_ns;
        struct fb_volume *volume;

        if (!stale && f->order.source == busy)
            continue;
        volume = stale ? NULL : fb_volume_hold_any(bring->cache, f->order.source);
        if (volume && !has_room(bring, volume, queue == &bring->queue)) {
            fb_volume_let_go(volume);
            busy = f->order.source;
            continue;
        }
        fb_list_remove(&f->queue);
        bring->queued--;
        fb_cond_broadcast(&bring->taken);
        if (volume) {
            volume->bringing++;
            f->volume = volume;
            return f;
        }
        fb_list_remove(&f->link);
        file_free(f);
    }
    return NULL;
}

static struct file *take(struct fb_bring *bring)
{
    struct file *found;

    fb_mutex_lock(&bring->lock);
    found = take_from(bring, &bring->queue);
    if (!found)
        found = take_from(bring, &bring->fills);
    fb_mutex_unlock(&bring->lock);
    if (found)
        fb_volume_enter(found->volume); /* left in end() */
    return found;
}

/* One thread begins files at a time; who comes meanwhile makes it look again. */
static void pump(struct fb_bring *bring)
{
    bool again;

    fb_mutex_lock(&bring->lock);
    again = bring->pumping;
    bring->again = true;
    bring->pumping = true;
    fb_mutex_unlock(&bring->lock);
    if (again)
        return;
    do {
        struct file *f;

        fb_mutex_lock(&bring->lock);
        bring->again = false;
        fb_mutex_unlock(&bring->lock);
        while ((f = take(bring)))
            start(f);
        fb_mutex_lock(&bring->lock);
        again = bring->again;
        bring->pumping = again;
        fb_mutex_unlock(&bring->lock);
    } while (again);
}

void fb_bring_tick(struct fb_bring *bring)
{
    let_passed_go(bring);
    pump(bring);
}

bool fb_bring_is_active(const struct fb_bring *bring)
{
    /* Relaxed: a hint. */
    return atomic_load_explicit(&bring->wanted_ns, memory_order_relaxed) + ACTIVE_NS > fb_now_ns();
}

void fb_bring_wait(struct fb_bring *bring, int64_t until_ns)
{
    fb_mutex_lock(&bring->lock);
    while (bring->queued > FB_BRING_QUEUE / 2 &&
           fb_cond_wait(&bring->taken, &bring->lock, until_ns))
        ;
    fb_mutex_unlock(&bring->lock);
}

static bool is_known(struct fb_bring *bring, uint64_t hash, const struct fb_bring_order *order)
    FB_REQUIRES(&bring->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &bring->buckets[hash % BUCKETS]) {
        struct file *f = FB_LIST_ENTRY(it, struct file, link);

        if (f->hash == hash && f->order.source == order->source &&
            strcmp(f->path, order->path) == 0)
            return true;
    }
    return false;
}

int fb_bring(struct fb_bring *bring, const struct fb_bring_order *order)
{
    size_t len = strlen(order->path);
    uint64_t hash = fb_hash64_seed(order->path, len, order->source);
    struct file *f = fb_alloc(sizeof *f + len + 1);
    int rc = FB_BROUGHT_QUEUED;

    if (!f)
        return -ENOMEM;
    f->bring = bring;
    f->order = *order;
    f->order.path = f->path;
    f->hash = hash;
    f->asked_ns = fb_now_ns();
    if (order->origin != FB_BRING_FILL)
        atomic_store_explicit(&bring->wanted_ns, f->asked_ns, memory_order_relaxed);
    memcpy(f->path, order->path, len + 1);
    fb_mutex_lock(&bring->lock);
    if (bring->queued >= FB_BRING_QUEUE)
        rc = FB_BROUGHT_FULL;
    else if (is_known(bring, hash, order))
        rc = FB_BROUGHT_ALREADY;
    if (rc == FB_BROUGHT_QUEUED) {
        fb_list_push_back(&bring->buckets[hash % BUCKETS], &f->link);
        fb_list_push_back(has_reader(order) ? &bring->queue : &bring->fills, &f->queue);
        bring->queued++;
        f = NULL;
    }
    fb_mutex_unlock(&bring->lock);
    free(f);
    return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

uint64_t fb_bring_bytes(void)
{
    return sizeof(struct fb_bring);
}

int fb_bring_create(struct fb_cache *cache, struct fb_bring **ret_bring)
{
    struct fb_bring *bring = fb_alloc(sizeof *bring);

    if (!bring)
        return -ENOMEM;
    bring->cache = cache;
    fb_mutex_init(&bring->lock, FB_RANK_BRING);
    fb_cond_init(&bring->taken);
    fb_list_init(&bring->queue);
    fb_list_init(&bring->fills);
    for (unsigned i = 0; i < BUCKETS; i++)
        fb_list_init(&bring->buckets[i]);
    *ret_bring = bring;
    return 0;
}

void fb_bring_destroy(struct fb_bring *bring)
{
    struct fb_list *it, *tmp;

    if (!bring)
        return;
    fb_list_splice(&bring->queue, &bring->fills);
    FB_LIST_FOREACH (it, tmp, &bring->queue)
        file_free(FB_LIST_ENTRY(it, struct file, queue));
    fb_cond_destroy(&bring->taken);
    fb_mutex_destroy(&bring->lock);
    free(bring);
}
