/*
 * Slots: which are free, which have space in the file system, and when to stop lending.
 *
 * take() prefers a slot that has its space already; only then the file system is asked for more. A
 * thread of the tier does that, and who takes waits a moment for its answer; as it does for who
 * gives, since where the file system is under its floor the space goes back: a disk that hangs may
 * keep the thread for ever, but nobody else. And floor and allocation are looked at by one at a
 * time.
 *
 * Of several directories one may fail or hang, and the others go on. Nothing is lent of one that is
 * out of order; before that is known it may have half of the staging memory in its hands; and where
 * its file system keeps the thread, another takes that one's place.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "store/tier_files.h"

static void enqueue(struct fb_tier *t, struct fb_slot_queue *q, uint32_t slot)
{
    t->slot[slot].next = FB_SLOT_NONE;
    if (q->first == FB_SLOT_NONE)
        q->first = slot;
    else
        t->slot[q->last].next = slot;
    q->last = slot;
}

static void push(struct fb_tier *t, uint32_t slot, enum fb_slot_state state)
{
    struct fb_stripe *stripe = &t->stripes[slot % t->stripe_count];

    t->slot[slot].state = (uint8_t)state;
    stripe->bare_count += state == FB_SLOT_BARE;
    enqueue(t, state == FB_SLOT_FREE ? &stripe->free : &stripe->bare, slot);
}

int fb_tier_space_init(struct fb_tier *tier)
{
    FB_ASSERT(tier->stripe_count > 0);
    tier->back.first = FB_SLOT_NONE;
    tier->slot = fb_alloc_array(tier->slots, sizeof *tier->slot);
    if (!tier->slot)
        return -ENOMEM;
    for (unsigned i = 0; i < tier->stripe_count; i++)
        tier->stripes[i] =
            (struct fb_stripe){.free = {.first = FB_SLOT_NONE}, .bare = {.first = FB_SLOT_NONE}};
    for (uint32_t i = 0; i < tier->slots; i++) {
        if (tier->ops->persistent)
            tier->stripes[i % tier->stripe_count].held++;
        else
            push(tier, i, FB_SLOT_FREE);
    }
    return 0;
}

/* ---- directories out of order ---- */

static bool is_broken(const struct fb_tier *t, unsigned stripe)
{
    return atomic_load_explicit(&t->stripes[stripe].broken, memory_order_relaxed);
}

bool fb_tier_broken(const struct fb_tier *tier)
{
    bool broken = true;

    for (unsigned i = 0; i < tier->stripe_count && broken; i++)
        broken = is_broken(tier, i);
    return broken;
}

void fb_tier_break(struct fb_tier *tier, unsigned stripe, int code)
{
    if (!atomic_exchange_explicit(&tier->stripes[stripe].broken, true, memory_order_relaxed))
        fb_log_error("%s: %s; nothing more is written there until the next start",
                     tier->files->file[stripe].dir.path, fb_strerror(code));
}

void fb_tier_seal_begins(struct fb_tier *tier, uint32_t slot)
{
    struct fb_stripe *s = &tier->stripes[slot % tier->stripe_count];

    fb_mutex_lock(&tier->lock);
    if (s->seals++ == 0)
        atomic_store_explicit(&s->seals_ns, fb_now_ns(), memory_order_relaxed);
    fb_mutex_unlock(&tier->lock);
}

void fb_tier_seal_ends(struct fb_tier *tier, uint32_t slot)
{
    struct fb_stripe *s = &tier->stripes[slot % tier->stripe_count];

    fb_mutex_lock(&tier->lock);
    s->seals--;
    atomic_store_explicit(&s->seals_ns, s->seals > 0 ? fb_now_ns() : 0, memory_order_relaxed);
    fb_mutex_unlock(&tier->lock);
}

static bool is_long_ago(const _Atomic int64_t *since)
{
    int64_t since_ns = atomic_load_explicit(since, memory_order_relaxed);

    return since_ns != 0 && fb_now_ns() - since_ns > FB_TIER_PATIENCE_NS;
}

static bool same_fs(const struct fb_tier *t, unsigned a, unsigned b)
{
    return t->files->file[a].dir.dev == t->files->file[b].dir.dev;
}

/* None of its seals has ended for long, or its file system has not said whether there is space, to
 * it or to another directory that lies there. */
static bool is_late(const struct fb_tier *t, unsigned stripe)
{
    bool late = is_long_ago(&t->stripes[stripe].seals_ns);

    for (unsigned i = 0; i < t->stripe_count && !late; i++)
        late = is_long_ago(&t->stripes[i].asked_ns) && same_fs(t, i, stripe);
    return late;
}

bool fb_tier_is_out(struct fb_tier *tier, uint32_t slot)
{
    unsigned stripe = slot % tier->stripe_count;

    return tier->stripe_count > 1 &&
           (is_broken(tier, stripe) || fb_tier_is_stuck(tier, slot) || is_late(tier, stripe));
}

bool fb_tier_is_all_out(struct fb_tier *tier)
{
    bool out = true;

    for (unsigned i = 0; i < tier->stripe_count && out; i++)
        out = fb_tier_is_out(tier, i);
    return out;
}

/* It has all the staging memory that one of several directories may have. What is only being filled
 * does not count by itself: whoever waits, waits for a write to end. */
static bool is_laden(const struct fb_tier *t, unsigned stripe)
{
    const struct fb_stripe *s = &t->stripes[stripe];

    return !t->ops->memory && t->stripe_count > 1 && s->seals > 0 &&
           s->staged >= fb_max_u64(1, t->staging_count / 2);
}

static bool lends(struct fb_tier *t, unsigned stripe)
{
    return !fb_tier_is_out(t, stripe) && !is_laden(t, stripe);
}

/* Somebody asks its file system for space, or that of a directory on the same one: floor and
 * allocation are looked at by one at a time. */
static bool is_asked(const struct fb_tier *t, unsigned stripe)
{
    bool asked = false;

    for (unsigned i = 0; i < t->stripe_count && !asked; i++)
        asked = atomic_load_explicit(&t->stripes[i].asked_ns, memory_order_relaxed) != 0 &&
                same_fs(t, i, stripe);
    return asked;
}

static void set_asked(struct fb_tier *t, unsigned stripe, bool asked) FB_REQUIRES(&t->lock)
{
    atomic_store_explicit(&t->stripes[stripe].asked_ns, asked ? fb_now_ns() : 0,
                          memory_order_relaxed);
}

/* ---- slots ---- */

/* The next slot of one of a directory's two queues. */
static uint32_t pop(struct fb_tier *t, unsigned stripe, enum fb_slot_state state)
{
    struct fb_stripe *s = &t->stripes[stripe];
    struct fb_slot_queue *q = state == FB_SLOT_FREE ? &s->free : &s->bare;
    uint32_t slot = q->first;

    if (slot == FB_SLOT_NONE)
        return slot;
    q->first = t->slot[slot].next;
    t->slot[slot].state = FB_SLOT_TAKEN;
    t->slot[slot].has_space = state == FB_SLOT_FREE;
    s->bare_count -= state == FB_SLOT_BARE;
    s->held++;
    t->next_stripe = (stripe + 1) % t->stripe_count;
    return slot;
}

static void unpop(struct fb_tier *t, uint32_t slot)
{
    t->stripes[slot % t->stripe_count].held--;
    t->slot[slot].returns = false;
    push(t, slot, t->slot[slot].has_space ? FB_SLOT_FREE : FB_SLOT_BARE);
}

static uint32_t pop_free(struct fb_tier *t)
{
    uint32_t slot = FB_SLOT_NONE;
    unsigned first = t->next_stripe;

    for (unsigned i = 0; i < t->stripe_count && slot == FB_SLOT_NONE; i++) {
        unsigned stripe = (first + i) % t->stripe_count;

        if (lends(t, stripe))
            slot = pop(t, stripe, FB_SLOT_FREE);
    }
    return slot;
}

static uint32_t pop_bare(struct fb_tier *t, unsigned stripe)
{
    uint32_t slot = FB_SLOT_NONE;

    fb_mutex_lock(&t->lock);
    if (t->stripes[stripe].full_until_ns <= fb_now_ns() && lends(t, stripe) && !is_asked(t, stripe))
        slot = pop(t, stripe, FB_SLOT_BARE);
    if (slot != FB_SLOT_NONE)
        set_asked(t, stripe, true);
    fb_mutex_unlock(&t->lock);
    return slot;
}

/* Space for a slot that was popped bare; what it cannot have is put back. */
static int give_space(struct fb_tier *t, uint32_t slot)
{
    unsigned no = slot % t->stripe_count;
    struct fb_stripe *stripe = &t->stripes[no];
    bool tell;
    int r;

    r = fb_tier_files_gone(t, no) ? -ENOENT : fb_tier_files_allocate(t, slot);
    fb_mutex_lock(&t->lock);
    set_asked(t, no, false);
    t->slot[slot].has_space = r == 0;
    stripe->is_full = r == FB_TIER_FULL;
    if (r != 0) {
        unpop(t, slot);
        stripe->full_until_ns = fb_now_ns() + FB_TIER_RETRY_NS;
    }
    tell = stripe->is_full && !stripe->told;
    stripe->told |= tell;
    fb_mutex_unlock(&t->lock);
    if (tell)
        fb_log_warn("%s: the disk has no room for more, but for the share of free-space-ratio; the "
                    "%s tier grows when it has",
                    t->files->file[no].dir.path, t->ops->name);
    if (r < 0) {
        fb_tier_break(t, no, r);
        r = FB_TIER_FULL;
    }
    return r;
}

static uint32_t allocate(struct fb_tier *t)
{
    uint32_t slot = FB_SLOT_NONE;
    unsigned first;

    fb_mutex_lock(&t->lock);
    first = t->next_stripe;
    fb_mutex_unlock(&t->lock);
    for (unsigned i = 0; i < t->stripe_count && slot == FB_SLOT_NONE; i++) {
        slot = pop_bare(t, (first + i) % t->stripe_count);
        if (slot != FB_SLOT_NONE && give_space(t, slot) != 0)
            slot = FB_SLOT_NONE;
    }
    return slot;
}

/* Free again, without its space where the file system wants that. The tier's lock is not held. */
static void take_back(struct fb_tier *t, uint32_t slot)
{
    bool gone =
        fb_tier_files_shortage(t, slot % t->stripe_count) > 0 && fb_tier_files_discard(t, slot);

    fb_mutex_lock(&t->lock);
    t->slot[slot].has_space = !gone;
    unpop(t, slot);
    fb_mutex_unlock(&t->lock);
}

static void take_back_next(struct fb_tier *t) FB_REQUIRES(&t->lock)
{
    uint32_t slot = t->back.first;
    unsigned stripe = slot % t->stripe_count;

    t->back.first = t->slot[slot].next;
    if (is_asked(t, stripe)) {
        unpop(t, slot); /* its floor is looked at later */
    } else {
        set_asked(t, stripe, true);
        fb_mutex_unlock(&t->lock);
        take_back(t, slot);
        fb_mutex_lock(&t->lock);
        set_asked(t, stripe, false);
    }
    t->space_late = false;
    fb_cond_broadcast(&t->space_told);
}

static void *space_run(void *arg)
{
    struct fb_tier *t = arg;

    fb_mutex_lock(&t->lock);
    while (!t->space_stop) {
        uint32_t slot;

        if (t->back.first != FB_SLOT_NONE) {
            take_back_next(t);
            continue;
        }
        if (!t->space_wanted) {
            t->space_idle++;
            fb_cond_wait(&t->space_wake, &t->lock, FB_NEVER_NS);
            t->space_idle--;
            continue;
        }
        t->space_wanted = false;
        fb_mutex_unlock(&t->lock);
        slot = allocate(t);
        fb_mutex_lock(&t->lock);
        t->space_gave = slot != FB_SLOT_NONE;
        if (t->space_gave)
            unpop(t, slot);
        t->space_late = false;
        t->space_answers++;
        fb_cond_broadcast(&t->space_told);
    }
    fb_mutex_unlock(&t->lock);
    return NULL;
}

int fb_tier_space_start(struct fb_tier *tier)
{
    int r = fb_thread_start(&tier->space_threads[0], "fb-space", space_run, tier);

    tier->space_running = r == 0;
    return r;
}

/* Nobody has answered in time: where there are other directories another thread goes on. */
static void call_help(struct fb_tier *t)
{
    bool starts;
    int r;

    fb_mutex_lock(&t->lock);
    starts = t->space_idle == 0 && t->space_running < t->stripe_count && !t->space_helping;
    t->space_helping = t->space_helping || starts;
    fb_mutex_unlock(&t->lock);
    if (!starts)
        return;
    r = fb_thread_start(&t->space_threads[t->space_running], "fb-space", space_run, t);
    fb_mutex_lock(&t->lock);
    t->space_running += r == 0;
    t->space_helping = false;
    fb_mutex_unlock(&t->lock);
}

void fb_tier_space_stop(struct fb_tier *tier)
{
    fb_mutex_lock(&tier->lock);
    tier->space_stop = true;
    fb_cond_broadcast(&tier->space_wake);
    fb_mutex_unlock(&tier->lock);
    for (unsigned i = 0; i < tier->space_running; i++)
        pthread_join(tier->space_threads[i], NULL);
}

/* A slot that gets its space now. FB_SLOT_NONE: there is none or, *ret_late, no answer in time. */
static uint32_t ask_for_space(struct fb_tier *t, bool *ret_late) FB_REQUIRES(&t->lock)
{
    int64_t until_ns = fb_now_ns() + (t->space_late ? FB_TIER_LATE_NS : FB_TIER_PATIENCE_NS);
    bool in_time = true;
    uint32_t slot;

    do {
        uint64_t answers = t->space_answers;

        t->space_wanted = true;
        fb_cond_signal(&t->space_wake);
        while (t->space_answers == answers && in_time)
            in_time = fb_cond_wait(&t->space_told, &t->lock, until_ns);
        in_time = t->space_answers != answers;
        slot = pop_free(t);
        /* Somebody else may have been faster. */
    } while (slot == FB_SLOT_NONE && t->space_gave && in_time);
    *ret_late = slot == FB_SLOT_NONE && !in_time;
    t->space_late = t->space_late || *ret_late;
    return slot;
}

static bool has_room_locked(struct fb_tier *t) FB_REQUIRES(&t->lock)
{
    int64_t now = fb_now_ns();

    for (unsigned i = 0; i < t->stripe_count; i++) {
        const struct fb_stripe *s = &t->stripes[i];
        bool bare = s->bare.first != FB_SLOT_NONE && s->full_until_ns <= now && !t->space_late;

        if ((s->free.first != FB_SLOT_NONE || bare) && !fb_tier_is_out(t, i))
            return true;
    }
    return false;
}

bool fb_tier_is_short(struct fb_tier *tier)
{
    bool is_short = false;

    fb_mutex_lock(&tier->lock);
    for (unsigned i = 0; i < tier->stripe_count; i++)
        is_short = is_short || tier->stripes[i].is_full;
    fb_mutex_unlock(&tier->lock);
    return is_short;
}

static uint32_t slots_of(const struct fb_tier *t, unsigned stripe)
{
    return (t->slots + t->stripe_count - 1 - stripe) / t->stripe_count;
}

uint32_t fb_tier_free(struct fb_tier *tier)
{
    uint32_t held = 0;

    fb_mutex_lock(&tier->lock);
    for (unsigned i = 0; i < tier->stripe_count; i++)
        held += tier->stripes[i].held;
    fb_mutex_unlock(&tier->lock);
    return tier->slots - held;
}

uint32_t fb_tier_room(struct fb_tier *tier)
{
    uint32_t room = 0;

    if (fb_tier_broken(tier))
        return 0;
    fb_mutex_lock(&tier->lock);
    for (unsigned i = 0; i < tier->stripe_count; i++) {
        const struct fb_stripe *s = &tier->stripes[i];
        bool no_more = s->is_full || tier->space_late;

        if (!fb_tier_is_out(tier, i))
            room += slots_of(tier, i) - s->held - (no_more ? s->bare_count : 0);
    }
    fb_mutex_unlock(&tier->lock);
    return room;
}

bool fb_tier_has_room(struct fb_tier *tier)
{
    bool has;

    if (fb_tier_broken(tier))
        return false;
    fb_mutex_lock(&tier->lock);
    has = has_room_locked(tier);
    fb_mutex_unlock(&tier->lock);
    return has;
}

bool fb_tier_busy(struct fb_tier *tier)
{
    bool busy;

    fb_mutex_lock(&tier->lock);
    busy = !tier->ops->memory && tier->staging_free == 0;
    fb_mutex_unlock(&tier->lock);
    return busy;
}

static void end_scanning(struct fb_tier *t)
{
    if (t->scanning && t->ops->scan_end)
        t->ops->scan_end(t);
    t->scanning = false;
}

int fb_tier_take(struct fb_tier *tier, uint32_t *ret_slot, uint8_t **ret_memory)
{
    uint8_t *memory = NULL;
    bool late = false, laden = false;
    uint32_t slot;

    if (fb_tier_broken(tier))
        return FB_TIER_FULL;
    fb_mutex_lock(&tier->lock);
    end_scanning(tier);
    if (!tier->ops->memory) {
        /* Also where no slot is free: one that is evicted for could not be used now. */
        if (tier->staging_free == 0) {
            fb_mutex_unlock(&tier->lock);
            return FB_TIER_BUSY;
        }
        memory = tier->staging_stack[--tier->staging_free];
    }
    slot = pop_free(tier);
    if (slot == FB_SLOT_NONE && tier->files)
        slot = ask_for_space(tier, &late);
    if (slot != FB_SLOT_NONE)
        tier->stripes[slot % tier->stripe_count].staged += memory != NULL;
    else
        laden = has_room_locked(tier);
    fb_mutex_unlock(&tier->lock);
    if (late)
        call_help(tier);
    if (slot == FB_SLOT_NONE) {
        if (memory)
            fb_tier_release_memory(tier, slot, memory);
        return late || laden ? FB_TIER_BUSY : FB_TIER_FULL;
    }
    *ret_slot = slot;
    *ret_memory = memory ? memory : tier->ops->memory(tier, slot);
    return 0;
}

void fb_tier_smooth(struct fb_tier *tier, uint32_t slot, bool may_wait)
{
    if (tier->ops->smooth)
        tier->ops->smooth(tier, slot, may_wait);
}

void fb_tier_touch(struct fb_tier *tier, uint8_t *memory, uint64_t bytes)
{
    if (tier->ops->touch)
        tier->ops->touch(memory, bytes);
}

void fb_tier_release_memory(struct fb_tier *tier, uint32_t slot, uint8_t *memory)
{
    if (tier->ops->memory)
        return;
    fb_mutex_lock(&tier->lock);
    FB_ASSERT((uint64_t)(memory - tier->staging) % tier->segment_bytes == 0);
    FB_ASSERT(tier->staging_free < tier->staging_count);
    tier->staging_stack[tier->staging_free++] = memory;
    if (slot != FB_SLOT_NONE)
        tier->stripes[slot % tier->stripe_count].staged--;
    fb_mutex_unlock(&tier->lock);
}

/* By a thread of the tier. Who gives need not wait for it, but finds room then. False: it is
 * late. */
static bool hand_back(struct fb_tier *t, uint32_t slot) FB_REQUIRES(&t->lock)
{
    int64_t until_ns = fb_now_ns() + FB_TIER_PATIENCE_NS;
    bool in_time = true;

    t->slot[slot].returns = true;
    enqueue(t, &t->back, slot);
    fb_cond_signal(&t->space_wake);
    while (t->slot[slot].returns && in_time)
        in_time = fb_cond_wait(&t->space_told, &t->lock, until_ns);
    in_time = !t->slot[slot].returns;
    t->space_late = t->space_late || !in_time;
    return in_time;
}

void fb_tier_give(struct fb_tier *tier, uint32_t slot)
{
    bool asks, starting, late = false;

    FB_ASSERT(slot < tier->slots);
    fb_mutex_lock(&tier->lock);
    FB_ASSERT(tier->slot[slot].state <= FB_SLOT_TAKEN);
    if (!tier->files)
        tier->slot[slot].has_space = true;
    /* The floor of a disk that hangs is looked at later, by fb_tier_excess(). */
    asks = tier->files && tier->slot[slot].has_space && !tier->space_late &&
           !fb_tier_is_stuck(tier, slot) && !fb_tier_is_out(tier, slot);
    starting = tier->scanning;
    if (!asks)
        unpop(tier, slot);
    else if (!starting)
        late = !hand_back(tier, slot);
    fb_mutex_unlock(&tier->lock);
    if (late)
        call_help(tier);
    /* At the start nobody else is there, and there may be many. */
    if (asks && starting)
        take_back(tier, slot);
}

/* ---- the free-space floor ---- */

/* Takes space from a free slot of the stripe. False: there is none, or it keeps its space. */
static bool shrink(struct fb_tier *t, unsigned stripe)
{
    uint32_t slot;
    bool gave;

    fb_mutex_lock(&t->lock);
    slot = pop(t, stripe, FB_SLOT_FREE);
    fb_mutex_unlock(&t->lock);
    if (slot == FB_SLOT_NONE)
        return false;
    gave = fb_tier_files_discard(t, slot);
    fb_mutex_lock(&t->lock);
    t->slot[slot].has_space = !gave;
    t->stripes[stripe].keeps = !gave;
    unpop(t, slot);
    fb_mutex_unlock(&t->lock);
    return gave;
}

/* What evicting could give back to the file system of a stripe: nothing to one that takes nothing
 * back, as it would be all that is cached for no gain, nor what is out of order, as it is not
 * evicted, and the other directories would be emptied in its stead. */
static uint64_t held_bytes(struct fb_tier *t, unsigned stripe)
{
    uint64_t held = 0;

    fb_mutex_lock(&t->lock);
    for (unsigned i = 0; i < t->stripe_count; i++)
        if (same_fs(t, i, stripe) && !t->stripes[i].keeps && !fb_tier_is_out(t, i))
            held += t->stripes[i].held;
    fb_mutex_unlock(&t->lock);
    return held * t->segment_bytes;
}

/* Whether to leave a directory alone; says so when that changes. */
static bool is_stuck(struct fb_tier *tier, unsigned stripe)
{
    const char *path = tier->files->file[stripe].dir.path;
    bool stuck = fb_tier_is_stuck(tier, stripe), was;

    fb_mutex_lock(&tier->lock);
    was = tier->stripes[stripe].stuck;
    tier->stripes[stripe].stuck = stuck;
    fb_mutex_unlock(&tier->lock);
    if (stuck && !was)
        fb_log_warn("%s: the disk does not answer; what it holds is read from the source", path);
    else if (!stuck && was)
        fb_log_info("%s: the disk answers again", path);
    return stuck;
}

/* Directories on one file system share its floor: it counts for the first of them that answers. */
static bool counted_before(const struct fb_tier *t, unsigned stripe, const bool *out)
{
    for (unsigned i = 0; i < stripe; i++)
        if (!out[i] && same_fs(t, i, stripe))
            return true;
    return false;
}

/* Notices it, too. */
static bool is_gone(struct fb_tier *tier, unsigned stripe)
{
    bool gone = fb_tier_files_gone(tier, stripe);

    if (gone)
        fb_tier_break(tier, stripe, -ENOENT);
    return gone;
}

int64_t fb_tier_excess(struct fb_tier *tier)
{
    bool out[FB_TIER_DIRS_MAX] = {false}, gone = false;
    uint64_t excess = 0;

    if (!tier->files)
        return 0;
    for (unsigned i = 0; i < tier->stripe_count; i++) {
        out[i] = is_stuck(tier, i);
        if (!out[i] && is_gone(tier, i))
            out[i] = gone = true;
        while (!out[i] && fb_tier_files_shortage(tier, i) > 0 && shrink(tier, i))
            ;
    }
    if (gone && fb_tier_broken(tier))
        return -EIO;
    for (unsigned i = 0; i < tier->stripe_count; i++)
        if (!out[i] && !counted_before(tier, i, out))
            excess += fb_min_u64(fb_tier_files_shortage(tier, i), held_bytes(tier, i));
    return (int64_t)excess;
}
