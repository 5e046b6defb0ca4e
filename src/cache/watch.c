/*
 * The background thread: drains access records for the brain, ends waits whose deadline has passed
 * or that were cancelled. A second one keeps file systems above their floor: to ask a disk may take
 * for ever, and deadlines must hold then, too.
 *
 * Ten times a second it does all of that; in between it drains records, the more often the more
 * there are, so that rings do not overflow and what is known of items is not old. But who hits in
 * memory makes records faster than they can be taken, and each one taken is a line of memory that
 * goes from core to core, and time of a core that programs want. So after taking some it rests, in
 * proportion; what comes faster than that the rings drop, and count.
 */
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/thread.h"
#include "proto/client.h"

#define QUICK_NS   (5 * FB_NS_PER_MS) /* while plans are followed, or readers are */
#define DRAIN_NS   (2 * FB_NS_PER_MS) /* at least between two looks */
#define DRAIN_AIM  32u                /* records to find then */
#define FLOOR_NS   FB_NS_PER_S        /* between looks at the file systems */
#define DRAIN_MAX  65536u             /* records in one look, so that it ends under any load */
#define DRAIN_STEP 64u                /* records between looks at the time they take, */
#define DRAIN_MOST (8 * FB_NS_PER_MS) /* which is at most that of the processor in one look */
#define REST       24                 /* times as long as that took */

void fb_cache_watch(struct fb_cache *cache, const struct fb_access *access)
{
    struct fb_rule rule = fb_steer_watch(cache->steer, access);

    cache->watched++;
    fb_learn_watch(cache->learn, access, &rule);
    fb_epochs_watch(cache->epochs, access);
    fb_near_watch(cache->near, access);
}

/* Not while others were running: what a busy machine takes from us is no load of ours. */
static int64_t own_time_ns(void)
{
    return fb_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Up to so many records of a ring, or until the time has come. */
static unsigned take(struct fb_cache *cache, struct fb_access_reader *reader, int64_t until_ns)
{
    struct fb_access access;
    unsigned taken = 0;

    while (taken < DRAIN_MAX / FB_ACCESS_RINGS && fb_access_pop(reader, &access)) {
        fb_cache_watch(cache, &access);
        if (++taken % DRAIN_STEP == 0 && own_time_ns() >= until_ns)
            break;
    }
    return taken;
}

/* all: whatever time it takes. */
static void drain(struct fb_cache *cache, bool all)
{
    int64_t begin_ns = own_time_ns(), took_ns;
    uint64_t taken = 0, dropped = 0;

    for (unsigned r = 0; r < FB_ACCESS_RINGS; r++) {
        struct fb_access_reader *reader = &cache->readers[r];
        int64_t share_ns = DRAIN_MOST / FB_ACCESS_RINGS * (r + 1);

        taken += take(cache, reader, all ? FB_NEVER_NS : begin_ns + share_ns);
        dropped += atomic_load_explicit(&reader->ring->dropped, memory_order_relaxed);
    }
    took_ns = (int64_t)fb_min_u64((uint64_t)(own_time_ns() - begin_ns), DRAIN_MOST);
    cache->rest_until_ns = fb_now_ns() + REST * took_ns;
    fb_metric_add(&cache->metrics, FB_CM_ACCESS_RECORDS, taken);
    fb_metric_set(&cache->metrics, FB_CM_ACCESS_DROPPED, dropped);
}

/* Fetches may have been left unsent for want of memory. */
static void pump_all(struct fb_cache *cache)
{
    struct fb_list *it, *tmp;
    struct fb_volume *volumes[FB_VOLUMES_MAX];
    unsigned count = 0;

    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *volume = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (!fb_list_empty(&volume->pending) && count < FB_VOLUMES_MAX) {
            volume->busy++;
            volumes[count++] = volume;
        }
    }
    fb_mutex_unlock(&cache->fetch_lock);
    for (unsigned i = 0; i < count; i++) {
        fb_fetch_pump(volumes[i]);
        fb_volume_leave(volumes[i]);
    }
}

void fb_cache_set_hook(struct fb_cache *cache, bool (*hook)(void *arg), void *arg)
{
    fb_mutex_lock(&cache->hook_lock);
    cache->hook = hook;
    cache->hook_arg = arg;
    fb_mutex_unlock(&cache->hook_lock);
}

/* False: the door has not told of all accesses yet. */
static bool call_hook(struct fb_cache *cache)
{
    bool all;

    fb_mutex_lock(&cache->hook_lock);
    all = !cache->hook || cache->hook(cache->hook_arg);
    fb_mutex_unlock(&cache->hook_lock);
    return all;
}

static void look(struct fb_cache *cache, bool all)
{
    int64_t now_ns = fb_now_ns();
    bool rests = !all && now_ns < cache->rest_until_ns, told;

    fb_steer_begin(cache->steer, now_ns);
    if (!rests)
        drain(cache, all);
    told = call_hook(cache) && !rests;
    fb_steer_raise(cache->steer, now_ns);
    fb_learn_flush(cache->learn);
    fb_epochs_wake(cache->epochs, told ? now_ns : 0);
    fb_near_tick(cache->near, fb_now_ns());
    fb_bring_tick(cache->bring);
}

static void doubt(void *arg, uint32_t file)
{
    struct fb_files *files = arg;

    fb_files_doubt(files, file);
    fb_files_unref(files, file, 1);
}

void fb_cache_doubt(struct fb_volume *volume)
{
    struct fb_files *files = volume->cache->files;

    fb_meta_forgetting(volume, NULL);
    fb_files_visit(files, volume->id, "", doubt, files);
}

/* Programs take a daemon whose beat is late for hung: they use files without it, and cannot tell it
 * of changes. So when it goes on, all that it knows is looked at again; and before the next beat,
 * since until then nobody asks. */
static void doubt_after_pause(struct fb_cache *cache)
{
    int64_t last_ns = cache->beat_ns;
    struct fb_volume *volumes[FB_VOLUMES_MAX];
    struct fb_list *it, *tmp;
    unsigned count = 0;
    bool door;

    cache->beat_ns = fb_now_ns();
    if (fb_likely(last_ns == 0 || cache->beat_ns - last_ns < FB_CLIENT_BEAT_LATE_NS))
        return;
    fb_mutex_lock(&cache->hook_lock);
    door = cache->hook != NULL;
    fb_mutex_unlock(&cache->hook_lock);
    if (!door)
        return;
    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        if (count < FB_VOLUMES_MAX) {
            volumes[count] = FB_LIST_ENTRY(it, struct fb_volume, link);
            volumes[count++]->busy++;
        }
    }
    fb_mutex_unlock(&cache->fetch_lock);
    for (unsigned i = 0; i < count; i++) {
        fb_cache_doubt(volumes[i]);
        fb_volume_leave(volumes[i]);
    }
    cache->beat_ns = fb_now_ns();
}

static void tick(struct fb_cache *cache, bool all)
{
    int64_t now_ns = fb_now_ns();

    doubt_after_pause(cache);
    fb_store_beat(cache->store);
    look(cache, all);
    for (unsigned r = 0; r < FB_ACCESS_RINGS; r++)
        fb_access_pass_dead(&cache->readers[r]);
    fb_pipe_tick(cache, now_ns);
    fb_steer_tick(cache->steer, now_ns);
    fb_learn_tick(cache->learn);
    fb_read_expire(cache, now_ns);
    fb_fetch_expire(cache, now_ns);
    fb_fetch_cancel(cache);
    fb_meta_cancel(cache);
    pump_all(cache);
}

void fb_cache_tick(struct fb_cache *cache)
{
    tick(cache, true);
}

/* Until the next look, if records go on coming as these did. */
static int64_t pause_ns(uint64_t records, int64_t took_ns)
{
    int64_t pause = records > 0 ? took_ns / (int64_t)records * DRAIN_AIM : FB_TICK_NS;

    return pause < DRAIN_NS ? DRAIN_NS : pause > FB_TICK_NS ? FB_TICK_NS : pause;
}

static int64_t next_look(struct fb_cache *cache, int64_t tick_ns, int64_t records_ns)
{
    bool is_quick = fb_epochs_are_followed(cache->epochs) || fb_bring_is_active(cache->bring);
    int64_t quick_ns = is_quick ? fb_now_ns() + QUICK_NS : tick_ns;

    quick_ns = quick_ns < records_ns ? quick_ns : records_ns;
    return quick_ns < tick_ns ? quick_ns : tick_ns;
}

static void *watch_run(void *arg)
{
    struct fb_cache *cache = arg;
    int64_t tick_ns = fb_now_ns() + FB_TICK_NS, last_ns = fb_now_ns(), next_ns = tick_ns;
    uint64_t watched = 0;

    fb_mutex_lock(&cache->watch_lock);
    while (!cache->watch_stop) {
        int64_t now_ns;
        bool all;

        if (cache->looks_wanted == 0)
            fb_cond_wait(&cache->watch_cond, &cache->watch_lock,
                         next_look(cache, tick_ns, next_ns));
        all = cache->looks_wanted > 0;
        fb_mutex_unlock(&cache->watch_lock);
        now_ns = fb_now_ns();
        if (now_ns < tick_ns) {
            look(cache, all);
        } else {
            tick(cache, all);
            tick_ns = fb_now_ns() + FB_TICK_NS;
        }
        next_ns = now_ns + pause_ns(cache->watched - watched, now_ns - last_ns);
        next_ns = next_ns > cache->rest_until_ns ? next_ns : cache->rest_until_ns;
        last_ns = now_ns;
        watched = cache->watched;
        fb_mutex_lock(&cache->watch_lock);
        cache->looks++;
        if (cache->looks_wanted > 0)
            fb_cond_broadcast(&cache->looked);
    }
    fb_mutex_unlock(&cache->watch_lock);
    return NULL;
}

static void *floor_run(void *arg)
{
    struct fb_cache *cache = arg;

    fb_mutex_lock(&cache->watch_lock);
    while (!cache->watch_stop) {
        fb_cond_wait(&cache->floor_cond, &cache->watch_lock, fb_now_ns() + FLOOR_NS);
        if (cache->watch_stop)
            break;
        fb_mutex_unlock(&cache->watch_lock);
        fb_place_tick(cache);
        fb_mutex_lock(&cache->watch_lock);
    }
    fb_mutex_unlock(&cache->watch_lock);
    return NULL;
}

void fb_cache_look(struct fb_cache *cache)
{
    uint64_t from;

    if (!cache->watch_running) {
        look(cache, true);
        return;
    }
    fb_mutex_lock(&cache->watch_lock);
    /* One may be under way that has passed what came last. */
    from = cache->looks;
    cache->looks_wanted++;
    fb_cond_signal(&cache->watch_cond);
    while (cache->looks < from + 2)
        fb_cond_wait(&cache->looked, &cache->watch_lock, FB_NEVER_NS);
    cache->looks_wanted--;
    fb_mutex_unlock(&cache->watch_lock);
}

int fb_watch_start(struct fb_cache *cache)
{
    int rc;

    fb_mutex_init(&cache->watch_lock, FB_RANK_WATCH);
    fb_cond_init(&cache->watch_cond);
    fb_cond_init(&cache->looked);
    fb_cond_init(&cache->floor_cond);
    if (cache->config.no_watch)
        return 0;
    rc = fb_thread_start(&cache->watch, "fb-watch", watch_run, cache);
    cache->watch_running = rc == 0;
    if (rc == 0)
        rc = fb_thread_start(&cache->floor, "fb-floor", floor_run, cache);
    cache->floor_running = rc == 0;
    return rc;
}

void fb_watch_stop(struct fb_cache *cache)
{
    if (cache->watch_running) {
        fb_mutex_lock(&cache->watch_lock);
        cache->watch_stop = true;
        fb_cond_signal(&cache->watch_cond);
        fb_cond_signal(&cache->floor_cond);
        fb_mutex_unlock(&cache->watch_lock);
        pthread_join(cache->watch, NULL);
    }
    if (cache->floor_running)
        pthread_join(cache->floor, NULL);
    fb_cond_destroy(&cache->floor_cond);
    fb_cond_destroy(&cache->looked);
    fb_cond_destroy(&cache->watch_cond);
    fb_mutex_destroy(&cache->watch_lock);
}
