/*
 * Eight bytes at a time by eight tables: table k says what a byte does to the checksum when k more
 * bytes follow it. The tables are made at first use. All three are reflected, start from all ones
 * and end inverted; they differ in width and polynomial only.
 */
#include "source/s3_crc.h"

#include <pthread.h>
#include <string.h>

#define SLICES 8

static const uint64_t polynomials[FB_S3_CRCS] = {
    [FB_S3_CRC_32] = 0xedb88320,
    [FB_S3_CRC_32C] = 0x82f63b78,
    [FB_S3_CRC_64NVME] = 0x9a6c9329ac4bc9b5,
};

static uint64_t tables[FB_S3_CRCS][SLICES][256];

static void make_tables(void)
{
    for (unsigned kind = 0; kind < FB_S3_CRCS; kind++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            uint64_t crc = byte;

            for (unsigned bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? polynomials[kind] : 0);
            tables[kind][0][byte] = crc;
        }
        for (unsigned slice = 1; slice < SLICES; slice++) {
            for (unsigned byte = 0; byte < 256; byte++) {
                uint64_t crc = tables[kind][slice - 1][byte];

                tables[kind][slice][byte] = crc >> 8 ^ tables[kind][0][crc & 255];
            }
        }
    }
}

uint64_t fb_s3_crc(enum fb_s3_crc kind, uint64_t before, const void *data, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t all_ones = kind == FB_S3_CRC_64NVME ? UINT64_MAX : UINT32_MAX;
    uint64_t(*t)[256] = tables[kind], crc = before ^ all_ones, word;
    const uint8_t *at = data;

    pthread_once(&once, make_tables);
    for (; len >= sizeof word; len -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word); /* little-endian, as all machines we run on */
        word ^= crc;
        crc = t[7][word & 255] ^ t[6][word >> 8 & 255] ^ t[5][word >> 16 & 255] ^
              t[4][word >> 24 & 255] ^ t[3][word >> 32 & 255] ^ t[2][word >> 40 & 255] ^
              t[1][word >> 48 & 255] ^ t[0][word >> 56];
    }
    for (; len > 0; len--, at++)
        crc = crc >> 8 ^ t[0][(crc ^ *at) & 255];
    return crc ^ all_ones;
}
