/* Compiled for AVX-512: called only where the CPU has it. */
#define LANES      16
#define SCAN_BLOCK fb_scan_block_avx512

#include "epoch/seed_scan_priv.h"
