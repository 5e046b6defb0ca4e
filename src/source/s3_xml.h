/*
 * source/s3_xml.h - the bodies that S3 answers with, parsed as they arrive.
 *
 * One parser takes all documents we ask for, and the Error that may come in place of each of them,
 * also under status 200: copies and completions begin to answer before they know how it ends. So
 * who asks looks at answer->document, not only at the status.
 *
 * Memory is bounded: elements nobody wants are skipped, texts over FB_S3_XML_TEXT_MAX, nesting over
 * FB_S3_XML_DEPTH_MAX, markup over FB_S3_XML_MARKUP_MAX and bodies over FB_S3_XML_BODY_MAX are
 * refused, and so is every DOCTYPE, without which there are no entities to expand. UTF-8 only.
 *
 * Two things are taken more kindly than XML has it. White space before the first '<' is what a
 * server sends while it works on a copy. References to control characters, such as &#x01;, which
 * XML does not allow, are how Ceph sends them in the names that encoding-type=url leaves alone: the
 * prefix asked for, and the continuation token.
 */
#ifndef FB_SOURCE_S3_XML_H
#define FB_SOURCE_S3_XML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "source/s3_value.h"

#define FB_S3_XML_DEPTH_MAX  16
#define FB_S3_XML_TEXT_MAX   8192 /* a key encoded has 3,072 */
#define FB_S3_XML_MARKUP_MAX 65536
#define FB_S3_XML_BODY_MAX   (16u << 20)
#define FB_S3_UPLOAD_ID_MAX  1023
#define FB_S3_TOKEN_MAX      4095

enum fb_s3_document {
    FB_S3_DOC_NONE, /* nothing yet, or a body without a root element that we know */
    FB_S3_DOC_ERROR,
    FB_S3_DOC_LIST,     /* ListBucketResult, of ListObjectsV2 */
    FB_S3_DOC_INITIATE, /* InitiateMultipartUploadResult */
    FB_S3_DOC_COMPLETE, /* CompleteMultipartUploadResult */
    FB_S3_DOC_COPY,     /* CopyObjectResult, CopyPartResult */
    FB_S3_DOC_DELETE,   /* DeleteResult */
    FB_S3_DOC_UPLOADS,  /* ListMultipartUploadsResult, of which the first page is taken */
};

/* Strings are "" where the body had none. */
struct fb_s3_answer {
    enum fb_s3_document document;

    /* ERROR; of DELETE those of its first error. Fit to be shown: cut, control characters replaced.
     * Region and endpoint have only characters of host names. */
    char code[128];
    char message[512];
    char region[FB_S3_REGION_MAX + 1];
    char endpoint[256];
    char request_id[FB_S3_REQUEST_ID_MAX + 1];
    char storage_class[32]; /* of an object that is archived */
    unsigned errors;        /* of DELETE */

    bool truncated;                          /* LIST: there is another page */
    char token[FB_S3_TOKEN_MAX + 1];         /* LIST: NextContinuationToken */
    char upload_id[FB_S3_UPLOAD_ID_MAX + 1]; /* INITIATE */
    char etag[FB_S3_ETAG_MAX + 1];           /* COMPLETE, COPY */
    bool has_mtime;
    int64_t mtime_ns; /* COPY */
};

/* One line of a listing. Valid during the call. Of UPLOADS: the time is when it was begun, and the
 * key is as it was sent, for servers do not agree on whether it is encoded. */
struct fb_s3_xml_entry {
    bool prefix;     /* a common prefix; then only its key is set */
    const char *key; /* decoded; any byte may be in it */
    size_t key_len;
    uint64_t size;
    int64_t mtime_ns;
    const char *etag;
    const char *upload_id;
};

/* A negative result ends the parsing and is given back. */
typedef int fb_s3_xml_entry_fn(void *arg, const struct fb_s3_xml_entry *entry);

struct fb_s3_xml;

/* `entry` may be NULL where no listing is asked for: then one is refused. */
FB_MUST_CHECK int fb_s3_xml_create(fb_s3_xml_entry_fn *entry, void *arg,
                                   struct fb_s3_xml **ret_xml);
void fb_s3_xml_destroy(struct fb_s3_xml *xml); /* takes NULL */

/* For the next body. `encoded`: the listing was asked for with encoding-type=url. */
FB_MUST_CHECK int fb_s3_xml_begin(struct fb_s3_xml *xml, bool encoded);

/* The next piece. -EBADMSG when it is not what S3 sends, what the callback said when that failed,
 * -ENOMEM; then only begin or destroy. */
FB_MUST_CHECK int fb_s3_xml_feed(struct fb_s3_xml *xml, const char *bytes, size_t len);

enum fb_s3_xml_outcome {
    /* The server knows no encoding-type, keys that must not have been were decoded: forget the page
     * and ask again without. */
    FB_S3_XML_NOT_ENCODED = 1,
};

/* The body is complete. -ENODATA when there was none, -EBADMSG when it broke off, or is a listing
 * that goes on without saying where. */
FB_MUST_CHECK int fb_s3_xml_end(struct fb_s3_xml *xml);

/* Valid until begin or destroy; whole only after end. */
const struct fb_s3_answer *fb_s3_xml_answer(const struct fb_s3_xml *xml);

#endif
