#include "cache/epoch_seeds.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/hash.h"
#include "cache/epoch_names.h"
#include "cache/epochs_priv.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "epoch/seed_search.h"

#define READERS_MAX  256u /* processes looked at */
#define PLACES       64u
#define PATHS        64u /* of each */
#define PATHS_MIN    24u /* before anything is concluded */
#define FORGET_NS    (60 * FB_NS_PER_S)
#define AGAIN_NS     (20 * FB_NS_PER_S) /* a directory in which nothing was found; then twice ... */
#define AGAIN_MAX_NS (640 * FB_NS_PER_S)
#define QUIET_NS     (200 * FB_NS_PER_MS)
#define IDLE_NS      (500 * FB_NS_PER_MS)
#define STEP_SEEDS   (UINT64_C(1) << 14) /* at first: what idle time has for it may be little */
#define STEP_MIN     (UINT64_C(1) << 8)
#define STEP_MAX     (UINT64_C(1) << 18)
#define SLICE_NS     (4 * FB_NS_PER_MS) /* of processor time for a step: some take far longer */
#define NICE         10
#define PATIENCE_NS  (5 * FB_NS_PER_S) /* how long a short search takes idle time alone */
#define UNWANTED_NS  (5 * FB_NS_PER_S) /* nobody waited for so long: a long search ends */
#define REST         3                 /* times what a step of a long search takes, at least */
#define REST_MAX_NS  FB_NS_PER_S
#define CPUS_ENOUGH  8u /* with fewer processors it rests longer */
#define WALK_SHARE   4  /* of what plans may take: the table of a search */
#define FAILED_MAX   16u
#define KNOWN_MAX    8u

/* What a process has read, from the beginning. */
struct reader {
    uint32_t pid; /* 0: free */
    uint16_t source;
    uint32_t count;
    uint32_t astray; /* of them, not foretold */
    bool has_waited; /* for one of them at least: there is something to gain */
    bool is_judged;  /* searched, or no shuffle */
    bool is_placed;
    int64_t used_ns;
    char *paths[PATHS];
    struct fb_seed_belief belief; /* the thread's, when placed */
};

/* A directory that was searched. */
struct failed {
    uint16_t source;
    uint64_t hash;
    int64_t until_ns;
    int64_t wait_ns; /* the last time */
};

/* What was believed of a directory last: the next epoch may follow from it. */
struct known {
    uint16_t source;
    uint64_t hash;
    struct fb_seed_belief belief;
};

struct fb_seeds {
    struct fb_cache *cache;
    pthread_t thread;
    bool is_running;
    _Atomic bool stop;
    _Atomic int64_t waited_ns; /* when somebody last read what was not in memory */

    struct fb_mutex lock; /* FB_RANK_SEEDS: guards what is below */
    struct fb_cond cond;
    struct reader readers[READERS_MAX];
    uint8_t places[PLACES]; /* where the last one of such a number was found */

    bool may_idle;    /* the thread's, as the rest: it can come back from idle time */
    int64_t hurry_ns; /* from then on it competes */
    uint64_t step;    /* seeds */
    struct failed failed[FAILED_MAX];
    unsigned failed_at;
    struct known known[KNOWN_MAX];
    unsigned known_at;
};

/* ---- what processes read --------------------------------------------------------------------- */

static void reader_clear(struct reader *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        free(r->paths[i]);
    *r = (struct reader){0};
}

/* The process's own place, a free one, or that of the one longest unheard of. */
static struct reader *reader_for(struct fb_seeds *s, uint16_t source, uint32_t pid)
    FB_REQUIRES(&s->lock)
{
    struct reader *best = &s->readers[s->places[pid % PLACES]];

    if (best->pid == pid && best->source == source)
        return best;
    best = NULL;
    for (unsigned i = 0; i < READERS_MAX; i++) {
        struct reader *r = &s->readers[i];

        if (r->pid == pid && r->source == source) {
            s->places[pid % PLACES] = (uint8_t)i;
            return r;
        }
        if (!best || (best->pid != 0 && (r->pid == 0 || r->used_ns < best->used_ns)))
            best = r;
    }
    reader_clear(best);
    best->pid = pid;
    best->source = source;
    return best;
}

void fb_seeds_watch(struct fb_seeds *s, const struct fb_access *access, const char *path,
                    size_t len, bool foretold)
{
    struct reader *r;

    if (!s || access->pid == 0)
        return;
    fb_mutex_lock(&s->lock);
    r = reader_for(s, access->source, access->pid);
    r->used_ns = fb_now_coarse_ns();
    if (access->outcome != FB_ACCESS_MEMORY && !foretold) {
        r->has_waited = true;
        atomic_store_explicit(&s->waited_ns, r->used_ns, memory_order_relaxed);
    }
    if (r->count < PATHS && !r->is_judged &&
        (r->count == 0 || strcmp(r->paths[r->count - 1], path) != 0)) {
        char *copy = malloc(len + 1);

        if (copy) {
            memcpy(copy, path, len);
            copy[len] = 0;
            r->paths[r->count++] = copy;
            r->astray += !foretold;
        }
        if (r->count == PATHS_MIN || r->count == PATHS)
            fb_cond_signal(&s->cond);
    }
    fb_mutex_unlock(&s->lock);
}

/* A plan that was found foretells the others. */
static bool is_astray(const struct reader *r)
{
    return 2 * r->astray >= r->count;
}

/* Names that go neither up nor down. */
static bool looks_shuffled(const struct reader *r)
{
    unsigned up = 0;

    if (r->count < PATHS_MIN)
        return false;
    for (uint32_t i = 1; i < r->count; i++)
        up += strcmp(r->paths[i - 1], r->paths[i]) < 0;
    return up >= r->count / 5 && up <= r->count - r->count / 5;
}

/* The length of the directory that all paths have in common. */
static size_t common_dir(const struct reader *r)
{
    const char *slash = strrchr(r->paths[0], '/');
    size_t len = slash ? (size_t)(slash - r->paths[0]) : 0;

    for (uint32_t i = 1; i < r->count; i++) {
        while (len > 0 &&
               (strncmp(r->paths[i], r->paths[0], len) != 0 || r->paths[i][len] != '/')) {
            while (len > 0 && r->paths[0][--len] != '/')
                ;
        }
    }
    return len;
}

static bool is_below(const char *path, const char *dir, size_t len)
{
    return len == 0 || (strncmp(path, dir, len) == 0 && path[len] == '/');
}

/* ---- one data set ---------------------------------------------------------------------------- */

struct dataset {
    struct fb_seeds *seeds;
    uint16_t source;
    char *dir;
    size_t dir_len;
    size_t strip;
    unsigned orders;
    struct fb_names *names[FB_SEED_ORDERS];
};

static void dataset_clear(struct dataset *d)
{
    for (unsigned o = 0; o < d->orders; o++)
        fb_names_free(d->names[o]);
    free(d->dir);
}

static int dataset_list(struct dataset *d)
{
    return fb_epoch_names(d->seeds->cache, d->source, d->dir, &d->seeds->stop, d->names,
                          &d->orders);
}

static struct fb_seed_search *search_new(const struct dataset *d, uint64_t limit)
{
    struct fb_seed_config config = {.order_count = d->orders,
                                    .seed_limit = limit,
                                    .any_worker = limit > FB_SEED_SMALL,
                                    .level = fb_scan_best()};

    config.walk_bytes = fb_epochs_bytes(d->seeds->cache->config.memory_bytes) / WALK_SHARE;
    for (unsigned o = 0; o < d->orders; o++)
        config.counts[o] = fb_names_count(d->names[o]);
    return fb_seed_search_new(&config);
}

/* A copy of what a process has read so far. */
struct taken {
    uint32_t pid;
    uint32_t count;
    char *paths[PATHS];
};

static int feed(const struct dataset *d, struct fb_seed_search *search, const char *path)
{
    uint32_t files[FB_SEED_ORDERS];

    for (unsigned o = 0; o < d->orders; o++) {
        if (!fb_names_find(d->names[o], path + d->strip, strlen(path + d->strip), &files[o]))
            files[o] = FB_SEED_NO_FILE;
    }
    return fb_seed_search_feed(search, files);
}

/* Whether a plan was told meanwhile. */
static bool is_told(const struct dataset *d, const struct taken *t)
{
    return t->count > 0 &&
           fb_epochs_told(d->seeds->cache->epochs, d->source, t->paths[0], strlen(t->paths[0]));
}

/* A long search is for those who wait, and takes time from those who do not. */
static int may_go_on(const struct dataset *d, const struct taken *t, uint64_t limit)
{
    struct fb_seeds *s = d->seeds;

    /* Relaxed: seen soon enough. */
    if (atomic_load_explicit(&s->stop, memory_order_relaxed))
        return -ESHUTDOWN;
    if (limit > FB_SEED_SMALL &&
        fb_now_coarse_ns() - atomic_load_explicit(&s->waited_ns, memory_order_relaxed) >
            UNWANTED_NS)
        return -ECANCELED;
    return is_told(d, t) ? -ECANCELED : 0;
}

/* ---- idle time ---- */

static bool set_idle(bool idle)
{
    return pthread_setschedparam(pthread_self(), idle ? SCHED_IDLE : SCHED_OTHER,
                                 &(struct sched_param){0}) == 0;
}

static void *try_idle(void *arg)
{
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    *(bool *)arg = set_idle(true) && set_idle(false);
    return NULL;
}

/* Whether a thread of ours that takes idle time may do otherwise again: an ordinary user's may not,
 * mostly. Another one finds out. */
static bool comes_back(void)
{
    bool able = false;
    pthread_t thread;

    if (fb_thread_start(&thread, "fb-seeds-try", try_idle, &able) == 0)
        pthread_join(thread, NULL);
    return able;
}

/* Who reads needs the processor more, and needs it at once: a thread that is only nice may finish
 * its slice first. So a search takes what nobody else wants, and where there is too little of that,
 * a short one competes after a while, nicely. A long one takes a minute or more, and never does.
 * Only what holds no lock may wait for idle time; who could not come back from it rests instead. */
static void compete(struct fb_seeds *s, bool may)
{
    if (s->may_idle)
        (void)set_idle(!may);
}

static int64_t cpu_ns(void)
{
    return fb_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* A seed's price depends on the pass, the data set and the processor. */
static void fit_step(struct fb_seeds *s, int64_t spent_ns)
{
    if (spent_ns > SLICE_NS)
        s->step = fb_max_u64(s->step / 2, STEP_MIN);
    else if (spent_ns < SLICE_NS / 4)
        s->step = fb_min_u64(s->step * 2, STEP_MAX);
}

/* `spent_ns`: processor time of the step. A long search has a quarter of a processor at most, and a
 * 32nd part of all: where two of them are one core, who reads feels also what idle time is used. */
static void rest_of_step(struct fb_seeds *s, uint64_t limit, int64_t spent_ns)
{
    uint64_t times = (REST + 1) * CPUS_ENOUGH / fb_min_u64(fb_cpu_count(), CPUS_ENOUGH) - 1;

    if (limit > FB_SEED_SMALL) {
        fb_sleep_ns((int64_t)fb_min_u64(times * (uint64_t)spent_ns, REST_MAX_NS));
    } else if (fb_now_ns() > s->hurry_ns) {
        s->hurry_ns = FB_NEVER_NS;
        compete(s, true);
    } else if (!s->may_idle && s->hurry_ns != FB_NEVER_NS) {
        fb_sleep_ns((int64_t)fb_min_u64((uint64_t)spent_ns, REST_MAX_NS));
    }
}

/* Whether the process reads by a seed; then it is in *ret_belief. `last`: NULL, or what is believed
 * of another. */
static bool understand(struct dataset *d, const struct taken *t, const struct fb_seed_belief *last,
                       uint64_t limit, struct fb_seed_belief *ret_belief)
{
    struct fb_seed_search *search = search_new(d, limit);
    bool found = false;
    int rc = search ? 0 : -ENOMEM;

    d->seeds->step = STEP_SEEDS;
    if (rc == 0 && last)
        fb_seed_search_restart(search, last);
    for (uint32_t i = 0; rc >= 0 && i < t->count; i++) {
        rc = feed(d, search, t->paths[i]);
        while (rc >= 0 && fb_seed_search_state(search) == FB_SEED_SEARCH) {
            int64_t spent_ns = -cpu_ns();

            rc = may_go_on(d, t, limit);
            if (rc == 0)
                rc = fb_seed_search_step(search, d->seeds->step);
            spent_ns += cpu_ns();
            fit_step(d->seeds, spent_ns);
            rest_of_step(d->seeds, limit, spent_ns);
        }
    }
    if (rc >= 0 && fb_seed_search_state(search) == FB_SEED_BELIEVED) {
        *ret_belief = *fb_seed_search_belief(search);
        found = true;
    }
    fb_seed_search_free(search);
    return found;
}

/* ---- from beliefs to plans ------------------------------------------------------------------- */

/* All that is believed of the processes of a data set. */
struct crowd {
    unsigned count;
    struct fb_seed_belief beliefs[READERS_MAX];
};

static int plan_rank(struct dataset *d, const struct crowd *c, uint32_t rank)
{
    struct fb_plan_order order = {0};
    struct fb_error err = {""};
    uint64_t batch = 0;
    uint32_t workers = 0;
    const struct fb_seed_belief *first = NULL, *known = NULL;
    struct fb_names *names;

    for (unsigned i = 0; i < c->count; i++) {
        const struct fb_seed_belief *b = &c->beliefs[i];

        if (b->rank != rank)
            continue;
        first = first ? first : b;
        workers++;
        if (b->start > 0 && (batch == 0 || b->start < batch))
            batch = b->start;
        known = b->batch > 0 ? b : known;
    }
    if (!first)
        return 0;
    /* Who has begun a second batch has shown both; the others show where they begin. */
    if (known) {
        batch = known->batch;
        workers = known->workers;
    }
    order.spec.shuffle = first->shuffle;
    order.spec.first_epoch = first->epoch;
    order.spec.split = (struct fb_split){.world = first->world,
                                         .rank = rank,
                                         .batch = (uint32_t)fb_max_u64(batch, 1),
                                         .workers = batch ? workers : 0};
    names = d->names[first->order];
    d->names[first->order] = NULL;
    return fb_epochs_found(d->seeds->cache->epochs, d->source, d->dir, names, &order, &err);
}

/* The names go with the plan: for another rank they are made anew. */
static void plan_all(struct dataset *d, const struct crowd *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        const struct fb_seed_belief *b = &c->beliefs[i];
        bool seen = false;
        int rc;

        for (unsigned j = 0; j < i; j++)
            seen = seen || c->beliefs[j].rank == b->rank;
        if (seen)
            continue;
        if (!d->names[b->order]) {
            for (unsigned o = 0; o < d->orders; o++)
                fb_names_free(fb_steal(d->names[o]));
            d->orders = 0;
            if (dataset_list(d) < 0 || !d->names[b->order]) /* the directory has changed */
                return;
        }
        rc = plan_rank(d, c, b->rank);
        if (rc < 0 && rc != -EEXIST)
            fb_log_info("a seed was found for /%s, but no plan could be made: %s", d->dir,
                        fb_strerror(rc));
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void taken_clear(struct taken *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        free(t->paths[i]);
}

static void take(struct taken *t, const struct reader *r)
{
    *t = (struct taken){.pid = r->pid};
    for (uint32_t i = 0; i < r->count; i++) {
        t->paths[t->count] = fb_strdup(r->paths[i]);
        t->count += t->paths[t->count] != NULL;
    }
}

static int by_pid(const void *a, const void *b)
{
    const struct taken *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool has_failed(struct fb_seeds *s, uint16_t source, uint64_t hash)
{
    for (unsigned i = 0; i < FAILED_MAX; i++) {
        if (s->failed[i].source == source && s->failed[i].hash == hash &&
            s->failed[i].until_ns > fb_now_ns())
            return true;
    }
    return false;
}

/* One process that looks like a shuffle, and that was not judged yet; its directory in `d`. Not
 * before all who began with it have read enough, or fallen silent. */
static bool choose(struct fb_seeds *s, struct dataset *d) FB_REQUIRES(&s->lock)
{
    int64_t now_ns = fb_now_coarse_ns();

    for (unsigned i = 0; i < READERS_MAX; i++) {
        struct reader *r = &s->readers[i];
        uint64_t hash;

        if (r->pid == 0 || r->is_judged || r->count < PATHS_MIN)
            continue;
        if (!r->has_waited || !is_astray(r) || !looks_shuffled(r)) {
            r->is_judged = r->count == PATHS;
            continue;
        }
        d->dir_len = common_dir(r);
        hash = fb_hash64(r->paths[0], d->dir_len);
        if (has_failed(s, r->source, hash)) {
            r->is_judged = true;
            continue;
        }
        if (r->count < PATHS && now_ns - r->used_ns < QUIET_NS)
            continue;
        d->dir = strndup(r->paths[0], d->dir_len);
        d->source = r->source;
        d->strip = d->dir_len ? d->dir_len + 1 : 0;
        return d->dir != NULL;
    }
    return false;
}

/* All who read below the directory, in the order of their numbers. */
static unsigned gather(struct fb_seeds *s, const struct dataset *d, struct taken *taken)
    FB_REQUIRES(&s->lock)
{
    unsigned count = 0;

    for (unsigned i = 0; i < READERS_MAX; i++) {
        struct reader *r = &s->readers[i];

        if (r->pid == 0 || r->is_judged || r->source != d->source || r->count < FB_SEED_ENOUGH ||
            !is_below(r->paths[0], d->dir, d->dir_len))
            continue;
        r->is_judged = true;
        take(&taken[count++], r);
    }
    qsort(taken, count, sizeof *taken, by_pid);
    return count;
}

/* The next job may well have a seed that is found: it is not kept waiting for long, at first. */
static void note_failure(struct fb_seeds *s, const struct dataset *d)
{
    struct failed f = {
        .source = d->source, .hash = fb_hash64(d->dir, d->dir_len), .wait_ns = AGAIN_NS};
    unsigned at = FAILED_MAX;

    for (unsigned i = 0; i < FAILED_MAX; i++) {
        if (s->failed[i].wait_ns > 0 && s->failed[i].source == f.source &&
            s->failed[i].hash == f.hash)
            at = i;
    }
    if (at == FAILED_MAX)
        at = s->failed_at++ % FAILED_MAX;
    else
        f.wait_ns = (int64_t)fb_min_u64((uint64_t)(2 * s->failed[at].wait_ns), AGAIN_MAX_NS);
    f.until_ns = fb_now_ns() + f.wait_ns;
    s->failed[at] = f;
}

static const struct fb_seed_belief *find_known(const struct dataset *d)
{
    uint64_t hash = fb_hash64(d->dir, d->dir_len);

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        const struct known *k = &d->seeds->known[i];

        if (k->source == d->source && k->hash == hash && k->belief.shuffle.count > 0)
            return &k->belief;
    }
    return NULL;
}

static void note_known(struct fb_seeds *s, const struct dataset *d,
                       const struct fb_seed_belief *belief)
{
    struct known k = {
        .source = d->source, .hash = fb_hash64(d->dir, d->dir_len), .belief = *belief};

    for (unsigned i = 0; i < KNOWN_MAX; i++) {
        if (s->known[i].source == k.source && s->known[i].hash == k.hash) {
            s->known[i] = k;
            return;
        }
    }
    s->known[s->known_at++ % KNOWN_MAX] = k;
}

static void understand_all(struct dataset *d, const struct taken *taken, unsigned count,
                           uint64_t limit, struct crowd *crowd)
{
    const struct fb_seed_belief *known = find_known(d);
    bool again[READERS_MAX] = {false};

    for (unsigned i = 0; i < count; i++) {
        struct fb_seed_belief *b = &crowd->beliefs[crowd->count];
        bool found = understand(d, &taken[i], crowd->count ? &crowd->beliefs[0] : known, limit, b);

        crowd->count += found;
        again[i] = !found && crowd->count == 0;
        /* A long search is for the lowest number, which worker 0 has; and any worker will do. */
        if (limit > FB_SEED_SMALL && crowd->count == 0)
            return;
    }
    /* Those that were tried before the first was understood. */
    for (unsigned i = 0; i < count && crowd->count > 0 && crowd->count < READERS_MAX; i++) {
        if (again[i] &&
            understand(d, &taken[i], &crowd->beliefs[0], 1, &crowd->beliefs[crowd->count]))
            crowd->count++;
    }
}

static void search(struct fb_seeds *s, struct dataset *d)
{
    FB_AUTO_FREE struct taken *taken = fb_alloc_array(READERS_MAX, sizeof *taken);
    FB_AUTO_FREE struct crowd *crowd = fb_alloc(sizeof *crowd);
    unsigned count = 0;
    int rc = taken && crowd ? 0 : -ENOMEM;

    if (rc == 0) {
        fb_mutex_lock(&s->lock);
        count = gather(s, d, taken);
        fb_mutex_unlock(&s->lock);
        rc = dataset_list(d);
    }
    s->may_idle = comes_back();
    s->hurry_ns = fb_now_ns() + PATIENCE_NS;
    compete(s, false);
    if (rc == 0)
        understand_all(d, taken, count, FB_SEED_SMALL, crowd);
    compete(s, false);
    if (rc == 0 && crowd->count == 0)
        understand_all(d, taken, count, FB_SEED_ALL, crowd);
    compete(s, true);
    if (rc == 0 && crowd->count > 0) {
        note_known(s, d, &crowd->beliefs[0]);
        plan_all(d, crowd);
    } else if (count == 0 || !is_told(d, &taken[0])) {
        note_failure(s, d);
    }
    for (unsigned i = 0; i < count; i++)
        taken_clear(&taken[i]);
}

static void forget_old(struct fb_seeds *s) FB_REQUIRES(&s->lock)
{
    int64_t now_ns = fb_now_coarse_ns();

    for (unsigned i = 0; i < READERS_MAX; i++) {
        if (s->readers[i].pid != 0 && now_ns - s->readers[i].used_ns > FORGET_NS)
            reader_clear(&s->readers[i]);
    }
}

static void *run(void *arg)
{
    struct fb_seeds *s = arg;

    /* Who reads needs the processor more; where it is refused, it is not much. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    fb_mutex_lock(&s->lock);
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        struct dataset d = {.seeds = s};

        fb_cond_wait(&s->cond, &s->lock, fb_now_ns() + IDLE_NS);
        forget_old(s);
        if (!choose(s, &d))
            continue;
        fb_mutex_unlock(&s->lock);
        search(s, &d);
        dataset_clear(&d);
        fb_mutex_lock(&s->lock);
    }
    fb_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

int fb_seeds_create(struct fb_cache *cache, struct fb_seeds **ret_seeds)
{
    struct fb_seeds *s = fb_alloc(sizeof *s);
    int rc;

    if (!s)
        return -ENOMEM;
    s->cache = cache;
    fb_mutex_init(&s->lock, FB_RANK_SEEDS);
    fb_cond_init(&s->cond);
    rc = fb_thread_start(&s->thread, "fb-seeds", run, s);
    s->is_running = rc == 0;
    if (rc < 0) {
        fb_seeds_destroy(s);
        return rc;
    }
    *ret_seeds = s;
    return 0;
}

void fb_seeds_destroy(struct fb_seeds *s)
{
    if (!s)
        return;
    if (s->is_running) {
        fb_mutex_lock(&s->lock);
        atomic_store_explicit(&s->stop, true, memory_order_relaxed);
        fb_cond_signal(&s->cond);
        fb_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (unsigned i = 0; i < READERS_MAX; i++)
        reader_clear(&s->readers[i]);
    fb_cond_destroy(&s->cond);
    fb_mutex_destroy(&s->lock);
    free(s);
}
