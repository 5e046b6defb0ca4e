#include "epoch/seed_scan.h"

#if defined(__x86_64__)
# include <sys/platform/x86.h>
#endif

#include "epoch/seed_scan_priv.h"

const char *const fb_scan_level_names[FB_SCAN_LEVELS] = {"plain", "avx2", "avx512"};

enum fb_scan_level fb_scan_best(void)
{
#if defined(__x86_64__)
    if (CPU_FEATURE_ACTIVE(AVX512F))
        return FB_SCAN_AVX512;
    if (CPU_FEATURE_ACTIVE(AVX2))
        return FB_SCAN_AVX2;
#endif
    return FB_SCAN_PLAIN;
}

/* Newton's iteration doubles the right bits; an odd number is its own inverse modulo 8. */
uint32_t fb_scan_inverse(uint32_t odd)
{
    uint32_t x = odd;

    for (unsigned bits = 3; bits < 32; bits *= 2)
        x *= 2 - odd * x;
    return x;
}

void fb_scan_add(struct fb_scan *s, uint32_t n, uint32_t file, uint32_t position, uint32_t offset)
{
    uint32_t modulus = n - position;
    uint32_t twos;

    if (position >= n || file < position || file >= n || s->count == FB_SCAN_TESTS_MAX ||
        position + offset >= FB_SCAN_OUTPUTS_MAX)
        return;
    twos = (uint32_t)__builtin_ctz(modulus);
    s->tests[s->count++] = (struct fb_scan_test){
        .output = position + offset,
        .subtract = file - position,
        .inverse = fb_scan_inverse(modulus >> twos),
        .turn = twos,
        .most = (UINT32_MAX - (file - position)) / modulus,
    };
}

static uint64_t scan_block(const struct fb_scan *s, enum fb_scan_level level, uint32_t first)
{
    switch (level) {
    case FB_SCAN_AVX512:
        return fb_scan_block_avx512(s, first);
    case FB_SCAN_AVX2:
        return fb_scan_block_avx2(s, first);
    case FB_SCAN_PLAIN:
        break;
    }
    return fb_scan_block_plain(s, first);
}

uint64_t fb_scan_run(const struct fb_scan *s, enum fb_scan_level level, uint32_t first,
                     uint64_t count, uint32_t *hits, size_t room, size_t *ret_hits)
{
    uint64_t done = 0;

    *ret_hits = 0;
    do {
        uint64_t bits = scan_block(s, level, first + (uint32_t)done);

        for (; bits; bits &= bits - 1)
            hits[(*ret_hits)++] = first + (uint32_t)done + (uint32_t)__builtin_ctzll(bits);
        done += FB_SCAN_BLOCK;
    } while (done < count && *ret_hits + FB_SCAN_BLOCK <= room);
    return done;
}
