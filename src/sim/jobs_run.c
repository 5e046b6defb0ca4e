/*
 * Programs: rounds of batches, read by workers, computed on in order.
 *
 *     worker:   while batch < taken + FB_JOB_BATCHES_AHEAD * workers:
 *                   read each item of it, decode; then it is ready
 *                   batch += workers
 *     program:  when batch `taken` is ready: taken += 1, wake idle workers, compute
 *     a round ends when its last batch was computed on; its loader's processes end with it
 */
#include "sim/jobs_run.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"
#include "sim/jobs_priv.h"

void fb_jobs_foresee(struct fb_jobs_run *run, uint32_t actor, double at_s)
{
    int rc = fb_sim_heap_set(&run->clock, actor, at_s, run->foreseen++);

    if (rc < 0)
        run->error = rc;
}

static uint32_t first_program(const struct fb_jobs_run *run)
{
    return ACTOR_FIRST + run->setup.source.connections;
}

static uint32_t first_worker(const struct fb_jobs_run *run)
{
    return first_program(run) + (uint32_t)run->setup.world->mix->job_count;
}

static const struct fb_job_phase *phase_of(const struct program *p)
{
    return &p->job->phase[p->phase];
}

/* ---- orders ---- */

static void shuffle(uint32_t *a, uint32_t n, struct fb_rand *rand)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)fb_rand_below(rand, i), t = a[j];

        a[j] = a[i - 1];
        a[i - 1] = t;
    }
}

/* What is popular is the set's affair, so that all its jobs agree, in every run. */
static int prepare_zipf(struct program *p, uint32_t first, uint32_t items)
{
    struct fb_rand rand = {phase_of(p)->set + 1000};
    double sum = 0;

    free(p->zipf);
    free(p->rank);
    p->zipf = fb_alloc_array(items, sizeof *p->zipf);
    p->rank = fb_alloc_array(items, sizeof *p->rank);
    if (!p->zipf || !p->rank)
        return -ENOMEM;
    for (uint32_t i = 0; i < items; i++) {
        sum += pow(i + 1, -phase_of(p)->zipf);
        p->zipf[i] = sum;
        p->rank[i] = first + i;
    }
    shuffle(p->rank, items, &rand);
    return 0;
}

static uint32_t draw_zipf(struct program *p, uint32_t items)
{
    double at = fb_rand_unit(&p->rand) * p->zipf[items - 1];
    uint32_t low = 0, high = items - 1;

    while (low < high) {
        uint32_t mid = (low + high) / 2;

        if (p->zipf[mid] > at)
            high = mid;
        else
            low = mid + 1;
    }
    return p->rank[low];
}

static int order_round(const struct fb_jobs_world *w, struct program *p)
{
    const struct fb_job_phase *phase = phase_of(p);
    const struct fb_job_set *set = &w->mix->sets[phase->set];
    uint32_t first = w->files[w->set_file[phase->set]].first_item;
    uint32_t items = w->files[w->set_file[phase->set + 1]].first_item - first;
    uint32_t count = phase->reads ? phase->reads : items;
    int rc = phase->order == FB_JOB_ZIPF ? prepare_zipf(p, first, items) : 0;

    if (phase->order == FB_JOB_ONE_EACH)
        count = set->dirs;
    free(p->order);
    p->order = fb_alloc_array(count, sizeof *p->order);
    if (rc < 0 || !p->order)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        if (phase->order == FB_JOB_ZIPF)
            p->order[i] = draw_zipf(p, items);
        else if (phase->order == FB_JOB_DRAWN)
            p->order[i] = first + (uint32_t)fb_rand_below(&p->rand, items);
        else if (phase->order == FB_JOB_ONE_EACH)
            p->order[i] =
                w->files[w->set_file[phase->set] + i * set->files + set->files / 2].first_item;
        else
            p->order[i] = first + i;
    }
    if (phase->order == FB_JOB_SHUFFLED)
        shuffle(p->order, count, &p->rand);
    p->count = count;
    return 0;
}

/* ---- workers ---- */

static uint32_t batch_len(const struct program *p, uint32_t batch)
{
    uint32_t size = phase_of(p)->batch;

    return batch + 1 < p->batches ? size : p->count - batch * size;
}

static void read_next(struct fb_jobs_run *run, uint32_t worker)
{
    struct worker *w = &run->workers[worker];
    struct program *p = &run->programs[w->program];
    const struct fb_job_phase *phase = phase_of(p);
    uint32_t item = p->order[w->batch * phase->batch + w->at];
    uint32_t bytes = fb_jobs_item_bytes(run->setup.world, item);
    uint32_t part = phase->read_bytes ? (uint32_t)fb_min_u64(phase->read_bytes, bytes) : bytes;
    struct fb_jobs_result *r = &run->results[w->program];
    struct fb_jobs_read read = {.item = item, .bytes = bytes, .pid = w->pid, .now_s = run->now_s};
    bool is_there = run->setup.ops && run->setup.ops->read(run->setup.cache, run, &read);

    r->reads++;
    r->read_bytes += part;
    if (is_there && !run->item_fetch[item]) {
        r->hits++;
        fb_jobs_foresee(run, first_worker(run) + worker,
                        run->now_s + FB_JOBS_HIT_S + part / FB_JOBS_HIT_RATE + phase->decode_s);
        return;
    }
    r->late += run->item_fetch[item] && run->fetch[run->item_fetch[item]].is_ahead;
    fb_jobs_fetch(run, item, run->setup.ops ? bytes : part, worker);
}

void fb_jobs_wake(struct fb_jobs_run *run, uint32_t worker)
{
    const struct program *p = &run->programs[run->workers[worker].program];

    if (!p->has_ended)
        fb_jobs_foresee(run, first_worker(run) + worker, run->now_s + phase_of(p)->decode_s);
}

static void next_batch(struct fb_jobs_run *run, uint32_t worker)
{
    struct worker *w = &run->workers[worker];
    const struct program *p = &run->programs[w->program];

    w->is_idle = w->batch >= p->batches ||
                 (p->workers && w->batch >= p->taken + FB_JOB_BATCHES_AHEAD * p->workers);
    w->at = 0;
    if (!w->is_idle)
        read_next(run, worker);
}

/* ---- programs ---- */

static void go_on(struct fb_jobs_run *run, uint32_t number);

static int begin_round(struct fb_jobs_run *run, uint32_t number)
{
    struct program *p = &run->programs[number];
    const struct fb_job_phase *phase = phase_of(p);
    int rc = order_round(run->setup.world, p);

    if (rc < 0)
        return rc;
    p->batches = (p->count + phase->batch - 1) / phase->batch;
    p->taken = 0;
    p->workers = phase->workers;
    free(p->ready);
    p->ready = fb_alloc_array(p->batches, 1);
    if (!p->ready)
        return -ENOMEM;
    for (uint32_t i = 0; i < (p->workers ? p->workers : 1); i++) {
        run->workers[p->first_worker + i] =
            (struct worker){.program = number, .pid = ++run->next_pid, .batch = i};
        next_batch(run, p->first_worker + i);
    }
    return 0;
}

static void end_program(struct fb_jobs_run *run, uint32_t number)
{
    run->programs[number].has_ended = true;
    run->results[number].end_s = run->now_s;
    run->running--;
}

static void end_round(struct fb_jobs_run *run, uint32_t number)
{
    struct program *p = &run->programs[number];
    int rc = 0;

    if (++p->round >= phase_of(p)->rounds) {
        p->round = 0;
        p->phase++;
    }
    if (p->phase < p->job->phases) {
        rc = begin_round(run, number);
    } else if (p->job->tail_s > 0) {
        p->in_tail = true;
        fb_jobs_foresee(run, first_program(run) + number, run->now_s + p->job->tail_s);
    } else {
        end_program(run, number);
    }
    if (rc < 0)
        run->error = rc;
}

/* Computes on the next batch when it is ready. */
static void go_on(struct fb_jobs_run *run, uint32_t number)
{
    struct program *p = &run->programs[number];

    if (p->is_busy)
        return;
    if (p->taken == p->batches) {
        end_round(run, number);
        return;
    }
    if (!p->ready[p->taken])
        return;
    p->is_busy = true;
    fb_jobs_foresee(run, first_program(run) + number,
                    run->now_s + phase_of(p)->compute_s * batch_len(p, p->taken));
    p->taken++;
    for (uint32_t i = 0; i < p->workers; i++) {
        if (run->workers[p->first_worker + i].is_idle)
            next_batch(run, p->first_worker + i);
    }
}

static void act_program(struct fb_jobs_run *run, uint32_t number)
{
    struct program *p = &run->programs[number];
    int rc = 0;

    if (p->has_ended)
        return;
    if (!p->has_started) {
        p->has_started = true;
        rc = begin_round(run, number);
    } else if (p->in_tail) {
        end_program(run, number);
    } else {
        p->is_busy = false;
        go_on(run, number);
    }
    if (rc < 0)
        run->error = rc;
}

/* Alone: reads all of a batch, then computes on it, then goes on to the next. */
static void act_alone(struct fb_jobs_run *run, uint32_t worker)
{
    struct worker *w = &run->workers[worker];
    struct program *p = &run->programs[w->program];

    if (!w->computes) {
        w->computes = true;
        fb_jobs_foresee(run, first_worker(run) + worker,
                        run->now_s + phase_of(p)->compute_s * batch_len(p, w->batch));
        return;
    }
    w->computes = false;
    if (++w->batch < p->batches)
        next_batch(run, worker);
    else
        end_round(run, w->program);
}

static void act_worker(struct fb_jobs_run *run, uint32_t worker)
{
    struct worker *w = &run->workers[worker];
    struct program *p = &run->programs[w->program];

    if (p->has_ended)
        return;
    if (!w->computes && ++w->at < batch_len(p, w->batch)) {
        read_next(run, worker);
    } else if (p->workers == 0) {
        act_alone(run, worker);
    } else {
        uint32_t number = w->program;

        p->ready[w->batch] = 1;
        w->batch += p->workers;
        next_batch(run, worker);
        go_on(run, number);
    }
}

/* ---- the run ---- */

static void tick(struct fb_jobs_run *run)
{
    const struct fb_jobs_setup *s = &run->setup;

    if (s->ops && s->ops->tick)
        s->ops->tick(s->cache, run, run->now_s);
    if (s->watch)
        s->watch(s->watch_arg, run, run->now_s);
    for (uint32_t i = 0; s->stop_s && i < s->world->mix->job_count; i++) {
        if (s->stop_s[i] >= 0 && run->now_s >= s->stop_s[i] && !run->programs[i].has_ended)
            end_program(run, i);
    }
    fb_jobs_foresee(run, ACTOR_TICK, run->now_s + FB_JOBS_TICK_S);
}

static void act(struct fb_jobs_run *run, uint32_t actor)
{
    if (actor == ACTOR_PIPE)
        fb_jobs_pipe(run);
    else if (actor == ACTOR_TICK)
        tick(run);
    else if (actor < first_program(run))
        fb_jobs_answer(run, actor - ACTOR_FIRST);
    else if (actor < first_worker(run))
        act_program(run, actor - first_program(run));
    else
        act_worker(run, actor - first_worker(run));
}

static int init(struct fb_jobs_run *run)
{
    const struct fb_job_mix *mix = run->setup.world->mix;
    uint32_t workers = (uint32_t)mix->job_count * FB_JOB_WORKERS_MAX;
    int rc = fb_jobs_source_init(run);

    run->programs = fb_alloc_array(mix->job_count, sizeof *run->programs);
    run->workers = fb_alloc_array(workers, sizeof *run->workers);
    if (rc < 0 || !run->programs || !run->workers)
        return -ENOMEM;
    rc = fb_sim_heap_reserve(&run->clock, first_worker(run) + workers);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < mix->job_count; i++) {
        struct program *p = &run->programs[i];

        p->job = &mix->jobs[i];
        p->rand.state = run->setup.seed * 1000 + p->job->number;
        p->first_worker = i * FB_JOB_WORKERS_MAX;
        p->has_ended = run->setup.start_s[i] < 0;
        run->results[i] = (struct fb_jobs_result){.start_s = run->setup.start_s[i]};
        if (p->has_ended)
            continue;
        for (unsigned k = 0; k < p->job->phases; k++)
            FB_ASSERT(p->job->phase[k].workers <= FB_JOB_WORKERS_MAX);
        run->running++;
        fb_jobs_foresee(run, first_program(run) + i, run->setup.start_s[i]);
    }
    fb_jobs_foresee(run, ACTOR_TICK, 0);
    return run->error;
}

int fb_jobs_go(const struct fb_jobs_setup *setup, struct fb_jobs_result *ret_results,
               struct fb_jobs_totals *ret_totals)
{
    struct fb_jobs_run run = {.setup = *setup, .results = ret_results};
    int rc = init(&run);

    while (rc == 0 && run.running > 0) {
        struct fb_sim_heap_entry e = *fb_sim_heap_first(&run.clock);

        fb_sim_heap_remove(&run.clock, e.id);
        run.now_s = e.priority;
        act(&run, e.id);
        rc = run.error;
    }
    run.totals.end_s = run.now_s;
    *ret_totals = run.totals;
    for (size_t i = 0; run.programs && i < setup->world->mix->job_count; i++) {
        free(run.programs[i].order);
        free(run.programs[i].ready);
        free(run.programs[i].zipf);
        free(run.programs[i].rank);
    }
    free(run.programs);
    free(run.workers);
    fb_jobs_source_free(&run);
    fb_sim_heap_free(&run.clock);
    return rc;
}

const struct fb_jobs_world *fb_jobs_world_of(const struct fb_jobs_run *run)
{
    return run->setup.world;
}

const struct fb_jobs_result *fb_jobs_so_far(const struct fb_jobs_run *run, size_t job)
{
    return &run->results[job];
}
