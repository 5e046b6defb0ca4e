/*
 * tests/programs/transcript.h - programs that say what their calls gave, so that two runs, with the
 * preload library and without, can be compared line by line.
 */
#ifndef FB_TESTS_PROGRAMS_TRANSCRIPT_H
#define FB_TESTS_PROGRAMS_TRANSCRIPT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call's result, or the name of its error. */
static inline long say(const char *what, long result)
{
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
    return result;
}

/* Whether it worked; the number itself (a descriptor) is nobody's business. */
static inline int say_ok(const char *what, int result)
{
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: ok\n", what);
    return result;
}

static inline uint64_t digest(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t h = 0xcbf29ce484222325ULL;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * 0x100000001b3ULL;
    return h;
}

/* Bytes that a call has returned `result` of. */
static inline long say_bytes(const char *what, const void *data, long result)
{
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld bytes %016llx\n", what, result,
               (unsigned long long)digest(data, (size_t)result));
    return result;
}

static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerrorname_np(errno));
    exit(1);
}

#endif
