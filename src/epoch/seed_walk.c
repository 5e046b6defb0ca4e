#include "epoch/seed_walk.h"

#include <errno.h>

#include "core/mem.h"
#include "epoch/seed_scan_priv.h"
#include "epoch/seed_walk_priv.h"

int fb_walk_open(struct fb_walk *w, uint32_t n, uint32_t steps, uint32_t offset)
{
    uint32_t room;

    *w = (struct fb_walk){.n = n, .steps = (uint32_t)fb_min_u64(steps, n), .offset = offset};
    room = (uint32_t)fb_div_up(w->steps + offset, FB_WALK_CHUNK) * FB_WALK_CHUNK;
    w->table = fb_alloc_large(room, sizeof *w->table);
    if (!w->table)
        return -ENOMEM;
    for (uint32_t i = 0; i < room; i++) {
        uint32_t modulus = n - (i - offset);
        uint32_t twos;

        /* What is before and behind the steps, and modulo 1: looked at one by one. */
        w->table[i] = (struct fb_walk_step){.limit = 1};
        if (i < offset || i - offset >= w->steps || modulus <= 1)
            continue;
        twos = (uint32_t)__builtin_ctz(modulus);
        w->table[i] = (struct fb_walk_step){.inverse = fb_scan_inverse(modulus >> twos),
                                            .turn = twos,
                                            .limit = UINT32_MAX / modulus + 1};
    }
    return 0;
}

void fb_walk_close(struct fb_walk *w)
{
    free(fb_steal(w->table));
}

void fb_walk_run(const struct fb_walk *w, enum fb_scan_level level, uint32_t seed,
                 struct fb_walked *ret_walked)
{
    switch (level) {
    case FB_SCAN_AVX512:
        fb_walk_block_avx512(w, seed, ret_walked);
        return;
    case FB_SCAN_AVX2:
        fb_walk_block_avx2(w, seed, ret_walked);
        return;
    case FB_SCAN_PLAIN:
        break;
    }
    fb_walk_block_plain(w, seed, ret_walked);
}
