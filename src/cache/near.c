#include "cache/near.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "cache/cache_priv.h"
#include "cache/dirs.h"
#include "core/mem.h"

#define DIRS        128u
#define DIR_FILES   10000u /* of a directory; of a larger one only so many */
#define MISSES_MIN  2u     /* in a directory, before it is listed */
#define ACCOUNTS    32u
#define SETS        2048u /* of items that wait to be read */
#define WAYS        4u
#define WAITING_MAX (SETS * WAYS / 2)
#define UNDER_WAY   128u               /* orders */
#define TURN        4u                 /* files of a directory before the next one has its turn */
#define SWEEP       16u                /* sets looked at in a tick */
#define GONE_NS     (60 * FB_NS_PER_S) /* something had to go lately: there is no room */

/* A directory in which programs had to wait. */
struct place {
    uint64_t hash; /* 0: free */
    uint64_t listing;
    int64_t used_ns;
    uint32_t misses;
    uint32_t next; /* position to look at */
    uint32_t left; /* positions that were not looked at */
    uint16_t source;
    uint8_t *asked; /* a bit a position */
    uint32_t count;
    char *path;
};

/* What is read from a source, and what comes of guessing there. */
struct account {
    uint64_t reads;
    uint64_t read_bytes;
    uint64_t unread; /* guarded by the lock, as the next */
    uint64_t unread_bytes;
    struct fb_prefetch worth;
};

struct waiting {
    uint64_t key; /* 0: none */
    int64_t since_ns;
    uint32_t bytes;
    uint16_t source;
};

struct fb_near {
    struct fb_cache *cache;
    struct fb_prefetch_config config;
    struct place places[DIRS];
    unsigned turn;
    unsigned hand;           /* set to sweep next */
    _Atomic int64_t gone_ns; /* last, for want of room; 0: never */

    struct fb_mutex lock; /* FB_RANK_NEAR: what follows, and `unread` of accounts */
    struct account accounts[ACCOUNTS];
    uint32_t under_way;
    uint32_t waiting_count;
    struct waiting waiting[SETS][WAYS];
};

static struct account *account_of(struct fb_near *near, uint16_t source)
{
    return &near->accounts[source % ACCOUNTS];
}

/* ---- what waits to be read ------------------------------------------------------------------- */

static void clear(struct fb_near *near, struct waiting *w) FB_REQUIRES(&near->lock)
{
    struct account *a = account_of(near, w->source);

    a->unread--;
    a->unread_bytes -= w->bytes;
    near->waiting_count--;
    w->key = 0;
}

void fb_near_brought(struct fb_near *near, uint16_t source, uint64_t key, uint32_t bytes)
{
    struct waiting *set = near->waiting[fb_mix64(key) % SETS], *w = &set[0];
    struct account *a = account_of(near, source);

    fb_mutex_lock(&near->lock);
    /* A free one, or the one that waits longest, which nobody will judge then. */
    for (unsigned i = 1; i < WAYS; i++) {
        if (w->key != 0 && (set[i].key == 0 || set[i].since_ns < w->since_ns))
            w = &set[i];
    }
    if (w->key != 0)
        clear(near, w);
    *w = (struct waiting){.key = key, .since_ns = fb_now_ns(), .bytes = bytes, .source = source};
    a->unread++;
    a->unread_bytes += bytes;
    near->waiting_count++;
    fb_mutex_unlock(&near->lock);
}

void fb_near_ended(struct fb_near *near)
{
    fb_mutex_lock(&near->lock);
    near->under_way--;
    fb_mutex_unlock(&near->lock);
}

static void judge(struct fb_near *near, struct account *a, bool was_used) FB_REQUIRES(&near->lock)
{
    fb_prefetch_count(&a->worth, &near->config, was_used, a->reads);
    fb_metric_add(&near->cache->metrics, was_used ? FB_CM_PREFETCH_USED : FB_CM_PREFETCH_WASTED, 1);
}

/* An item was read; whether we had brought it. */
static bool was_brought(struct fb_near *near, const struct fb_access *access)
{
    struct waiting *set = near->waiting[fb_mix64(access->key) % SETS];
    bool found = false;

    fb_mutex_lock(&near->lock);
    for (unsigned i = 0; i < WAYS && near->waiting_count > 0 && !found; i++) {
        struct waiting *w = &set[i];

        if (w->key != access->key)
            continue;
        found = true;
        account_of(near, w->source)->reads++;
        account_of(near, w->source)->read_bytes += w->bytes;
        /* Else the reader was first, and we have had it from its fetch. */
        if (access->outcome != FB_ACCESS_FETCHED)
            judge(near, account_of(near, w->source), true);
        clear(near, w);
    }
    fb_mutex_unlock(&near->lock);
    return found;
}

static void sweep(struct fb_near *near, int64_t now_ns)
{
    fb_mutex_lock(&near->lock);
    for (unsigned i = 0; i < SWEEP && near->waiting_count > 0; i++) {
        struct waiting *set = near->waiting[near->hand++ % SETS];

        for (unsigned j = 0; j < WAYS; j++) {
            if (set[j].key == 0 || now_ns - set[j].since_ns < FB_NEAR_WAIT_NS)
                continue;
            judge(near, account_of(near, set[j].source), false);
            clear(near, &set[j]);
        }
    }
    fb_mutex_unlock(&near->lock);
}

/* ---- places ---------------------------------------------------------------------------------- */

static void place_clear(struct place *p)
{
    free(p->path);
    free(p->asked);
    *p = (struct place){.hash = 0};
}

/* The place of a directory; a new one instead of the one that was not used for longest. */
static struct place *place_of(struct fb_near *near, uint16_t source, const char *path, size_t len,
                              int64_t now_ns)
{
    uint64_t hash = fb_hash64_seed(path, len, source) | 1;
    struct place *oldest = &near->places[0];

    for (unsigned i = 0; i < DIRS; i++) {
        struct place *p = &near->places[i];

        if (p->hash == hash && p->source == source && strlen(p->path) == len &&
            memcmp(p->path, path, len) == 0)
            return p;
        if (p->used_ns < oldest->used_ns)
            oldest = p;
    }
    place_clear(oldest);
    oldest->path = fb_alloc(len + 1);
    if (!oldest->path)
        return NULL;
    memcpy(oldest->path, path, len);
    oldest->hash = hash;
    oldest->source = source;
    oldest->used_ns = now_ns;
    return oldest;
}

/* The listing is another: nothing was asked for yet. What is there already costs little. */
static bool begin(struct place *p, const struct fb_dir *dir)
{
    uint32_t count = (uint32_t)fb_min_u64(fb_dir_count(dir), DIR_FILES);

    if (p->listing == fb_dir_serial(dir))
        return true;
    free(p->asked);
    p->asked = fb_alloc_array(count / 8 + 1, 1);
    p->count = p->left = p->asked ? count : 0;
    p->next = 0;
    p->listing = fb_dir_serial(dir);
    return p->asked != NULL;
}

/* True: it was not asked for before. */
static bool ask(struct place *p, uint32_t position)
{
    uint8_t bit = (uint8_t)(1u << position % 8);

    if (p->asked[position / 8] & bit)
        return false;
    p->asked[position / 8] |= bit;
    p->left--;
    return true;
}

static struct fb_dir *listing_of(struct fb_near *near, struct place *p)
{
    struct fb_dir *dir = fb_dirs_get(near->cache->dirs, p->source, p->path, strlen(p->path));

    if (dir && begin(p, dir))
        return dir;
    fb_dir_put(dir);
    return NULL;
}

void fb_near_watch(struct fb_near *near, const struct fb_access *access)
{
    struct fb_cache *cache = near->cache;
    char path[FB_PATH_MAX];
    struct fb_version version;
    const char *slash;
    struct account *a = account_of(near, access->source);
    struct place *p;
    struct fb_dir *dir;
    size_t len, dir_len, at;
    uint32_t position, rank;

    if (access->outcome == FB_ACCESS_FAILED || was_brought(near, access) ||
        (access->outcome != FB_ACCESS_FETCHED && access->outcome != FB_ACCESS_JOINED) ||
        (uint32_t)access->key != 0 || !fb_pipe_is_far(cache, access->source) ||
        !fb_files_peek(cache->files, (uint32_t)(access->key >> 32), access->source, path, &len,
                       &version) ||
        version.size > FB_NEAR_FILE_MAX)
        return;
    slash = memrchr(path, '/', len);
    dir_len = slash ? (size_t)(slash - path) : 0;
    at = slash ? dir_len + 1 : 0;
    a->reads++;
    a->read_bytes += version.size;
    p = place_of(near, access->source, path, dir_len, access->time_ns);
    if (!p)
        return;
    p->used_ns = access->time_ns;
    if (++p->misses < MISSES_MIN || !(dir = listing_of(near, p)))
        return;
    if (fb_dir_find(dir, path + at, len - at, &position, &rank) && position < p->count) {
        (void)ask(p, position);
        p->next = position + 1;
    }
    fb_dir_put(dir);
}

/* ---- bringing -------------------------------------------------------------------------------- */

/* Whether another file may be brought from there. */
static bool may_bring(struct fb_near *near, uint16_t source)
{
    struct account *a = account_of(near, source);
    bool may;

    fb_mutex_lock(&near->lock);
    may = !fb_prefetch_is_paused(&a->worth, a->reads) && near->under_way < UNDER_WAY &&
          near->waiting_count + near->under_way < WAITING_MAX &&
          fb_prefetch_beside(FB_PREFETCH_BESIDE_FILES, a->reads, a->unread + near->under_way) > 0 &&
          fb_prefetch_beside(FB_PREFETCH_BESIDE_BYTES, a->read_bytes, a->unread_bytes) > 0;
    near->under_way += may;
    fb_mutex_unlock(&near->lock);
    return may;
}

/* False: no more now. */
static bool bring(struct fb_near *near, const struct place *p, const struct fb_dir_entry *e)
{
    size_t len = strlen(p->path), slash = len > 0 ? 1 : 0;
    char path[FB_PATH_MAX];
    struct fb_bring_order order = {
        .source = p->source, .origin = FB_BRING_NEAR, .path = path, .place = FB_POSITION_UNKNOWN};

    if (e->type != DT_REG || e->size == 0 || e->size > FB_NEAR_FILE_MAX ||
        len + slash + e->name_len >= sizeof path)
        return true;
    memcpy(path, p->path, len);
    path[len] = '/';
    memcpy(path + len + slash, e->name, e->name_len);
    path[len + slash + e->name_len] = '\0';
    if (!may_bring(near, p->source))
        return false;
    if (fb_bring(near->cache->bring, &order) == FB_BROUGHT_QUEUED)
        return true;
    fb_near_ended(near);
    return true;
}

/* A few of one directory; false: enough of all. */
static bool take_turn(struct fb_near *near, struct place *p)
{
    struct fb_dir *dir = listing_of(near, p);
    bool more = true;

    for (unsigned i = 0; dir && p->left > 0 && i < TURN && more;) {
        uint32_t position = p->next++ % p->count;
        struct fb_dir_entry e;

        if (!ask(p, position))
            continue;
        e = fb_dir_at(dir, position);
        more = bring(near, p, &e);
        i++;
        if (!more) { /* it is the first next time */
            p->asked[position / 8] &= (uint8_t) ~(1u << position % 8);
            p->left++;
            p->next--;
        }
    }
    fb_dir_put(dir);
    return more;
}

static bool is_due(const struct fb_near *near, const struct place *p, int64_t now_ns)
{
    return p->hash != 0 && !fb_epochs_foretell(near->cache->epochs, p->source) &&
           p->misses >= MISSES_MIN && now_ns - p->used_ns < FB_NEAR_WAIT_NS &&
           (p->left > 0 || p->listing == 0);
}

void fb_near_gone(struct fb_near *near)
{
    /* Relaxed, here and below: a moment earlier or later. */
    atomic_store_explicit(&near->gone_ns, fb_now_coarse_ns(), memory_order_relaxed);
}

/* Segments go as a whole, so a full cache has some room most of the time. */
static bool has_room(struct fb_near *near, int64_t now_ns)
{
    int64_t gone_ns = atomic_load_explicit(&near->gone_ns, memory_order_relaxed);

    return (gone_ns == 0 || now_ns - gone_ns > GONE_NS) && !fb_place_is_full(near->cache);
}

void fb_near_tick(struct fb_near *near, int64_t now_ns)
{
    unsigned idle = 0;

    sweep(near, now_ns);
    if (near->cache->config.no_prefetch || near->cache->config.no_patterns)
        return;
    if (!has_room(near, now_ns))
        return;
    /* Until a whole round has found nothing to do. */
    while (idle < DIRS) {
        struct place *p = &near->places[near->turn % DIRS];
        uint32_t left = p->left;

        if (is_due(near, p, now_ns) && !take_turn(near, p))
            return;
        idle = p->left < left ? 0 : idle + 1;
        near->turn++;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

uint64_t fb_near_bytes(void)
{
    return sizeof(struct fb_near);
}

int fb_near_create(struct fb_cache *cache, struct fb_near **ret_near)
{
    struct fb_near *near = fb_alloc(sizeof *near);

    if (!near)
        return -ENOMEM;
    near->cache = cache;
    near->config = fb_prefetch_defaults();
    fb_mutex_init(&near->lock, FB_RANK_NEAR);
    *ret_near = near;
    return 0;
}

void fb_near_destroy(struct fb_near *near)
{
    if (!near)
        return;
    for (unsigned i = 0; i < DIRS; i++)
        place_clear(&near->places[i]);
    fb_mutex_destroy(&near->lock);
    free(near);
}
