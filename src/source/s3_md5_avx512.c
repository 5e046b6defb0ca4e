/* Compiled for AVX-512, in vectors of the same length: it rotates, and picks by three, in one step
 * each. Called only where the CPU has it. */
#define MD5_BLOCKS fb_s3_md5_blocks_avx512

#include "source/s3_md5_priv.h"
