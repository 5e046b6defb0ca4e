/*
 * sim/map.h - the trace's ids as dense numbers, 0, 1, 2 ... in the order of first appearance.
 *
 * An open-addressing table of 4-byte numbers at most three quarters full, beside arrays of the ids
 * and of their first sizes: 17 to 23 bytes an object. Ids are compared, a hash is not an identity.
 * Lookups go in blocks: first all slots of a block are asked for, then all ids, then compared, so
 * that cache misses overlap.
 */
#ifndef FB_SIM_MAP_H
#define FB_SIM_MAP_H

#include <stdint.h>

#include "base/attr.h"
#include "trace/trace.h"

#define FB_SIM_OBJECTS_MAX (UINT32_MAX - 1)

struct fb_sim_map;

FB_MUST_CHECK int fb_sim_map_create(struct fb_sim_map **ret_map);
void fb_sim_map_destroy(struct fb_sim_map *map);

/* The numbers of `count` requests; unknown ids get the next ones. ret_size gets the object's first
 * size. -ENOMEM; -EOVERFLOW beyond FB_SIM_OBJECTS_MAX objects. */
FB_MUST_CHECK int fb_sim_map_batch(struct fb_sim_map *map, const struct fb_trace_request *requests,
                                   size_t count, uint32_t *ret_id, uint32_t *ret_size);

uint64_t fb_sim_map_objects(const struct fb_sim_map *map);

/* Sum of the objects' first sizes. */
uint64_t fb_sim_map_footprint(const struct fb_sim_map *map);

#endif
