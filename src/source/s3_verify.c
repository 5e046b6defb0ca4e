/*
 * The cheapest checksum that S3 gave is the one to use: CRC32C and CRC32 at several bytes a cycle,
 * then SHA-1 and SHA-256, which processors do in hardware, and the MD5 of the ETag last.
 */
#include "source/s3_verify.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "source/s3_crc.h"

static bool digest_is(const EVP_MD *kind, const struct iovec *iov, unsigned count,
                      const uint8_t *expected, size_t size)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool done = ctx && EVP_DigestInit_ex(ctx, kind, NULL);

    for (unsigned i = 0; i < count && done; i++)
        done = EVP_DigestUpdate(ctx, iov[i].iov_base, iov[i].iov_len);
    done = done && EVP_DigestFinal_ex(ctx, digest, &length);
    EVP_MD_CTX_free(ctx);
    /* What cannot be computed (MD5 where it is forbidden) is not held against the bytes. */
    return !done || (length == size && memcmp(digest, expected, size) == 0);
}

static bool crc_is(enum fb_s3_crc kind, const struct iovec *iov, unsigned count,
                   const uint8_t *expected, size_t size)
{
    uint64_t crc = 0, wanted = 0;

    for (unsigned i = 0; i < count; i++)
        crc = fb_s3_crc(kind, crc, iov[i].iov_base, iov[i].iov_len);
    for (size_t i = 0; i < size; i++)
        wanted = wanted << 8 | expected[i];
    return crc == wanted;
}

/* What parts' checksums were made into says nothing of the bytes. */
static bool has(const struct fb_s3_headers *headers, enum fb_s3_checksum_kind kind)
{
    return headers->checksums[kind].present && !headers->composite;
}

bool fb_s3_verify_by_md5(const struct fb_s3_headers *headers)
{
    uint8_t md5[16];

    for (unsigned i = 0; i < FB_S3_CHECKSUMS; i++) {
        if (has(headers, i))
            return false;
    }
    return !headers->encrypted && fb_s3_etag_md5(headers->etag, md5);
}

bool fb_s3_verify(const struct fb_s3_headers *headers, const struct iovec *iov, unsigned count,
                  const struct fb_s3_sum *sum)
{
    const struct fb_s3_checksum *sums = headers->checksums;
    uint8_t md5[16];

    if (has(headers, FB_S3_CRC32C))
        return crc_is(FB_S3_CRC_32C, iov, count, sums[FB_S3_CRC32C].bytes, 4);
    if (has(headers, FB_S3_CRC32))
        return crc_is(FB_S3_CRC_32, iov, count, sums[FB_S3_CRC32].bytes, 4);
    if (has(headers, FB_S3_CRC64NVME))
        return crc_is(FB_S3_CRC_64NVME, iov, count, sums[FB_S3_CRC64NVME].bytes, 8);
    if (has(headers, FB_S3_SHA1))
        return digest_is(EVP_sha1(), iov, count, sums[FB_S3_SHA1].bytes, 20);
    if (has(headers, FB_S3_SHA256))
        return digest_is(EVP_sha256(), iov, count, sums[FB_S3_SHA256].bytes, 32);
    if (!headers->encrypted && fb_s3_etag_md5(headers->etag, md5))
        return sum->present ? memcmp(sum->md5, md5, sizeof md5) == 0
                            : digest_is(EVP_md5(), iov, count, md5, sizeof md5);
    return true;
}

void fb_s3_etag_of_bytes(const void *data, size_t length, char ret_etag[FB_S3_ETAG_MAX + 1])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    ret_etag[0] = '\0';
    if (!EVP_Digest(data, length, digest, &n, EVP_md5(), NULL))
        return;
    for (unsigned i = 0; i < n; i++)
        sprintf(ret_etag + 2 * (size_t)i, "%02x", digest[i]);
}

void fb_s3_etag_of_parts(char (*etags)[FB_S3_ETAG_MAX + 1], unsigned count,
                         char ret_etag[FB_S3_ETAG_MAX + 1])
{
    uint8_t md5[16], digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool done = ctx && EVP_DigestInit_ex(ctx, EVP_md5(), NULL);

    ret_etag[0] = '\0';
    for (unsigned i = 0; i < count && done; i++)
        done = fb_s3_etag_md5(etags[i], md5) && EVP_DigestUpdate(ctx, md5, sizeof md5);
    done = done && EVP_DigestFinal_ex(ctx, digest, &length) && length == sizeof md5;
    EVP_MD_CTX_free(ctx);
    for (unsigned i = 0; i < length && done; i++)
        sprintf(ret_etag + 2 * i, "%02x", digest[i]);
    if (done)
        sprintf(ret_etag + 2 * (size_t)length, "-%u", count);
}
