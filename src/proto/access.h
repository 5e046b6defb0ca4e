/*
 * proto/access.h - access records and the ring that carries them to the brain.
 *
 * Every read leaves one record. The ring is bounded and lock-free, many producers and one consumer:
 * a producer claims a slot with one compare-and-swap, fills it, and marks it ready with its
 * sequence number. A full ring drops the record and counts it; the reader never waits. It holds no
 * pointers, so that it can lie in memory shared with client processes; a producer that dies between
 * claim and mark leaves one slot unready, which the consumer passes over after FB_ACCESS_PATIENCE
 * polls. What the consumer relies on is its own (struct fb_access_reader): whatever a client writes
 * into the ring, records may be false, but nothing outside of it is touched.
 */
#ifndef FB_PROTO_ACCESS_H
#define FB_PROTO_ACCESS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_ACCESS_PATIENCE 100

enum fb_access_outcome {
    FB_ACCESS_MEMORY,  /* served from DRAM, or from a segment not yet written */
    FB_ACCESS_MEDIUM,  /* served from PMem or NVMe */
    FB_ACCESS_FETCHED, /* this access brought it from the source */
    FB_ACCESS_JOINED,  /* waited for a fetch somebody else had begun */
    FB_ACCESS_FAILED,
};

struct fb_access {
    int64_t time_ns; /* monotonic, coarse */
    uint64_t key;    /* item: file id and block */
    uint64_t loc;    /* where it was found; FB_LOC_NONE for a miss */
    uint32_t offset; /* in the item */
    uint32_t length; /* bytes asked for */
    uint32_t item_length;
    uint32_t pid;
    uint32_t uid;
    uint16_t source;
    uint8_t outcome;
    uint8_t door;
};

struct fb_access_slot {
    _Atomic uint64_t sequence;
    struct fb_access record;
};

static_assert(sizeof(struct fb_access) == 48, "shared with clients");
static_assert(sizeof(struct fb_access_slot) == 56, "shared with clients");

struct fb_access_ring {
    uint64_t capacity;                              /* a power of two */
    _Atomic uint64_t tail FB_ALIGNED(FB_CACHELINE); /* producers claim here */
    _Atomic uint64_t dropped;
    struct fb_access_slot slots[] FB_ALIGNED(FB_CACHELINE);
};

struct fb_access_reader {
    struct fb_access_ring *ring;
    uint64_t capacity;
    uint64_t head;
    uint32_t waited;
};

static inline uint64_t fb_access_ring_bytes(uint64_t capacity)
{
    return sizeof(struct fb_access_ring) + capacity * sizeof(struct fb_access_slot);
}

static inline void fb_access_ring_init(struct fb_access_ring *ring, uint64_t capacity)
{
    ring->capacity = capacity;
    atomic_init(&ring->tail, 0);
    atomic_init(&ring->dropped, 0);
    for (uint64_t i = 0; i < capacity; i++)
        atomic_init(&ring->slots[i].sequence, i);
}

/* Nobody need make a record that will be dropped, or that would leave fewer than `spare` slots to
 * those that matter more. A guess, as others push and pop meanwhile. */
static inline bool fb_access_full(struct fb_access_ring *ring, uint64_t spare)
{
    uint64_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed) + spare;
    const struct fb_access_slot *slot = &ring->slots[at & (ring->capacity - 1)];

    return (int64_t)(atomic_load_explicit(&slot->sequence, memory_order_relaxed) - at) < 0;
}

static inline void fb_access_drop(struct fb_access_ring *ring)
{
    atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
}

/* A slot is free for position p when its sequence is p, ready when it is p + 1, and free for the
 * next round when the consumer has set it to p + capacity. */
static inline bool fb_access_push(struct fb_access_ring *ring, const struct fb_access *record)
{
    uint64_t at = atomic_load_explicit(&ring->tail, memory_order_relaxed);

    for (;;) {
        struct fb_access_slot *slot = &ring->slots[at & (ring->capacity - 1)];
        /* Pairs with the consumer's release of the slot. */
        uint64_t seq = atomic_load_explicit(&slot->sequence, memory_order_acquire);

        if (seq == at) {
            if (!atomic_compare_exchange_weak_explicit(&ring->tail, &at, at + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
                continue;
            slot->record = *record;
            /* Fails only when the consumer took us for dead; then the slot is no longer ours. */
            if (atomic_compare_exchange_strong_explicit(&slot->sequence, &seq, at + 1,
                                                        memory_order_release, memory_order_relaxed))
                return true;
            fb_access_drop(ring);
            return false;
        }
        if ((int64_t)(seq - at) < 0) {
            fb_access_drop(ring);
            return false;
        }
        at = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    }
}

/* One consumer, from the ring's beginning. */
static inline void fb_access_reader_init(struct fb_access_reader *reader,
                                         struct fb_access_ring *ring, uint64_t capacity)
{
    *reader = (struct fb_access_reader){.ring = ring, .capacity = capacity};
}

/* False when nothing is ready. */
static inline bool fb_access_pop(struct fb_access_reader *reader, struct fb_access *ret_record)
{
    struct fb_access_slot *slot = &reader->ring->slots[reader->head & (reader->capacity - 1)];

    /* Pairs with the producer's release. */
    if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != reader->head + 1)
        return false;
    *ret_record = slot->record;
    atomic_store_explicit(&slot->sequence, reader->head + reader->capacity, memory_order_release);
    reader->head++;
    reader->waited = 0;
    return true;
}

/* To be called now and then (ten times a second) by the consumer: a slot at which it waits, that
 * was claimed and not filled for FB_ACCESS_PATIENCE calls, is passed over, its producer being
 * dead. */
static inline void fb_access_pass_dead(struct fb_access_reader *reader)
{
    struct fb_access_ring *ring = reader->ring;
    struct fb_access_slot *slot = &ring->slots[reader->head & (reader->capacity - 1)];

    if (atomic_load_explicit(&ring->tail, memory_order_relaxed) == reader->head ||
        atomic_load_explicit(&slot->sequence, memory_order_relaxed) != reader->head) {
        reader->waited = 0;
        return;
    }
    if (++reader->waited < FB_ACCESS_PATIENCE)
        return;
    reader->waited = 0;
    atomic_store_explicit(&slot->sequence, reader->head + reader->capacity, memory_order_release);
    reader->head++;
}

#endif
