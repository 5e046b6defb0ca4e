#include "cache/epochs.h"

#include <errno.h>
#include <string.h>

#include "cache/epoch_file.h"
#include "cache/epochs_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"

#define ROUND_NS     (20 * FB_NS_PER_MS)
#define IDLE_NS      FB_NS_PER_S
#define FOLLOWED_NS  (10 * FB_NS_PER_S) /* since the last access of a plan */
#define CHUNK_BYTES  24
#define CONTRADICTED 32 /* accesses in a row that were not foretold */
#define EPOCHS_BYTES 8  /* a file: order and place, in one epoch */
#define MEMORY_SHARE 56

uint64_t fb_epochs_bytes(uint64_t memory_bytes)
{
    return memory_bytes / MEMORY_SHARE;
}

/* ---- the table of plans ---------------------------------------------------------------------- */

static void planned_free(struct fb_planned *p)
{
    if (!p)
        return;
    fb_epoch_log_forget(p);
    fb_follow_free(p->follow);
    fb_names_free(p->names);
    free(p->uri);
    free(p->dir);
    free(p);
}

/* What a plan takes, before it is made. */
static uint64_t plan_bytes(const struct fb_names *names, const struct fb_split *split)
{
    uint64_t files = fb_names_count(names);

    return fb_names_memory(names) + 2 * files * EPOCHS_BYTES +
           2 * files / fb_max_u64(split->batch, 1) * CHUNK_BYTES + files / 2;
}

static uint64_t taken_bytes(struct fb_epochs *e)
{
    uint64_t bytes = 0;

    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (e->plans[i])
            bytes += plan_bytes(e->plans[i]->names, &e->plans[i]->order.spec.split);
    }
    fb_mutex_unlock(&e->lock);
    return bytes;
}

/* Takes `names` over, also on failure. */
static int planned_new(struct fb_names *names, const struct fb_plan_order *order,
                       struct fb_planned **ret_planned, struct fb_error *err)
{
    struct fb_planned *p = fb_alloc(sizeof *p);
    struct fb_plan *plan;
    int rc;

    if (!p) {
        fb_names_free(names);
        return fb_error_set(err, -ENOMEM, "out of memory for a plan");
    }
    p->names = names;
    p->order = *order;
    p->first_epoch = order->spec.first_epoch;
    p->rate_ns = fb_now_ns();
    atomic_init(&p->used_ns, p->rate_ns);
    rc = fb_plan_new(&order->spec, names, &plan, err);
    if (rc == 0) {
        rc = fb_follow_new(plan, &p->follow);
        if (rc < 0)
            (void)fb_error_set(err, rc, "out of memory for a plan of %u files",
                               fb_names_count(names));
    }
    if (rc < 0) {
        planned_free(p);
        return rc;
    }
    fb_follow_stats(p->follow, &p->stats);
    *ret_planned = p;
    return 0;
}

static bool is_same(const struct fb_planned *a, const struct fb_planned *b)
{
    return a->source == b->source && strcmp(a->dir, b->dir) == 0 &&
           a->order.spec.split.rank == b->order.spec.split.rank;
}

/* Which place a plan gets: that of the one it replaces, a free one, that of the longest unused,
 * that of one whose source is not there. */
static unsigned choose(const struct fb_epochs *e, const struct fb_planned *p) FB_REQUIRES(&e->lock)
{
    unsigned best = FB_PLANS_MAX;

    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (e->plans[i] && is_same(e->plans[i], p))
            return i;
    }
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (!e->taken[i] && !e->waits[i])
            return i;
        if (e->plans[i] && (best == FB_PLANS_MAX ||
                            fb_planned_used_ns(e->plans[i]) < fb_planned_used_ns(e->plans[best])))
            best = i;
    }
    for (unsigned i = 0; i < FB_PLANS_MAX && best == FB_PLANS_MAX; i++) {
        if (!e->taken[i])
            best = i;
    }
    return best;
}

static void retire(struct fb_epochs *e, unsigned number) FB_REQUIRES(&e->lock)
{
    struct fb_planned *p = fb_steal(e->plans[number]);

    if (!p)
        return;
    fb_list_push_back(&e->leaving, &p->link);
    atomic_fetch_sub_explicit(&e->count, 1, memory_order_relaxed);
}

static void wake(struct fb_epochs *e) FB_REQUIRES(&e->lock)
{
    e->woken = true;
    fb_cond_signal(&e->cond);
}

/* A plan that cannot be saved works all the same, until the daemon ends. */
static void save(struct fb_epochs *e, const struct fb_planned *p)
{
    struct fb_saved_plan saved = {.uri = p->uri,
                                  .dir = p->dir,
                                  .order = p->order,
                                  .first_epoch = p->first_epoch,
                                  .found = p->found,
                                  .names = p->names};
    int rc;

    if (e->dir_fd < 0)
        return;
    rc = fb_plan_save(e->dir_fd, p->number, &saved);
    if (rc == 0)
        rc = fb_plan_save_epoch(e->dir_fd, p->number, p->stats.epoch);
    if (rc < 0)
        fb_log_warn("the plan for /%s will not survive a restart: %s", p->dir, fb_strerror(rc));
}

/* Takes the plan over. */
static int enlist(struct fb_epochs *e, struct fb_planned *p, bool is_saved)
{
    fb_mutex_lock(&e->lock);
    if (!is_saved)
        p->number = choose(e, p);
    if (p->number == FB_PLANS_MAX) {
        fb_mutex_unlock(&e->lock);
        planned_free(p);
        return -EBUSY;
    }
    retire(e, p->number);
    e->taken[p->number] = true; /* and nobody loads what stands in its file meanwhile */
    e->waits[p->number] = false;
    fb_mutex_unlock(&e->lock);
    if (!is_saved)
        save(e, p);
    fb_mutex_lock(&e->lock);
    retire(e, p->number);
    e->plans[p->number] = p;
    atomic_fetch_add_explicit(&e->count, 1, memory_order_relaxed);
    wake(e);
    fb_mutex_unlock(&e->lock);
    atomic_store_explicit(&e->followed, true, memory_order_relaxed);
    return 0;
}

/* Takes `names` and `uri` over, also on failure. */
static int add(struct fb_epochs *e, uint16_t source, char *uri, const char *dir,
               struct fb_names *names, const struct fb_plan_order *order, bool found,
               struct fb_error *err)
{
    uint64_t bytes = plan_bytes(names, &order->spec.split);
    uint64_t most = fb_epochs_bytes(e->cache->config.memory_bytes);
    struct fb_planned *p = NULL;
    int rc;

    if (taken_bytes(e) + bytes > most) {
        rc = fb_error_set(err, -ENOMEM,
                          "a plan of %u files takes %llu MB, and plans may have %llu MB of this "
                          "daemon's memory; give it more with --memory",
                          fb_names_count(names), (unsigned long long)(bytes >> 20) + 1,
                          (unsigned long long)(most >> 20));
        fb_names_free(names);
        free(uri);
        return rc;
    }
    rc = planned_new(names, order, &p, err);
    if (rc < 0 || !p) {
        free(uri);
        return rc;
    }
    p->source = source;
    p->found = found;
    p->uri = uri;
    p->dir = fb_strdup(dir);
    if (!p->dir || !p->uri) {
        planned_free(p);
        return fb_error_set(err, -ENOMEM, "out of memory for a plan");
    }
    p->dir_len = strlen(dir);
    fb_log_info("%s for /%s: %u files, seed %llu, rank %u of %u",
                found ? "a seed was found" : "a plan", dir, fb_names_count(names),
                (unsigned long long)order->spec.shuffle.seed, order->spec.split.rank,
                order->spec.split.world);
    rc = enlist(e, p, false);
    return rc < 0 ? fb_error_set(err, rc, "there are %u plans already", FB_PLANS_MAX) : 0;
}

int fb_cache_plan(struct fb_volume *volume, const char *dir, struct fb_names *names,
                  const struct fb_plan_order *order, struct fb_error *err)
{
    return add(volume->cache->epochs, volume->id, fb_strdup(fb_source_uri(volume->source)), dir,
               names, order, false, err);
}

/* Whether a user has told a plan for the directory. */
static bool is_told(struct fb_epochs *e, uint16_t source, const char *dir)
{
    bool told = false;

    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *p = e->plans[i];

        told = told || (p && !p->found && p->source == source && strcmp(p->dir, dir) == 0);
    }
    fb_mutex_unlock(&e->lock);
    return told;
}

int fb_epochs_found(struct fb_epochs *e, uint16_t source, const char *dir, struct fb_names *names,
                    const struct fb_plan_order *order, struct fb_error *err)
{
    struct fb_cache *cache = e->cache;
    struct fb_list *it, *tmp;
    char *uri = NULL;

    if (!is_told(e, source, dir)) {
        fb_mutex_lock(&cache->fetch_lock);
        FB_LIST_FOREACH (it, tmp, &cache->volumes) {
            struct fb_volume *v = FB_LIST_ENTRY(it, struct fb_volume, link);

            if (!uri && v->id == source && !v->leaving)
                uri = fb_strdup(fb_source_uri(v->source));
        }
        fb_mutex_unlock(&cache->fetch_lock);
    }
    if (!uri) {
        fb_names_free(names);
        return fb_error_set(err, -ENODEV, "nobody needs the plan");
    }
    return add(e, source, uri, dir, names, order, true, err);
}

/* Ends a plan for good: it is not there after a restart, either. */
static void end(struct fb_epochs *e, unsigned number) FB_REQUIRES(&e->lock)
{
    retire(e, number);
    e->taken[number] = false;
    if (e->dir_fd >= 0)
        fb_plan_unsave(e->dir_fd, number);
}

unsigned fb_cache_unplan(struct fb_volume *volume, const char *dir)
{
    struct fb_epochs *e = volume->cache->epochs;
    unsigned count = 0;

    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (e->plans[i] && e->plans[i]->source == volume->id &&
            strcmp(e->plans[i]->dir, dir) == 0) {
            end(e, i);
            count++;
        }
    }
    wake(e);
    fb_mutex_unlock(&e->lock);
    return count;
}

void fb_cache_plans(struct fb_cache *cache, fb_plan_visit_fn *visit, void *arg)
{
    struct fb_epochs *e = cache->epochs;

    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *p = e->plans[i];
        unsigned flying = p ? atomic_load_explicit(&p->in_flight, memory_order_relaxed) : 0;

        if (p)
            visit(arg, &(struct fb_plan_view){.source = p->source,
                                              .dir = p->dir,
                                              .order = p->order,
                                              .found = p->found,
                                              .files = fb_names_count(p->names),
                                              .follow = p->stats,
                                              .window = fb_planned_window(p),
                                              .buckets = p->buckets,
                                              .ready = p->stats.unread -
                                                       fb_min_u64(flying, p->stats.unread)});
    }
    fb_mutex_unlock(&e->lock);
}

/* ---- over a restart -------------------------------------------------------------------------- */

/* The source's number, when a volume of it is there. */
static bool find_source(struct fb_cache *cache, const char *uri, uint16_t *ret_source)
{
    struct fb_list *it, *tmp;
    bool found = false;

    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *v = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (!v->leaving && strcmp(fb_source_uri(v->source), uri) == 0) {
            *ret_source = v->id;
            found = true;
        }
    }
    fb_mutex_unlock(&cache->fetch_lock);
    return found;
}

static int resume(struct fb_epochs *e, unsigned number, uint16_t source)
{
    struct fb_error err = {""};
    struct fb_saved_plan saved;
    struct fb_planned *p = NULL;
    int rc = fb_plan_load(e->dir_fd, number, true, &saved);

    if (rc < 0)
        return rc;
    rc = planned_new(fb_steal(saved.names), &saved.order, &p, &err);
    if (rc == 0 && p) {
        p->number = number;
        p->source = source;
        p->uri = fb_steal(saved.uri);
        p->dir = fb_steal(saved.dir);
        p->dir_len = strlen(p->dir);
        p->first_epoch = saved.first_epoch;
        p->found = saved.found;
        fb_log_info("the plan for /%s goes on with epoch %llu", p->dir,
                    (unsigned long long)p->stats.epoch);
        rc = enlist(e, p, true);
    }
    fb_saved_plan_clear(&saved);
    return rc;
}

/* Its file is not for others while there are free places. */
static void wait_for_source(struct fb_epochs *e, unsigned number)
{
    fb_mutex_lock(&e->lock);
    e->waits[number] = true;
    fb_mutex_unlock(&e->lock);
}

static void resume_all(struct fb_epochs *e)
{
    for (unsigned i = 0; i < FB_PLANS_MAX && e->dir_fd >= 0; i++) {
        struct fb_saved_plan saved;
        uint16_t source;
        bool is_here;
        int rc;

        fb_mutex_lock(&e->lock);
        is_here = e->taken[i]; /* also while it is being made */
        fb_mutex_unlock(&e->lock);
        if (is_here)
            continue;
        rc = fb_plan_load(e->dir_fd, i, false, &saved);
        if (rc == 0) {
            if (find_source(e->cache, saved.uri, &source))
                rc = resume(e, i, source);
            else
                wait_for_source(e, i);
            fb_saved_plan_clear(&saved);
        }
        if (rc == -EBADMSG) {
            fb_log_warn("a saved plan is damaged, and dropped");
            fb_mutex_lock(&e->lock);
            end(e, i);
            fb_mutex_unlock(&e->lock);
        }
    }
}

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
        wake(e);
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

void fb_epochs_attached(struct fb_epochs *e)
{
    if (!e)
        return;
    fb_mutex_lock(&e->lock);
    e->attached = true;
    wake(e);
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
        end(e, p->number);
    fb_mutex_unlock(&e->lock);
}

/* A file of the plan's data set was begun to be read. True: as planned. */
static bool follow(struct fb_epochs *e, struct fb_planned *p, const struct fb_access *access,
                   uint32_t number)
{
    struct fb_metrics *metrics = &e->cache->metrics;
    int fate = fb_follow_access(p->follow, number);

    if (fate < 0) {
        end_plan(e, p, "out of memory for its next epoch");
        return false;
    }
    if (fate == FB_FOLLOW_EPOCH && !enter_epoch(e, p)) {
        end_plan(e, p, "all its epochs were read");
        return false;
    }
    if (fate == FB_FOLLOW_STRANGE) {
        fb_metric_add(metrics, FB_CM_PLAN_STRANGE, 1);
        return false;
    }
    if (fate != FB_FOLLOW_AGAIN) {
        p->reads++;
        fb_metric_add(metrics, FB_CM_PLAN_READS, 1);
        fb_metric_add(metrics, FB_CM_PLAN_IN_TIME, access->outcome == FB_ACCESS_MEMORY);
    }
    atomic_store_explicit(&p->used_ns, fb_now_ns(), memory_order_relaxed);
    return true;
}

/* What was read to its end is of no more use in DRAM, until its next turn. */
static void leave(struct fb_epochs *e, struct fb_planned *p, const struct fb_access *access,
                  uint32_t number)
{
    struct fb_cache *cache = e->cache;
    uint32_t file;
    char path[FB_PATH_MAX];

    if ((uint64_t)access->offset + access->length < access->item_length ||
        !fb_follow_is_read(p->follow, number) || fb_follow_is_wanted(p->follow, number) ||
        !fb_planned_path(p, number, path))
        return;
    /* The file may have changed since; then there is nothing of it to find. */
    file = fb_files_find(cache->files, p->source, path);
    if (file == (uint32_t)(access->key >> 32) && !fb_epoch_log_keep(e->log, p, access->key, number))
        fb_place_leave(cache, access->key, p->kept_bytes);
    if (file)
        fb_files_unref(cache->files, file, 1);
}

static void take_access(struct fb_epochs *e, struct fb_planned *const *plans,
                        const struct fb_access *access)
{
    char path[FB_PATH_MAX];
    struct fb_version version;
    bool told = false;
    uint32_t number;
    size_t len;

    if (!fb_files_peek(e->cache->files, (uint32_t)(access->key >> 32), access->source, path, &len,
                       &version))
        return;
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        struct fb_planned *p = plans[i];

        if (!p || p->ended || p->source != access->source ||
            !fb_planned_number(p, path, len, &number))
            continue;
        told = told || !p->found;
        if (begins(access) && !follow(e, p, access, number))
            continue;
        leave(e, p, access, number);
        return;
    }
    if (!told && begins(access))
        fb_seeds_watch(e->seeds, access, path, len);
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
        fb_place_leave(cache, fb_item_key(file, 0), p->kept_bytes);
        fb_files_unref(cache->files, file, 1);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void free_leaving(struct fb_epochs *e)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&e->lock);
    FB_LIST_FOREACH (it, tmp, &e->leaving) {
        struct fb_planned *p = FB_LIST_ENTRY(it, struct fb_planned, link);

        if (atomic_load_explicit(&p->in_flight, memory_order_relaxed) > 0)
            continue;
        fb_list_remove(it);
        planned_free(p);
    }
    fb_mutex_unlock(&e->lock);
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
        if (plans[i] && now_ns - fb_planned_used_ns(plans[i]) < FOLLOWED_NS) {
            share++;
            foretold |= UINT64_C(1) << plans[i]->source % 64;
        }
    }
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        struct fb_planned *p = plans[i];

        if (!p || p->ended || now_ns - fb_planned_used_ns(p) >= FOLLOWED_NS)
            continue;
        drop_given_up(e, p);
        if (p->found && is_contradicted(p))
            end_plan(e, p, "what is read contradicts the seed");
        else
            fb_epochs_bring(e, p, share);
    }
    if (count > 0)
        fb_place_clear(e->cache, 0);
    atomic_store_explicit(&e->followed, share > 0, memory_order_relaxed);
    atomic_store_explicit(&e->foretold, foretold, memory_order_relaxed);
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
    struct fb_planned *plans[FB_PLANS_MAX];
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
        memcpy(plans, e->plans, sizeof plans);
        fb_mutex_unlock(&e->lock);
        if (attached)
            resume_all(e);
        work(e, plans, put_in_order(e, count, cut_ns));
        fb_mutex_lock(&e->lock);
        show(plans);
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

void fb_epochs_destroy(struct fb_epochs *e)
{
    if (!e)
        return;
    if (e->is_running) {
        fb_mutex_lock(&e->lock);
        e->stop = true;
        wake(e);
        fb_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    fb_seeds_destroy(e->seeds); /* the thread has told it of accesses until now */
    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++)
        retire(e, i);
    fb_mutex_unlock(&e->lock);
    free_leaving(e);
    fb_epoch_log_destroy(e->log);
    free(e->queue);
    free(e->accesses);
    free(e->sorted);
    free(e->order);
    fb_cond_destroy(&e->cond);
    fb_mutex_destroy(&e->lock);
    free(e);
}
