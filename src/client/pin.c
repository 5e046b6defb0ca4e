/*
 * Pointers into shared memory, instead of copies.
 *
 * A segment with a pointer into it is named in a hazard slot of our area; the daemon does not reuse
 * it. The order makes it safe: store the hazard, then look at the generation. If it had begun to
 * change, the pointer is not given out. The daemon lets all clients together pin a quarter of DRAM:
 * credits, asked for as they are needed.
 */
#include <sched.h>
#include <string.h>

#include "client/client_priv.h"

#define CREDITS_AT_ONCE 16u
#define RETRY_NS        1000000000LL

/* Of this process only; acquire and release are not for signal handlers. */
static void lock(struct fb_client_pins *pins)
{
    while (atomic_exchange_explicit(&pins->lock, true, memory_order_acquire))
        sched_yield();
}

static void unlock(struct fb_client_pins *pins)
{
    atomic_store_explicit(&pins->lock, false, memory_order_release);
}

static int find_slot(const struct fb_client_pins *pins, const struct fb_session *s,
                     uint32_t segment)
{
    for (uint32_t i = 0; i < FB_CLIENT_HAZARDS; i++)
        if (pins->slots[i].pointers > 0 && pins->slots[i].session == s &&
            pins->slots[i].segment == segment)
            return (int)i;
    return -1;
}

static int free_slot(const struct fb_client_pins *pins)
{
    uint32_t used = 0;
    int unused = -1;

    for (uint32_t i = 0; i < FB_CLIENT_HAZARDS; i++) {
        if (pins->slots[i].pointers > 0)
            used++;
        else
            unused = (int)i;
    }
    return used < pins->credits ? unused : -1;
}

static void want_credits(struct fb_client *client)
{
    struct fb_client_request request = {.op = FB_CLIENT_PIN, .length = CREDITS_AT_ONCE};
    struct fb_client_pins *pins = &client->pins;
    struct fb_client_reply reply;
    int granted;

    if (fb_client_now_ns() < pins->retry_ns)
        return;
    granted = fb_client_ask(client, &request, "", &reply, NULL, 0, NULL);
    if (granted > 0)
        pins->credits += (uint32_t)fb_min_u64((uint32_t)granted, CREDITS_AT_ONCE);
    else
        pins->retry_ns = fb_client_now_ns() + RETRY_NS;
}

/* One more pointer into a segment. False: no slot to be had. */
static bool hold(struct fb_client *client, struct fb_session *s, uint32_t segment)
{
    struct fb_client_pins *pins = &client->pins;
    int slot;

    lock(pins);
    slot = find_slot(pins, s, segment);
    if (slot < 0) {
        slot = free_slot(pins);
        if (slot < 0) {
            want_credits(client);
            slot = free_slot(pins);
        }
        if (slot >= 0) {
            struct fb_client_area *area = atomic_load(&s->area);

            /* Not the area of the process we were forked from: the answer that brought credits
             * brought our own. */
            if (!area || atomic_load(&client->area_lost)) {
                unlock(pins);
                return false;
            }
            pins->slots[slot].session = s;
            pins->slots[slot].segment = segment;
            atomic_store(&area->hazards[slot], segment + 1);
        }
    }
    if (slot >= 0) {
        pins->slots[slot].pointers++;
        atomic_fetch_add(&pins->pointers, 1);
    }
    unlock(pins);
    /* Pairs with the fence in the daemon's guard. */
    atomic_thread_fence(memory_order_seq_cst);
    return slot >= 0;
}

static void let_go(struct fb_client *client, const struct fb_session *s, uint32_t segment)
{
    struct fb_client_pins *pins = &client->pins;
    int slot;

    lock(pins);
    slot = find_slot(pins, s, segment);
    if (slot >= 0) {
        struct fb_client_area *area = atomic_load(&s->area);

        atomic_fetch_sub(&pins->pointers, 1);
        /* Release: what was read through the pointer was read before. */
        if (--pins->slots[slot].pointers == 0 && area)
            atomic_store_explicit(&area->hazards[slot], 0, memory_order_release);
    }
    unlock(pins);
}

const void *fb_client_acquire(struct fb_client *client, const struct fb_client_file *file,
                              uint64_t offset, size_t *bytes)
{
    struct fb_session *s = file->session;
    uint32_t block_bytes = s->layout.h.block_bytes;
    uint64_t key = fb_item_key(file->id, (uint32_t)(offset / block_bytes));
    uint32_t in_item = (uint32_t)(offset % block_bytes);
    struct fb_spot spot;

    if (!s->layout.dram || atomic_load(&client->session) != s || !fb_client_find(s, key, &spot) ||
        in_item >= spot.length || !hold(client, s, fb_loc_segment(spot.loc)))
        return NULL;
    if (!fb_client_still_good(file, spot.loc)) {
        let_go(client, s, fb_loc_segment(spot.loc));
        return NULL;
    }
    *bytes = (size_t)fb_min_u64(*bytes, spot.length - in_item);
    fb_client_note(client, file, key, &spot, in_item, (uint32_t)*bytes);
    return s->layout.dram + spot.at + in_item;
}

void fb_client_release(struct fb_client *client, const void *data)
{
    uint32_t count = atomic_load(&client->session_count);
    const uint8_t *at = data;

    for (uint32_t i = 0; i < count; i++) {
        const struct fb_session *s = &client->sessions[i];
        const struct fb_layout_header *h = &s->layout.h;

        if (s->layout.dram && at >= s->layout.dram &&
            at < s->layout.dram + h->dram_segments * h->dram_segment_bytes) {
            let_go(client, s, (uint32_t)((uint64_t)(at - s->layout.dram) / h->dram_segment_bytes));
            return;
        }
    }
}
