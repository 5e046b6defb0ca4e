/* Compiled for AVX2: called only where the CPU has it. */
#define MD5_BLOCKS fb_s3_md5_blocks_avx2

#include "source/s3_md5_priv.h"
