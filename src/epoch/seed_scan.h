/*
 * epoch/seed_scan.h - many seeds of MT19937 at once: which of them would have drawn a number?
 *
 * torch shuffles from the front, so that what stands at position p of the epoch is, unless an
 * earlier swap touched it, p + u_p % (n - p), where u_p is the generator's p-th output. Hence a
 * test for "file x is at position p": u_p - (x - p) is a multiple of n - p. With the inverse of the
 * odd part of n - p modulo 2^32 that is one multiplication, one rotation and one comparison, the
 * same for all seeds, as all before is: seeds stand side by side in the lanes of vectors.
 *
 * Output q < 227 needs words q, q + 1 and q + 397 of the seeded state alone, so a seed costs some
 * 460 steps of the seeding recurrence and 20 instructions a test: no twist of the whole state.
 */
#ifndef FB_EPOCH_SEED_SCAN_H
#define FB_EPOCH_SEED_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_SCAN_OUTPUTS_MAX 227 /* FB_MT19937_WORDS - FB_MT19937_SHIFT */
#define FB_SCAN_TESTS_MAX   384
#define FB_SCAN_BLOCK       64 /* seeds are looked at in such groups */

/* Output `output` modulo `n - position` is `file - position`, in the form the vectors want. */
struct fb_scan_test {
    uint32_t output;
    uint32_t subtract;
    uint32_t inverse;
    uint32_t turn;
    uint32_t most;
};

struct fb_scan {
    /* The generator is that of torch's global one: its fourth output seeds another, which is
     * tested. */
    bool is_nested;
    uint32_t count;
    struct fb_scan_test tests[FB_SCAN_TESTS_MAX]; /* by rising output */
};

enum fb_scan_level {
    FB_SCAN_PLAIN, /* what every CPU of this kind has */
    FB_SCAN_AVX2,
    FB_SCAN_AVX512,
};

#define FB_SCAN_LEVELS 3

extern const char *const fb_scan_level_names[FB_SCAN_LEVELS];

/* The widest vectors that this CPU has. */
enum fb_scan_level fb_scan_best(void);

/* Of an odd number, modulo 2^32. */
uint32_t fb_scan_inverse(uint32_t odd);

/* Tests that the generator of n files puts `file` at `position`, with the outputs beginning
 * `offset` later. Nothing is added when that cannot be told by one output (file < position), nor
 * beyond the limits above. */
void fb_scan_add(struct fb_scan *s, uint32_t n, uint32_t file, uint32_t position, uint32_t offset);

/* Looks at `count` seeds from `first` on, rounded up to blocks. Those of which a test holds are
 * written to `hits`, at most `room`, which is at least FB_SCAN_BLOCK; it ends early when another
 * block might not fit. Returns how many seeds were looked at, at least one block. */
uint64_t fb_scan_run(const struct fb_scan *s, enum fb_scan_level level, uint32_t first,
                     uint64_t count, uint32_t *hits, size_t room, size_t *ret_hits);

#endif
