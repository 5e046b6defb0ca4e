/*
 * tests/crash/driver.h - for the drivers: home, source and lives of the worker (engine_state.h).
 */
#ifndef FB_TESTS_DRIVER_H
#define FB_TESTS_DRIVER_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/rand.h"
#include "dataset.h"
#include "engine_state.h"

struct driver {
    const char *worker; /* program */
    char home[PATH_MAX];
    char source[PATH_MAX];
    struct dataset set;
    struct engine_state *state;
    struct fb_rand dice;
    uint64_t total[ENGINE_COUNT_MAX];
};

/* A fresh home in $T (or $TMPDIR) with a data set. FB_TEST_SEED repeats an earlier run. */
void driver_open(struct driver *d, const char *worker);

/* Gives `count` random files a new version. */
void driver_change(struct driver *d, unsigned count);

pid_t driver_start(struct driver *d, const char *mode);

/* Waits for the end of a life: an orderly one, or by SIGKILL when `killed`; adds its counts. */
void driver_end(struct driver *d, pid_t pid, bool killed);

uint64_t driver_count(const struct driver *d, enum engine_count count);

void driver_print(const struct driver *d);

#endif
