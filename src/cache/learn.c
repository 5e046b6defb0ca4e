#include "cache/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checksum.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "io/durable.h"
#include "trace/access_log.h"

#define MODEL_FILE     "model"
#define MODEL_FILE_MAX (16u << 20)
#define SAVE_EVERY_NS  (60 * FB_NS_PER_S)
#define READERS        256u /* sequential readers that are told apart */
#define NICE           5
#define TIME_SHIFT     16
#define MODEL_BYTES    (4ULL << 20)

/* Where the last read of an item ended. */
struct reader {
    uint64_t key;
    uint32_t pid;
    uint64_t end;
};

struct fb_learn {
    struct fb_cache *cache;
    struct fb_mutex lock;
    struct fb_cond cond;    /* there is something to do */
    struct fb_cond ranked;  /* a tier was */
    struct fb_reuse *reuse; /* NULL: there is only the log */
    struct fb_ranking rankings[FB_TIERS_MAX];
    bool rank_wanted[FB_TIERS_MAX];
    bool evicts; /* something had to go once */
    bool stop;
    bool running;
    pthread_t thread;
    _Atomic uint16_t now; /* the model's time, for fb_learn_fresh() */

    /* The background thread's. */
    struct reader readers[READERS];
    struct fb_access_log *log;
    int64_t log_ns; /* of the last record */

    /* Of who trains. */
    int dir_fd;      /* -1: what is learned ends with the cache */
    int home_fd;     /* the same where no tier has a directory, else -1; ours to close */
    int64_t save_ns; /* not before */
    unsigned saved;  /* trainings when it was saved */
    _Atomic int64_t trained_wall_ns;
    _Atomic int64_t train_ns; /* the last one */
    _Atomic int64_t rank_ns;
    _Atomic uint32_t ranked_groups;
};

/* The file: this, then what fb_reuse_save() writes. */
struct model_head {
    char magic[8];
    uint32_t version;
    uint32_t size;
    uint64_t sum;
};

static_assert(sizeof(struct model_head) == 24, "on disk");

#define MODEL_MAGIC   "FBMODEL"
#define MODEL_VERSION 1

/* ---- over a restart ---- */

static void find_dir(struct fb_learn *learn)
{
    struct fb_cache *cache = learn->cache;

    learn->dir_fd = learn->home_fd = -1;
    for (unsigned t = 0; t < fb_store_tiers(cache->store) && learn->dir_fd < 0; t++)
        learn->dir_fd = fb_tier_dir_fd(fb_store_tier(cache->store, t));
    if (learn->dir_fd >= 0 || !cache->config.home)
        return;
    learn->home_fd = open(cache->config.home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (learn->home_fd < 0)
        fb_log_warn("what is learned about reuse will not be kept: cannot open %s: %s",
                    cache->config.home, fb_strerror(-errno));
    learn->dir_fd = learn->home_fd;
}

static bool head_good(const char *bytes, size_t size)
{
    struct model_head head;

    if (size < sizeof head)
        return false;
    memcpy(&head, bytes, sizeof head);
    return memcmp(head.magic, MODEL_MAGIC, sizeof head.magic) == 0 &&
           head.version == MODEL_VERSION && head.size == size - sizeof head &&
           head.sum == fb_checksum(bytes + sizeof head, head.size);
}

static void load(struct fb_learn *learn)
{
    FB_AUTO_FREE char *bytes = NULL;
    size_t size = 0;
    int rc;

    if (learn->dir_fd < 0)
        return;
    rc = fb_durable_read(learn->dir_fd, MODEL_FILE, MODEL_FILE_MAX, &bytes, &size);
    if (rc == -ENOENT)
        return;
    if (rc == 0)
        rc = head_good(bytes, size) ? fb_reuse_load(learn->reuse, bytes + sizeof(struct model_head),
                                                    size - sizeof(struct model_head))
                                    : -EBADMSG;
    if (rc < 0)
        fb_log_warn("what was learned about reuse cannot be used, learning begins anew: %s",
                    rc == -EBADMSG  ? "it is damaged"
                    : rc == -EINVAL ? "it is of a cache of another size"
                                    : fb_strerror(rc));
    else
        fb_log_info("what was learned about reuse is known from last time");
    learn->saved = fb_reuse_trainings(learn->reuse);
}

static void save(struct fb_learn *learn)
{
    struct model_head head = {.magic = MODEL_MAGIC, .version = MODEL_VERSION};
    FB_AUTO_FREE char *bytes = NULL;
    unsigned trainings;
    size_t size;
    int rc;

    if (learn->dir_fd < 0)
        return;
    fb_mutex_lock(&learn->lock);
    trainings = fb_reuse_trainings(learn->reuse);
    size = fb_reuse_saved_bytes(learn->reuse);
    bytes = trainings > 0 ? malloc(sizeof head + size) : NULL;
    if (bytes)
        fb_reuse_save(learn->reuse, bytes + sizeof head);
    fb_mutex_unlock(&learn->lock);
    if (!bytes)
        return;
    head.size = (uint32_t)size;
    head.sum = fb_checksum(bytes + sizeof head, size);
    memcpy(bytes, &head, sizeof head);
    rc = fb_durable_write(learn->dir_fd, MODEL_FILE, bytes, sizeof head + size);
    if (rc < 0)
        fb_log_warn("what was learned about reuse could not be written down: %s", fb_strerror(rc));
    learn->saved = trainings;
    learn->save_ns = fb_now_ns() + SAVE_EVERY_NS;
}

/* ---- training ---- */

static void train(struct fb_learn *learn)
{
    struct fb_cache *cache = learn->cache;
    uint64_t items = fb_store_items(cache->store);
    int64_t begin_ns = fb_now_ns();
    struct fb_boost *model;
    bool ready;
    int rc;

    fb_mutex_lock(&learn->lock);
    ready = fb_reuse_prepare(learn->reuse, items);
    fb_mutex_unlock(&learn->lock);
    if (!ready)
        return;
    rc = fb_reuse_fit(learn->reuse, &model);
    if (rc < 0)
        return; /* the last one serves, and there will be another time */
    fb_mutex_lock(&learn->lock);
    fb_reuse_adopt(learn->reuse, model);
    fb_mutex_unlock(&learn->lock);
    /* Relaxed: figures to look at. */
    atomic_store_explicit(&learn->train_ns, fb_now_ns() - begin_ns, memory_order_relaxed);
    atomic_store_explicit(&learn->trained_wall_ns, fb_wall_ns(), memory_order_relaxed);
    fb_metric_add(&cache->metrics, FB_CM_TRAININGS, 1);
    fb_metric_add(&cache->metrics, FB_CM_TRAIN_US, (uint64_t)(fb_now_ns() - begin_ns) / 1000);
}

/* ---- ranking ---- */

/* The upper half of an item's time is the model's, so that the index compares it as it wraps; the
 * lowest byte is the stream that holds the item. */
static struct fb_use use_of(const struct fb_reuse_meta *meta, uint8_t holder)
{
    return (struct fb_use){(uint32_t)meta->last << TIME_SHIFT | holder, meta->history};
}

static struct fb_reuse_meta meta_of(const struct fb_use *use)
{
    return (struct fb_reuse_meta){(uint16_t)(use->last >> TIME_SHIFT), use->history};
}

/* What is held by a stream that holds nothing any more is as good as new. */
static struct fb_reuse_meta held_meta_of(const struct fb_learn *learn, const struct fb_use *use)
{
    struct fb_reuse_meta meta = meta_of(use);

    if (meta.history == FB_REUSE_HELD && !fb_steer_holds(learn->cache->steer, (uint8_t)use->last))
        meta.history = FB_REUSE_FRESH;
    return meta;
}

struct looked {
    const struct fb_learn *learn;
    unsigned count;
    uint32_t length[FB_GROUPS_SAMPLE];
    struct fb_reuse_meta meta[FB_GROUPS_SAMPLE];
};

static void look(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct looked *l = arg;

    (void)key;
    if (l->count == FB_GROUPS_SAMPLE)
        return;
    l->length[l->count] = length;
    l->meta[l->count++] = held_meta_of(l->learn, use);
}

/* False: it is on its way out. */
static bool score(struct fb_learn *learn, const struct fb_segment_info *info, float *ret_score)
{
    struct looked looked = {.learn = learn};
    struct fb_group_sum sum = {0};

    if (fb_store_visit(learn->cache->store, info->no, FB_GROUPS_SAMPLE, look, &looked) != 0)
        return false;
    fb_mutex_lock(&learn->lock);
    for (unsigned i = 0; i < looked.count; i++)
        fb_group_add(&sum, learn->reuse, &looked.meta[i], looked.length[i]);
    fb_mutex_unlock(&learn->lock);
    *ret_score = fb_group_score(&sum, info->live_bytes, info->used_bytes);
    return true;
}

static void rank(struct fb_learn *learn, unsigned tier)
{
    struct fb_cache *cache = learn->cache;
    uint32_t max = fb_tier_slots(fb_store_tier(cache->store, tier));
    FB_AUTO_FREE struct fb_segment_info *infos = fb_alloc_array(max + 1, sizeof *infos);
    struct fb_ranking r = {.group = fb_alloc_array(max + 1, sizeof *r.group)};
    struct fb_ranked_group *old;
    int64_t begin_ns = fb_now_ns();
    uint32_t count, ranked;

    if (!infos || !r.group) {
        fb_mutex_lock(&learn->lock);
        learn->rank_wanted[tier] = false; /* the last one serves, then LRU */
        fb_mutex_unlock(&learn->lock);
        free(r.group);
        return;
    }
    count = fb_store_sealed(cache->store, tier, infos, max);
    for (uint32_t i = 0; i < count; i++) {
        struct fb_ranked_group g = {.no = infos[i].no, .stamp = infos[i].sequence};

        if (score(learn, &infos[i], &g.score))
            r.group[r.count++] = g;
    }
    fb_ranking_sort(&r, FB_GROUPS_RERANK, FB_GROUPS_MERGE);
    ranked = r.count;
    fb_mutex_lock(&learn->lock);
    old = learn->rankings[tier].group;
    learn->rankings[tier] = r;
    learn->rank_wanted[tier] = false;
    fb_mutex_unlock(&learn->lock);
    free(old);
    atomic_store_explicit(&learn->rank_ns, fb_now_ns() - begin_ns, memory_order_relaxed);
    atomic_store_explicit(&learn->ranked_groups, ranked, memory_order_relaxed);
    fb_metric_add(&cache->metrics, FB_CM_RANKINGS, 1);
    fb_metric_add(&cache->metrics, FB_CM_RANK_US, (uint64_t)(fb_now_ns() - begin_ns) / 1000);
}

/* ---- the thread ---- */

static bool training_due(const struct fb_learn *learn) FB_REQUIRES(&learn->lock)
{
    return learn->evicts && fb_reuse_due(learn->reuse);
}

/* What there is to do now; called and returns with the lock. */
static void work(struct fb_learn *learn) FB_REQUIRES(&learn->lock)
{
    bool due = training_due(learn);

    for (unsigned t = 0; t < FB_TIERS_MAX; t++) {
        if (!learn->rank_wanted[t])
            continue;
        fb_mutex_unlock(&learn->lock);
        rank(learn, t);
        fb_mutex_lock(&learn->lock);
    }
    fb_mutex_unlock(&learn->lock);
    if (due)
        train(learn);
    if (due && fb_now_ns() >= learn->save_ns && fb_reuse_trainings(learn->reuse) != learn->saved)
        save(learn);
    fb_mutex_lock(&learn->lock);
}

static void *run(void *arg)
{
    struct fb_learn *learn = arg;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    fb_mutex_lock(&learn->lock);
    while (!learn->stop) {
        bool wanted = training_due(learn);

        for (unsigned t = 0; t < FB_TIERS_MAX; t++)
            wanted = wanted || learn->rank_wanted[t];
        if (wanted)
            work(learn);
        else
            fb_cond_wait(&learn->cond, &learn->lock, FB_NEVER_NS);
    }
    fb_mutex_unlock(&learn->lock);
    return NULL;
}

static void check_log(struct fb_learn *learn, int rc)
{
    if (rc == 0)
        return;
    fb_log_error("the access log cannot be written, and ends here: %s", fb_strerror(rc));
    (void)fb_access_log_close(fb_steal(learn->log));
}

void fb_learn_flush(struct fb_learn *learn)
{
    if (learn->log)
        check_log(learn, fb_access_log_flush(learn->log));
}

void fb_learn_tick(struct fb_learn *learn)
{
    if (!learn->reuse)
        return;
    fb_mutex_lock(&learn->lock);
    if (!learn->running)
        work(learn);
    else if (training_due(learn))
        fb_cond_signal(&learn->cond);
    fb_mutex_unlock(&learn->lock);
}

/* ---- life ---- */

uint64_t fb_learn_bytes(void)
{
    return MODEL_BYTES;
}

static uint64_t capacity(struct fb_cache *cache)
{
    uint64_t bytes = 0;

    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        struct fb_tier *tier = fb_store_tier(cache->store, t);

        bytes += fb_tier_slots(tier) * fb_tier_segment_bytes(tier);
    }
    return bytes;
}

int fb_learn_log(struct fb_learn *learn, const char *path, struct fb_error *err)
{
    return fb_access_log_create(path, &learn->log, err);
}

int fb_learn_create(struct fb_cache *cache, bool learns, struct fb_learn **ret_learn)
{
    struct fb_learn *learn = fb_alloc(sizeof *learn);
    int rc = learn ? 0 : -ENOMEM;

    if (rc < 0)
        return rc;
    learn->cache = cache;
    find_dir(learn);
    fb_mutex_init(&learn->lock, FB_RANK_LEARN);
    fb_cond_init(&learn->cond);
    if (learns)
        rc = fb_reuse_create(capacity(cache), &learn->reuse);
    if (rc < 0) {
        fb_learn_destroy(learn);
        return rc;
    }
    if (learns)
        load(learn);
    *ret_learn = learn;
    return 0;
}

int fb_learn_start(struct fb_learn *learn)
{
    int rc = learn->reuse ? fb_thread_start(&learn->thread, "fb-learn", run, learn) : 0;

    learn->running = learn->reuse && rc == 0;
    return rc;
}

void fb_learn_stop(struct fb_learn *learn)
{
    int rc;

    if (!learn)
        return;
    if (learn->running) {
        fb_mutex_lock(&learn->lock);
        learn->stop = true;
        fb_cond_signal(&learn->cond);
        fb_mutex_unlock(&learn->lock);
        pthread_join(learn->thread, NULL);
        learn->running = false;
    }
    if (learn->reuse)
        save(learn);
    rc = fb_access_log_close(fb_steal(learn->log));
    if (rc < 0)
        fb_log_error("the end of the access log could not be written: %s", fb_strerror(rc));
}

void fb_learn_destroy(struct fb_learn *learn)
{
    if (!learn)
        return;
    (void)fb_access_log_close(learn->log);
    for (unsigned t = 0; t < FB_TIERS_MAX; t++)
        free(learn->rankings[t].group);
    fb_reuse_destroy(learn->reuse);
    if (learn->home_fd >= 0)
        close(learn->home_fd);
    fb_cond_destroy(&learn->cond);
    fb_mutex_destroy(&learn->lock);
    free(learn);
}

/* ---- requests ---- */

/* Whether somebody reads on where the last read of the same item ended. */
static bool reads_on(struct fb_learn *learn, const struct fb_access *access)
{
    struct reader *r = &learn->readers[fb_mix64(access->key ^ access->pid) % READERS];
    bool on = r->key == access->key && r->pid == access->pid && r->end == access->offset &&
              access->offset > 0;

    *r = (struct reader){access->key, access->pid, (uint64_t)access->offset + access->length};
    return on;
}

static uint64_t item_hash(uint64_t identity, uint32_t block)
{
    return fb_mix64(identity + block);
}

static void write_log(struct fb_learn *learn, const struct fb_access *access, uint64_t hash,
                      bool hit)
{
    /* Clients tell of their hits in their own time. */
    const int64_t time_ns = access->time_ns > learn->log_ns ? access->time_ns : learn->log_ns;
    const struct fb_access_record record = {
        .time_ns = (uint64_t)time_ns,
        .id = hash,
        .size = access->item_length,
        .flags = hit ? FB_ACCESS_HIT : 0,
    };

    learn->log_ns = time_ns;
    check_log(learn, fb_access_log_append(learn->log, &record));
}

/* The model's view of it; `use` is what is remembered of the item, if it is `here`. */
static struct fb_use learn_request(struct fb_learn *learn, uint64_t hash, uint32_t size, bool hit,
                                   const struct fb_use *use)
{
    struct fb_reuse_meta meta = meta_of(use);

    fb_mutex_lock(&learn->lock);
    if (hit)
        fb_reuse_hit(learn->reuse, hash, size, &meta);
    else
        fb_reuse_miss(learn->reuse, hash, size, &meta);
    /* Relaxed: a clock that may be a little late. */
    atomic_store_explicit(&learn->now, fb_reuse_now(learn->reuse), memory_order_relaxed);
    fb_mutex_unlock(&learn->lock);
    return use_of(&meta, 0);
}

/* Of an item that the model has no say in. */
static struct fb_use use_by(struct fb_learn *learn, const struct fb_rule *rule)
{
    struct fb_reuse_meta meta = {
        .last = atomic_load_explicit(&learn->now, memory_order_relaxed),
        .history = rule->is_pinned             ? FB_REUSE_PINNED
                   : fb_keep_holds(rule->keep) ? FB_REUSE_HELD
                                               : FB_REUSE_FRESH,
    };

    return use_of(&meta, meta.history == FB_REUSE_HELD ? rule->stream : 0);
}

void fb_learn_watch(struct fb_learn *learn, const struct fb_access *access,
                    const struct fb_rule *rule)
{
    struct fb_store *store = learn->cache->store;
    bool hit = access->outcome == FB_ACCESS_MEMORY || access->outcome == FB_ACCESS_MEDIUM;
    uint64_t identity, hash;
    struct fb_use use = {0};
    bool here;

    if (access->outcome == FB_ACCESS_FAILED || access->item_length == 0 ||
        reads_on(learn, access) ||
        !fb_files_peek_identity(learn->cache->files, (uint32_t)(access->key >> 32), access->source,
                                &identity))
        return;
    hash = item_hash(identity, (uint32_t)access->key);
    if (learn->log)
        write_log(learn, access, hash, hit);
    if (!learn->reuse) {
        if (hit)
            fb_store_touch(store, access->key, access->loc, access->time_ns, NULL);
        return;
    }
    here = fb_store_use(store, access->key, &use);
    if (rule->keep == FB_KEEP_LRU)
        use = learn_request(learn, hash, access->item_length,
                            here && access->outcome != FB_ACCESS_FETCHED, &use);
    else
        use = use_by(learn, rule);
    if (here)
        fb_store_touch(store, access->key, access->loc, access->time_ns, &use);
}

/* ---- making room ---- */

struct fb_use fb_learn_fresh(struct fb_learn *learn)
{
    const struct fb_reuse_meta meta = {atomic_load_explicit(&learn->now, memory_order_relaxed),
                                       FB_REUSE_FRESH};

    return use_of(&meta, 0);
}

/* Asks for the next ranking where this one has served; true: it should have been here by now. */
static bool is_late(struct fb_learn *learn, unsigned tier)
{
    const struct fb_ranking *r = &learn->rankings[tier];
    bool late;

    fb_mutex_lock(&learn->lock);
    learn->evicts = true;
    if (r->next >= r->end && !learn->rank_wanted[tier]) {
        learn->rank_wanted[tier] = true;
        fb_cond_signal(&learn->cond);
    }
    late = r->next >= fb_min_u64(2 * (uint64_t)r->end, r->count);
    fb_mutex_unlock(&learn->lock);
    return late;
}

static bool next_ranked(struct fb_learn *learn, unsigned tier, struct fb_ranked_group *ret)
{
    struct fb_ranking *r = &learn->rankings[tier];
    bool found;

    fb_mutex_lock(&learn->lock);
    found = r->next < r->count;
    if (found)
        *ret = r->group[r->next++];
    fb_mutex_unlock(&learn->lock);
    return found;
}

bool fb_learn_victim(struct fb_learn *learn, unsigned tier, int64_t until_ns, uint32_t *ret_segment)
{
    struct fb_store *store = learn->cache->store;
    struct fb_segment_info info;
    struct fb_ranked_group g;

    if (is_late(learn, tier) && fb_now_ns() < until_ns)
        rank(learn, tier);
    while (next_ranked(learn, tier, &g)) {
        *ret_segment = g.no;
        if (fb_store_segment(store, g.no, &info) && info.sequence == g.stamp && !info.pinned &&
            !fb_store_is_held(store, g.no))
            return true;
    }
    return false;
}

void fb_learn_split(struct fb_learn *learn, struct fb_merge_item *items, const struct fb_use *uses,
                    size_t count, uint64_t room)
{
    fb_mutex_lock(&learn->lock);
    for (size_t i = 0; i < count; i++) {
        struct fb_reuse_meta meta = held_meta_of(learn, &uses[items[i].no]);

        items[i].score = fb_reuse_score(learn->reuse, &meta, items[i].size);
    }
    fb_mutex_unlock(&learn->lock);
    (void)fb_groups_split(items, count, room);
}

void fb_learn_gone(struct fb_learn *learn, const struct fb_item *item)
{
    struct fb_reuse_meta meta = meta_of(&item->use);
    uint64_t hash = item_hash(fb_files_identity(learn->cache->files, item->file), item->block);

    if (fb_reuse_is_mark(meta.history))
        return;
    fb_mutex_lock(&learn->lock);
    fb_reuse_evicted(learn->reuse, fb_store_items(learn->cache->store), hash, &meta);
    fb_mutex_unlock(&learn->lock);
}

/* ---- looking at it ---- */

bool fb_cache_model(struct fb_cache *cache, struct fb_model_view *ret_view)
{
    struct fb_learn *learn = cache->learn;
    struct fb_model_view v = {0};

    if (!learn->reuse)
        return false;
    fb_mutex_lock(&learn->lock);
    v.trainings = fb_reuse_trainings(learn->reuse);
    v.requests = fb_reuse_requests(learn->reuse);
    v.trained_at = fb_reuse_trained_at(learn->reuse);
    v.rows = fb_reuse_rows(learn->reuse);
    v.bytes = fb_reuse_bytes(learn->reuse);
    fb_reuse_importance(learn->reuse, v.importance);
    fb_reuse_quality(learn->reuse, &v.quality);
    fb_mutex_unlock(&learn->lock);
    v.trained_wall_ns = atomic_load_explicit(&learn->trained_wall_ns, memory_order_relaxed);
    v.train_ns = atomic_load_explicit(&learn->train_ns, memory_order_relaxed);
    v.rank_ns = atomic_load_explicit(&learn->rank_ns, memory_order_relaxed);
    v.ranked = atomic_load_explicit(&learn->ranked_groups, memory_order_relaxed);
    *ret_view = v;
    return true;
}
