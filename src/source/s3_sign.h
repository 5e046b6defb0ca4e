/*
 * source/s3_sign.h - requests to S3, encoded and signed (AWS Signature Version 4).
 *
 * A signature is an HMAC-SHA256 over a digest of the request in its canonical form: method, encoded
 * path, encoded and sorted query, headers, hash of the payload. The server builds the same form of
 * what it received, so what is signed here must be what is sent, byte for byte: the URL is made of
 * the path and the query that the signer gives back, and nothing may encode them again or take dots
 * out of them. The headers signed are host, x-amz-content-sha256, x-amz-date, x-amz-security-token
 * where there is one, and those the caller names; it sends all of them with the same values.
 *
 * The key of the HMAC takes four more HMACs of secret, day, region and service: it is kept until
 * one of them changes. A signer is used by one thread at a time. Its texts are used again for every
 * request, so that after the first few it allocates nothing.
 */
#ifndef FB_SOURCE_S3_SIGN_H
#define FB_SOURCE_S3_SIGN_H

#include <stdint.h>

#include "base/attr.h"
#include "source/s3_text.h"

#define FB_S3_PAIRS_MAX        32 /* query parameters, or headers, of one request */
#define FB_S3_SIGN_REGION_MAX  63
#define FB_S3_UNSIGNED_PAYLOAD "UNSIGNED-PAYLOAD"
/* SHA-256 of nothing. */
#define FB_S3_EMPTY_PAYLOAD "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct fb_s3_pair {
    const char *name;
    const char *value; /* NULL is "" */
};

/* Who signs. Nothing of it is kept but a digest of the secret and the key made of it. */
struct fb_s3_identity {
    const char *access_key;
    const char *secret;
    const char *session_token; /* NULL or "": none */
    const char *region;
};

struct fb_s3_request {
    const char *method;
    const char *host; /* as the Host header says it: with the port unless it is the usual one */
    const char *path; /* not encoded, with the '/' it begins with */
    const struct fb_s3_pair *query; /* not encoded, in any order */
    unsigned query_count;
    const struct fb_s3_pair *headers; /* more to sign; names in lower case, in any order */
    unsigned header_count;
    const char *payload_hash; /* 64 hexadecimal digits, or FB_S3_UNSIGNED_PAYLOAD */
    int64_t wall_ns;
};

/* Valid until the next request. */
struct fb_s3_signed {
    const char *path;          /* encoded */
    const char *query;         /* encoded and sorted, without '?'; "" for none */
    const char *date;          /* for x-amz-date */
    const char *authorization; /* for Authorization; "" when not signed */
};

struct fb_s3_signer;

FB_MUST_CHECK int fb_s3_signer_create(struct fb_s3_signer **ret_signer);
void fb_s3_signer_destroy(struct fb_s3_signer *signer); /* takes NULL */

/* `identity` NULL: encodes and does not sign. -E2BIG for too many pairs or too long a region,
 * -ENOMEM, -EIO when OpenSSL fails. */
FB_MUST_CHECK int fb_s3_sign(struct fb_s3_signer *signer, const struct fb_s3_identity *identity,
                             const struct fb_s3_request *request, struct fb_s3_signed *ret_signed);

/* SHA-256 in lower-case hexadecimal, zero-terminated: a payload_hash. -EIO when OpenSSL fails. */
#define FB_S3_SHA256_TEXT 65
FB_MUST_CHECK int fb_s3_sha256(struct fb_s3_signer *signer, const void *data, size_t len,
                               char ret_hex[FB_S3_SHA256_TEXT]);

#endif
