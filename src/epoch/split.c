#include "epoch/split.h"

#include <errno.h>

int fb_split_check(const struct fb_split *s, struct fb_error *err)
{
    if (s->world < 1 || s->world > FB_WORLD_MAX)
        return fb_error_set(err, -EINVAL, "a world of %u: it has 1 to %u ranks", s->world,
                            FB_WORLD_MAX);
    if (s->rank >= s->world)
        return fb_error_set(err, -EINVAL, "rank %u is not in a world of %u; ranks begin with 0",
                            s->rank, s->world);
    if (s->batch < 1)
        return fb_error_set(err, -EINVAL, "a batch has at least one sample");
    if (s->workers > FB_WORKERS_MAX)
        return fb_error_set(err, -EINVAL, "%u workers are more than %u", s->workers,
                            FB_WORKERS_MAX);
    return 0;
}

uint64_t fb_split_samples(const struct fb_split *s)
{
    uint64_t samples = s->drop_uneven ? s->count / s->world : fb_div_up(s->count, s->world);

    return s->drop_last ? samples - samples % s->batch : samples;
}

uint64_t fb_split_batches(const struct fb_split *s)
{
    return fb_div_up(fb_split_samples(s), s->batch);
}

bool fb_split_sample_at(const struct fb_split *s, uint32_t position, uint64_t *ret_k)
{
    uint64_t samples = fb_split_samples(s);

    /* Later laps are short: fewer than `world` positions are dealt out again. */
    for (uint64_t at = position; at < samples * s->world; at += s->count) {
        if (at % s->world == s->rank) {
            *ret_k = at / s->world;
            return true;
        }
    }
    return false;
}

bool fb_split_worker_sample(const struct fb_split *s, uint32_t worker, uint64_t j, uint64_t *ret_k)
{
    uint64_t workers = s->workers ? s->workers : 1;

    *ret_k = (j / s->batch * workers + worker) * s->batch + j % s->batch;
    return *ret_k < fb_split_samples(s);
}
