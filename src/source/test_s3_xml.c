#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_xml.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
#define LIST "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define URL  "<EncodingType>url</EncodingType>"
#define OBJECT(key)                                                                        \
 "<Contents><Key>" key "</Key><LastModified>2026-11-15T15:36:54.207Z</LastModified>"       \
 "<ETag>&quot;49f68a5c-2&quot;</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass>" \
 "<Owner><ID>x</ID><Key>not this one</Key></Owner></Contents>"
#define PREFIX(key) "<CommonPrefixes><Prefix>" key "</Prefix></CommonPrefixes>"
#define END         "</ListBucketResult>"

struct seen {
    char text[512]; /* "key size etag|" for objects, "prefix/|" for common prefixes */
    int64_t mtime_ns;
    char upload_id[32];
    int answer;
};

static int see(void *arg, const struct fb_s3_xml_entry *entry)
{
    struct seen *seen = arg;
    size_t len = strlen(seen->text);

    assert_true(len + entry->key_len + 64 < sizeof seen->text);
    memcpy(seen->text + len, entry->key, entry->key_len);
    len += entry->key_len;
    seen->text[len] = '\0';
    if (entry->prefix) {
        memcpy(seen->text + len, "|", 2);
    } else {
        snprintf(seen->text + len, sizeof seen->text - len, " %d %s|", (int)entry->size,
                 entry->etag);
        seen->mtime_ns = entry->mtime_ns;
        snprintf(seen->upload_id, sizeof seen->upload_id, "%s",
                 entry->upload_id ? entry->upload_id : "");
    }
    return seen->answer;
}

/* Feeds the body in pieces of `piece` bytes. */
static int feed(struct fb_s3_xml *xml, bool encoded, const char *body, size_t piece)
{
    size_t len = strlen(body);
    int r = fb_s3_xml_begin(xml, encoded);

    assert_int_equal(r, 0);
    for (size_t at = 0; r == 0 && at < len; at += piece)
        r = fb_s3_xml_feed(xml, body + at, len - at < piece ? len - at : piece);
    return r == 0 ? fb_s3_xml_end(xml) : r;
}

/* The same outcome and the same lines however the body is cut. */
static const struct fb_s3_answer *parse(struct fb_s3_xml *xml, struct seen *seen, bool encoded,
                                        const char *body, int expect)
{
    char first[sizeof seen->text] = "";

    for (size_t piece = strlen(body) + 1; piece > 0; piece = piece > 7 ? 7 : piece - 1) {
        seen->text[0] = '\0';
        assert_int_equal(feed(xml, encoded, body, piece), expect);
        if (piece > 7)
            memcpy(first, seen->text, sizeof first);
        assert_string_equal(first, seen->text);
    }
    return fb_s3_xml_answer(xml);
}

struct rig {
    struct seen seen;
    struct fb_s3_xml *xml;
};

static int setup(void **state)
{
    struct rig *rig = fb_alloc(sizeof *rig);

    *state = rig;
    return rig ? fb_s3_xml_create(see, &rig->seen, &rig->xml) : -ENOMEM;
}

static int teardown(void **state)
{
    struct rig *rig = *state;

    fb_s3_xml_destroy(rig->xml);
    free(rig);
    return 0;
}

static const struct fb_s3_answer *ask(void **state, const char *body, int expect)
{
    struct rig *rig = *state;

    return parse(rig->xml, &rig->seen, true, body, expect);
}

static void test_listing(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_answer *a;

    a = ask(state,
            HEAD LIST
            "<Name>b</Name><Prefix>x y/</Prefix>" URL
            "<IsTruncated>true</IsTruncated>" OBJECT("a%20b+c%2B") OBJECT("q!*&apos;()&amp;")
                PREFIX("d%20e/") "<NextContinuationToken>a b&amp;</NextContinuationToken>" END,
            0);
    assert_int_equal(a->document, FB_S3_DOC_LIST);
    assert_true(a->truncated);
    assert_string_equal(a->token, "a b&");
    assert_string_equal(rig->seen.text, "a b c+ 12 49f68a5c-2|q!*'()& 12 49f68a5c-2|d e/|");
    assert_int_equal(rig->seen.mtime_ns, 1794757014 * FB_NS_PER_S);

    a = ask(state, HEAD LIST "<IsTruncated>false</IsTruncated>" END, 0);
    assert_false(a->truncated);
    assert_string_equal(a->token, "");
    ask(state,
        HEAD LIST "<Contents><StorageClass>GLACIER</StorageClass><Size>0</Size><Key>k</Key>"
                  "<LastModified>2026-11-15T15:36:54Z</LastModified></Contents>" END,
        0);
    assert_string_equal(rig->seen.text, "k 0 |");
    ask(state, HEAD LIST URL PREFIX("a/") "</ListBucketResult>\n\n", 0);
}

#define UPLOADS(lines)                                       \
 HEAD "<ListMultipartUploadsResult><Prefix>k</Prefix>" lines \
      "<IsTruncated>true</IsTruncated></ListMultipartUploadsResult>"
#define BEGUN "<Initiated>2026-11-15T15:36:54.25Z</Initiated>"

/* Keys are told as they came. */
static void test_uploads(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_answer *a;

    a = ask(state,
            UPLOADS("<Upload><Key>a%20b</Key><UploadId>one</UploadId>" BEGUN "</Upload>"
                    "<Upload>" BEGUN "<UploadId>2~x</UploadId><Key>k &amp;</Key></Upload>"),
            0);
    assert_int_equal(a->document, FB_S3_DOC_UPLOADS);
    assert_string_equal(rig->seen.text, "a%20b 0 |k & 0 |");
    assert_string_equal(rig->seen.upload_id, "2~x");
    assert_int_equal(rig->seen.mtime_ns, 1794757014 * FB_NS_PER_S);
    ask(state, UPLOADS(""), 0);
    ask(state, UPLOADS("<Upload><Key>k</Key>" BEGUN "</Upload>"), -EBADMSG);
    ask(state, UPLOADS("<Upload><Key>k</Key><UploadId>x</UploadId></Upload>"), -EBADMSG);
    ask(state, UPLOADS("<Upload><UploadId>x</UploadId>" BEGUN "</Upload>"), -EBADMSG);
}

/* Servers that say only at the end that keys are encoded, or do not encode although asked to. */
static void test_encodings(void **state)
{
    struct rig *rig = *state;

    ask(state, HEAD LIST OBJECT("a%20b") PREFIX("c%2f") URL END, 0);
    assert_string_equal(rig->seen.text, "a b 12 49f68a5c-2|c/|");
    ask(state, HEAD LIST OBJECT("plain") PREFIX("c/") END, 0);
    assert_string_equal(rig->seen.text, "plain 12 49f68a5c-2|c/|");
    ask(state, HEAD LIST OBJECT("a%20b") END, FB_S3_XML_NOT_ENCODED);
    ask(state, HEAD LIST OBJECT("%252525") END, FB_S3_XML_NOT_ENCODED);
    ask(state, HEAD LIST OBJECT("a+b") END, FB_S3_XML_NOT_ENCODED);
    ask(state, HEAD LIST OBJECT("100%") END, FB_S3_XML_NOT_ENCODED);
    ask(state, HEAD LIST OBJECT("100%") URL END, -EBADMSG);
    ask(state, HEAD LIST URL OBJECT("100%") END, -EBADMSG);
    parse(rig->xml, &rig->seen, false, HEAD LIST OBJECT("a%20b+100%") END, 0);
    assert_string_equal(rig->seen.text, "a%20b+100% 12 49f68a5c-2|");
}

/* What Ceph does with control characters. */
static void test_control_characters(void **state)
{
    const struct fb_s3_answer *a =
        ask(state,
            HEAD LIST "<Prefix>b&#x02;/</Prefix>" URL "<IsTruncated>true</IsTruncated>"
                      "<NextContinuationToken>b&#x01;&#31;&#x1F;&#x41;&amp;&#65;&#x9;</"
                      "NextContinuationToken>" END,
            0);

    assert_string_equal(a->token, "b\x01\x1f\x1f"
                                  "A&A\t");
    ask(state, HEAD LIST "<Prefix>&#x0;</Prefix>" END, -EBADMSG);
    ask(state, HEAD LIST "<Prefix>&#xzz;</Prefix>" END, -EBADMSG);
    ask(state, HEAD LIST "<Prefix>&#x000000000000000000001;</Prefix>" END, -EBADMSG);
    ask(state, HEAD LIST "<Prefix>&#x1F600;</Prefix>" END, 0);
    ask(state, HEAD LIST "<Prefix>\x01</Prefix>" END, -EBADMSG);
    ask(state, HEAD LIST "<Prefix>&#", -EBADMSG);
    ask(state, HEAD LIST "<Prefix>&", -EBADMSG);
}

static void test_archived(void **state)
{
    const struct fb_s3_answer *a =
        ask(state,
            HEAD "<Error><Code>InvalidObjectState</Code><StorageClass>GLACIER</StorageClass>"
                 "</Error>",
            0);

    assert_string_equal(a->code, "InvalidObjectState");
    assert_string_equal(a->storage_class, "GLACIER");
}

static void test_errors(void **state)
{
    const struct fb_s3_answer *a;

    a = ask(state,
            HEAD "<Error><Code>PermanentRedirect</Code><Message>Use\nthe&#x1;other</Message>"
                 "<Endpoint>b.s3.eu-west-3.amazonaws.com</Endpoint><Region>eu-west-3</Region>"
                 "<RequestId>R1</RequestId><HostId>h</HostId></Error>",
            0);
    assert_int_equal(a->document, FB_S3_DOC_ERROR);
    assert_string_equal(a->code, "PermanentRedirect");
    assert_string_equal(a->message, "Use the other");
    assert_string_equal(a->endpoint, "b.s3.eu-west-3.amazonaws.com");
    assert_string_equal(a->region, "eu-west-3");
    assert_string_equal(a->request_id, "R1");
    a = ask(state, "<Error><Code/><Message></Message><Region>a/b</Region></Error>", 0);
    assert_string_equal(a->code, "");
    assert_string_equal(a->region, "");
}

static void test_uploads_and_copies(void **state)
{
    const struct fb_s3_answer *a;

    a = ask(state,
            HEAD "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"
                 "<UploadId>2~abc_-.</UploadId></InitiateMultipartUploadResult>",
            0);
    assert_int_equal(a->document, FB_S3_DOC_INITIATE);
    assert_string_equal(a->upload_id, "2~abc_-.");
    a = ask(state,
            "  \r\n" HEAD "\n\n\n<CompleteMultipartUploadResult><ETag>\"e-2\"</ETag>"
            "</CompleteMultipartUploadResult>",
            0);
    assert_int_equal(a->document, FB_S3_DOC_COMPLETE);
    assert_string_equal(a->etag, "e-2");
    a = ask(state, HEAD "   <Error><Code>InternalError</Code></Error>", 0);
    assert_int_equal(a->document, FB_S3_DOC_ERROR);
    assert_string_equal(a->etag, "");
    a = ask(state,
            HEAD "<CopyObjectResult><LastModified>2026-11-15T15:36:54.000Z</LastModified>"
                 "<ETag>&#34;e&#34;</ETag></CopyObjectResult>",
            0);
    assert_int_equal(a->document, FB_S3_DOC_COPY);
    assert_string_equal(a->etag, "e");
    assert_true(a->has_mtime);
    a = ask(state, HEAD "<CopyPartResult><ETag>e</ETag></CopyPartResult>", 0);
    assert_int_equal(a->document, FB_S3_DOC_COPY);
    assert_false(a->has_mtime);
    a = ask(state,
            HEAD "<DeleteResult><Deleted><Key>a</Key></Deleted>"
                 "<Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
                 "<Error><Key>c</Key><Code>Other</Code><Message>never</Message></Error>"
                 "</DeleteResult>",
            0);
    assert_int_equal(a->document, FB_S3_DOC_DELETE);
    assert_int_equal(a->errors, 2);
    assert_string_equal(a->code, "AccessDenied");
    assert_string_equal(a->message, "no");
}

static void test_refused(void **state)
{
    struct rig *rig = *state;
    const char *bad[] = {
        "not XML",
        "<html><body>502 Bad Gateway</body></html>",
        "{\"json\": true}",
        HEAD LIST,
        HEAD LIST OBJECT("a"),
        HEAD LIST END "<Error/>",
        HEAD LIST "<IsTruncated>true</IsTruncated>" END,
        HEAD LIST "<IsTruncated>maybe</IsTruncated>" END,
        HEAD LIST "<Contents><Key>k</Key></Contents>" END,
        HEAD LIST "<Contents><Size>1</Size>"
                  "<LastModified>2026-11-15T15:36:54Z</LastModified></Contents>" END,
        HEAD LIST "<Contents><Key>k</Key><Size>-1</Size>"
                  "<LastModified>2026-11-15T15:36:54Z</LastModified></Contents>" END,
        HEAD LIST "<Contents><Key>k</Key><Size>1</Size><LastModified>soon</LastModified>"
                  "</Contents>" END,
        HEAD LIST "<CommonPrefixes></CommonPrefixes>" END,
        HEAD LIST "<Prefix>\xff\xfe</Prefix>" END,
        "<?xml version=\"1.0\" encoding=\"UTF-16\"?>" LIST "\xd8",
        HEAD "<!DOCTYPE a [<!ENTITY b \"bbbb\">]>" LIST "<Name>&b;</Name>" END,
        HEAD "<!DOCTYPE a SYSTEM \"file:///etc/passwd\">" LIST END,
        HEAD LIST "<Name>&unknown;</Name>" END,
        "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
        "<Error><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
    };

    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++)
        ask(state, bad[i], -EBADMSG);
    ask(state, "", -ENODATA);
    ask(state, " \r\n ", -ENODATA);
    rig->seen.answer = -ENOSPC;
    ask(state, HEAD LIST OBJECT("a") OBJECT("b") END, -ENOSPC);
    assert_string_equal(rig->seen.text, "a 12 49f68a5c-2|");
}

/* Feeds `open`, then `fill` over and over, and gives back the first refusal. */
static int flood(struct fb_s3_xml *xml, const char *open, const char *fill, uint64_t *ret_bytes)
{
    char piece[16384];
    int r = fb_s3_xml_begin(xml, true);

    for (size_t i = 0; i < sizeof piece; i++)
        piece[i] = fill[i % strlen(fill)];
    if (r == 0)
        r = fb_s3_xml_feed(xml, open, strlen(open));
    for (*ret_bytes = 0; r == 0 && *ret_bytes < 2ull * FB_S3_XML_BODY_MAX;
         *ret_bytes += sizeof piece)
        r = fb_s3_xml_feed(xml, piece, sizeof piece / strlen(fill) * strlen(fill));
    return r;
}

static void test_floods(void **state)
{
    struct fb_s3_xml *xml = ((struct rig *)*state)->xml;
    uint64_t bytes;

    assert_int_equal(flood(xml, HEAD LIST "<IsTruncated>", "x", &bytes), -EBADMSG);
    assert_true(bytes < 4 * 16384);
    assert_int_equal(flood(xml, HEAD LIST "<Name>", "x", &bytes), -EBADMSG);
    assert_true(bytes <= FB_S3_XML_BODY_MAX + 16384);
    assert_int_equal(flood(xml, HEAD "<Error a=\"", "x", &bytes), -EBADMSG);
    assert_true(bytes < 8 * 16384);
    assert_int_equal(flood(xml, HEAD "<!--", "x", &bytes), -EBADMSG);
    assert_true(bytes < 8 * 16384);
    assert_int_equal(flood(xml, HEAD LIST, "<Name></Name>", &bytes), -EBADMSG);
    assert_int_equal(flood(xml, HEAD LIST, "<N>", &bytes), -EBADMSG);
    assert_true(bytes < 2 * 16384);
}

static void test_no_listing_wanted(void **state)
{
    struct fb_s3_xml *xml;

    (void)state;
    assert_int_equal(fb_s3_xml_create(NULL, NULL, &xml), 0);
    assert_int_equal(feed(xml, true, HEAD LIST OBJECT("a") END, 100), -EBADMSG);
    assert_int_equal(feed(xml, true, "<Error><Code>a</Code></Error>", 100), 0);
    fb_s3_xml_destroy(xml);
    fb_s3_xml_destroy(NULL);
}

/* A page with a byte changed is refused or understood, and the next one is understood anyway. */
static void test_damage(void **state)
{
    static const char page[] = HEAD LIST URL "<IsTruncated>false</IsTruncated>" OBJECT("a%20b")
        OBJECT("&#x01;") PREFIX("d/") END;
    struct rig *rig = *state;
    struct fb_rand rand = {.state = 3};
    char body[sizeof page];

    for (int i = 0; i < 3000; i++) {
        int r;

        memcpy(body, page, sizeof page);
        body[fb_rand_below(&rand, sizeof page - 1)] = (char)(1 + fb_rand_below(&rand, 255));
        rig->seen.text[0] = '\0';
        r = feed(rig->xml, true, body, 1 + fb_rand_below(&rand, 100));
        assert_true(r == 0 || r == -EBADMSG || r == FB_S3_XML_NOT_ENCODED);
    }
    ask(state, page, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_listing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uploads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_encodings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_control_characters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_archived, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_uploads_and_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_floods, setup, teardown),
        cmocka_unit_test(test_no_listing_wanted),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
