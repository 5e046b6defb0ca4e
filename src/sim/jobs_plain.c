#include <errno.h>

#include "core/mem.h"
#include "sim/jobs_cache.h"

struct plain {
    const struct fb_sim_policy *policy;
    void *cache;
    struct fb_jobs_ahead *ahead;
    uint64_t objects;
    uint64_t requests;
};

static void destroy(void *cache)
{
    struct plain *c = cache;

    if (!c)
        return;
    if (c->cache)
        c->policy->destroy(c->cache);
    fb_jobs_ahead_free(c->ahead);
    free(c);
}

int fb_jobs_plain_new(const struct fb_jobs_world *world, const struct fb_sim_policy *policy,
                      uint64_t bytes, enum fb_jobs_ahead_kind ahead, void **ret_cache)
{
    double param[FB_SIM_PARAMS_MAX] = {0};
    struct fb_sim_setup setup = {.capacity = bytes, .seed = 1, .param = param};
    struct plain *c = fb_alloc(sizeof *c);
    struct fb_error error;
    int rc = c ? 0 : -ENOMEM;

    for (unsigned i = 0; policy->params && policy->params[i].key; i++)
        param[i] = policy->params[i].fallback;
    if (rc == 0) {
        c->policy = policy;
        c->objects = world->item_count;
        rc = policy->create(&setup, &c->cache, &error);
    }
    if (rc == 0)
        rc = policy->reserve(c->cache, world->item_count);
    if (rc == 0)
        rc = fb_jobs_ahead_new(world, ahead, &c->ahead);
    if (rc < 0) {
        destroy(c);
        return rc;
    }
    *ret_cache = c;
    return 0;
}

static bool ask(struct plain *c, uint32_t item, uint32_t bytes, double now_s)
{
    uint32_t time_s = (uint32_t)now_s;
    uint8_t hit = 0;
    struct fb_sim_batch batch = {.count = 1,
                                 .first = c->requests++,
                                 .objects = c->objects,
                                 .id = &item,
                                 .size = &bytes,
                                 .time_s = &time_s};

    return c->policy->replay(c->cache, &batch, &hit) == 0 && hit;
}

static bool on_read(void *cache, struct fb_jobs_run *run, const struct fb_jobs_read *read)
{
    struct plain *c = cache;
    uint32_t items[FB_JOBS_AHEAD_MAX];
    bool hit = ask(c, read->item, read->bytes, read->now_s);
    unsigned n = fb_jobs_ahead_of(c->ahead, read, items);

    for (unsigned i = 0; i < n; i++) {
        uint32_t bytes = fb_jobs_item_bytes(fb_jobs_world_of(run), items[i]);

        if (items[i] != read->item && fb_jobs_may_fetch_ahead(run, items[i]) &&
            !ask(c, items[i], bytes, read->now_s))
            fb_jobs_fetch_ahead(run, items[i], false);
    }
    return hit;
}

const struct fb_jobs_cache_ops fb_jobs_plain = {.read = on_read, .destroy = destroy};
