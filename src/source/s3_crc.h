/*
 * source/s3_crc.h - the cyclic checksums that S3 keeps of objects.
 */
#ifndef FB_SOURCE_S3_CRC_H
#define FB_SOURCE_S3_CRC_H

#include <stddef.h>
#include <stdint.h>

enum fb_s3_crc {
    FB_S3_CRC_32,     /* that of zip and Ethernet */
    FB_S3_CRC_32C,    /* Castagnoli's */
    FB_S3_CRC_64NVME, /* that of NVM Express */
    FB_S3_CRCS,
};

/* Goes on from the checksum of the bytes before; 0 for none. */
uint64_t fb_s3_crc(enum fb_s3_crc kind, uint64_t before, const void *data, size_t len);

#endif
