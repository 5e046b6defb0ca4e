/*
 * Which records the kernel knows, and how often it was told.
 *
 * The file table's references are shared with everybody; this table is what one mount owes: at the
 * end it says what to give back. It also knows the directory through which the kernel was told of a
 * node, which an invalidation must name.
 *
 * A hash table in FB_NODE_PARTS parts, each with its lock: open addressing, linear probing, removal
 * by shifting back, 16 bytes a slot, between an eighth and three quarters full. So a node costs 21
 * to 43 bytes while they become more, and there are never more nodes than records in the file table
 * (and, by shed.c, hardly more than half of them).
 *
 * One reference on the record is held however often the kernel was told, so a name looked up a
 * billion times does not wear out the record's own counter; ours has 56 bits.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "core/lock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"

#define SLOTS_MIN   64u
#define SLOTS_MAX   (1u << 28) /* in one part: 4 GiB */
#define COUNT_SHIFT 8          /* below the count: flags */

struct slot {
    uint32_t id; /* 0: free */
    uint32_t parent;
    uint64_t told; /* count << COUNT_SHIFT | flags */
};

static_assert(sizeof(struct slot) == 16, "memory per node is promised above");

struct shard {
    struct fb_mutex lock;
    struct slot *slots;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t used;
};

struct fb_nodes {
    struct shard shards[FB_NODE_PARTS];
};

int fb_nodes_create(struct fb_nodes **ret_nodes)
{
    struct fb_nodes *nodes = fb_alloc(sizeof *nodes);

    if (!nodes)
        return -ENOMEM;
    for (unsigned i = 0; i < FB_NODE_PARTS; i++)
        fb_mutex_init(&nodes->shards[i].lock, FB_RANK_DOOR);
    *ret_nodes = nodes;
    return 0;
}

void fb_nodes_destroy(struct fb_nodes *nodes)
{
    if (!nodes)
        return;
    for (unsigned i = 0; i < FB_NODE_PARTS; i++) {
        free(nodes->shards[i].slots);
        fb_mutex_destroy(&nodes->shards[i].lock);
    }
    free(nodes);
}

static struct shard *shard_of(struct fb_nodes *nodes, uint32_t id)
{
    return &nodes->shards[fb_mix64(id) >> 60];
}

static_assert(FB_NODE_PARTS == 16, "shard_of takes four bits");

static uint32_t home_of(uint32_t id, uint32_t capacity)
{
    return (uint32_t)fb_mix64(id) & (capacity - 1);
}

/* Where `id` is, or the free slot where it would go. There is always a free slot. */
static struct slot *probe(struct slot *slots, uint32_t capacity, uint32_t id)
{
    uint32_t at = home_of(id, capacity);

    while (slots[at].id != 0 && slots[at].id != id)
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static struct slot *find(struct shard *shard, uint32_t id)
{
    struct slot *slot = shard->capacity > 0 ? probe(shard->slots, shard->capacity, id) : NULL;

    return slot && slot->id == id ? slot : NULL;
}

/* Moves the shard into a table of another size, made without the lock, if that still suits it. */
static int resize(struct shard *shard, uint32_t capacity)
{
    struct slot *slots = capacity <= SLOTS_MAX ? fb_alloc_array(capacity, sizeof *slots) : NULL;

    if (!slots)
        return -ENOMEM;
    fb_mutex_lock(&shard->lock);
    if ((uint64_t)shard->used * 4 < (uint64_t)capacity * 3 && shard->capacity != capacity) {
        struct slot *old = shard->slots;

        for (uint32_t i = 0; i < shard->capacity; i++)
            if (old[i].id != 0)
                *probe(slots, capacity, old[i].id) = old[i];
        shard->slots = slots;
        shard->capacity = capacity;
        slots = old;
    }
    fb_mutex_unlock(&shard->lock);
    free(slots);
    return 0;
}

int fb_node_tell(struct fb_nodes *nodes, uint32_t id, uint32_t parent)
{
    struct shard *shard = shard_of(nodes, id);

    FB_ASSERT(id != 0);
    for (;;) {
        struct slot *slot;
        uint32_t capacity;
        int outcome = 0;

        fb_mutex_lock(&shard->lock);
        slot = find(shard, id);
        capacity = shard->capacity;
        if (slot) {
            slot->parent = parent;
            slot->told += 1ull << COUNT_SHIFT;
            outcome = FB_NODE_KNOWN;
        } else if (((uint64_t)shard->used + 1) * 4 <= (uint64_t)capacity * 3) {
            slot = probe(shard->slots, capacity, id);
            *slot = (struct slot){.id = id, .parent = parent, .told = 1ull << COUNT_SHIFT};
            shard->used++;
            outcome = FB_NODE_NEW;
        }
        fb_mutex_unlock(&shard->lock);
        if (outcome > 0)
            return outcome;
        if (resize(shard, capacity > 0 ? capacity * 2 : SLOTS_MIN) < 0)
            return -ENOMEM;
    }
}

/* Closes the gap: a slot further on moves back unless its home lies after the gap. */
static void remove_slot(struct shard *shard, struct slot *slot)
{
    uint32_t mask = shard->capacity - 1;
    uint32_t gap = (uint32_t)(slot - shard->slots);

    for (uint32_t at = (gap + 1) & mask; shard->slots[at].id != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(shard->slots[at].id, shard->capacity);

        if (((at - home) & mask) < ((at - gap) & mask))
            continue;
        shard->slots[gap] = shard->slots[at];
        gap = at;
    }
    shard->slots[gap].id = 0;
    shard->used--;
}

bool fb_node_forget(struct fb_nodes *nodes, uint32_t id, uint64_t count)
{
    struct shard *shard = shard_of(nodes, id);
    struct slot *slot;
    uint32_t shrink_to = 0;
    bool gone = false;

    fb_mutex_lock(&shard->lock);
    slot = find(shard, id);
    if (slot && slot->told >> COUNT_SHIFT > count) {
        slot->told -= count << COUNT_SHIFT;
    } else if (slot) {
        remove_slot(shard, slot);
        gone = true;
        if (shard->capacity > SLOTS_MIN && shard->used < shard->capacity / 8)
            shrink_to = shard->capacity / 2;
    }
    fb_mutex_unlock(&shard->lock);
    if (shrink_to > 0)
        (void)resize(shard, shrink_to); /* without memory it stays large */
    return gone;
}

bool fb_node_known(struct fb_nodes *nodes, uint32_t id, uint32_t *ret_parent)
{
    struct shard *shard = shard_of(nodes, id);
    struct slot *slot;

    fb_mutex_lock(&shard->lock);
    slot = find(shard, id);
    if (slot && ret_parent)
        *ret_parent = slot->parent;
    fb_mutex_unlock(&shard->lock);
    return slot != NULL;
}

unsigned fb_node_flags(struct fb_nodes *nodes, uint32_t id)
{
    struct shard *shard = shard_of(nodes, id);
    struct slot *slot;
    unsigned flags;

    fb_mutex_lock(&shard->lock);
    slot = find(shard, id);
    flags = slot ? (unsigned)(slot->told & ((1u << COUNT_SHIFT) - 1)) : 0;
    fb_mutex_unlock(&shard->lock);
    return flags;
}

void fb_node_set_flags(struct fb_nodes *nodes, uint32_t id, unsigned set, unsigned clear)
{
    struct shard *shard = shard_of(nodes, id);
    struct slot *slot;

    FB_ASSERT(((set | clear) >> COUNT_SHIFT) == 0);
    fb_mutex_lock(&shard->lock);
    slot = find(shard, id);
    if (slot)
        slot->told = (slot->told & ~(uint64_t)clear) | set;
    fb_mutex_unlock(&shard->lock);
}

static void visit_shard(struct shard *shard, uint32_t parent, fb_node_visit_fn *visit, void *arg)
{
    fb_mutex_lock(&shard->lock);
    for (uint32_t at = 0; at < shard->capacity; at++) {
        const struct slot *slot = &shard->slots[at];

        if (slot->id != 0 && (parent == FB_NODE_ANY_PARENT || slot->parent == parent))
            visit(arg, slot->id);
    }
    fb_mutex_unlock(&shard->lock);
}

void fb_nodes_visit(struct fb_nodes *nodes, uint32_t parent, fb_node_visit_fn *visit, void *arg)
{
    for (unsigned i = 0; i < FB_NODE_PARTS; i++)
        visit_shard(&nodes->shards[i], parent, visit, arg);
}

void fb_nodes_visit_part(struct fb_nodes *nodes, unsigned part, fb_node_visit_fn *visit, void *arg)
{
    FB_ASSERT(part < FB_NODE_PARTS);
    visit_shard(&nodes->shards[part], FB_NODE_ANY_PARENT, visit, arg);
}

uint64_t fb_nodes_part_count(struct fb_nodes *nodes, unsigned part)
{
    uint64_t count;

    FB_ASSERT(part < FB_NODE_PARTS);
    fb_mutex_lock(&nodes->shards[part].lock);
    count = nodes->shards[part].used;
    fb_mutex_unlock(&nodes->shards[part].lock);
    return count;
}

uint64_t fb_nodes_count(struct fb_nodes *nodes)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < FB_NODE_PARTS; i++)
        count += fb_nodes_part_count(nodes, i);
    return count;
}

uint64_t fb_nodes_bytes(struct fb_nodes *nodes)
{
    uint64_t bytes = sizeof *nodes;

    for (unsigned i = 0; i < FB_NODE_PARTS; i++) {
        fb_mutex_lock(&nodes->shards[i].lock);
        bytes += nodes->shards[i].capacity * sizeof(struct slot);
        fb_mutex_unlock(&nodes->shards[i].lock);
    }
    return bytes;
}
