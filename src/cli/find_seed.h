/*
 * cli/find_seed.h - forebay plan --find: the flags of a plan, from what a process has read.
 */
#ifndef FB_CLI_FIND_SEED_H
#define FB_CLI_FIND_SEED_H

#include <stdint.h>

struct cli_find {
    const char *dir;
    const char *order; /* list:FILE is searched instead of imagefolder; sorted is searched always */
    const char *extensions;
    const char *accesses; /* a file: the paths that one process has read, one a line */
    uint64_t seed_limit;
};

/* Writes one line of flags, or says why there is none. Returns an exit status. */
int cli_find_seed(const struct cli_find *find);

#endif
