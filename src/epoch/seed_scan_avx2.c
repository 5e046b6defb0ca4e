/* Compiled for AVX2: called only where the CPU has it. */
#define LANES      8
#define SCAN_BLOCK fb_scan_block_avx2
#define WALK_BLOCK fb_walk_block_avx2

#include "epoch/seed_scan_priv.h"
#include "epoch/seed_walk_priv.h"
