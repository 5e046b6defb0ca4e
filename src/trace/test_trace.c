#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/hash.h"
#include "base/rand.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "trace/access_log.h"
#include "trace/trace.h"

#define REQUESTS_MAX 4096

/* Reads all of it. The sentence of a failure is in err. */
static int read_all(const char *name, const void *data, size_t len,
                    const struct fb_trace_options *options, struct fb_trace_request *requests,
                    size_t *ret_count, struct fb_error *err)
{
    struct fb_trace_options none = {0};
    struct fb_trace *trace = NULL;
    size_t count = 0;
    size_t got = 0;
    int rc = fb_trace_open_memory(name, data, len, options ? options : &none, &trace, err);

    *ret_count = 0;
    while (rc == 0 && count < REQUESTS_MAX) {
        size_t max = REQUESTS_MAX - count;

        rc = fb_trace_read(trace, requests + count, max < 7 ? max : 7, &got, err);
        count += got;
        if (got == 0)
            break;
    }
    fb_trace_close(trace);
    *ret_count = count;
    return rc;
}

static struct fb_trace_request r[REQUESTS_MAX];

static size_t good(const char *name, const void *data, size_t len,
                   const struct fb_trace_options *options)
{
    struct fb_error err = {""};
    size_t count;
    int rc = read_all(name, data, len, options, r, &count, &err);

    if (rc)
        fail_msg("%s: %s", name, err.text);
    return count;
}

static size_t good_text(const char *name, const char *text)
{
    return good(name, text, strlen(text), NULL);
}

static void bad(const char *name, const void *data, size_t len, const char *format,
                const char *sentence)
{
    struct fb_trace_options options = {.format = format};
    struct fb_error err = {""};
    size_t count;
    int rc = read_all(name, data, len, &options, r, &count, &err);

    assert_true(rc < 0);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void expect_request(size_t i, uint64_t id, uint32_t size, uint32_t time_s)
{
    assert_int_equal(r[i].id, id);
    assert_int_equal(r[i].size, size);
    assert_int_equal(r[i].time_s, time_s);
}

static void put(uint8_t **p, const void *value, size_t size)
{
    memcpy(*p, value, size);
    *p += size;
}

/* ---- formats ---- */

static void put_oracle(uint8_t **p, uint32_t time_s, uint64_t id, uint32_t size, int64_t next)
{
    put(p, &time_s, 4);
    put(p, &id, 8);
    put(p, &size, 4);
    put(p, &next, 8);
}

static size_t make_oracle(uint8_t *buf)
{
    uint8_t *p = buf;

    put_oracle(&p, 5, 1000, 10, 3);
    put_oracle(&p, 6, 1001, 20, -1);
    put_oracle(&p, 6, 1000, 10, INT64_MAX);
    return (size_t)(p - buf);
}

static void test_oracle(void **state)
{
    uint8_t buf[256];
    size_t len = make_oracle(buf);
    uint8_t *p = buf + len;

    (void)state;
    assert_int_equal(good("a", buf, len, NULL), 3);
    expect_request(0, 1000, 10, 5);
    assert_int_equal(r[0].next, 3);
    assert_int_equal(r[1].next, FB_TRACE_NEVER);
    assert_int_equal(r[2].next, FB_TRACE_NEVER);
    bad("a.oracleGeneral.bin.zst", buf, len - 1, NULL, "is truncated: at byte 48 there are 23");
    put_oracle(&p, 7, 1, 1, 2);
    bad("a.oraclegeneral", buf, len + 24, NULL, "the record at byte 72 is not oracleGeneral: its");
}

static void test_vscsi(void **state)
{
    struct __attribute__((packed)) {
        uint32_t sn, len, sg;
        uint16_t cmd, ver;
        uint64_t lbn, time_us;
    } v1[2] = {{1, 4096, 1, 0x28, 0x100, 77, 5000000}, {2, 512, 1, 0x2a, 0x100, 78, 7500000}};

    struct __attribute__((packed)) {
        uint16_t cmd, ver;
        uint32_t sn, len, sg;
        uint64_t lbn, time_us, rt;
    } v2[2] = {{0x2a, 0x200, 1, 4096, 1, 77, 5000000, 9}, {0x28, 0x200, 2, 512, 1, 78, 7500000, 9}};

    (void)state;
    assert_int_equal(good("a", v1, sizeof v1, NULL), 2);
    expect_request(0, 77, 4096, 0);
    expect_request(1, 78, 512, 2);
    assert_int_equal(good("a", v2, sizeof v2, NULL), 2);
    expect_request(0, 77, 4096, 0);
    expect_request(1, 78, 512, 2);
    v1[1].cmd = 0x99;
    bad("a", v1, sizeof v1, "vscsi1", "the record at byte 32 is not vscsi1");
    bad("a", v2, sizeof v2 - 3, "vscsi2", "is truncated: at byte 40 there are 37");
}

static void test_keys(void **state)
{
    static const uint8_t bytes[16] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    struct fb_trace_options options = {0};

    (void)state;
    assert_int_equal(good("x.u32le.zst", bytes, 16, NULL), 4);
    expect_request(0, 1, 4096, 1);
    assert_int_equal(good("x.u32be", bytes, 16, NULL), 4);
    assert_int_equal(r[0].id, 0x01000000);
    options.format = "u64le";
    assert_int_equal(good("x", bytes, 16, &options), 2);
    assert_int_equal(r[0].id, 1);
    assert_int_equal(good("x.u64be", bytes, 16, NULL), 2);
    assert_int_equal(r[1].id, 2);
    bad("x.u64be", bytes, 15, NULL, "at byte 8 there are 7 bytes");
    assert_int_equal(good_text("x", "12\nwww.example.org/a\n12"), 3);
    assert_int_equal(r[0].id, 12);
    assert_int_equal(r[2].id, 12);
    assert_int_not_equal(r[1].id, 12);
}

static void test_text(void **state)
{
    (void)state;
    assert_int_equal(good_text("x", "10 3 0 0\n7 1 0 1\n"), 4);
    for (size_t i = 0; i < 3; i++)
        expect_request(i, 10 + i, 4096, 1);
    assert_int_equal(r[3].id, 7);
    bad("x", "10 3 0 0\n7 1 0\n", 15, "arc", "line 2 is not arc");
    bad("x", "10 0 0 0\n", 9, "arc", "line 1 is not arc: the second number");
    bad("x", "18446744073709551615 2 0 0\n", 27, "arc", "line 1 is not arc");

    /* The same id with another size is another object. */
    assert_int_equal(good_text("x", "1 5 100\r\n2 5 200\r\n3 5 100\r\n"), 3);
    expect_request(1, r[1].id, 200, 2);
    assert_int_equal(r[0].id, r[2].id);
    assert_int_not_equal(r[0].id, r[1].id);
    bad("x", "1 5 100\n2 5 x\n", 14, "seq-id-size", "line 2 is not seq-id-size");
    bad("x", "1 5 99999999999\n", 16, "seq-id-size", "32 bits");
}

static void bad_columns(const char *columns, const char *format, int rc, const char *sentence)
{
    struct fb_trace_options options = {.columns = columns, .format = format};
    struct fb_error err = {""};
    size_t count;

    assert_int_equal(read_all("x", "a,b\n1,2\n", 8, &options, r, &count, &err), rc);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void test_csv(void **state)
{
    struct fb_trace_options options = {.columns = "id=2,size=3"};

    (void)state;
    assert_int_equal(good_text("x", "128166372003061629,usr,0,Read,7014609920,24576,41286\n"
                                    "128166372013061629,usr,1,Write,7014609920,512,1\n"),
                     2);
    expect_request(0, r[0].id, 24576, 0);
    expect_request(1, r[1].id, 512, 1);
    assert_int_not_equal(r[0].id, r[1].id); /* another disk */
    bad("x", "1,usr,0,Read,5,6,7\n1,usr,0\n", 27, "msr", "line 2 is not msr");

    assert_int_equal(good_text("x", "Time;Key;Size;what\n100.5;a;10;x\n103;b;20;y\n"), 2);
    expect_request(1, r[1].id, 20, 3);
    assert_int_equal(good("x.csv", "5,70,8\n6,71,9\n", 14, &options), 2);
    expect_request(0, 70, 8, 1);
    assert_int_equal(good_text("x", "# time, object , size\n0, 7, 10\n5, 8 , 20 \n"), 2);
    expect_request(1, 8, 20, 5);
    options.columns = "id=key";
    assert_int_equal(good("x.csv", "a,key\n1,2\n", 10, &options), 1);
    expect_request(0, 2, 4096, 1);
    options.columns = NULL;
    assert_int_equal(good("x.csv", "\n\nid\n5\n", 7, &options), 1);
    bad("x.csv", "a,b\n1,2\n", 8, NULL, "line 1 is not csv: no column is the key");
    /* Quotes, a byte order mark, columns that say what it is; MSR's own name and header. */
    assert_int_equal(good_text("x.csv", "\xef\xbb\xbf\"id\",\"size\"\n\"a,b\",7\n\"c\",8\n"), 2);
    expect_request(0, fb_hash64("a,b", 3), 7, 1);
    assert_int_equal(good_text("x", "\xef\xbb\xbfid,size\n4,7\n"), 1);
    expect_request(0, 4, 7, 1);
    options.columns = "id=b";
    assert_int_equal(good("x", "a b;b\n1;2\n", 10, &options), 1);
    expect_request(0, 2, 4096, 1);
    bad_columns("id=b,foo=a", NULL, -EINVAL, "'foo=a' is none of time=, id= and size=");
    bad_columns("id=b,size=c", NULL, -EBADMSG, "does not have all columns of --columns");
    bad_columns("id=3", NULL, -EBADMSG, "does not have all columns of --columns");
    bad_columns("id=b", "arc", -EINVAL, "not for 'arc'");
    assert_int_equal(good_text("hm_0.csv", "Timestamp,Hostname,DiskNumber,Type,Offset,Size,"
                                           "ResponseTime\n128166372003061629,hm,0,Read,5,6,7\n"),
                     1);
    expect_request(0, r[0].id, 6, 0);
    assert_int_equal(good_text("hm_0.csv.gz", "128166372003061629,hm,0,Read,5,6,7\n"), 1);
    expect_request(0, r[0].id, 6, 0);
    bad("x.csv", "id,size\n1,2\n3\n", 14, NULL, "line 3 is not csv: it has fewer columns");
    bad("x.csv", "id,size\n1,2x\n", 13, NULL, "line 2 is not csv: its size");
}

static void test_nothing(void **state)
{
    (void)state;
    bad("x", "", 0, NULL, "is empty");
    bad("x", "\1\2\3", 3, NULL, "say which it is with --format");
    bad("x", "1\n", 2, "nonsense", "there is no trace format 'nonsense'");
    bad("x", "a\0b\n", 4, "keys", "zero byte");
}

/* ---- Forebay's own log ---- */

static void test_access_log(void **state)
{
    struct fb_test_dir dir;
    const char *path;
    struct fb_error err = {""};
    struct fb_access_log *log;
    struct fb_trace_options options = {0};
    struct fb_trace *trace;
    size_t count = 0;
    size_t got;

    (void)state;
    fb_test_dir_make(&dir);
    path = fb_test_dir_path(&dir, "log");
    assert_int_equal(fb_access_log_create(path, &log, &err), 0);
    for (uint64_t i = 0; i < 5000; i++) {
        struct fb_access_record record = {.time_ns = 1000 + i * 1000000, .id = i % 70, .size = 9};

        assert_int_equal(fb_access_log_append(log, &record), 0);
    }
    assert_int_equal(fb_access_log_close(log), 0);
    assert_int_equal(fb_trace_open(path, &options, &trace, &err), 0);
    assert_string_equal(fb_trace_format_name(trace), "forebay");
    do {
        assert_int_equal(fb_trace_read(trace, r, REQUESTS_MAX, &got, &err), 0);
        for (size_t i = 0; i < got; i++)
            expect_request(i, (count + i) % 70, 9, (uint32_t)((count + i) / 1000));
        count += got;
    } while (got > 0);
    assert_int_equal(count, 5000);
    /* A second time, from the start. */
    assert_int_equal(fb_trace_rewind(trace, &err), 0);
    assert_int_equal(fb_trace_read(trace, r, 3, &got, &err), 0);
    expect_request(1, 1, 9, 0);
    fb_trace_close(trace);
    bad("x", "FBACCESS\2\0\0\0\30\0\0\0", 16, NULL, "it is of another version");
    bad("x", "FBACCESS\1\0\0\0\31\0\0\0", 16, NULL, "another size");
    fb_test_dir_remove(&dir);
}

/* ---- compression ---- */

static size_t gzip(const void *data, size_t len, uint8_t *out, size_t size)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return size - z.avail_out;
}

static void test_packed(void **state)
{
    static uint8_t text[200000];
    static uint8_t packed[200000];
    size_t len = 0;
    size_t packed_len;
    struct fb_rand lot = {7};

    (void)state;
    for (size_t i = 0; i < 3000; i++)
        len += (size_t)sprintf((char *)text + len, "%llu\n",
                               (unsigned long long)fb_rand_below(&lot, 1u << 30));
    packed_len = gzip(text, len, packed, sizeof packed);
    assert_int_equal(good("x.keys.gz", packed, packed_len, NULL), 3000);
    /* Members one after the other are one stream. */
    packed_len += gzip(text, len / 100, packed + packed_len, sizeof packed - packed_len);
    assert_true(good("x.keys.gz", packed, packed_len, NULL) > 3000);
    bad("x.keys.gz", packed, packed_len - 5, NULL, "is truncated: its gzip data stops");
    packed[20] ^= 0x55;
    bad("x.keys.gz", packed, packed_len, NULL, "gzip data is damaged");

    packed_len = ZSTD_compress(packed, sizeof packed, text, len, 3);
    assert_false(ZSTD_isError(packed_len));
    assert_int_equal(good("x.keys.zst", packed, packed_len, NULL), 3000);
    bad("x.keys.zst", packed, packed_len - 5, NULL, "is truncated: its zstd data stops");
    memset(packed + 20, 0x55, 30);
    bad("x.keys.zst", packed, packed_len, NULL, "zstd");
}

/* ---- anything at all must end with an answer ---- */

/* Something that this format reads, of at most `size` bytes. */
static size_t seed_of(unsigned kind, uint8_t *buf, struct fb_rand *lot)
{
    static const char *const texts[] = {
        "10 3 0 0\n7 1 0 1\n", "1 5 100\n2 5 200\n", "time,id,size\n1,2,3\n4,b,6\n",
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n", "a\nb\n12\n"};
    struct fb_access_log_head head = {"FBACCESS", 1, 24};
    size_t len;

    if (kind < FB_ARRAY_SIZE(texts)) {
        len = strlen(texts[kind]);
        memcpy(buf, texts[kind], len);
        return len;
    }
    if (kind == FB_ARRAY_SIZE(texts))
        return make_oracle(buf);
    len = 16 + fb_rand_below(lot, 100);
    for (size_t i = 0; i < len; i++)
        buf[i] = (uint8_t)fb_rand_u64(lot);
    if (kind == FB_ARRAY_SIZE(texts) + 1) {
        memcpy(head.magic, FB_ACCESS_LOG_MAGIC, 8);
        memcpy(buf, &head, sizeof head);
    } else if (kind == FB_ARRAY_SIZE(texts) + 2) {
        memcpy(buf, "\x1f\x8b\x08\0\0\0\0\0\0\3", 10);
    } else {
        memcpy(buf, "\x28\xb5\x2f\xfd", 4);
    }
    return len;
}

static size_t mutate(uint8_t *buf, size_t len, size_t size, struct fb_rand *lot)
{
    for (uint64_t i = fb_rand_below(lot, 6); i > 0 && len > 0; i--) {
        size_t at = fb_rand_below(lot, len);

        switch (fb_rand_below(lot, 4)) {
        case 0:
            buf[at] ^= (uint8_t)(1u << fb_rand_below(lot, 8));
            break;
        case 1:
            buf[at] = (uint8_t) "0189,.; \n\r-\xff"[fb_rand_below(lot, 13)];
            break;
        case 2:
            len = at;
            break;
        default:
            if (2 * len - at <= size) {
                memmove(buf + len, buf + at, len - at);
                len += len - at;
            }
        }
    }
    return len;
}

static void test_mutations(void **state)
{
    struct fb_rand lot = {42};
    uint8_t buf[4096];
    unsigned read = 0;

    (void)state;
    for (unsigned round = 0; round < 8000; round++) {
        size_t len = mutate(buf, seed_of(round % 9, buf, &lot), sizeof buf, &lot);
        struct fb_trace_options options = {0};
        const char *summary;
        struct fb_error err = {""};
        size_t count;
        int rc;

        /* Half of them by what they look like, half as each of the formats. */
        if (round % 2)
            options.format = fb_trace_format_at(fb_rand_below(&lot, 13), &summary);
        rc = read_all("x", buf, len, &options, r, &count, &err);
        assert_true(rc <= 0);
        assert_true(rc == 0 || *err.text);
        assert_true(count <= REQUESTS_MAX);
        read += rc == 0;
    }
    /* The mutations are mild enough to get past the first bytes. */
    assert_true(read > 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),    cmocka_unit_test(test_vscsi),
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_text),
        cmocka_unit_test(test_csv),       cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_packed),    cmocka_unit_test(test_access_log),
        cmocka_unit_test(test_mutations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
