#include "sim/jobs_systems.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/mem.h"

const struct fb_jobs_system fb_jobs_no_cache = {.name = "no cache", .summary = "every read"};

const struct fb_jobs_system fb_jobs_block_lru = {
    .name = "block LRU",
    .summary = "LRU, large files read ahead, as JuiceFS does",
    .policy = "lru",
    .ahead = FB_JOBS_AHEAD_READAHEAD,
};

const struct fb_jobs_system fb_jobs_forebay = {
    .name = "Forebay",
    .summary = "the brain",
    .is_brain = true,
};

const struct fb_jobs_system fb_jobs_systems[] = {
    {.name = "no cache", .summary = "every read goes to the source"},
    {.name = "block LRU",
     .summary = "LRU, large files read ahead, as JuiceFS does",
     .policy = "lru",
     .ahead = FB_JOBS_AHEAD_READAHEAD},
    {.name = "LRU", .summary = "nothing is fetched ahead", .policy = "lru"},
    {.name = "FIFO", .summary = "the same", .policy = "fifo"},
    {.name = "ARC", .summary = "the same", .policy = "arc"},
    {.name = "uniform", .summary = "the same", .policy = "uniform"},
    {.name = "Forebay", .summary = "all of it", .is_brain = true},
    {.name = "without keep", .summary = "everything is LRU", .is_brain = true, .no_keep = true},
    {.name = "without prefetch",
     .summary = "nothing is fetched ahead but blocks of large files",
     .is_brain = true,
     .no_prefetch = true},
    {.name = "without fill",
     .summary = "shuffled sets are not loaded ahead",
     .is_brain = true,
     .no_fill = true},
    {.name = "without turns",
     .summary = "shuffled items are not exchanged for those that are due",
     .is_brain = true,
     .no_turns = true},
    {.name = "without TTL", .summary = "no stream ends", .is_brain = true, .no_ttl = true},
    {.name = "without shares",
     .summary = "space is not divided",
     .is_brain = true,
     .no_alloc = true},
    {.name = "depth 4", .summary = "4 items ahead, as in the paper", .is_brain = true, .depth = 4},
    {0},
};

static int make(const struct fb_jobs_system *system, const struct fb_jobs_case *the,
                struct fb_jobs_setup *setup)
{
    struct fb_brain_config config = fb_jobs_brain_config(the->cache_bytes);
    int rc;

    if (!system->is_brain) {
        if (!system->policy)
            return 0;
        setup->ops = &fb_jobs_plain;
        return fb_jobs_plain_new(the->world,
                                 fb_sim_policy_find(system->policy, strlen(system->policy)),
                                 the->cache_bytes, system->ahead, &setup->cache);
    }
    config.no_keep = system->no_keep;
    config.no_prefetch = system->no_prefetch;
    config.no_fill = system->no_fill;
    config.no_ttl = system->no_ttl;
    config.no_alloc = system->no_alloc;
    config.no_turns = system->no_turns;
    config.prefetch.depth = system->depth;
    if (system->share != 0)
        config.prefetch.share = fmax(system->share, 0);
    if (system->ttl_base_s > 0)
        config.ttl_base_ns = (int64_t)(system->ttl_base_s * 1e9);
    config.streams.nodes_max = system->nodes_max;
    setup->ops = &fb_jobs_brain;
    rc = fb_jobs_brain_new(the->world, &config, system->no_readahead, &setup->cache);
    if (rc == 0 && the->ret_brain)
        *the->ret_brain = fb_jobs_brain_of(setup->cache);
    return rc;
}

static void sum_up(const struct fb_jobs_world *world, struct fb_jobs_outcome *o)
{
    uint64_t reads = 0, hits = 0;
    unsigned count = 0;

    for (size_t i = 0; i < world->mix->job_count; i++) {
        if (o->job[i].start_s < 0)
            continue;
        o->mean_s += o->job[i].end_s - o->job[i].start_s;
        count++;
        reads += o->job[i].reads;
        hits += o->job[i].hits;
    }
    if (count)
        o->mean_s /= count;
    o->hit_ratio = reads ? (double)hits / (double)reads : 0;
}

int fb_jobs_try(const struct fb_jobs_system *system, const struct fb_jobs_case *the,
                struct fb_jobs_outcome *ret_outcome)
{
    struct fb_jobs_setup setup = {
        .world = the->world,
        .start_s = the->start_s,
        .stop_s = the->stop_s,
        .source = fb_jobs_source_default(),
        .seed = the->seed,
        .watch = the->watch,
        .watch_arg = the->watch_arg,
    };
    int rc;

    *ret_outcome = (struct fb_jobs_outcome){
        .job = fb_alloc_array(the->world->mix->job_count, sizeof *ret_outcome->job)};
    if (the->ret_brain)
        *the->ret_brain = NULL;
    rc = ret_outcome->job ? make(system, the, &setup) : -ENOMEM;
    if (rc == 0)
        rc = fb_jobs_go(&setup, ret_outcome->job, &ret_outcome->totals);
    if (setup.ops)
        setup.ops->destroy(setup.cache);
    if (rc < 0)
        fb_jobs_outcome_free(ret_outcome);
    else
        sum_up(the->world, ret_outcome);
    return rc;
}

void fb_jobs_outcome_free(struct fb_jobs_outcome *o)
{
    free(o->job);
    o->job = NULL;
}
