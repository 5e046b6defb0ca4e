/*
 * The table of plans: what a user or the search for seeds adds, what ends, what comes back after a
 * restart.
 *
 *     told or found ─► add() ─► a place in the table and a file ─► the thread follows it (epochs.c)
 *     a volume comes ─► resume_all(): from their files, the source is not listed again
 *     ended, replaced ─► leaving, until none of its files is under way; then freed
 *
 * Plans take a 56th of the memory at most: one that would take more is refused.
 */
#include <errno.h>
#include <string.h>

#include "cache/epoch_file.h"
#include "cache/epochs.h"
#include "cache/epochs_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

#define CHUNK_BYTES  24
#define EPOCHS_BYTES 8 /* a file: order and place, in one epoch */
#define MEMORY_SHARE 56
#define ASTRAY_MOST  (FB_ASTRAY_ALL * 3 / 4)

uint64_t fb_epochs_bytes(uint64_t memory_bytes)
{
    return memory_bytes / MEMORY_SHARE;
}

void fb_planned_free(struct fb_planned *p)
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

/* What is left for one more. */
static uint64_t left_bytes(struct fb_epochs *e)
{
    uint64_t most = fb_epochs_bytes(e->cache->config.memory_bytes);

    return most - fb_min_u64(taken_bytes(e), most);
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
        fb_planned_free(p);
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

void fb_epochs_retire(struct fb_epochs *e, unsigned number)
{
    struct fb_planned *p = fb_steal(e->plans[number]);

    if (!p)
        return;
    fb_list_push_back(&e->leaving, &p->link);
    atomic_fetch_sub_explicit(&e->count, 1, memory_order_relaxed);
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

/* Whether a plan from before a restart has another in its place by now; one that was only found is
 * none for one that somebody has told. */
static bool is_replaced(const struct fb_epochs *e, const struct fb_planned *p) FB_REQUIRES(&e->lock)
{
    bool replaced = false;

    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *other = e->plans[i];

        replaced = replaced || (other && is_same(other, p) && (!other->found || p->found));
    }
    return replaced;
}

/* Takes the plan over. */
static int enlist(struct fb_epochs *e, struct fb_planned *p, bool is_saved)
{
    bool replaced;

    fb_mutex_lock(&e->lock);
    replaced = is_saved && is_replaced(e, p);
    if (!is_saved)
        p->number = choose(e, p);
    if (p->number == FB_PLANS_MAX || replaced) {
        fb_mutex_unlock(&e->lock);
        fb_planned_free(p);
        return replaced ? -EEXIST : -EBUSY;
    }
    fb_epochs_retire(e, p->number);
    e->taken[p->number] = true; /* and nobody loads what stands in its file meanwhile */
    e->waits[p->number] = false;
    fb_mutex_unlock(&e->lock);
    if (!is_saved)
        save(e, p);
    fb_mutex_lock(&e->lock);
    fb_epochs_retire(e, p->number);
    e->plans[p->number] = p;
    atomic_fetch_add_explicit(&e->count, 1, memory_order_relaxed);
    fb_epochs_signal(e);
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

    if (bytes > left_bytes(e)) {
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
        fb_planned_free(p);
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

/* Whether somebody reads by the plan: two jobs that do not agree do not take it from each other. */
static bool is_followed(const struct fb_planned *p)
{
    return fb_now_ns() - fb_planned_used_ns(p) < FB_FOLLOWED_NS &&
           atomic_load_explicit(&p->astray, memory_order_relaxed) < ASTRAY_MOST;
}

/* Whether a user has told a plan for the directory, or one was found that somebody reads by. */
static bool has_plan(struct fb_epochs *e, uint16_t source, const char *dir, uint32_t rank)
{
    bool has = false;

    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *p = e->plans[i];

        has = has || (p && p->source == source && strcmp(p->dir, dir) == 0 &&
                      (!p->found || (p->order.spec.split.rank == rank && is_followed(p))));
    }
    fb_mutex_unlock(&e->lock);
    return has;
}

int fb_epochs_found(struct fb_epochs *e, uint16_t source, const char *dir, struct fb_names *names,
                    const struct fb_plan_order *order, struct fb_error *err)
{
    struct fb_cache *cache = e->cache;
    struct fb_list *it, *tmp;
    char *uri = NULL;

    if (has_plan(e, source, dir, order->spec.split.rank)) {
        fb_names_free(names);
        return fb_error_set(err, -EEXIST, "there is a plan already");
    }
    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *v = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (!uri && v->id == source && !v->leaving)
            uri = fb_strdup(fb_source_uri(v->source));
    }
    fb_mutex_unlock(&cache->fetch_lock);
    if (!uri) {
        fb_names_free(names);
        return fb_error_set(err, -ENODEV, "nobody needs the plan");
    }
    return add(e, source, uri, dir, names, order, true, err);
}

void fb_epochs_end(struct fb_epochs *e, unsigned number)
{
    fb_epochs_retire(e, number);
    if (e->dir_fd >= 0) {
        e->taken[number] = true; /* nobody else's file while it goes */
        fb_mutex_unlock(&e->lock);
        fb_plan_unsave(e->dir_fd, number);
        fb_mutex_lock(&e->lock);
    }
    e->taken[number] = false;
}

unsigned fb_cache_unplan(struct fb_volume *volume, const char *dir)
{
    struct fb_epochs *e = volume->cache->epochs;
    unsigned count = 0;

    fb_mutex_lock(&e->lock);
    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        if (e->plans[i] && e->plans[i]->source == volume->id &&
            strcmp(e->plans[i]->dir, dir) == 0) {
            fb_epochs_end(e, i);
            count++;
        }
    }
    fb_epochs_signal(e);
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

/* With the plan that was saved; clears it. */
static int make_saved(struct fb_epochs *e, unsigned number, uint16_t source,
                      struct fb_saved_plan *saved)
{
    struct fb_error err = {""};
    struct fb_planned *p = NULL;
    int rc = -E2BIG;

    if (plan_bytes(saved->names, &saved->order.spec.split) <= left_bytes(e))
        rc = planned_new(fb_steal(saved->names), &saved->order, &p, &err);
    if (rc < 0 && err.text[0])
        fb_log_warn("the plan for /%s does not go on: %s", saved->dir, err.text);
    if (rc == 0 && p) {
        p->number = number;
        p->source = source;
        p->uri = fb_steal(saved->uri);
        p->dir = fb_steal(saved->dir);
        p->dir_len = strlen(p->dir);
        p->first_epoch = saved->first_epoch;
        p->found = saved->found;
        fb_log_info("the plan for /%s goes on with epoch %llu", p->dir,
                    (unsigned long long)p->stats.epoch);
        rc = enlist(e, p, true);
    }
    fb_saved_plan_clear(saved);
    return rc;
}

/* 0; -ENODEV: its source is not there; -E2BIG: there is not enough memory for it; other errors. */
static int resume(struct fb_epochs *e, unsigned number)
{
    struct fb_saved_plan saved;
    uint16_t source = 0;
    bool is_here;
    int rc = fb_plan_load(e->dir_fd, number, 0, &saved);

    if (rc < 0)
        return rc;
    is_here = find_source(e->cache, saved.uri, &source);
    fb_saved_plan_clear(&saved);
    if (!is_here)
        return -ENODEV;
    rc = fb_plan_load(e->dir_fd, number, fb_max_u64(left_bytes(e), 1), &saved);
    return rc < 0 ? rc : make_saved(e, number, source, &saved);
}

/* A place that nobody has is ours while we look at its file: what is told meanwhile gets another,
 * and another file. */
static bool claim(struct fb_epochs *e, unsigned number)
{
    bool claimed;

    fb_mutex_lock(&e->lock);
    claimed = !e->taken[number] && !e->stop;
    if (claimed)
        e->taken[number] = true;
    fb_mutex_unlock(&e->lock);
    return claimed;
}

/* Nothing came of it. `waits`: its file is not for others while there are free places; `drop`: it
 * is of no use to anybody. */
static void unclaim(struct fb_epochs *e, unsigned number, bool waits, bool drop)
{
    fb_mutex_lock(&e->lock);
    e->waits[number] = waits;
    if (drop)
        fb_epochs_end(e, number);
    e->taken[number] = false;
    fb_mutex_unlock(&e->lock);
}

void fb_epochs_resume(struct fb_epochs *e)
{
    for (unsigned i = 0; i < FB_PLANS_MAX && e->dir_fd >= 0; i++) {
        int rc;

        if (!claim(e, i))
            continue;
        rc = resume(e, i);
        if (rc == -EBADMSG)
            fb_log_warn("a saved plan is damaged, and dropped");
        else if (rc == -E2BIG)
            fb_log_warn("a saved plan takes more than plans may have of this daemon's memory, and "
                        "waits for one with more");
        if (rc < 0)
            unclaim(e, i, rc == -ENODEV || rc == -E2BIG,
                    rc == -EBADMSG || rc == -EINVAL || rc == -EEXIST);
    }
}
