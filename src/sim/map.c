#include "sim/map.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"

#define BLOCK       64
#define SLOTS_START 1024
#define EMPTY       0 /* a slot holds number + 1 */

struct object {
    uint64_t id;
    uint32_t size;
} __attribute__((packed, aligned(4)));

struct fb_sim_map {
    uint32_t *slot;
    uint64_t mask;
    struct object *object;
    size_t room;
    uint64_t objects;
    uint64_t footprint;
};

int fb_sim_map_create(struct fb_sim_map **ret_map)
{
    struct fb_sim_map *map = fb_alloc(sizeof *map);

    if (!map)
        return -ENOMEM;
    map->mask = SLOTS_START - 1;
    map->slot = fb_alloc_array(SLOTS_START, sizeof *map->slot);
    if (!map->slot) {
        free(map);
        return -ENOMEM;
    }
    *ret_map = map;
    return 0;
}

void fb_sim_map_destroy(struct fb_sim_map *map)
{
    if (!map)
        return;
    free(map->slot);
    free(map->object);
    free(map);
}

static int grow_slots(struct fb_sim_map *map)
{
    uint64_t mask = map->mask * 2 + 1;
    uint32_t *slot = fb_alloc_array(mask + 1, sizeof *slot);

    if (!slot)
        return -ENOMEM;
    for (uint64_t i = 0; i < map->objects; i++) {
        uint64_t at = fb_mix64(map->object[i].id) & mask;

        while (slot[at] != EMPTY)
            at = (at + 1) & mask;
        slot[at] = (uint32_t)i + 1;
    }
    free(map->slot);
    map->slot = slot;
    map->mask = mask;
    return 0;
}

static int grow_objects(struct fb_sim_map *map)
{
    size_t room = map->room + map->room / 2 + SLOTS_START;
    struct object *object = fb_alloc_array(room, sizeof *object);

    if (!object)
        return -ENOMEM;
    if (map->objects)
        memcpy(object, map->object, map->objects * sizeof *object);
    free(map->object);
    map->object = object;
    map->room = room;
    return 0;
}

/* Makes room for a block of unknown ids. */
static int prepare(struct fb_sim_map *map)
{
    int rc = 0;

    if (map->objects + BLOCK > FB_SIM_OBJECTS_MAX)
        return -EOVERFLOW;
    if ((map->objects + BLOCK) * 4 > (map->mask + 1) * 3)
        rc = grow_slots(map);
    if (rc == 0 && map->objects + BLOCK > map->room)
        rc = grow_objects(map);
    return rc;
}

/* Probes from slot `at` on. */
static uint32_t find_or_add(struct fb_sim_map *map, const struct fb_trace_request *r, uint64_t at)
{
    uint32_t number;

    for (; map->slot[at] != EMPTY; at = (at + 1) & map->mask) {
        if (map->object[map->slot[at] - 1].id == r->id)
            return map->slot[at] - 1;
    }
    number = (uint32_t)map->objects++;
    map->slot[at] = number + 1;
    /* An object without bytes takes one: policies divide by sizes. */
    map->object[number] = (struct object){r->id, r->size ? r->size : 1};
    map->footprint += map->object[number].size;
    return number;
}

static void map_block(struct fb_sim_map *map, const struct fb_trace_request *requests, size_t count,
                      uint32_t *ret_id, uint32_t *ret_size)
{
    uint64_t at[BLOCK];

    for (size_t i = 0; i < count; i++) {
        at[i] = fb_mix64(requests[i].id) & map->mask;
        __builtin_prefetch(&map->slot[at[i]]);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t number = map->slot[at[i]];

        if (number != EMPTY)
            __builtin_prefetch(&map->object[number - 1]);
    }
    for (size_t i = 0; i < count; i++) {
        ret_id[i] = find_or_add(map, &requests[i], at[i]);
        ret_size[i] = map->object[ret_id[i]].size;
    }
}

int fb_sim_map_batch(struct fb_sim_map *map, const struct fb_trace_request *requests, size_t count,
                     uint32_t *ret_id, uint32_t *ret_size)
{
    for (size_t i = 0; i < count; i += BLOCK) {
        int rc = prepare(map);

        if (rc)
            return rc;
        map_block(map, requests + i, fb_min_u64(BLOCK, count - i), ret_id + i, ret_size + i);
    }
    return 0;
}

uint64_t fb_sim_map_objects(const struct fb_sim_map *map)
{
    return map->objects;
}

uint64_t fb_sim_map_footprint(const struct fb_sim_map *map)
{
    return map->footprint;
}
