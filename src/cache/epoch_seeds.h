/*
 * cache/epoch_seeds.h - plans that nobody told: seeds found in what processes read.
 *
 *     accesses that nobody told, nor foretells what was found ─► by process: the first PATHS files
 *          │ their names go up and down like dice, and not all of them were in memory
 *          ▼
 *     directory they have in common ─► listed once ─► orders: ImageFolder's, by path, as listed, by
 *          │                                                 name alone
 *          │
 *          ▼ epoch/seed_search.h: seeds below 2^20 for every process, the lowest number first; then
 *          │ all 2^32 for that one, in a quarter of one processor, less where there are few; until
 *          │ somebody tells a plan
 *     one process is understood ─► the others of its directory are placed by its seed
 *          │
 *          ▼ ranks; where each worker begins tells batch and workers
 *     fb_cache_plan(), as if a user had said it; ended as soon as accesses contradict it
 *
 * Worker 0 of a rank can be found alone, the others only after it: they begin far into the epoch,
 * where a seed costs a thousand times as much to try.
 *
 * One thread, which also lists; the long search is done at idle priority. Lock: FB_RANK_SEEDS, for
 * what processes have read.
 */
#ifndef FB_CACHE_EPOCH_SEEDS_H
#define FB_CACHE_EPOCH_SEEDS_H

#include "base/attr.h"
#include "cache/cache.h"

struct fb_seeds;

FB_MUST_CHECK int fb_seeds_create(struct fb_cache *cache, struct fb_seeds **ret_seeds);
void fb_seeds_destroy(struct fb_seeds *seeds); /* takes NULL */

/* A file was begun to be read, and nobody has told a plan that has it. `foretold`: one that was
 * found has it just there. */
void fb_seeds_watch(struct fb_seeds *seeds, const struct fb_access *access, const char *path,
                    size_t len, bool foretold);

#endif
