#include "cache/epochs.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "cache/epoch_file.h"
#include "cache/epochs_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"

#define ROUND_NS     (20 * FB_NS_PER_MS)
#define IDLE_NS      FB_NS_PER_S
#define OWNED_NS     (600 * FB_NS_PER_S) /* longer than most pauses of a job */
#define OWNED_BITS   13                  /* a path has at most FB_PATH_MAX bytes */
#define OWNED_MASK   ((1u << OWNED_BITS) - 1)
#define CONTRADICTED 32 /* accesses in a row that were not foretold */
#define LAST_FEW     16 /* accesses */

/* ---- accesses -------------------------------------------------------------------------------- */

/* The first bytes of a file: somebody begins to read it. */
static bool begins(const struct fb_access *access)
{
    return (uint32_t)access->key == 0 && access->offset == 0;
}

void fb_epochs_watch(struct fb_epochs *e, const struct fb_access *access)
{
    /* Relaxed: a plan is followed from some moment on. */
    if (!e || access->outcome == FB_ACCESS_FAILED ||
        (atomic_load_explicit(&e->count, memory_order_relaxed) == 0 && !begins(access)))
        return;
    fb_mutex_lock(&e->lock);
    if (e->queued < FB_EPOCHS_QUEUE)
        e->queue[e->queued++] = *access;
    fb_mutex_unlock(&e->lock);
}

void fb_epochs_wake(struct fb_epochs *e, int64_t all_until_ns)
{
    if (!e)
        return;
    fb_mutex_lock(&e->lock);
    if (all_until_ns > 0)
        e->cut_ns = all_until_ns;
    if (e->queued > 0 && !e->woken)
        fb_epochs_signal(e);
    fb_mutex_unlock(&e->lock);
}

bool fb_epochs_are_followed(const struct fb_epochs *e)
{
    return e && atomic_load_explicit(&e->followed, memory_order_relaxed);
}

bool fb_epochs_foretell(const struct fb_epochs *e, uint16_t source)
{
    return e && atomic_load_explicit(&e->foretold, memory_order_relaxed) >> source % 64 & 1;
}

/* A directory in a word, so that it is read as a whole. Its length comes back from it. */
static uint64_t owned_word(uint16_t source, const char *dir, size_t len)
{
    return fb_hash64_seed(dir, len, source) << OWNED_BITS | (len + 1);
}

static bool is_below_one(const _Atomic uint64_t *words, uint16_t source, const char *path,
                         size_t len)
{
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        /* Relaxed: a plan comes and goes at some moment. */
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        size_t dir_len = (word & OWNED_MASK) - 1;

        if (word != 0 && len > dir_len && (dir_len == 0 || path[dir_len] == '/') &&
            owned_word(source, path, dir_len) == word)
            return true;
    }
    return false;
}

bool fb_epochs_own(const struct fb_epochs *e, uint16_t source, const char *path, size_t len)
{
    return e && atomic_load_explicit(&e->count, memory_order_relaxed) > 0 &&
           is_below_one(e->owned, source, path, len);
}

bool fb_epochs_told(const struct fb_epochs *e, uint16_t source, const char *path, size_t len)
{
    return e && atomic_load_explicit(&e->count, memory_order_relaxed) > 0 &&
           is_below_one(e->told, source, path, len);
}

static void set_owned(struct fb_epochs *e, struct fb_planned *const *plans, int64_t now_ns)
{
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *p = plans[i];
        bool owns = p && !p->ended && now_ns - fb_planned_used_ns(p) < OWNED_NS;

        uint64_t word = owns ? owned_word(p->source, p->dir, p->dir_len) : 0;

        atomic_store_explicit(&e->owned[i], word, memory_order_relaxed);
        atomic_store_explicit(&e->told[i], owns && !p->found ? word : 0, memory_order_relaxed);
    }
}

void fb_epochs_attached(struct fb_epochs *e)
{
    if (!e)
        return;
    fb_mutex_lock(&e->lock);
    e->attached = true;
    fb_epochs_signal(e);
    fb_mutex_unlock(&e->lock);
}

static int by_time(const void *a, const void *b, void *arg)
{
    const struct fb_access *accesses = arg;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    int64_t x = accesses[i].time_ns, y = accesses[j].time_ns;

    return x != y ? (x > y) - (x < y) : (i > j) - (i < j);
}

/* The records of one program may come from several rings: they are put in order. Those made after
 * the rings were begun to be emptied stay, for others made before them may have been left behind.
 * Returns how many are first in `sorted`. */
static uint32_t put_in_order(struct fb_epochs *e, uint32_t count, int64_t cut_ns)
{
    uint32_t ready = 0;

    for (uint32_t i = 0; i < count; i++)
        e->order[i] = i;
    qsort_r(e->order, count, sizeof *e->order, by_time, e->accesses);
    for (uint32_t i = 0; i < count; i++) {
        e->sorted[i] = e->accesses[e->order[i]];
        ready += e->sorted[i].time_ns <= cut_ns;
    }
    /* Too many that wait: the order of a few is not worth more. */
    if (count - ready > FB_EPOCHS_QUEUE)
        ready = count;
    e->held = count - ready;
    memcpy(e->accesses, e->sorted + ready, e->held * sizeof *e->accesses);
    return ready;
}

/* An epoch has begun; false: the plan's last one was before. */
static bool enter_epoch(struct fb_epochs *e, struct fb_planned *p)
{
    struct fb_follow_stats stats;
    int rc;

    fb_follow_stats(p->follow, &stats);
    fb_epoch_log_turn(e->log, p);
    if (p->order.epochs && stats.epoch >= p->first_epoch + p->order.epochs)
        return false;
    rc = e->dir_fd >= 0 ? fb_plan_save_epoch(e->dir_fd, p->number, stats.epoch) : 0;
    if (rc < 0)
        fb_log_warn("the epoch of the plan for /%s could not be saved: %s", p->dir,
                    fb_strerror(rc));
    return true;
}

static void end_plan(struct fb_epochs *e, struct fb_planned *p, const char *why)
{
    fb_log_info("the plan for /%s ends: %s", p->dir, why);
    fb_mutex_lock(&e->lock);
    p->ended = true;
    if (e->plans[p->number] == p)
        fb_epochs_end(e, p->number);
    fb_mutex_unlock(&e->lock);
}

static bool is_astray(enum fb_follow_fate fate)
{
    return fate == FB_FOLLOW_STRANGE || fate == FB_FOLLOW_BACK || fate == FB_FOLLOW_LATE;
}

static void note_astray(struct fb_planned *p, bool astray)
{
    /* Relaxed: the thread's alone, and looked at by others. */
    unsigned was = atomic_load_explicit(&p->astray, memory_order_relaxed);

    atomic_store_explicit(&p->astray,
                          was - was / LAST_FEW + (astray ? FB_ASTRAY_ALL / LAST_FEW : 0),
                          memory_order_relaxed);
}

/* A file of the plan's data set was begun to be read. */
static enum fb_follow_fate follow(struct fb_epochs *e, struct fb_planned *p,
                                  const struct fb_access *access, uint32_t number)
{
    struct fb_metrics *metrics = &e->cache->metrics;
    int fate = fb_follow_access(p->follow, number);

    if (fate < 0) {
        end_plan(e, p, "out of memory for its next epoch");
        return FB_FOLLOW_STRANGE;
    }
    if (fate == FB_FOLLOW_EPOCH && !enter_epoch(e, p)) {
        end_plan(e, p, "all its epochs were read");
        return FB_FOLLOW_STRANGE;
    }
    note_astray(p, is_astray((enum fb_follow_fate)fate));
    if (fate == FB_FOLLOW_STRANGE) {
        fb_metric_add(metrics, FB_CM_PLAN_STRANGE, 1);
        return FB_FOLLOW_STRANGE;
    }
    if (fate != FB_FOLLOW_AGAIN && fate != FB_FOLLOW_BACK) {
        p->reads++;
        fb_metric_add(metrics, FB_CM_PLAN_READS, 1);
        fb_metric_add(metrics, FB_CM_PLAN_IN_TIME, access->outcome == FB_ACCESS_MEMORY);
    }
    atomic_store_explicit(&p->used_ns, fb_now_ns(), memory_order_relaxed);
    return (enum fb_follow_fate)fate;
}

/* What was read to its end is of no more use in DRAM, until its next turn. */
static void leave(struct fb_epochs *e, struct fb_planned *p, const struct fb_access *access,
                  const char *path, uint32_t number)
{
    struct fb_cache *cache = e->cache;
    uint32_t file;

    if ((uint64_t)access->offset + access->length < access->item_length ||
        !fb_follow_is_read(p->follow, number) || fb_follow_is_wanted(p->follow, number))
        return;
    /* The file may have changed since; then there is nothing of it to find. */
    file = fb_files_find(cache->files, p->source, path);
    if (file == (uint32_t)(access->key >> 32) && !fb_epoch_log_keep(e->log, p, access->key, number))
        fb_place_leave(cache, access->key, p->kept_bytes,
                       fb_epoch_log_buckets(p) == 0 ? p->copied_bytes : 0);
    if (file)
        fb_files_unref(cache->files, file, 1);
}

static void take_access(struct fb_epochs *e, struct fb_planned *const *plans,
                        const struct fb_access *access)
{
    enum fb_follow_fate fate = FB_FOLLOW_STRANGE;
    char path[FB_PATH_MAX];
    struct fb_version version;
    bool told = false;
    uint32_t number;
    size_t len;

    if (!fb_files_peek(e->cache->files, (uint32_t)(access->key >> 32), access->source, path, &len,
                       &version))
        return;
    for (unsigned i = 0; i < FB_PLANS_MAX && fate == FB_FOLLOW_STRANGE; i++) {
        struct fb_planned *p = plans[i];

        if (!p || p->ended || p->source != access->source ||
            !fb_planned_number(p, path, len, &number))
            continue;
        told = told || !p->found;
        fate = begins(access) ? follow(e, p, access, number) : FB_FOLLOW_AGAIN;
        if (fate != FB_FOLLOW_STRANGE)
            leave(e, p, access, path, number);
    }
    /* Also what is foretold: who strays later is understood by what he has read from the first. */
    if (!told && begins(access))
        fb_seeds_watch(e->seeds, access, path, len, !is_astray(fate));
}

/* What was brought and skipped. */
static void drop_given_up(struct fb_epochs *e, struct fb_planned *p)
{
    struct fb_cache *cache = e->cache;
    char path[FB_PATH_MAX];
    uint32_t number;

    while (fb_follow_given_up(p->follow, &number)) {
        uint32_t file;

        if (fb_follow_is_wanted(p->follow, number) || !fb_planned_path(p, number, path))
            continue;
        file = fb_files_find(cache->files, p->source, path);
        if (!file)
            continue;
        fb_place_leave(cache, fb_item_key(file, 0), p->kept_bytes, 0);
        fb_files_unref(cache->files, file, 1);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* What plans have kept is worth no more than what others have, once the last is gone. */
static void free_leaving(struct fb_epochs *e)
{
    struct fb_list *it, *tmp;
    bool gone = false;

    fb_mutex_lock(&e->lock);
    FB_LIST_FOREACH (it, tmp, &e->leaving) {
        struct fb_planned *p = FB_LIST_ENTRY(it, struct fb_planned, link);

        if (atomic_load_explicit(&p->in_flight, memory_order_relaxed) > 0)
            continue;
        fb_list_remove(it);
        fb_planned_free(p);
        gone = atomic_load_explicit(&e->count, memory_order_relaxed) == 0;
    }
    fb_mutex_unlock(&e->lock);
    if (gone)
        fb_store_end_planned(e->cache->store, 0);
}

static bool is_contradicted(const struct fb_planned *p)
{
    struct fb_follow_stats stats;

    fb_follow_stats(p->follow, &stats);
    return stats.strange > CONTRADICTED;
}

static void work(struct fb_epochs *e, struct fb_planned *const *plans, uint32_t count)
{
    int64_t now_ns = fb_now_ns();
    uint64_t foretold = 0;
    unsigned share = 0;

    for (uint32_t i = 0; i < count; i++)
        take_access(e, plans, &e->sorted[i]);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (plans[i] && now_ns - fb_planned_used_ns(plans[i]) < FB_FOLLOWED_NS) {
            share++;
            foretold |= UINT64_C(1) << plans[i]->source % 64;
        }
    }
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        struct fb_planned *p = plans[i];

        if (!p || p->ended || now_ns - fb_planned_used_ns(p) >= FB_FOLLOWED_NS)
            continue;
        drop_given_up(e, p);
        if (p->found && is_contradicted(p))
            end_plan(e, p, "what is read contradicts the seed");
        else
            fb_epochs_bring(e, p, share);
    }
    if (count > 0)
        fb_place_clear(e->cache, 0, NULL, NULL);
    atomic_store_explicit(&e->followed, share > 0, memory_order_relaxed);
    atomic_store_explicit(&e->foretold, foretold, memory_order_relaxed);
    set_owned(e, plans, now_ns);
}

/* Under the lock. */
static void show(struct fb_planned *const *plans)
{
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (plans[i]) {
            fb_follow_stats(plans[i]->follow, &plans[i]->stats);
            plans[i]->buckets = fb_epoch_log_buckets(plans[i]);
        }
    }
}

static void *run(void *arg)
{
    struct fb_epochs *e = arg;
    int64_t cut_ns;
    uint32_t count;
    bool attached;

    fb_mutex_lock(&e->lock);
    while (!e->stop) {
        if (!e->woken)
            fb_cond_wait(&e->cond, &e->lock,
                         fb_now_ns() + (fb_epochs_are_followed(e) ? ROUND_NS : IDLE_NS));
        e->woken = false;
        memcpy(e->accesses + e->held, e->queue, e->queued * sizeof *e->queue);
        count = e->held + e->queued;
        cut_ns = e->cut_ns;
        e->queued = 0;
        attached = e->attached;
        e->attached = false;
        memcpy(e->working, e->plans, sizeof e->working);
        fb_mutex_unlock(&e->lock);
        if (attached)
            fb_epochs_resume(e);
        work(e, e->working, put_in_order(e, count, cut_ns));
        fb_mutex_lock(&e->lock);
        show(e->working);
        fb_mutex_unlock(&e->lock);
        free_leaving(e);
        fb_mutex_lock(&e->lock);
    }
    fb_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int find_dir(struct fb_cache *cache)
{
    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        struct fb_tier *tier = fb_store_tier(cache->store, t);

        if (fb_tier_kind(tier) != FB_TIER_DRAM)
            return fb_tier_dir_fd(tier);
    }
    return -1;
}

int fb_epochs_create(struct fb_cache *cache, struct fb_epochs **ret_epochs)
{
    struct fb_epochs *e = fb_alloc(sizeof *e);
    int rc;

    if (!e)
        return -ENOMEM;
    e->cache = cache;
    e->dir_fd = find_dir(cache);
    fb_mutex_init(&e->lock, FB_RANK_EPOCHS);
    fb_cond_init(&e->cond);
    fb_list_init(&e->leaving);
    e->queue = fb_alloc_array(FB_EPOCHS_QUEUE, sizeof *e->queue);
    e->accesses = fb_alloc_array(2 * FB_EPOCHS_QUEUE, sizeof *e->accesses);
    e->sorted = fb_alloc_array(2 * FB_EPOCHS_QUEUE, sizeof *e->sorted);
    e->order = fb_alloc_array(2 * FB_EPOCHS_QUEUE, sizeof *e->order);
    rc = e->queue && e->accesses && e->sorted && e->order ? 0 : -ENOMEM;
    if (rc == 0 && !cache->config.no_patterns)
        rc = fb_seeds_create(cache, &e->seeds);
    if (rc == 0 && fb_epoch_log_is_wanted(cache))
        rc = fb_epoch_log_create(cache, e->dir_fd, &e->log);
    if (rc == 0) {
        rc = fb_thread_start(&e->thread, "fb-epochs", run, e);
        e->is_running = rc == 0;
    }
    if (rc < 0) {
        fb_epochs_destroy(e);
        return rc;
    }
    *ret_epochs = e;
    return 0;
}

void fb_epochs_stop(struct fb_epochs *e)
{
    if (!e)
        return;
    if (e->is_running) {
        fb_mutex_lock(&e->lock);
        e->stop = true;
        fb_epochs_signal(e);
        fb_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
        e->is_running = false;
    }
    fb_seeds_destroy(fb_steal(e->seeds)); /* the thread has told it of accesses until now */
    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++)
        fb_epochs_retire(e, i);
    fb_mutex_unlock(&e->lock);
    free_leaving(e);
    fb_epoch_log_destroy(fb_steal(e->log));
}

void fb_epochs_destroy(struct fb_epochs *e)
{
    if (!e)
        return;
    fb_epochs_stop(e);
    free(e->queue);
    free(e->accesses);
    free(e->sorted);
    free(e->order);
    fb_cond_destroy(&e->cond);
    fb_mutex_destroy(&e->lock);
    free(e);
}
