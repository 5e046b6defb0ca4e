/*
 * tests/crash/engine_state.h - what driver and worker share while the worker is being killed.
 *
 * The driver makes a directory HOME with the data set (HOME/source), the caches (see rig.h) and the
 * file HOME/state, mapped by both: the versions that the source has, written by the driver between
 * two lives of the worker, and what the worker's life has come to so far, zeroed by the driver
 * before each. The worker:
 *
 *     engine_worker HOME load SEED      readers in a loop until killed
 *     engine_worker HOME verify SEED    all files once, then an orderly end
 *
 * Wrong bytes, errors and a version that the source no longer has end it with status 1.
 */
#ifndef FB_TESTS_ENGINE_STATE_H
#define FB_TESTS_ENGINE_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#define ENGINE_FILES 384u

#define ENGINE_COUNTS(X) \
 X(RECOVERED)            \
 X(DAMAGED_ITEMS)        \
 X(DAMAGED_SEGMENTS)     \
 X(SEALED)               \
 X(EVICTED)              \
 X(DEMOTED)              \
 X(PROMOTED)             \
 X(HITS_DRAM)            \
 X(HITS_PMEM)            \
 X(HITS_NVME)            \
 X(MISSES)               \
 X(DROPPED)              \
 X(VERIFIED)             \
 X(READY)

enum engine_count {
#define ENGINE_COUNT_ENUM(name) ENGINE_##name,
    ENGINE_COUNTS(ENGINE_COUNT_ENUM)
#undef ENGINE_COUNT_ENUM
    ENGINE_COUNT_MAX
};

struct engine_state {
    uint32_t files; /* that are read, of ENGINE_FILES */
    uint32_t version[ENGINE_FILES];
    _Atomic uint64_t count[ENGINE_COUNT_MAX];
};

#endif
