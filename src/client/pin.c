/*
 * Pointers into shared memory, instead of copies.
 *
 * A segment with a pointer into it is named in a hazard slot of our area; the daemon does not reuse
 * it. The order makes it safe: store the hazard, then look at the generation. If it had begun to
 * change, the pointer is not given out. In the same way the number of pointers into a session is
 * stored before the session is looked at; one fence serves both.
 *
 * The daemon lets all clients together pin a quarter of DRAM: credits, asked for as they are
 * needed.
 */
#include <sched.h>
#include <string.h>

#include "client/client_priv.h"

#define CREDITS_AT_ONCE 4u /* few: what one has, nobody else gets before it ends */
#define RETRY_NS        1000000000LL

/* Of this process only, and never for long; acquire and release are not for signal handlers. */
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
    for (uint32_t i = 0; i < pins->end; i++)
        if (pins->slots[i].pointers > 0 && pins->slots[i].session == s &&
            pins->slots[i].segment == segment)
            return (int)i;
    return -1;
}

/* Slots of one number serve all sessions: those of an old one are few and short-lived. */
static int free_slot(const struct fb_client_pins *pins, const struct fb_session *s)
{
    uint32_t used = 0, unused = pins->end;

    for (uint32_t i = pins->end; i-- > 0;) {
        if (pins->slots[i].pointers == 0)
            unused = i;
        else if (pins->slots[i].session == s)
            used++;
    }
    return used < s->credits && unused < FB_CLIENT_HAZARDS ? (int)unused : -1;
}

/* ---- credits ---- */

/* The rest of the answer, as long as the daemon lives. It may come later than anybody waits for it:
 * then it is read by the next who asks. */
static bool hear(const struct fb_session *s, struct fb_client_anchor *a, int fd)
{
    while (a->got < sizeof a->reply) {
        int64_t n = fb_sys6(SYS_recvfrom, fd, (long)((uint8_t *)&a->reply + a->got),
                            (long)(sizeof a->reply - a->got), 0, 0, 0);

        if (n == -EINTR || n == -EAGAIN) {
            if (!fb_client_alive(s, fb_client_now_ns()))
                return false;
            continue;
        }
        if (n <= 0)
            return false;
        a->got += (size_t)n;
    }
    return true;
}

/* Segments granted. The caller has set pins.asking. */
static uint32_t ask_for_credits(struct fb_client *client, struct fb_session *s)
{
    struct fb_client_request request = {.op = FB_CLIENT_PIN, .length = CREDITS_AT_ONCE};
    struct fb_client_anchor *a = &s->anchor;
    int64_t now_ns = fb_client_now_ns();
    uint32_t granted = 0;
    int fd;

    if (!fb_client_alive(s, now_ns))
        return 0;
    fb_client_anchor(client, s);
    if (atomic_load(&client->area_lost) || now_ns < a->retry_ns)
        return 0;
    fd = atomic_load(&a->fd);
    if (fd < 0 || fb_client_mark_of(fd) != a->mark)
        return 0;
    if (!a->asked) {
        a->got = 0;
        a->asked = fb_client_send(fd, &request, "") == 0;
    }
    if (a->asked && hear(s, a, fd)) {
        a->asked = false;
        if (a->reply.magic == FB_CLIENT_MAGIC && a->reply.bytes == 0 && a->reply.result > 0)
            granted = (uint32_t)fb_min_u64((uint32_t)a->reply.result, CREDITS_AT_ONCE);
    }
    if (granted == 0)
        a->retry_ns = fb_client_now_ns() + RETRY_NS;
    return granted;
}

/* Without the lock: the daemon may take its time. Others copy meanwhile. */
static void want_credits(struct fb_client *client, struct fb_session *s)
{
    struct fb_client_pins *pins = &client->pins;
    uint32_t granted;

    if (atomic_exchange(&pins->asking, true))
        return;
    granted = ask_for_credits(client, s);
    lock(pins);
    s->credits += granted;
    unlock(pins);
    atomic_store(&pins->asking, false);
}

/* ---- pointers ---- */

/* Under the lock: nobody else writes. The caller's fence comes after it. */
static uint32_t count_pointers(struct fb_session *s, int more)
{
    uint32_t count = atomic_load_explicit(&s->pointers, memory_order_relaxed) + (uint32_t)more;

    atomic_store_explicit(&s->pointers, count, memory_order_relaxed);
    return count;
}

/* One more pointer into a segment. False: no slot to be had. */
static bool try_hold(struct fb_client *client, struct fb_session *s, uint32_t segment)
{
    struct fb_client_pins *pins = &client->pins;
    struct fb_client_area *area;
    int slot;

    lock(pins);
    area = atomic_load(&s->area);
    slot = find_slot(pins, s, segment);
    /* Not the area of the process we were forked from. */
    if (slot < 0 && area && !atomic_load(&client->area_lost)) {
        slot = free_slot(pins, s);
        if (slot >= 0) {
            pins->slots[slot].session = s;
            pins->slots[slot].segment = segment;
            if ((uint32_t)slot == pins->end)
                pins->end++;
            /* Release: who held the slot before has read what it read. */
            atomic_store_explicit(&area->hazards[slot], segment + 1, memory_order_release);
        }
    }
    if (slot >= 0) {
        pins->slots[slot].pointers++;
        count_pointers(s, 1);
    }
    unlock(pins);
    /* Pairs with the fence in the daemon's guard, and with fb_client_drop_session(). */
    atomic_thread_fence(memory_order_seq_cst);
    return slot >= 0;
}

static bool hold(struct fb_client *client, struct fb_session *s, uint32_t segment)
{
    if (fb_likely(try_hold(client, s, segment)))
        return true;
    want_credits(client, s);
    return try_hold(client, s, segment);
}

static void let_go(struct fb_client *client, struct fb_session *s, uint32_t segment)
{
    struct fb_client_pins *pins = &client->pins;
    bool last = false;
    int slot;

    lock(pins);
    slot = find_slot(pins, s, segment);
    if (slot >= 0) {
        struct fb_client_area *area = atomic_load(&s->area);

        /* Release: what was read through the pointer was read before. */
        if (--pins->slots[slot].pointers == 0 && area)
            atomic_store_explicit(&area->hazards[slot], 0, memory_order_release);
        last = count_pointers(s, -1) == 0;
    }
    unlock(pins);
    if (!last)
        return;
    /* Pairs with fb_client_drop_session(): one of the two clears it, or both. */
    atomic_thread_fence(memory_order_seq_cst);
    /* Its daemon has gone, and so has the last who looked at its bytes, unless somebody came while
     * it was still the session to use; nobody does afterwards. */
    if (atomic_load(&client->session) != s && atomic_load(&s->pointers) == 0)
        fb_client_clear_session(s);
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
    /* The session once more, too: one that was dropped before it was pinned is empty memory. */
    if (atomic_load(&client->session) != s || !fb_client_still_good(file, spot.loc)) {
        let_go(client, s, fb_loc_segment(spot.loc));
        return NULL;
    }
    *bytes = (size_t)fb_min_u64(*bytes, spot.length - in_item);
    fb_client_note(client, file, key, &spot, in_item, (uint32_t)*bytes, FB_ACCESS_MEMORY);
    return s->layout.dram + spot.at + in_item;
}

void fb_client_release(struct fb_client *client, const void *data)
{
    uint32_t count = atomic_load(&client->session_count);
    const uint8_t *at = data;

    for (uint32_t i = 0; i < count; i++) {
        struct fb_session *s = &client->sessions[i];
        const struct fb_layout_header *h = &s->layout.h;

        if (s->layout.dram && at >= s->layout.dram &&
            at < s->layout.dram + h->dram_segments * h->dram_segment_bytes) {
            let_go(client, s, (uint32_t)((uint64_t)(at - s->layout.dram) / h->dram_segment_bytes));
            return;
        }
    }
}
