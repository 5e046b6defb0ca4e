/* The scan for every CPU. */
#define LANES      4
#define SCAN_BLOCK fb_scan_block_plain
#define WALK_BLOCK fb_walk_block_plain

#include "epoch/seed_scan_priv.h"
#include "epoch/seed_walk_priv.h"
