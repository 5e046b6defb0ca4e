/*
 * The source: connections, latency, and a pipe that its answers share.
 *
 *     served(t) = bytes that each answer under way has had: rises by bandwidth / answers
 *     an answer of n bytes that begins at t is complete when served = served(t) + n
 *
 * So an answer that comes or goes changes when the next one is complete, and nothing else.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"
#include "policy/prefetch.h"
#include "sim/jobs_priv.h"

#define SLACK_BYTES 1.0  /* of rounding */
#define TIME_WEIGHT 0.05 /* of the last fetch in the mean */
#define BUSY        4 /* answers that somebody waits for, or soon will, and that share the pipe */
#define SPARED      2 /* connections that only demand may take */

struct fb_jobs_source fb_jobs_source_default(void)
{
    return (struct fb_jobs_source){.latency_s = 0.15, .bytes_per_s = 125e6, .connections = 64};
}

int fb_jobs_source_init(struct fb_jobs_run *run)
{
    uint32_t items = run->setup.world->item_count;

    /* Queued ahead, and one for each worker at most. */
    run->fetch_room = FB_JOBS_QUEUE_MAX + run->setup.source.connections + 1 +
                      (uint32_t)run->setup.world->mix->job_count * FB_JOB_WORKERS_MAX;
    run->fetch = fb_alloc_array(run->fetch_room, sizeof *run->fetch);
    run->item_fetch = fb_alloc_array(items, sizeof *run->item_fetch);
    run->connection = fb_alloc_array(run->setup.source.connections, sizeof *run->connection);
    if (!run->fetch || !run->item_fetch || !run->connection)
        return -ENOMEM;
    for (uint32_t i = 1; i < run->fetch_room; i++)
        run->fetch[i].next = i + 1 < run->fetch_room ? i + 1 : 0;
    run->free_fetch = 1;
    run->fetch_time_s = run->setup.source.latency_s;
    return 0;
}

void fb_jobs_source_free(struct fb_jobs_run *run)
{
    free(run->fetch);
    free(run->item_fetch);
    free(run->connection);
}

/* ---- queues ---- */

static void push(struct fb_jobs_run *run, struct queue *q, uint32_t at)
{
    run->fetch[at].next = 0;
    run->fetch[at].prev = q->tail;
    if (q->tail)
        run->fetch[q->tail].next = at;
    else
        q->head = at;
    q->tail = at;
    q->count++;
}

static void take(struct fb_jobs_run *run, struct queue *q, uint32_t at)
{
    const struct fetch *f = &run->fetch[at];

    *(f->prev ? &run->fetch[f->prev].next : &q->head) = f->next;
    *(f->next ? &run->fetch[f->next].prev : &q->tail) = f->prev;
    q->count--;
}

/* ---- the pipe ---- */

static void serve(struct fb_jobs_run *run)
{
    if (run->sending)
        run->served += (run->now_s - run->served_s) * run->setup.source.bytes_per_s / run->sending;
    run->served_s = run->now_s;
}

static void foresee_pipe(struct fb_jobs_run *run)
{
    double least = INFINITY;

    for (uint32_t c = 0; c < run->setup.source.connections; c++) {
        const struct fetch *f = &run->fetch[run->connection[c]];

        if (run->connection[c] && f->state == FETCH_SENDING)
            least = fmin(least, f->served_at_end);
    }
    if (isfinite(least))
        fb_jobs_foresee(run, ACTOR_PIPE,
                        run->now_s + fmax(least - run->served, 0) * run->sending /
                                         run->setup.source.bytes_per_s);
}

void fb_jobs_answer(struct fb_jobs_run *run, uint32_t connection)
{
    struct fetch *f = &run->fetch[run->connection[connection]];

    serve(run);
    f->state = FETCH_SENDING;
    f->served_at_end = run->served + f->bytes;
    run->sending++;
    f->is_wanted = !f->is_fill || f->waiting != FB_JOBS_NONE;
    run->sending_wanted += f->is_wanted;
    foresee_pipe(run);
}

/* ---- fetches ---- */

/* Of what programs have under way; fills are known as such before they begin. */
static uint64_t demand_bytes(const struct fetch *f)
{
    return f->is_ahead && (f->yields || f->is_fill) ? 0 : f->bytes;
}

static void begin(struct fb_jobs_run *run, uint32_t at)
{
    struct fetch *f = &run->fetch[at];
    uint32_t c = 0;

    while (run->connection[c])
        c++;
    run->connection[c] = at;
    f->connection = c;
    f->state = FETCH_ASKED;
    f->begun_s = run->now_s;
    *(f->is_ahead ? &run->ahead_active : &run->demand_active) += 1;
    run->demand_bytes += demand_bytes(f);
    run->totals.fetches++;
    run->totals.fetched_bytes += f->bytes;
    run->totals.ahead += f->is_ahead;
    run->totals.ahead_bytes += f->is_ahead ? f->bytes : 0;
    fb_jobs_foresee(run, ACTOR_FIRST + c, run->now_s + run->setup.source.latency_s);
}

static uint32_t new_fetch(struct fb_jobs_run *run, uint32_t item, uint32_t bytes, bool is_ahead)
{
    uint32_t at = run->free_fetch;

    FB_ASSERT(at);
    run->free_fetch = run->fetch[at].next;
    run->fetch[at] = (struct fetch){.item = item,
                                    .bytes = bytes,
                                    .waiting = FB_JOBS_NONE,
                                    .state = FETCH_QUEUED,
                                    .is_ahead = is_ahead};
    if (run->setup.ops)
        run->item_fetch[item] = at;
    return at;
}

static uint32_t room_ahead(const struct fb_jobs_run *run)
{
    return fb_prefetch_room(run->setup.source.connections, run->demand_active, run->ahead_active);
}

static bool is_yielding(const struct fb_jobs_run *run)
{
    struct fb_prefetch_pipe pipe = {.latency_s = run->setup.source.latency_s,
                                    .bytes_per_s = run->setup.source.bytes_per_s};

    return fb_prefetch_yields(&pipe, run->demand_bytes);
}

/* What is wanted next is nearly as good as asked for already. */
static void begin_ahead(struct fb_jobs_run *run, struct queue *q)
{
    while (q->head && !(q == &run->yielding && is_yielding(run)) &&
           run->demand_active + run->ahead_active + SPARED < run->setup.source.connections) {
        uint32_t at = q->head;

        take(run, q, at);
        begin(run, at);
    }
}

static void begin_what_may(struct fb_jobs_run *run)
{
    const struct fb_jobs_cache_ops *ops = run->setup.ops;

    while (run->demand.head &&
           run->demand_active + run->ahead_active < run->setup.source.connections) {
        uint32_t at = run->demand.head;

        take(run, &run->demand, at);
        begin(run, at);
    }
    begin_ahead(run, &run->ahead);
    begin_ahead(run, &run->yielding);
    /* What nobody waits for does not take bandwidth from what somebody does; but does not wait for
     * others of its kind. */
    while (ops && ops->idle && !run->ahead.head && !run->yielding.head &&
           run->sending_wanted < BUSY && !is_yielding(run) && room_ahead(run) > 0) {
        uint32_t item = ops->idle(run->setup.cache, run), at;

        if (item == FB_JOBS_NONE)
            break;
        at = new_fetch(run, item, fb_jobs_item_bytes(run->setup.world, item), true);
        run->fetch[at].is_fill = true;
        begin(run, at);
    }
}

void fb_jobs_fetch(struct fb_jobs_run *run, uint32_t item, uint32_t bytes, uint32_t worker)
{
    uint32_t at = run->item_fetch[item];

    if (!at) {
        at = new_fetch(run, item, bytes, false);
        push(run, &run->demand, at);
    } else if (run->fetch[at].state == FETCH_QUEUED && run->fetch[at].is_ahead) {
        take(run, run->fetch[at].yields ? &run->yielding : &run->ahead, at);
        run->fetch[at].is_ahead = false;
        push(run, &run->demand, at);
    }
    run->workers[worker].next_waiting = run->fetch[at].waiting;
    run->fetch[at].waiting = worker;
    begin_what_may(run);
}

bool fb_jobs_may_fetch_ahead(const struct fb_jobs_run *run, uint32_t item)
{
    return !run->item_fetch[item] && run->ahead.count + run->yielding.count < FB_JOBS_QUEUE_MAX;
}

void fb_jobs_fetch_ahead(struct fb_jobs_run *run, uint32_t item, bool yields)
{
    uint32_t at;

    FB_ASSERT(fb_jobs_may_fetch_ahead(run, item));
    at = new_fetch(run, item, fb_jobs_item_bytes(run->setup.world, item), true);
    run->fetch[at].yields = yields;
    push(run, yields ? &run->yielding : &run->ahead, at);
    begin_what_may(run);
}

static void finish(struct fb_jobs_run *run, uint32_t at)
{
    struct fetch *f = &run->fetch[at];
    const struct fb_jobs_cache_ops *ops = run->setup.ops;
    uint32_t worker = f->waiting;

    run->connection[f->connection] = 0;
    *(f->is_ahead ? &run->ahead_active : &run->demand_active) -= 1;
    run->demand_bytes -= demand_bytes(f);
    run->sending--;
    run->sending_wanted -= f->is_wanted;
    if (!f->is_ahead)
        run->fetch_time_s += TIME_WEIGHT * (run->now_s - f->begun_s - run->fetch_time_s);
    if (ops) {
        run->item_fetch[f->item] = 0;
        if (ops->arrived)
            ops->arrived(run->setup.cache, f->item, f->is_ahead && worker == FB_JOBS_NONE,
                         run->now_s);
    }
    f->state = FETCH_FREE;
    f->next = run->free_fetch;
    run->free_fetch = at;
    while (worker != FB_JOBS_NONE) {
        uint32_t next = run->workers[worker].next_waiting;

        fb_jobs_wake(run, worker);
        worker = next;
    }
}

void fb_jobs_pipe(struct fb_jobs_run *run)
{
    serve(run);
    for (uint32_t c = 0; c < run->setup.source.connections; c++) {
        uint32_t at = run->connection[c];

        if (at && run->fetch[at].state == FETCH_SENDING &&
            run->fetch[at].served_at_end <= run->served + SLACK_BYTES)
            finish(run, at);
    }
    foresee_pipe(run);
    begin_what_may(run);
}

double fb_jobs_fetch_time(const struct fb_jobs_run *run)
{
    return run->fetch_time_s;
}

double fb_jobs_bytes_per_s(const struct fb_jobs_run *run)
{
    return run->setup.source.bytes_per_s;
}
