/*
 * What all media have in common: opening, staging memory, and the ways to the medium's own seal,
 * read and scan. tier_space.c has the slots.
 */
#include "store/tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/units.h"
#include "proto/layout.h"
#include "store/tier_files.h"
#include "store/tier_priv.h"

static const struct fb_tier_ops *const media[] = {
    [FB_TIER_DRAM] = &fb_tier_dram,
    [FB_TIER_PMEM] = &fb_tier_pmem,
    [FB_TIER_NVME] = &fb_tier_nvme,
};

/* ---- opening ---- */

static uint64_t slots_of(const struct fb_tier_config *c, bool persistent)
{
    uint64_t room = persistent ? c->dir_count * FB_TIER_ROOM_BYTES : 0;
    uint64_t filled = (uint64_t)((double)c->budget_bytes * c->fill);
    uint64_t rest = c->budget_bytes > room ? c->budget_bytes - room : 0;

    return fb_min_u64(filled, rest) / c->segment_bytes;
}

static int check(const struct fb_tier_config *c, bool persistent, struct fb_error *err)
{
    const char *name = media[c->kind]->name;
    uint64_t slots;

    if (c->segment_bytes % FB_DISK_PAGE != 0 || c->segment_bytes < 2ULL * FB_DISK_PAGE ||
        c->segment_bytes > FB_SEGMENT_SIZE_MAX)
        return fb_error_set(err, -EINVAL, "segments of %llu bytes are not possible",
                            (unsigned long long)c->segment_bytes);
    if (persistent && (c->dir_count == 0 || c->dir_count > FB_TIER_DIRS_MAX))
        return fb_error_set(err, -EINVAL, "the %s tier takes 1 to %d directories, not %u", name,
                            FB_TIER_DIRS_MAX, c->dir_count);
    slots = slots_of(c, persistent);
    if (slots < fb_max_u64(persistent ? c->dir_count : 1, 1)) {
        char budget[FB_UNITS_TEXT_MAX], segment[FB_UNITS_TEXT_MAX];

        return fb_error_set(err, -EINVAL,
                            "the %s tier is too small: %s hold no segment of %s%s; write more, or "
                            "0 for none",
                            name, fb_format_size(budget, c->budget_bytes),
                            fb_format_size(segment, c->segment_bytes),
                            c->dir_count > 1 ? " in each directory" : "");
    }
    if (slots > FB_SEGMENT_MAX)
        return fb_error_set(err, -EINVAL, "the %s tier has too many segments: make them larger",
                            name);
    return 0;
}

static int make_staging(struct fb_tier *t, unsigned count)
{
    size_t bytes;

    t->staging_count = count > 0 ? count : FB_TIER_STAGING;
    bytes = t->staging_count * t->segment_bytes;
    t->staging_stack = fb_alloc_array(t->staging_count, sizeof *t->staging_stack);
    t->staging = fb_map_large(bytes);
    if (!t->staging || !t->staging_stack)
        return -ENOMEM;
    for (unsigned i = 0; i < t->staging_count; i++)
        t->staging_stack[t->staging_free++] = t->staging + i * t->segment_bytes;
    return 0;
}

int fb_tier_open(const struct fb_tier_config *config, struct fb_tier **ret_tier,
                 struct fb_error *err)
{
    const struct fb_tier_ops *ops = media[config->kind];
    int r = check(config, ops->persistent, err);
    struct fb_tier *t;

    if (r < 0)
        return r;
    t = fb_alloc(sizeof *t);
    if (!t)
        return -ENOMEM;
    t->ops = ops;
    t->kind = config->kind;
    t->slots = (uint32_t)slots_of(config, ops->persistent);
    t->segment_bytes = config->segment_bytes;
    t->stripe_count = ops->persistent ? config->dir_count : 1;
    t->memfd = -1;
    t->scanning = true;
    t->state = fb_alloc(ops->state_bytes);
    fb_mutex_init(&t->lock, FB_RANK_TIER);
    fb_cond_init(&t->space_wake);
    fb_cond_init(&t->space_told);
    r = t->state ? fb_tier_space_init(t) : -ENOMEM;
    if (r == 0 && !ops->memory)
        r = make_staging(t, config->staging);
    if (r == 0)
        r = ops->open(t, config, err);
    if (r == 0 && t->files)
        r = fb_tier_space_start(t);
    if (r < 0) {
        fb_tier_close(t);
        return r;
    }
    *ret_tier = t;
    return 0;
}

void fb_tier_close(struct fb_tier *tier)
{
    if (!tier)
        return;
    fb_tier_space_stop(tier);
    if (tier->state)
        tier->ops->close(tier);
    fb_unmap_large(tier->staging, tier->staging_count * tier->segment_bytes);
    free(tier->staging_stack);
    free(tier->slot);
    free(tier->state);
    fb_cond_destroy(&tier->space_wake);
    fb_cond_destroy(&tier->space_told);
    fb_mutex_destroy(&tier->lock);
    free(tier);
}

const char *fb_tier_name(const struct fb_tier *tier)
{
    return tier->ops->name;
}

enum fb_tier_kind fb_tier_kind(const struct fb_tier *tier)
{
    return tier->kind;
}

bool fb_tier_persistent(const struct fb_tier *tier)
{
    return tier->ops->persistent;
}

uint32_t fb_tier_slots(const struct fb_tier *tier)
{
    return tier->slots;
}

uint64_t fb_tier_segment_bytes(const struct fb_tier *tier)
{
    return tier->segment_bytes;
}

int fb_tier_memfd(const struct fb_tier *tier)
{
    return tier->memfd;
}

const uint8_t *fb_tier_map(const struct fb_tier *tier)
{
    return tier->map;
}

int fb_tier_dir_fd(const struct fb_tier *tier)
{
    return tier->files ? tier->files->file[0].dir.fd : -1;
}

/* ---- sealing, reading, scanning ---- */

void fb_tier_seal_header(struct fb_tier_seal *seal)
{
    const struct fb_tier *t = seal->tier;
    struct fb_disk_header *h = &seal->header;

    h->slot = seal->slot;
    h->segment_bytes = t->segment_bytes;
    memcpy(h->cache_id, t->files->id, sizeof h->cache_id);
    fb_disk_header_finish(h, seal->memory + h->toc_offset);
    memset(seal->memory, 0, FB_DISK_PAGE);
    memcpy(seal->memory, h, sizeof *h);
}

uint64_t fb_tier_seal_bytes(const struct fb_tier_seal *seal)
{
    return fb_align_up(seal->header.toc_offset + seal->header.toc_bytes, FB_DISK_PAGE);
}

void fb_tier_seal_end(struct fb_tier_seal *seal, int result)
{
    struct fb_tier *t = seal->tier;

    if (result == -ENOSPC || result == -EDQUOT) {
        struct fb_stripe *stripe = &t->stripes[seal->slot % t->stripe_count];

        fb_mutex_lock(&t->lock);
        /* Whoever wants the slot next asks for its space again, floor and all. */
        t->slot[seal->slot].has_space = false;
        stripe->is_full = true;
        stripe->full_until_ns = fb_now_ns() + FB_TIER_RETRY_NS;
        fb_mutex_unlock(&t->lock);
    } else if (result < 0) {
        fb_tier_break(t, seal->slot % t->stripe_count, result);
    }
    if (t->files)
        fb_tier_seal_ends(t, seal->slot);
    seal->result = result;
    seal->done(seal);
}

void fb_tier_seal(struct fb_tier *tier, struct fb_tier_seal *seal)
{
    const struct fb_disk_header *h = &seal->header;

    FB_ASSERT(seal->slot < tier->slots);
    FB_ASSERT(!tier->files || (h->data_end <= h->toc_offset && h->toc_offset % FB_DISK_PAGE == 0 &&
                               h->toc_offset >= FB_DISK_DATA_OFFSET &&
                               h->toc_offset + h->toc_bytes <= tier->segment_bytes));
    seal->tier = tier;
    if (tier->files)
        fb_tier_seal_begins(tier, seal->slot);
    tier->ops->seal(tier, seal);
}

void fb_tier_read(struct fb_tier *tier, struct fb_tier_read *const *reads, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct fb_tier_read *r = reads[i];

        FB_ASSERT(r->slot < tier->slots && r->offset <= tier->segment_bytes &&
                  r->length <= tier->segment_bytes - r->offset);
        FB_ASSERT((r->offset | r->length | (uintptr_t)r->data) % FB_DISK_PAGE == 0);
    }
    tier->ops->read(tier, reads, count);
}

int fb_tier_scan(struct fb_tier *tier, uint32_t slot, struct fb_disk_header *ret_header,
                 bool *ret_valid)
{
    uint8_t page[FB_DISK_PAGE] FB_ALIGNED(8);
    int r;

    FB_ASSERT(slot < tier->slots && tier->scanning);
    *ret_valid = false;
    if (!tier->ops->scan)
        return 0;
    r = tier->ops->scan(tier, slot, page);
    if (r == 0)
        r = fb_disk_page_check(page, tier->files->id, slot, tier->segment_bytes);
    *ret_valid = r == 0;
    if (*ret_valid)
        memcpy(ret_header, page, sizeof *ret_header);
    tier->slot[slot].has_space = *ret_valid || fb_tier_files_has_data(tier, slot);
    return r < 0 ? r : 0;
}

unsigned fb_tier_fds(const struct fb_tier *tier, int ret_fds[FB_TIER_DIRS_MAX])
{
    if (tier->kind != FB_TIER_NVME)
        return 0;
    for (unsigned i = 0; i < tier->files->count; i++)
        ret_fds[i] = tier->files->file[i].fd;
    return tier->files->count;
}

bool fb_tier_is_stuck(struct fb_tier *tier, uint32_t slot)
{
    return tier->ops->stuck && tier->ops->stuck(tier, slot % tier->stripe_count);
}

bool fb_tier_stuck(struct fb_tier *tier)
{
    bool stuck = false;

    for (unsigned i = 0; i < tier->stripe_count; i++)
        stuck = stuck || fb_tier_is_stuck(tier, i);
    return stuck;
}
