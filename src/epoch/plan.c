#include "epoch/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/mem.h"

#define CHUNKS_FIRST 1024
#define AHEAD        32 /* places fetched before they are written */
/* Of epochs before the first one, where each rests on the one before: a minute or so. */
#define SKIPPED_MAX   (UINT64_C(1) << 33) /* samples */
#define SKIPPED_EPOCH 1024u               /* what an epoch costs besides, in samples */
#define EPOCH_MAX     (UINT64_C(1) << 62)

struct fb_plan {
    const struct fb_names *names;
    struct fb_split split;
    uint64_t chunk_bytes;
    struct fb_shuffle shuffle;
    struct fb_epoch epochs[2];
    unsigned current; /* of epochs */
};

static struct fb_epoch *other(struct fb_plan *p)
{
    return &p->epochs[!p->current];
}

/* ---- chunks ---- */

static uint32_t chunk_at(const struct fb_plan *p, const struct fb_epoch *e, uint64_t k,
                         uint64_t samples, struct fb_chunk *chunk)
{
    uint64_t most = p->chunk_bytes ? samples - k : fb_min_u64(p->split.batch, samples - k);

    *chunk = (struct fb_chunk){.offset = chunk->offset + chunk->bytes, .first = (uint32_t)k};
    while (chunk->count < most) {
        uint32_t file = fb_plan_file(p, e, k + chunk->count);
        uint64_t bytes = fb_names_size(p->names, file);

        if (p->chunk_bytes && chunk->count && chunk->bytes + bytes > p->chunk_bytes)
            break;
        chunk->bytes += bytes;
        chunk->count++;
    }
    return chunk->count;
}

static int make_chunks(const struct fb_plan *p, struct fb_epoch *e)
{
    uint64_t samples = fb_split_samples(&p->split);
    struct fb_chunk chunk = {0};

    e->chunk_count = 0;
    for (uint64_t k = 0; k < samples; e->chunk_count++) {
        if (e->chunk_count == e->chunk_room) {
            uint32_t room = e->chunk_room + e->chunk_room / 2 + CHUNKS_FIRST;
            struct fb_chunk *grown = reallocarray(e->chunks, room, sizeof *grown);

            if (!grown)
                return -ENOMEM;
            e->chunks = grown;
            e->chunk_room = room;
        }
        k += chunk_at(p, e, k, samples, &chunk);
        e->chunks[e->chunk_count] = chunk;
    }
    return 0;
}

uint32_t fb_plan_chunk(const struct fb_epoch *e, uint64_t k)
{
    uint32_t low = 0;
    uint32_t high = e->chunk_count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (e->chunks[middle].first <= k)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- epochs ---- */

static int make_epoch(struct fb_plan *p, struct fb_epoch *e, const struct fb_epoch *before)
{
    uint32_t count = p->split.count;

    if (before && p->shuffle.spec.rule == FB_EPOCH_RESHUFFLE)
        memcpy(e->order, before->order, count * sizeof *e->order);
    e->number = p->shuffle.epoch;
    fb_shuffle_next(&p->shuffle, e->order);
    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            __builtin_prefetch(&e->place[e->order[i + AHEAD]], 1);
        e->place[e->order[i]] = i;
    }
    return make_chunks(p, e);
}

int fb_plan_advance(struct fb_plan *p)
{
    p->current = !p->current;
    return make_epoch(p, other(p), &p->epochs[p->current]);
}

/* Whether an epoch does not rest on the one before. */
static bool begins_anew(const struct fb_plan *p)
{
    enum fb_epoch_rule rule = p->shuffle.spec.rule;

    return rule == FB_EPOCH_RESEED || rule == FB_EPOCH_FIXED;
}

static int start(struct fb_plan *p, uint64_t first_epoch)
{
    struct fb_epoch *e = &p->epochs[0];
    int rc;

    if (begins_anew(p))
        p->shuffle.epoch = first_epoch;
    /* In place: what went before is of no interest. */
    while (p->shuffle.epoch < first_epoch)
        fb_shuffle_next(&p->shuffle, e->order);
    rc = make_epoch(p, e, NULL);
    return rc ? rc : make_epoch(p, other(p), e);
}

static int check_epoch(const struct fb_plan *p, uint64_t first_epoch, struct fb_error *err)
{
    uint64_t most =
        begins_anew(p) ? EPOCH_MAX : SKIPPED_MAX / ((uint64_t)p->split.count + SKIPPED_EPOCH);

    if (first_epoch <= most)
        return 0;
    return fb_error_set(err, -EINVAL,
                        "epoch %" PRIu64 " of %u files is too far away: %sthe first epoch can be "
                        "%" PRIu64 " at most",
                        first_epoch, p->split.count,
                        begins_anew(p) ? "" : "all before it are shuffled, too, and ", most);
}

static int check(const struct fb_plan *p, const struct fb_plan_spec *spec, struct fb_error *err)
{
    const struct fb_sampler *sampler = spec->shuffle.sampler;
    int rc = fb_split_check(&p->split, err);

    if (rc == 0)
        rc = check_epoch(p, spec->first_epoch, err);
    if (rc)
        return rc;
    if (p->split.world > 1 && !sampler->can_split)
        return fb_error_set(err, -EINVAL,
                            "with the sampler %s every process reads everything: use a world of 1, "
                            "or the sampler torch-distributed",
                            sampler->name);
    if (p->chunk_bytes && !fb_names_have_sizes(p->names))
        return fb_error_set(err, -EINVAL, "chunks of a size need the sizes of the files");
    return 0;
}

int fb_plan_new(const struct fb_plan_spec *spec, const struct fb_names *names,
                struct fb_plan **ret_plan, struct fb_error *err)
{
    struct fb_shuffle_spec shuffle = spec->shuffle;
    struct fb_plan *p = fb_alloc(sizeof *p);
    int rc;

    if (!p)
        return fb_error_set(err, -ENOMEM, "out of memory for a plan");
    p->names = names;
    p->split = spec->split;
    p->chunk_bytes = spec->chunk_bytes;
    shuffle.count = fb_names_count(names);
    p->split.count = shuffle.count;
    rc = fb_shuffle_init(&p->shuffle, &shuffle, err);
    if (rc == 0)
        rc = check(p, spec, err);
    for (unsigned i = 0; rc == 0 && i < FB_ARRAY_SIZE(p->epochs); i++) {
        p->epochs[i].order = fb_alloc_large(shuffle.count, sizeof(uint32_t));
        p->epochs[i].place = fb_alloc_large(shuffle.count, sizeof(uint32_t));
        if (!p->epochs[i].order || !p->epochs[i].place)
            rc = -ENOMEM;
    }
    if (rc == 0)
        rc = start(p, spec->first_epoch);
    if (rc) {
        fb_plan_free(p);
        return fb_error_set(err, rc, "out of memory for a plan of %u files", shuffle.count);
    }
    *ret_plan = p;
    return 0;
}

void fb_plan_free(struct fb_plan *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < FB_ARRAY_SIZE(p->epochs); i++) {
        free(p->epochs[i].order);
        free(p->epochs[i].place);
        free(p->epochs[i].chunks);
    }
    free(p);
}

/* ---- questions ---- */

const struct fb_epoch *fb_plan_current(const struct fb_plan *p)
{
    return &p->epochs[p->current];
}

const struct fb_epoch *fb_plan_next(const struct fb_plan *p)
{
    return &p->epochs[!p->current];
}

const struct fb_split *fb_plan_split(const struct fb_plan *p)
{
    return &p->split;
}

uint32_t fb_plan_file(const struct fb_plan *p, const struct fb_epoch *e, uint64_t k)
{
    return e->order[fb_split_position(&p->split, k)];
}

bool fb_plan_access(const struct fb_plan *p, const struct fb_epoch *e, uint32_t file,
                    uint64_t *ret_k)
{
    return fb_split_sample_at(&p->split, e->place[file], ret_k);
}
