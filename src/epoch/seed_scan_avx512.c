/* Compiled for AVX-512: called only where the CPU has it. */
#define LANES      16
#define SCAN_BLOCK fb_scan_block_avx512
#define WALK_BLOCK fb_walk_block_avx512

#include "epoch/seed_scan_priv.h"
#include "epoch/seed_walk_priv.h"
