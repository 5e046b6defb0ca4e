#include "sim/replay.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "sim/map.h"

#define GROUPS 64 /* of sampled objects: how they differ tells the error */

/* A batch and its arrays. */
struct buffer {
    struct fb_sim_batch batch;
    uint32_t id[FB_SIM_BATCH_MAX];
    uint32_t size[FB_SIM_BATCH_MAX];
    uint32_t time_s[FB_SIM_BATCH_MAX];
    int64_t next[FB_SIM_BATCH_MAX];
    atomic_size_t run; /* the next cache that nobody replays yet */
};

/* What a run needs while it runs. */
struct cache {
    struct fb_sim_run *run;
    void *state;
    size_t reserved;
    double group_misses[GROUPS];
    double group_bytes[GROUPS]; /* missed */
};

struct fb_sim {
    struct fb_trace *trace;
    struct fb_sim_options options;
    uint64_t sample_below; /* hashes below are in the sample; 0: all are */
    struct fb_sim_map *map;
    struct fb_sim_facts facts;
    uint64_t sampled_bytes; /* of requests that are in the sample */
    bool scanned;
    int64_t *next; /* of every request, when the trace does not tell; else NULL */
    size_t next_room;
    double map_s;
    struct fb_trace_request requests[FB_SIM_BATCH_MAX];
    struct buffer buffer[2];
};

struct replay {
    struct fb_sim *sim;
    struct cache *cache;
    size_t count;
    uint64_t warmup;
    sem_t gate;
    pthread_barrier_t barrier;
    atomic_int failed; /* the first negative errno of a policy */
};

int fb_sim_create(struct fb_trace *trace, const struct fb_sim_options *options,
                  struct fb_sim **ret_sim)
{
    struct fb_sim *sim = fb_alloc(sizeof *sim);
    int rc;

    if (!sim)
        return -ENOMEM;
    sim->trace = trace;
    sim->options = *options;
    if (options->sample > 0 && options->sample < 1)
        sim->sample_below = (uint64_t)(options->sample * 0x1.0p64);
    rc = fb_sim_map_create(&sim->map);
    if (rc) {
        free(sim);
        return rc;
    }
    *ret_sim = sim;
    return 0;
}

void fb_sim_destroy(struct fb_sim *sim)
{
    if (!sim)
        return;
    fb_sim_map_destroy(sim->map);
    free(sim->next);
    free(sim);
}

const struct fb_sim_facts *fb_sim_facts(const struct fb_sim *sim)
{
    return &sim->facts;
}

double fb_sim_map_s(const struct fb_sim *sim)
{
    return sim->map_s;
}

/* ---- reading ---- */

static double cpu_s(void)
{
    return (double)fb_clock_ns(CLOCK_THREAD_CPUTIME_ID) / FB_NS_PER_S;
}

/* Keeps the sampled ones of `count` requests; returns how many. */
static size_t choose(const struct fb_sim *sim, struct fb_trace_request *requests, size_t count)
{
    size_t kept = 0;

    if (!sim->sample_below)
        return count;
    for (size_t i = 0; i < count; i++) {
        if (fb_mix64(requests[i].id ^ fb_mix64(sim->options.seed + 1)) < sim->sample_below)
            requests[kept++] = requests[i];
    }
    return kept;
}

static int map_failed(int rc, struct fb_error *err)
{
    if (rc == -EOVERFLOW)
        return fb_error_set(err, rc,
                            "the trace has more than %u distinct objects; replay a "
                            "sample of it: --sample 10%%",
                            FB_SIM_OBJECTS_MAX);
    return rc;
}

/* Of all requests, in the sample or not. */
static void count_all(struct fb_sim *sim, const struct fb_trace_request *requests, size_t count)
{
    struct fb_sim_facts *f = &sim->facts;

    f->requests += count;
    for (size_t i = 0; i < count; i++) {
        f->bytes += sim->options.ignore_size ? 1 : requests[i].size;
        if (requests[i].next != FB_SIM_NEVER)
            f->next_max = fb_max_u64(f->next_max, (uint64_t)requests[i].next);
    }
}

/* Requests whose numbers begin with `first`, out of the trace; an empty batch is its end. */
static int fill(struct fb_sim *sim, struct buffer *b, uint64_t first, struct fb_error *err)
{
    size_t count = 0;
    double start;
    int rc;

    do {
        size_t read;

        rc = fb_trace_read(sim->trace, sim->requests, FB_SIM_BATCH_MAX, &read, err);
        if (rc)
            return rc;
        if (!sim->scanned)
            count_all(sim, sim->requests, read);
        count = choose(sim, sim->requests, read);
        if (read == 0)
            break;
    } while (count == 0);

    start = cpu_s();
    rc = fb_sim_map_batch(sim->map, sim->requests, count, b->id, b->size);
    if (rc)
        return map_failed(rc, err);
    sim->map_s += cpu_s() - start;
    for (size_t i = 0; i < count; i++) {
        b->time_s[i] = sim->requests[i].time_s;
        b->next[i] = sim->requests[i].next;
        if (b->next[i] != FB_SIM_NEVER)
            b->next[i]--; /* they are counted from 1 there */
    }
    for (size_t i = 0; i < count && sim->options.ignore_size; i++)
        b->size[i] = 1;
    b->batch = (struct fb_sim_batch){
        count, first, fb_sim_map_objects(sim->map), b->id, b->size, b->time_s, b->next};
    if (sim->next)
        b->batch.next = sim->next + first;
    atomic_store_explicit(&b->run, 0, memory_order_relaxed); /* the barrier publishes it */
    if (sim->options.progress)
        sim->options.progress(sim->options.arg, fb_trace_progress(sim->trace));
    return 0;
}

static void count_facts(struct fb_sim *sim, const struct fb_sim_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        sim->sampled_bytes += batch->size[i];
    sim->facts.replayed += batch->count;
    sim->facts.objects = fb_sim_map_objects(sim->map);
    sim->facts.footprint =
        sim->options.ignore_size ? sim->facts.objects : fb_sim_map_footprint(sim->map);
}

/* What was counted in a sample, for the whole. */
static void scale_facts(struct fb_sim *sim)
{
    struct fb_sim_facts *f = &sim->facts;

    if (!sim->sample_below)
        return;
    f->objects = (uint64_t)((double)f->objects / sim->options.sample);
    f->footprint = (uint64_t)((double)f->footprint / sim->options.sample);
}

/* ---- the scan ---- */

static int grow_next(struct fb_sim *sim, size_t wanted)
{
    if (wanted <= sim->next_room)
        return 0;
    return fb_sim_grow(&sim->next, &sim->next_room, wanted + wanted / 2, sizeof *sim->next);
}

/* Objects asked for again were last asked for at last[id]. */
static int note_future(struct fb_sim *sim, const struct fb_sim_batch *batch, uint64_t **last,
                       size_t *last_count)
{
    int rc = grow_next(sim, batch->first + batch->count);

    if (rc == 0 && batch->objects > *last_count)
        rc = fb_sim_grow(last, last_count, batch->objects + batch->objects / 2, sizeof **last);
    if (rc)
        return rc;
    FB_ASSERT(*last);
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t now = batch->first + i;
        uint64_t *before = &(*last)[batch->id[i]]; /* counted from 1; 0: none */

        sim->next[now] = FB_SIM_NEVER;
        if (*before)
            sim->next[*before - 1] = (int64_t)now;
        *before = now + 1;
    }
    return 0;
}

/* Objects are asked for when their last requests said; next[id] is that, counted from 0. */
static int check_future(struct fb_sim *sim, const struct fb_sim_batch *batch, uint64_t **next,
                        size_t *next_count, struct fb_error *err)
{
    int rc = 0;

    if (batch->objects > *next_count)
        rc = fb_sim_grow(next, next_count, batch->objects + batch->objects / 2, sizeof **next);
    if (rc)
        return rc;
    FB_ASSERT(*next);
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t now = batch->first + i;
        unsigned long long byte = now * fb_trace_record_size(sim->trace);
        uint64_t *said = &(*next)[batch->id[i]]; /* 0: it was not asked for yet */

        if (*said != 0 && *said != now)
            return fb_error_set(
                err, -EBADMSG,
                "the trace is wrong about the future: the record at byte %llu asks for an object "
                "whose last request said that it is not asked for then; convert the trace anew",
                byte);
        *said = (uint64_t)batch->next[i];
    }
    return 0;
}

int fb_sim_scan(struct fb_sim *sim, bool future, struct fb_error *err)
{
    FB_AUTO_FREE uint64_t *last = NULL;
    struct buffer *b = &sim->buffer[0];
    const bool told = !sim->sample_below && fb_trace_knows_next(sim->trace);
    size_t last_count = 0;
    uint64_t first = 0;
    int rc;

    for (;;) {
        rc = fill(sim, b, first, err);
        if (rc || b->batch.count == 0)
            break;
        count_facts(sim, &b->batch);
        if (future && told)
            rc = check_future(sim, &b->batch, &last, &last_count, err);
        else if (future)
            rc = note_future(sim, &b->batch, &last, &last_count);
        if (rc)
            break;
        first += b->batch.count;
    }
    if (rc)
        return rc;
    scale_facts(sim);
    sim->scanned = true;
    sim->map_s = 0;
    return fb_trace_rewind(sim->trace, err);
}

/* ---- the replay ---- */

static int make_room(struct cache *c, const struct fb_sim *sim, uint64_t objects)
{
    size_t wanted = objects;
    int rc;

    if (objects <= c->reserved)
        return 0;
    /* After a scan `objects` is the final number. */
    if (!sim->scanned)
        wanted += wanted / 2;
    rc = c->run->policy->reserve(c->state, wanted);
    if (rc == 0)
        c->reserved = wanted;
    return rc;
}

static void count_hits(struct cache *c, const struct fb_sim_batch *batch, const uint8_t *hit,
                       uint64_t warmup)
{
    struct fb_sim_run *run = c->run;
    size_t from = warmup > batch->first ? fb_min_u64(warmup - batch->first, batch->count) : 0;
    uint64_t hits = 0;
    uint64_t bytes = 0;
    uint64_t hit_bytes = 0;

    for (size_t i = from; i < batch->count; i++) {
        hits += hit[i];
        bytes += batch->size[i];
        hit_bytes += hit[i] ? batch->size[i] : 0;
    }
    run->requests += batch->count - from;
    run->misses += batch->count - from - hits;
    run->bytes += bytes;
    run->missed_bytes += bytes - hit_bytes;
}

static void count_groups(struct cache *c, const struct fb_sim_batch *batch, const uint8_t *hit,
                         uint64_t warmup)
{
    for (size_t i = 0; i < batch->count; i++) {
        size_t group = fb_mix64(batch->id[i]) % GROUPS;

        if (batch->first + i < warmup || hit[i])
            continue;
        c->group_misses[group]++;
        c->group_bytes[group] += batch->size[i];
    }
}

static int replay_one(struct replay *r, struct cache *c, const struct fb_sim_batch *batch)
{
    uint8_t hit[FB_SIM_BATCH_MAX];
    struct fb_sim_batch seen = *batch;
    double start = cpu_s();
    int rc = make_room(c, r->sim, batch->objects);

    if (!c->run->policy->needs_future)
        seen.next = NULL;
    if (rc == 0)
        rc = c->run->policy->replay(c->state, &seen, hit);
    c->run->replay_s += cpu_s() - start;
    if (rc)
        return rc;
    count_hits(c, batch, hit, r->warmup);
    if (r->sim->sample_below)
        count_groups(c, batch, hit, r->warmup);
    return 0;
}

/* Takes caches until all have seen the batch. */
static void replay_batch(struct replay *r, struct buffer *b)
{
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&b->run, 1, memory_order_relaxed);
        int rc;

        if (i >= r->count)
            return;
        rc = replay_one(r, &r->cache[i], &b->batch);
        if (rc)
            atomic_store_explicit(&r->failed, rc, memory_order_relaxed);
    }
}

/* Between two barriers everybody works on one buffer, and the reader fills the other. */
static void *work(void *arg)
{
    struct replay *r = arg;

    while (sem_wait(&r->gate) != 0)
        continue;
    for (unsigned k = 0;; k ^= 1) {
        pthread_barrier_wait(&r->barrier);
        if (r->sim->buffer[k].batch.count == 0)
            return NULL;
        replay_batch(r, &r->sim->buffer[k]);
    }
}

static int fill_or_end(struct replay *r, struct buffer *b, uint64_t first, struct fb_error *err)
{
    int rc = atomic_load_explicit(&r->failed, memory_order_relaxed);

    b->batch.count = 0;
    if (rc == 0)
        rc = fill(r->sim, b, first, err);
    if (rc)
        b->batch.count = 0;
    else if (!r->sim->scanned)
        count_facts(r->sim, &b->batch);
    return rc;
}

/* Reads batch after batch and hands them to the threads, of which there is at least one. */
static int lead(struct replay *r, struct fb_error *err)
{
    uint64_t first = 0;
    unsigned k = 0;
    int rc;

    do {
        rc = fill_or_end(r, &r->sim->buffer[k], first, err);
        first += r->sim->buffer[k].batch.count;
        pthread_barrier_wait(&r->barrier);
        k ^= 1;
    } while (r->sim->buffer[k ^ 1].batch.count > 0);
    return rc;
}

static int replay_alone(struct replay *r, struct fb_error *err)
{
    struct buffer *b = &r->sim->buffer[0];
    uint64_t first = 0;

    for (;;) {
        int rc = fill_or_end(r, b, first, err);

        if (rc || b->batch.count == 0)
            return rc;
        replay_batch(r, b);
        first += b->batch.count;
    }
}

/* Threads wait at the gate until it is known how many there are; fewer than asked for will do. */
static int replay_threads(struct replay *r, unsigned jobs, struct fb_error *err)
{
    pthread_t thread[FB_SIM_JOBS_MAX];
    unsigned started = 0;
    int rc = 0;

    sem_init(&r->gate, 0, 0);
    while (started < jobs && rc == 0) {
        rc = fb_thread_start(&thread[started], "forebay-sim", work, r);
        started += rc == 0;
    }
    rc = -pthread_barrier_init(&r->barrier, NULL, started + 1);
    FB_ASSERT(rc == 0);
    for (unsigned i = 0; i < started; i++)
        sem_post(&r->gate);
    rc = started ? lead(r, err) : replay_alone(r, err);
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&r->barrier);
    sem_destroy(&r->gate);
    return rc ? rc : atomic_load_explicit(&r->failed, memory_order_relaxed);
}

/* ---- results ---- */

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* 1.96 standard errors of the groups' sum, over the requests, or bytes, that there should be. */
static double error_of(const double group[GROUPS], double total, double whole)
{
    double sum = 0;

    for (size_t g = 0; g < GROUPS; g++) {
        double off = group[g] - total / GROUPS;

        sum += off * off;
    }
    return ratio(1.96 * sqrt(sum * GROUPS / (GROUPS - 1)), whole);
}

static void add_figure(void *arg, const char *name, double value)
{
    struct fb_sim_run *run = arg;
    struct fb_sim_figure *f = &run->figure[run->figures];

    if (run->figures == FB_SIM_FIGURES_MAX)
        return;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->value = value;
    run->figures++;
}

static void conclude(const struct fb_sim *sim, struct cache *c)
{
    const struct fb_sim_facts *f = &sim->facts;
    struct fb_sim_run *run = c->run;
    double requests = (double)run->requests;
    double bytes = (double)run->bytes;

    /* The sample has the wrong number of requests and bytes because of few very popular objects,
     * which are hits in any cache. */
    if (sim->sample_below) {
        requests *= ratio((double)f->requests * sim->options.sample, (double)f->replayed);
        bytes *= ratio((double)f->bytes * sim->options.sample, (double)sim->sampled_bytes);
        run->error = error_of(c->group_misses, (double)run->misses, requests);
        run->byte_error = error_of(c->group_bytes, (double)run->missed_bytes, bytes);
    }
    run->miss_ratio = fmin(1, ratio((double)run->misses, requests));
    run->byte_miss_ratio = fmin(1, ratio((double)run->missed_bytes, bytes));
    if (run->policy->figures)
        run->policy->figures(c->state, add_figure, run);
}

static int create_cache(const struct fb_sim *sim, struct cache *c, struct fb_error *err)
{
    struct fb_sim_setup setup = {
        .capacity = c->run->capacity,
        .ignore_size = sim->options.ignore_size,
        .seed = sim->options.seed,
        .requests = sim->scanned ? sim->facts.requests : 0,
        .objects = sim->scanned ? sim->facts.objects : 0,
        .param = c->run->param,
    };

    if (sim->sample_below)
        setup.capacity = (uint64_t)((double)setup.capacity * sim->options.sample);
    setup.capacity = fb_max_u64(setup.capacity, 1);
    return c->run->policy->create(&setup, &c->state, err);
}

int fb_sim_replay(struct fb_sim *sim, struct fb_sim_run *runs, size_t count, uint64_t warmup,
                  struct fb_error *err)
{
    struct replay r = {.sim = sim, .count = count, .warmup = warmup};
    unsigned jobs = (unsigned)fb_min_u64(fb_min_u64(sim->options.jobs, count), FB_SIM_JOBS_MAX);
    int rc = 0;

    if (sim->sample_below)
        r.warmup = (uint64_t)((double)warmup * sim->options.sample);
    r.cache = fb_alloc_array(count, sizeof *r.cache);
    if (!r.cache)
        return -ENOMEM;
    for (size_t i = 0; i < count && rc == 0; i++) {
        r.cache[i].run = &runs[i];
        rc = create_cache(sim, &r.cache[i], err);
    }
    if (rc == 0)
        rc = jobs > 1 ? replay_threads(&r, jobs, err) : replay_alone(&r, err);
    if (rc == 0)
        rc = atomic_load_explicit(&r.failed, memory_order_relaxed);
    if (rc == 0 && !sim->scanned)
        scale_facts(sim);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0)
            conclude(sim, &r.cache[i]);
        runs[i].policy->destroy(r.cache[i].state);
    }
    free(r.cache);
    return rc;
}
