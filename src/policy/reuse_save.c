/*
 * What was learned, as bytes: a head, the counts, the watched objects, the trees. Nothing of it is
 * believed when it is loaded. Times are relative to the end of the old life, which is the beginning
 * of the new one.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "model/boost.h"
#include "policy/reuse_priv.h"

struct saved {
    uint32_t magic;
    uint32_t version;
    uint64_t capacity;
    uint64_t requests;
    uint64_t trained_at;
    uint64_t cached;
    uint64_t evicted;
    uint64_t watch_mask;
    double size_sum;
    double turnover;
    double miss_ratio;
    struct fb_reuse_quality quality;
    int32_t octave2;
    uint32_t trainings;
    uint32_t since_trained; /* requests */
    uint32_t until_due;
    uint32_t watched;
    uint32_t model_bytes;
    /* Then seen, back, the watched, and the model. */
};

static_assert(sizeof(struct saved) == 128, "written to disk");

#define SAVED_MAGIC   0x46425255u /* FBRU */
#define SAVED_VERSION 1

static size_t saved_size(uint32_t watched, uint32_t model_bytes)
{
    return sizeof(struct saved) + 2 * CELLS * sizeof(float) + watched * sizeof(struct watched) +
           model_bytes;
}

size_t fb_reuse_saved_bytes(const struct fb_reuse *reuse)
{
    return saved_size(reuse->watched_count,
                      reuse->model ? (uint32_t)fb_boost_size(reuse->model) : 0);
}

void fb_reuse_save(const struct fb_reuse *reuse, void *ret_bytes)
{
    const struct saved head = {
        .magic = SAVED_MAGIC,
        .version = SAVED_VERSION,
        .capacity = reuse->capacity,
        .requests = reuse->requests,
        .trained_at = reuse->trained_at,
        .cached = reuse->cached,
        .evicted = reuse->evicted,
        .watch_mask = reuse->watch_mask,
        .size_sum = reuse->size_sum,
        .turnover = reuse->turnover,
        .miss_ratio = reuse->miss_ratio,
        .quality = reuse->quality,
        .octave2 = reuse->octave2,
        .trainings = reuse->trainings,
        .since_trained = reuse->now - reuse->trained,
        .until_due = reuse->due - reuse->now,
        .watched = reuse->watched_count,
        .model_bytes = reuse->model ? (uint32_t)fb_boost_size(reuse->model) : 0,
    };
    uint8_t *at = ret_bytes;

    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, reuse->seen, CELLS * sizeof(float));
    at += CELLS * sizeof(float);
    memcpy(at, reuse->back, CELLS * sizeof(float));
    at += CELLS * sizeof(float);
    for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
        struct watched w = reuse->watched[i];

        if (w.hash == 0)
            continue;
        w.last -= reuse->now;
        memcpy(at, &w, sizeof w);
        at += sizeof w;
    }
    if (reuse->model)
        fb_boost_save(reuse->model, at);
}

static bool counts_good(const float *cells)
{
    for (size_t i = 0; i < CELLS; i++) {
        if (!isfinite(cells[i]) || cells[i] < 0)
            return false;
    }
    return true;
}

/* A cache of quite another size has other classes of age. */
static bool head_good(const struct fb_reuse *r, const struct saved *h, size_t size)
{
    return h->magic == SAVED_MAGIC && h->version == SAVED_VERSION && h->watched <= WATCHED_MAX &&
           h->model_bytes <= size && size == saved_size(h->watched, h->model_bytes) &&
           h->trainings > 0 && h->model_bytes > 0 && h->capacity / 2 <= r->capacity &&
           r->capacity / 2 <= h->capacity && h->octave2 >= -AGE_OF_R && h->octave2 < 128 &&
           isfinite(h->size_sum) && h->size_sum >= 0 && h->turnover >= 1 && isfinite(h->turnover) &&
           h->miss_ratio >= 0 && h->miss_ratio <= 1 && isfinite(h->quality.observations) &&
           isfinite(h->quality.loss) && isfinite(h->quality.loss_by_age);
}

static void take_head(struct fb_reuse *r, const struct saved *h)
{
    r->requests = h->requests;
    r->trained_at = h->trained_at;
    r->cached = h->cached;
    r->evicted = h->evicted;
    r->watch_mask = h->watch_mask;
    r->size_sum = h->size_sum;
    r->turnover = h->turnover;
    r->miss_ratio = h->miss_ratio;
    r->quality = h->quality;
    r->judged = h->quality;
    r->octave2 = h->octave2;
    r->shift = fb_reuse_shift_of(r);
    r->trainings = h->trainings;
    r->trained = 0 - h->since_trained;
    r->due = h->until_due;
    r->recent = h->miss_ratio;
    fb_reuse_calm(r);
}

static void take_watched(struct fb_reuse *r, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct watched w, *slot;

        memcpy(&w, bytes + i * sizeof w, sizeof w);
        if (w.hash == 0 || (w.hash & r->watch_mask))
            continue;
        slot = fb_reuse_slot_of(r, w.hash);
        r->watched_count += slot->hash == 0;
        *slot = w;
    }
}

int fb_reuse_load(struct fb_reuse *reuse, const void *bytes, size_t size)
{
    const uint8_t *cells = (const uint8_t *)bytes + sizeof(struct saved);
    const uint8_t *watched = cells + 2 * CELLS * sizeof(float);
    struct fb_boost *model;
    struct saved head;
    int rc;

    if (size < saved_size(0, 0))
        return -EINVAL;
    memcpy(&head, bytes, sizeof head);
    if (!head_good(reuse, &head, size))
        return -EINVAL;
    /* Into tables that nobody has looked at yet. */
    memcpy(reuse->was, cells, CELLS * sizeof(float));
    memcpy(reuse->was_back, cells + CELLS * sizeof(float), CELLS * sizeof(float));
    if (!counts_good(reuse->was) || !counts_good(reuse->was_back))
        return -EINVAL;
    rc = fb_boost_load(watched + head.watched * sizeof(struct watched), head.model_bytes, &model);
    if (rc == 0 && fb_boost_features(model) != FB_REUSE_FEATURES) {
        fb_boost_free(model);
        rc = -EINVAL;
    }
    if (rc)
        return rc;
    memcpy(reuse->seen, reuse->was, CELLS * sizeof(float));
    memcpy(reuse->back, reuse->was_back, CELLS * sizeof(float));
    take_head(reuse, &head);
    take_watched(reuse, watched, head.watched);
    reuse->model = model;
    fb_reuse_add_open(reuse);
    fb_reuse_forget_utilities(reuse);
    return 0;
}
