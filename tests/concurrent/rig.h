/*
 * tests/concurrent/rig.h - a whole engine, small enough for everything to happen all the time.
 *
 * DRAM, PMem and two striped NVMe directories hold about half of a data set of some 25 MiB
 * together, in segments of three to a few hundred items, so that fill, eviction, demotion,
 * promotion and sealing go on constantly. Its memory and disks lie below one directory.
 */
#ifndef FB_TESTS_RIG_H
#define FB_TESTS_RIG_H

#include <stdint.h>

#include "cache/cache.h"
#include "dataset.h"

#define RIG_READ_BYTES (256u << 10) /* most that one rig_read() reads */
#define RIG_TIMEOUT_NS 60000000000LL

struct rig_config {
    const char *home; /* for the caches: home/n1, home/n2, home/pmem */
    const struct dataset *set;
    const char *evict;
    enum fb_engine_kind engine;
    int64_t metadata_ttl_ns;
    bool no_watch; /* the test ticks, by one thread, instead of the cache */
};

struct rig {
    struct fb_cache *cache;
    struct fb_volume *volume;
    const struct dataset *set;
};

/* Ends the program with the engine's sentence when it does not come up. */
void rig_open(struct rig *rig, const struct rig_config *config);
void rig_close(struct rig *rig);

/* Reads a stretch of a file and checks every byte against the version that the look-up told; wrong
 * bytes, and fewer of them than the size promises, end the program. 0 and the version, or negative
 * errno. `buffer` holds RIG_READ_BYTES. */
int rig_read(struct rig *rig, unsigned file, uint64_t offset, uint32_t length, void *buffer,
             uint32_t *ret_version);

/* All of a file, or negative errno. */
int rig_read_whole(struct rig *rig, unsigned file, void *buffer, uint32_t *ret_version);

#endif
