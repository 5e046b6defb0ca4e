/* Bodies of S3: whatever they are, the outcome does not depend on how they arrive. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "fuzz.h"
#include "source/s3_xml.h"

#define LIST "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"

const char *const fb_fuzz_seeds[] = {
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>" LIST "<Name>b</Name><Prefix>x y/</Prefix>"
    "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
    "<Contents><Key>a%20b</Key><LastModified>2026-11-15T15:36:54.207Z</LastModified>"
    "<ETag>&quot;49f68a5c-2&quot;</ETag><Size>12</Size><StorageClass>GLACIER</StorageClass>"
    "</Contents><CommonPrefixes><Prefix>d%2Fe/</Prefix></CommonPrefixes>"
    "<NextContinuationToken>b&#x01;&#31;</NextContinuationToken></ListBucketResult>",
    LIST "<Contents><Key>a+b</Key><LastModified>2026-11-15T15:36:54Z</LastModified>"
         "<Size>0</Size></Contents><EncodingType>url</EncodingType></ListBucketResult>",
    "<Error><Code>SlowDown</Code><Message>Please</Message><Region>eu-west-3</Region>"
    "<Endpoint>b.s3.amazonaws.com</Endpoint><RequestId>r</RequestId></Error>",
    "<InitiateMultipartUploadResult><UploadId>2~abc</UploadId></InitiateMultipartUploadResult>",
    "<ListMultipartUploadsResult><Upload><Key>k%20</Key><UploadId>2~a</UploadId>"
    "<Initiated>2026-11-15T15:36:54.250Z</Initiated></Upload></ListMultipartUploadsResult>",
    " \n<CompleteMultipartUploadResult><ETag>\"e-2\"</ETag></CompleteMultipartUploadResult>",
    "<CopyObjectResult><LastModified>2026-11-15T15:36:54Z</LastModified><ETag>e</ETag>"
    "</CopyObjectResult>",
    "<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    "</DeleteResult>",
    NULL,
};

const char *const fb_fuzz_words[] = {
    "<",
    ">",
    "/>",
    "</",
    "&",
    "&#",
    "&#x1;",
    "&#x00;",
    "&lt;",
    "%",
    "%2",
    "%00",
    "+",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?",
    "?>",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "<Key>",
    "</Key>",
    "<Contents>",
    "</Contents>",
    "<Prefix>",
    "<Size>9223372036854775808</Size>",
    "<a><a><a><a>",
    "<Error>",
    "true",
    "url",
    "\xef\xb7\x91",
    "\xff",
    "\xc3\xa9",
    " ",
    "\n",
    "<ETag>\"\"</ETag>",
    NULL,
};

struct outcome {
    int result;
    uint64_t entries; /* a digest of all */
    struct fb_s3_answer answer;
};

static int see(void *arg, const struct fb_s3_xml_entry *entry)
{
    uint64_t *digest = arg;

    FB_ASSERT(entry->key && entry->key_len <= FB_S3_XML_TEXT_MAX);
    FB_ASSERT(entry->prefix || (entry->size <= INT64_MAX && entry->mtime_ns >= 0));
    *digest = fb_hash64_seed(entry->key, entry->key_len, *digest + entry->prefix);
    *digest = fb_hash64_seed(entry->etag, strlen(entry->etag), *digest + entry->size);
    return 0;
}

/* In pieces of `piece` bytes, the last one shorter. */
static void parse(struct fb_s3_xml *xml, uint64_t *digest, const uint8_t *data, size_t size,
                  size_t piece, bool encoded, struct outcome *ret)
{
    int r = fb_s3_xml_begin(xml, encoded);

    *digest = 0;
    for (size_t at = 0; r == 0 && at < size; at += piece)
        r = fb_s3_xml_feed(xml, (const char *)data + at, size - at < piece ? size - at : piece);
    if (r == 0)
        r = fb_s3_xml_end(xml);
    ret->result = r;
    ret->entries = *digest;
    ret->answer = *fb_s3_xml_answer(xml);
}

static void check(const struct outcome *a)
{
    FB_ASSERT(a->result == 0 || a->result == FB_S3_XML_NOT_ENCODED || a->result == -EBADMSG ||
              a->result == -ENODATA);
    FB_ASSERT(strlen(a->answer.etag) <= FB_S3_ETAG_MAX && !strpbrk(a->answer.etag, "\"\r\n "));
    FB_ASSERT(!strpbrk(a->answer.region, "\r\n /@") && !strpbrk(a->answer.endpoint, "\r\n /@"));
    if (a->result >= 0) {
        FB_ASSERT(a->answer.document != FB_S3_DOC_NONE);
        FB_ASSERT(!a->answer.truncated || a->answer.token[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, pieces;
    struct fb_s3_xml *xml;
    uint64_t digest;

    if (fb_s3_xml_create(see, &digest, &xml) < 0)
        return 0;
    for (int encoded = 0; encoded < 2; encoded++) {
        parse(xml, &digest, data, size, size + 1, encoded, &whole);
        parse(xml, &digest, data, size, 1 + size % 7, encoded, &pieces);
        check(&whole);
        FB_ASSERT(whole.result == pieces.result && whole.entries == pieces.entries);
        FB_ASSERT(!memcmp(&whole.answer, &pieces.answer, sizeof whole.answer));
    }
    fb_s3_xml_destroy(xml);
    return 0;
}
