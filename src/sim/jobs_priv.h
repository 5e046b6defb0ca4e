/*
 * sim/jobs_priv.h - the parts of a run: clock, source (jobs_source.c), programs (jobs_run.c).
 *
 * Whoever acts (the source's pipe, each connection, each program, each worker) has at most one
 * moment at which it acts next, so the clock is a heap of them.
 */
#ifndef FB_SIM_JOBS_PRIV_H
#define FB_SIM_JOBS_PRIV_H

#include "base/rand.h"
#include "sim/heap.h"
#include "sim/jobs_run.h"

enum {
    ACTOR_PIPE,
    ACTOR_TICK,
    ACTOR_FIRST, /* connections, then programs, then workers */
};

enum fetch_state {
    FETCH_FREE,
    FETCH_QUEUED,
    FETCH_ASKED,   /* the source has not answered yet */
    FETCH_SENDING, /* its bytes come */
};

struct fetch {
    uint32_t item;
    uint32_t bytes;
    uint32_t next; /* in a queue, or free */
    uint32_t prev;
    uint32_t waiting; /* first of the workers that wait for it */
    uint32_t connection;
    double begun_s;
    double served_at_end; /* of the pipe's `served` when its last byte comes */
    uint8_t state;
    bool is_ahead;
    bool yields;    /* to what programs have under way */
    bool is_fill;   /* nobody is about to ask for it */
    bool is_wanted; /* or somebody has, by the time it is sent */
};

struct queue {
    uint32_t head;
    uint32_t tail;
    uint32_t count;
};

struct worker {
    uint32_t program;
    uint32_t pid;
    uint32_t batch;
    uint32_t at; /* in it */
    uint32_t next_waiting;
    bool is_idle;
    bool computes; /* without workers the program itself does */
};

struct program {
    const struct fb_job *job;
    struct fb_rand rand;
    unsigned phase;
    uint32_t round;
    uint32_t *order; /* items of this round */
    uint32_t count;
    uint32_t batches;
    uint32_t taken; /* batches computed on, or being so */
    uint8_t *ready; /* batches read */
    double *zipf;   /* cumulative */
    uint32_t *rank; /* item of each rank */
    uint32_t first_worker;
    uint32_t workers;
    bool has_started;
    bool is_busy; /* computes */
    bool has_ended;
    bool in_tail;
};

struct fb_jobs_run {
    struct fb_jobs_setup setup;
    struct fb_sim_heap clock;
    uint64_t foreseen;
    double now_s;
    uint32_t running; /* programs not yet ended */
    uint32_t next_pid;

    struct fetch *fetch; /* one each item under way; 0 is none */
    uint32_t fetch_room;
    uint32_t free_fetch;
    uint32_t *item_fetch;
    struct queue demand;
    struct queue ahead;
    struct queue yielding; /* what is fetched ahead of readers of many files */
    uint32_t *connection;  /* fetch on each; 0: free */
    uint32_t demand_active;
    uint32_t ahead_active;
    uint64_t demand_bytes; /* under way, but for what yields and fills */
    uint32_t sending;
    uint32_t sending_wanted;
    double served; /* bytes that each answer has had of the pipe since the beginning */
    double served_s;
    double fetch_time_s;

    struct program *programs;
    struct worker *workers;
    struct fb_jobs_result *results;
    struct fb_jobs_totals totals;
    int error;
};

void fb_jobs_foresee(struct fb_jobs_run *run, uint32_t actor, double at_s);

/* A worker's item is there. */
void fb_jobs_wake(struct fb_jobs_run *run, uint32_t worker);

FB_MUST_CHECK int fb_jobs_source_init(struct fb_jobs_run *run);
void fb_jobs_source_free(struct fb_jobs_run *run);

/* The worker waits for the item; bytes: what is fetched of it. */
void fb_jobs_fetch(struct fb_jobs_run *run, uint32_t item, uint32_t bytes, uint32_t worker);

/* The connection's latency has passed; the pipe's next answer is complete. */
void fb_jobs_answer(struct fb_jobs_run *run, uint32_t connection);
void fb_jobs_pipe(struct fb_jobs_run *run);

#endif
