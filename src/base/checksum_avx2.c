/* Compiled with -mavx2 where there is such a thing; called only where the CPU has it. */
#include "base/checksum.h"

uint64_t fb_checksum_avx2(const void *data, size_t len)
{
    return fb_hash64(data, len);
}
