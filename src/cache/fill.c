/*
 * Filling: a data set that is read in random order, and that fits well enough into its quota, is
 * loaded as a whole (IGTCache's statistical prefetch), so that readers find it instead of waiting
 * for each file in turn.
 *
 *     steer.c: a stream, bytes worth loading ──► this thread walks over the directory and all below
 *     it (walk.c), learns what the listings tell of each file ──► bring.c reads what is not there
 *
 * How large a data set is, the brain must be told before it can say what is worth loading: another
 * walk, which only adds up. A third kind goes over a data set whose share is full and whose files
 * take turns (policy/turns.h): what is due comes in place of what was read. A fourth only learns
 * what listings tell of files whose records are here, and were not asked about for long: what is
 * raised into DRAM (raise.h) was recovered after a restart as a rule, and to ask for each file when
 * it is opened takes longer than to read it then.
 *
 * One data set at a time. Loading ends when the bytes are asked for, the directory is through, or
 * the volume is detached. Whether it paid is judged by who asked for it: by what the stream holds
 * then.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"

#define WAIT_NS  (100 * FB_NS_PER_MS) /* between looks at whether to stop */
#define VAIN_MAX 16 /* files that are due and find no room, before a walk is given up */

enum task {
    ADD_UP,
    LOAD,
    EXCHANGE,
    LEARN,
};

struct fb_fill {
    struct fb_cache *cache;
    _Atomic bool stopping;
    struct fb_mutex lock; /* FB_RANK_FILL: what follows */
    struct fb_cond wanted_cond;
    bool wanted;
    uint16_t source;
    enum task task;
    uint64_t bytes;         /* to load */
    uint64_t node;          /* whose bytes are added up */
    uint32_t stream;        /* whose files take turns */
    uint64_t measured_node; /* 0: nothing new */
    uint64_t measured_bytes;
    uint32_t exchanged_stream; /* 0: nothing new */
    uint64_t exchanged_count;
    char path[FB_PATH_MAX];
    pthread_t thread;
};

/* The work at hand. */
struct work {
    struct fb_fill *fill;
    uint16_t source;
    uint64_t left;
    uint64_t told_bytes, told_count, untold_count; /* of files, by the listings */
    uint32_t stream;
    uint64_t exchanged;
    unsigned vain;
    char path[FB_PATH_MAX];
};

static bool is_stopping(struct fb_fill *fill)
{
    return atomic_load_explicit(&fill->stopping, memory_order_relaxed);
}

/* What of it is in no tier; fills in the record, so that nobody need ask for it again. Of what
 * cannot be believed bring.c finds out. */
static uint64_t missing_bytes(struct fb_cache *cache, const struct fb_walked *walked)
{
    uint64_t size = walked->attr->version.size, there;
    uint32_t file;

    if (fb_cache_hear(walked->volume, walked->path, walked->attr, &walked->heard, &file) < 0)
        return size;
    there = (uint64_t)fb_files_items(cache->files, file) * cache->config.block_bytes;
    fb_files_unref(cache->files, file, 1);
    return there < size ? size - there : 0;
}

/* The queue may be full for long; a volume that is being detached waits for the walk. */
static bool is_over(const struct work *w, struct fb_volume *volume)
{
    if (is_stopping(w->fill) || !fb_volume_hold(volume))
        return true;
    fb_volume_let_go(volume);
    return false;
}

/* 0, or -ECANCELED. */
static int bring(struct work *w, const struct fb_walked *walked)
{
    struct fb_bring *bring = w->fill->cache->bring;
    struct fb_bring_order order = {.source = w->source,
                                   .origin = FB_BRING_FILL,
                                   .path = walked->path,
                                   .place = FB_POSITION_UNKNOWN};

    while (fb_bring(bring, &order) == FB_BROUGHT_FULL) {
        if (is_over(w, walked->volume))
            return -ECANCELED;
        fb_bring_wait(bring, fb_now_ns() + WAIT_NS);
    }
    fb_bring_tick(bring);
    return is_stopping(w->fill) ? -ECANCELED : 0;
}

/* A listing may tell the sizes of some files only, where each takes a trip: the others are taken
 * for as large as those were. */
static uint64_t usual_bytes(const struct work *w)
{
    return w->told_count > 0 ? w->told_bytes / w->told_count : 1;
}

static void note_size(struct work *w, const struct fb_attr *attr)
{
    if (!attr) {
        w->untold_count++;
        return;
    }
    w->told_bytes += attr->version.size;
    w->told_count++;
}

static int load(void *arg, const struct fb_walked *walked)
{
    struct work *w = arg;
    struct fb_cache *cache = w->fill->cache;
    uint64_t missing;
    int rc;

    if (walked->type != DT_REG)
        return 0;
    note_size(w, walked->attr);
    missing = walked->attr ? missing_bytes(cache, walked) : usual_bytes(w);
    if (missing == 0)
        return 0;
    rc = bring(w, walked);
    w->left -= fb_min_u64(w->left, missing);
    return w->left == 0 ? -ECANCELED : rc;
}

static int add_up(void *arg, const struct fb_walked *walked)
{
    struct work *w = arg;

    if (walked->type == DT_REG)
        note_size(w, walked->attr);
    return is_stopping(w->fill) ? -ECANCELED : 0;
}

static int exchange(void *arg, const struct fb_walked *walked)
{
    struct work *w = arg;
    struct fb_cache *cache = w->fill->cache;
    uint64_t gone;
    bool gives;

    if (is_stopping(w->fill))
        return -ECANCELED;
    if (walked->type != DT_REG || !walked->attr ||
        walked->attr->version.size > cache->config.block_bytes ||
        missing_bytes(cache, walked) == 0 ||
        !fb_steer_is_due(cache->steer, w->stream, w->source, walked->path))
        return 0;
    gives = fb_steer_gives_way(cache->steer, w->stream, walked->attr->version.size, &gone);
    w->exchanged += gives || gone > 0;
    if (!gives)
        return ++w->vain < VAIN_MAX ? 0 : -ECANCELED;
    w->vain = 0;
    return bring(w, walked);
}

static int learn(void *arg, const struct fb_walked *walked)
{
    struct work *w = arg;
    struct fb_files *files = w->fill->cache->files;
    uint32_t file = walked->type == DT_REG && walked->attr
                        ? fb_files_find(files, w->source, walked->path)
                        : FB_FILE_NONE;

    if (file != FB_FILE_NONE) {
        bool is_old = fb_files_valid_until(files, file) <= fb_now_ns();

        fb_files_unref(files, file, 1);
        if (is_old &&
            fb_cache_hear(walked->volume, walked->path, walked->attr, &walked->heard, &file) == 0)
            fb_files_unref(files, file, 1);
    }
    return is_stopping(w->fill) ? -ECANCELED : 0;
}

static void *fill_run(void *arg)
{
    static fb_walk_fn *const visit[] = {
        [ADD_UP] = add_up, [LOAD] = load, [EXCHANGE] = exchange, [LEARN] = learn};
    struct fb_fill *fill = arg;
    struct work *w = fb_alloc(sizeof *w);
    enum task task;
    int rc;

    fb_mutex_lock(&fill->lock);
    while (w && !is_stopping(fill)) {
        if (!fill->wanted) {
            fb_cond_wait(&fill->wanted_cond, &fill->lock, FB_NEVER_NS);
            continue;
        }
        w->fill = fill;
        w->source = fill->source;
        w->left = fill->bytes;
        w->told_bytes = w->told_count = w->untold_count = 0;
        w->stream = fill->stream;
        w->exchanged = 0;
        w->vain = 0;
        task = fill->task;
        memcpy(w->path, fill->path, sizeof w->path);
        fb_mutex_unlock(&fill->lock);
        rc = fb_dirs_walk(fill->cache, w->source, w->path, true, visit[task], w);
        fb_mutex_lock(&fill->lock);
        if (task == ADD_UP && rc == 0) {
            fill->measured_node = fill->node;
            fill->measured_bytes = w->told_bytes + w->untold_count * usual_bytes(w);
        }
        if (task == EXCHANGE) {
            fill->exchanged_stream = w->stream;
            fill->exchanged_count = w->exchanged;
        }
        fill->wanted = false;
    }
    fb_mutex_unlock(&fill->lock);
    free(w);
    return NULL;
}

static bool want(struct fb_fill *fill, enum task task, uint16_t source, const char *path,
                 uint64_t what)
{
    bool taken;

    fb_mutex_lock(&fill->lock);
    taken = !fill->wanted && strlen(path) < sizeof fill->path;
    if (taken) {
        fill->wanted = true;
        fill->task = task;
        fill->source = source;
        fill->bytes = task == LOAD ? what : 0;
        fill->node = task == ADD_UP ? what : 0;
        fill->stream = task == EXCHANGE ? (uint32_t)what : 0;
        memcpy(fill->path, path, strlen(path) + 1);
        fb_cond_signal(&fill->wanted_cond);
    }
    fb_mutex_unlock(&fill->lock);
    return taken;
}

bool fb_fill_want(struct fb_fill *fill, uint16_t source, const char *path, uint64_t bytes)
{
    return want(fill, LOAD, source, path, bytes);
}

bool fb_fill_measure(struct fb_fill *fill, uint16_t source, const char *path, uint64_t node)
{
    return want(fill, ADD_UP, source, path, node);
}

bool fb_fill_learn(struct fb_fill *fill, uint16_t source, const char *path)
{
    return want(fill, LEARN, source, path, 0);
}

bool fb_fill_turns(struct fb_fill *fill, uint16_t source, const char *path, uint32_t stream)
{
    return want(fill, EXCHANGE, source, path, stream);
}

bool fb_fill_measured(struct fb_fill *fill, uint64_t *ret_node, uint64_t *ret_bytes)
{
    bool is_new;

    fb_mutex_lock(&fill->lock);
    is_new = fill->measured_node != 0;
    *ret_node = fill->measured_node;
    *ret_bytes = fill->measured_bytes;
    fill->measured_node = 0;
    fb_mutex_unlock(&fill->lock);
    return is_new;
}

bool fb_fill_turned(struct fb_fill *fill, uint32_t *ret_stream, uint64_t *ret_count)
{
    bool is_new;

    fb_mutex_lock(&fill->lock);
    is_new = fill->exchanged_stream != 0;
    *ret_stream = fill->exchanged_stream;
    *ret_count = fill->exchanged_count;
    fill->exchanged_stream = 0;
    fb_mutex_unlock(&fill->lock);
    return is_new;
}

bool fb_fill_is_busy(struct fb_fill *fill)
{
    bool busy;

    fb_mutex_lock(&fill->lock);
    busy = fill->wanted;
    fb_mutex_unlock(&fill->lock);
    return busy;
}

int fb_fill_create(struct fb_cache *cache, struct fb_fill **ret_fill)
{
    struct fb_fill *fill = fb_alloc(sizeof *fill);
    int rc;

    if (!fill)
        return -ENOMEM;
    fill->cache = cache;
    fb_mutex_init(&fill->lock, FB_RANK_FILL);
    fb_cond_init(&fill->wanted_cond);
    rc = fb_thread_start(&fill->thread, "fb-fill", fill_run, fill);
    if (rc < 0) {
        fb_cond_destroy(&fill->wanted_cond);
        fb_mutex_destroy(&fill->lock);
        free(fill);
        return rc;
    }
    *ret_fill = fill;
    return 0;
}

void fb_fill_destroy(struct fb_fill *fill)
{
    if (!fill)
        return;
    atomic_store_explicit(&fill->stopping, true, memory_order_relaxed);
    fb_mutex_lock(&fill->lock);
    fb_cond_broadcast(&fill->wanted_cond);
    fb_mutex_unlock(&fill->lock);
    pthread_join(fill->thread, NULL);
    fb_cond_destroy(&fill->wanted_cond);
    fb_mutex_destroy(&fill->lock);
    free(fill);
}
