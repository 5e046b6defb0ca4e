#include "trace/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/assert.h"
#include "core/mem.h"

#define RAW_SIZE  (64u << 10)
#define DATA_SIZE (1u << 20)
#define MAGIC_MAX 10u /* bytes that tell how a file is packed */

enum packing {
    PLAIN,
    GZIP,
    ZSTD,
};

struct fb_trace_input {
    char *name;
    int fd; /* -1: memory */
    const uint8_t *memory;
    size_t memory_len;
    uint64_t raw_total; /* 0: not known */
    uint64_t raw_read;
    bool raw_end;
    enum packing packing;
    z_stream zlib;
    ZSTD_DStream *zstd;
    bool in_frame; /* the packed stream has begun and has not ended */
    uint8_t *raw;
    size_t raw_at;
    size_t raw_len;
    uint8_t *data;
    size_t data_at;
    size_t data_len;
    bool data_end;
    uint64_t offset; /* of data[data_at] */
};

/* ---- raw bytes ---- */

static int read_some(struct fb_trace_input *in, void *buf, size_t size, size_t *ret_len,
                     struct fb_error *err)
{
    ssize_t n;

    if (in->fd < 0) {
        size_t len = fb_min_u64(size, in->memory_len - in->raw_read);

        memcpy(buf, in->memory + in->raw_read, len);
        *ret_len = len;
        return 0;
    }
    do {
        n = read(in->fd, buf, size);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return fb_error_set(err, -errno, "cannot read %s: %s", in->name, fb_strerror(errno));
    *ret_len = (size_t)n;
    return 0;
}

/* Refills the raw buffer once it is used up. */
static int fill_raw(struct fb_trace_input *in, struct fb_error *err)
{
    int rc;

    if (in->raw_at < in->raw_len || in->raw_end)
        return 0;
    in->raw_at = 0;
    rc = read_some(in, in->raw, RAW_SIZE, &in->raw_len, err);
    if (rc)
        return rc;
    in->raw_read += in->raw_len;
    in->raw_end = in->raw_len == 0;
    return 0;
}

/* ---- unpacking: each appends to data[], as much as there is room for ---- */

static int fill_plain(struct fb_trace_input *in, struct fb_error *err)
{
    size_t room = DATA_SIZE - in->data_len;
    size_t len = fb_min_u64(room, in->raw_len - in->raw_at);
    int rc;

    (void)err;
    /* What was read to find the packing; from then on the raw buffer is not needed. */
    if (len > 0) {
        memcpy(in->data + in->data_len, in->raw + in->raw_at, len);
        in->raw_at += len;
        in->data_len += len;
        return 0;
    }
    rc = read_some(in, in->data + in->data_len, room, &len, err);
    if (rc)
        return rc;
    in->raw_read += len;
    in->data_len += len;
    in->data_end = len == 0;
    return 0;
}

static int bad_packing(struct fb_trace_input *in, struct fb_error *err, const char *what,
                       const char *why)
{
    return fb_error_set(err, -EBADMSG, "%s: the %s data is damaged after byte %llu of the file: %s",
                        in->name, what,
                        (unsigned long long)(in->raw_read - (in->raw_len - in->raw_at)), why);
}

static int cut_packing(struct fb_trace_input *in, struct fb_error *err, const char *what)
{
    return fb_error_set(err, -EBADMSG,
                        "%s is truncated: its %s data stops in the middle, at byte %llu of the "
                        "file; copy it again",
                        in->name, what, (unsigned long long)in->raw_read);
}

static int fill_gzip(struct fb_trace_input *in, struct fb_error *err)
{
    z_stream *z = &in->zlib;
    int status;

    if (in->raw_end) {
        in->data_end = true;
        return in->in_frame ? cut_packing(in, err, "gzip") : 0;
    }
    z->next_in = in->raw + in->raw_at;
    z->avail_in = (uInt)(in->raw_len - in->raw_at);
    z->next_out = in->data + in->data_len;
    z->avail_out = (uInt)(DATA_SIZE - in->data_len);
    in->in_frame = true;
    status = inflate(z, Z_NO_FLUSH);
    in->raw_at = in->raw_len - z->avail_in;
    in->data_len = DATA_SIZE - z->avail_out;
    if (status == Z_STREAM_END) {
        in->in_frame = false;
        status = inflateReset(z); /* another member may follow */
    }
    if (status != Z_OK && status != Z_BUF_ERROR)
        return bad_packing(in, err, "gzip", z->msg ? z->msg : "it cannot be unpacked");
    return 0;
}

static int fill_zstd(struct fb_trace_input *in, struct fb_error *err)
{
    ZSTD_inBuffer from = {in->raw, in->raw_len, in->raw_at};
    ZSTD_outBuffer to = {in->data, DATA_SIZE, in->data_len};
    size_t left;

    /* At the end of the file the last block may still wait to be flushed. */
    if (in->raw_end && !in->in_frame) {
        in->data_end = true;
        return 0;
    }
    left = ZSTD_decompressStream(in->zstd, &to, &from);
    if (ZSTD_isError(left))
        return bad_packing(in, err, "zstd", ZSTD_getErrorName(left));
    if (in->raw_end && left != 0 && to.pos == in->data_len) {
        in->data_end = true;
        return cut_packing(in, err, "zstd");
    }
    in->in_frame = left != 0;
    in->raw_at = from.pos;
    in->data_len = to.pos;
    return 0;
}

static bool begins_with(const struct fb_trace_input *in, const char *bytes, size_t len)
{
    return in->raw_len >= len && memcmp(in->raw, bytes, len) == 0;
}

/* What is packed by others would be taken for a trace of bytes. */
static int check_plain(const struct fb_trace_input *in, struct fb_error *err)
{
    static const struct {
        const char *program;
        const char *magic;
    } others[] = {
        {"xz", "\xfd\x37\x7a\x58\x5a"}, {"bzip2", "BZh91AY&SY"}, {"lz4", "\x04\x22\x4d\x18"}};

    for (size_t i = 0; i < FB_ARRAY_SIZE(others); i++) {
        if (begins_with(in, others[i].magic, strlen(others[i].magic)))
            return fb_error_set(err, -EBADMSG,
                                "%s is compressed with %s, which is not read here; unpack it "
                                "first, as %s -dc FILE | forebay sim -",
                                in->name, others[i].program, others[i].program);
    }
    return 0;
}

static int find_packing(struct fb_trace_input *in, struct fb_error *err)
{
    size_t len = 0;
    int rc = 0;

    /* A pipe may hand out its first bytes one by one. */
    while (in->raw_len < MAGIC_MAX && rc == 0) {
        rc = read_some(in, in->raw + in->raw_len, RAW_SIZE - in->raw_len, &len, err);
        if (rc || len == 0)
            break;
        in->raw_len += len;
        in->raw_read += len;
    }
    if (rc)
        return rc;
    in->packing = PLAIN;
    /* pzstd begins with a frame that is to be skipped. */
    if (begins_with(in, "\x28\xb5\x2f\xfd", 4) ||
        (in->raw_len >= 4 && (in->raw[0] & 0xf0) == 0x50 &&
         memcmp(in->raw + 1, "\x2a\x4d\x18", 3) == 0))
        in->packing = ZSTD;
    else if (begins_with(in, "\x1f\x8b", 2))
        in->packing = GZIP;
    else
        return check_plain(in, err);
    if (in->packing == ZSTD && !in->zstd)
        in->zstd = ZSTD_createDStream();
    if (in->packing == ZSTD && !in->zstd)
        return -ENOMEM;
    if (in->packing == ZSTD && ZSTD_isError(ZSTD_initDStream(in->zstd)))
        return -ENOMEM;
    if (in->packing != GZIP)
        return 0;
    inflateEnd(&in->zlib);
    memset(&in->zlib, 0, sizeof in->zlib);
    return inflateInit2(&in->zlib, 15 + 16) == Z_OK ? 0 : -ENOMEM;
}

static int fill(struct fb_trace_input *in, struct fb_error *err)
{
    int rc = 0;

    if (in->packing == PLAIN)
        return fill_plain(in, err);
    rc = fill_raw(in, err);
    if (rc)
        return rc;
    return in->packing == GZIP ? fill_gzip(in, err) : fill_zstd(in, err);
}

/* ---- opening ---- */

static int copy_all(struct fb_trace_input *in, int to, const char *dir, struct fb_error *err)
{
    size_t len;

    for (;;) {
        int rc = read_some(in, in->raw, RAW_SIZE, &len, err);

        if (rc || len == 0)
            return rc;
        for (size_t at = 0; at < len;) {
            ssize_t n = write(to, in->raw + at, len - at);

            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return fb_error_set(err, -errno,
                                    "cannot keep %s in a temporary file below %s: %s; set TMPDIR, "
                                    "or give the trace as a file",
                                    in->name, dir, fb_strerror(errno));
            at += (size_t)n;
        }
    }
}

/* Turns a pipe into a file without a name. */
static int keep(struct fb_trace_input *in, struct fb_error *err)
{
    const char *dir = secure_getenv("TMPDIR");
    FB_AUTO_CLOSE int fd = -1;
    int rc;

    if (!dir || !*dir)
        dir = "/tmp";
    fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return fb_error_set(err, -errno, "cannot make a temporary file below %s: %s; set TMPDIR",
                            dir, fb_strerror(errno));
    rc = copy_all(in, fd, dir, err);
    if (rc)
        return rc;
    close(in->fd);
    in->fd = fb_steal_fd(&fd);
    if (lseek(in->fd, 0, SEEK_SET) < 0)
        return -errno;
    return 0;
}

static int start_file(struct fb_trace_input *in, const char *path, bool again, struct fb_error *err)
{
    struct stat st;
    int rc = 0;

    if (strcmp(path, "-") == 0)
        in->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    else
        in->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0)
        return fb_error_set(err, -errno, "cannot open %s: %s", in->name, fb_strerror(errno));
    if (fstat(in->fd, &st) < 0)
        return fb_error_set(err, -errno, "cannot open %s: %s", in->name, fb_strerror(errno));
    if (S_ISDIR(st.st_mode))
        return fb_error_set(err, -EISDIR, "%s is a directory; name the trace's file", in->name);
    if (!S_ISREG(st.st_mode) && again)
        rc = keep(in, err);
    if (rc == 0 && fstat(in->fd, &st) == 0 && S_ISREG(st.st_mode))
        in->raw_total = (uint64_t)st.st_size;
    return rc;
}

static int start(struct fb_trace_input *in, const char *path, bool again, struct fb_error *err)
{
    int rc;

    in->name = fb_strdup(strcmp(path, "-") == 0 ? "standard input" : path);
    in->raw = fb_alloc(RAW_SIZE);
    in->data = fb_alloc(DATA_SIZE);
    if (!in->name || !in->raw || !in->data)
        return -ENOMEM;
    rc = in->memory ? 0 : start_file(in, path, again, err);
    return rc ? rc : find_packing(in, err);
}

int fb_trace_input_open(const char *path, bool again, struct fb_trace_input **ret_in,
                        struct fb_error *err)
{
    struct fb_trace_input *in = fb_alloc(sizeof *in);
    int rc;

    if (!in)
        return -ENOMEM;
    in->fd = -1;
    rc = start(in, path, again, err);
    if (rc) {
        fb_trace_input_close(in);
        return rc;
    }
    *ret_in = in;
    return 0;
}

int fb_trace_input_open_memory(const void *data, size_t len, struct fb_trace_input **ret_in,
                               struct fb_error *err)
{
    struct fb_trace_input *in = fb_alloc(sizeof *in);
    int rc;

    if (!in)
        return -ENOMEM;
    in->fd = -1;
    in->memory = data;
    in->memory_len = len;
    in->raw_total = len;
    rc = start(in, "memory", true, err);
    if (rc) {
        fb_trace_input_close(in);
        return rc;
    }
    *ret_in = in;
    return 0;
}

void fb_trace_input_close(struct fb_trace_input *in)
{
    if (!in)
        return;
    if (in->fd >= 0)
        close(in->fd);
    inflateEnd(&in->zlib);
    ZSTD_freeDStream(in->zstd);
    free(in->name);
    free(in->raw);
    free(in->data);
    free(in);
}

/* ---- reading ---- */

int fb_trace_input_peek(struct fb_trace_input *in, size_t want, const uint8_t **ret_data,
                        size_t *ret_len, struct fb_error *err)
{
    FB_ASSERT(want <= FB_TRACE_PEEK_MAX);
    if (in->data_len - in->data_at < want && in->data_at > 0) {
        memmove(in->data, in->data + in->data_at, in->data_len - in->data_at);
        in->data_len -= in->data_at;
        in->data_at = 0;
    }
    while (in->data_len - in->data_at < want && !in->data_end) {
        int rc = fill(in, err);

        if (rc)
            return rc;
    }
    *ret_data = in->data + in->data_at;
    *ret_len = in->data_len - in->data_at;
    return 0;
}

void fb_trace_input_skip(struct fb_trace_input *in, size_t len)
{
    FB_ASSERT(len <= in->data_len - in->data_at);
    in->data_at += len;
    in->offset += len;
}

int fb_trace_input_rewind(struct fb_trace_input *in, struct fb_error *err)
{
    if (in->fd >= 0 && lseek(in->fd, 0, SEEK_SET) < 0)
        return fb_error_set(err, -errno, "cannot read %s a second time: %s", in->name,
                            fb_strerror(errno));
    in->raw_read = 0;
    in->raw_end = false;
    in->in_frame = false;
    in->raw_at = 0;
    in->raw_len = 0;
    in->data_at = 0;
    in->data_len = 0;
    in->data_end = false;
    in->offset = 0;
    return find_packing(in, err);
}

const char *fb_trace_input_name(const struct fb_trace_input *in)
{
    return in->name;
}

uint64_t fb_trace_input_offset(const struct fb_trace_input *in)
{
    return in->offset;
}

double fb_trace_input_progress(const struct fb_trace_input *in)
{
    uint64_t used = in->raw_read - (in->raw_len - in->raw_at);

    return in->raw_total ? (double)used / (double)in->raw_total : -1;
}
