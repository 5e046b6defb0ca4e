/*
 * The file: magic, number of notes, then for each note its header and path, then a checksum over
 * all before it. It is at most a megabyte, is written only when somebody evicts by hand, and is
 * read once.
 */
#include "store/evictions.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/log.h"
#include "core/mem.h"
#include "io/durable.h"
#include "proto/file.h"
#include "store/disk.h"

#define FILE_NAME  "evictions"
#define FILE_MAGIC 0x3154434956454246ULL /* "FBEVICT1" */
#define FILE_MAX   (FB_EVICTIONS_MAX * (FB_PATH_MAX + 16) + 64)

struct note_header {
    uint64_t sequence;
    uint16_t source;
    uint16_t path_len;
    uint32_t all_sources; /* not 0: whatever is older, of any source */
};

struct note {
    struct note_header header;
    char *path;
};

struct fb_evictions {
    int dir_fd;
    unsigned count;
    bool all; /* the file was damaged: hide everything that was there at start */
    struct note notes[FB_EVICTIONS_MAX];
};

static void drop_note(struct fb_evictions *e, unsigned i)
{
    free(e->notes[i].path);
    e->notes[i] = e->notes[--e->count];
}

static int store_file(struct fb_evictions *e)
{
    size_t size = 2 * sizeof(uint64_t), at = 0;
    FB_AUTO_FREE char *data = NULL;
    uint64_t word;

    for (unsigned i = 0; i < e->count; i++)
        size += sizeof(struct note_header) + e->notes[i].header.path_len;
    data = fb_alloc(size + sizeof word);
    if (!data)
        return -ENOMEM;
    word = FILE_MAGIC;
    memcpy(data, &word, sizeof word);
    word = e->count;
    memcpy(data + sizeof word, &word, sizeof word);
    at = 2 * sizeof word;
    for (unsigned i = 0; i < e->count; i++) {
        memcpy(data + at, &e->notes[i].header, sizeof(struct note_header));
        at += sizeof(struct note_header);
        memcpy(data + at, e->notes[i].path, e->notes[i].header.path_len);
        at += e->notes[i].header.path_len;
    }
    word = fb_hash64(data, size);
    memcpy(data + size, &word, sizeof word);
    return fb_durable_write(e->dir_fd, FILE_NAME, data, size + sizeof word);
}

static int append(struct fb_evictions *e, const struct note_header *header, const char *path)
{
    char *copy = fb_alloc(header->path_len + 1u);

    if (!copy)
        return -ENOMEM;
    memcpy(copy, path, header->path_len);
    e->notes[e->count++] = (struct note){.header = *header, .path = copy};
    return 0;
}

/* A path ends where its length says, for covers() looks behind it. */
static bool note_good(const struct note_header *h, const char *path)
{
    return h->sequence <= FB_DISK_SEQUENCE_MAX && !memchr(path, 0, h->path_len);
}

/* -EBADMSG for anything that was not written by store_file. */
static int parse(struct fb_evictions *e, const char *data, size_t size)
{
    uint64_t magic, count, sum;
    size_t at = 2 * sizeof magic, end;

    if (size < 3 * sizeof magic)
        return -EBADMSG;
    end = size - sizeof sum;
    memcpy(&magic, data, sizeof magic);
    memcpy(&count, data + sizeof magic, sizeof count);
    memcpy(&sum, data + end, sizeof sum);
    if (magic != FILE_MAGIC || count > FB_EVICTIONS_MAX || sum != fb_hash64(data, end))
        return -EBADMSG;
    for (uint64_t i = 0; i < count; i++) {
        struct note_header h;
        int rc;

        if (end - at < sizeof h)
            return -EBADMSG;
        memcpy(&h, data + at, sizeof h);
        at += sizeof h;
        if (h.path_len >= FB_PATH_MAX || end - at < h.path_len || !note_good(&h, data + at))
            return -EBADMSG;
        rc = append(e, &h, data + at);
        if (rc < 0)
            return rc;
        at += h.path_len;
    }
    return at == end ? 0 : -EBADMSG;
}

int fb_evictions_open(int dir_fd, struct fb_evictions **ret_evictions)
{
    struct fb_evictions *e = fb_alloc(sizeof *e);
    FB_AUTO_FREE char *data = NULL;
    size_t size = 0;
    int rc = -ENOENT;

    if (!e)
        return -ENOMEM;
    e->dir_fd = dir_fd;
    if (dir_fd >= 0)
        rc = fb_durable_read(dir_fd, FILE_NAME, FILE_MAX, &data, &size);
    if (rc == 0)
        rc = parse(e, data, size);
    if (rc < 0 && rc != -ENOENT) {
        fb_log_warn("the list of evicted paths is damaged: everything cached on disk is dropped");
        e->all = true;
    }
    *ret_evictions = e;
    return 0;
}

void fb_evictions_close(struct fb_evictions *e)
{
    if (!e)
        return;
    while (e->count > 0)
        drop_note(e, e->count - 1);
    free(e);
}

static bool covers(const struct note *note, uint16_t source, const char *path)
{
    size_t len = note->header.path_len;

    if (note->header.all_sources)
        return true;
    if (note->header.source != source || strncmp(note->path, path, len) != 0)
        return false;
    return len == 0 || path[len] == '\0' || path[len] == '/';
}

/* Makes room by turning all notes of a source into one for the whole of it. */
static void collapse(struct fb_evictions *e, uint16_t source)
{
    for (unsigned i = e->count; i-- > 0;)
        if (e->notes[i].header.source == source && !e->notes[i].header.all_sources)
            drop_note(e, i);
}

int fb_evictions_add(struct fb_evictions *e, uint64_t sequence, uint16_t source, const char *path)
{
    struct note_header h = {
        .sequence = sequence, .source = source, .path_len = (uint16_t)strlen(path)};
    int rc;

    if (e->dir_fd < 0)
        return 0;
    /* What the new note covers is said by it, too. */
    for (unsigned i = e->count; i-- > 0;) {
        struct note wider = {.header = h, .path = (char *)path};

        if (!e->notes[i].header.all_sources &&
            covers(&wider, e->notes[i].header.source, e->notes[i].path))
            drop_note(e, i);
    }
    if (e->count == FB_EVICTIONS_MAX) {
        collapse(e, source);
        h.path_len = 0;
    }
    if (e->count == FB_EVICTIONS_MAX)
        return -ENOSPC; /* as many sources as notes, each noted whole */
    rc = append(e, &h, path);
    return rc < 0 ? rc : store_file(e);
}

bool fb_evictions_hide(const struct fb_evictions *e, uint64_t sequence, uint16_t source,
                       const char *path)
{
    if (e->all)
        return true;
    for (unsigned i = 0; i < e->count; i++)
        if (sequence <= e->notes[i].header.sequence && covers(&e->notes[i], source, path))
            return true;
    return false;
}

uint64_t fb_evictions_sequence(const struct fb_evictions *e)
{
    uint64_t highest = 0;

    for (unsigned i = 0; i < e->count; i++)
        highest = e->notes[i].header.sequence > highest ? e->notes[i].header.sequence : highest;
    return highest;
}

int fb_evictions_trim(struct fb_evictions *e, uint64_t oldest, uint64_t newest)
{
    const struct note_header everything = {.sequence = newest, .all_sources = 1};
    unsigned before = e->count;
    bool damaged = e->all;
    int rc;

    if (damaged) {
        /* What is hidden now is hidden by the next start, too. */
        while (e->count > 0)
            drop_note(e, e->count - 1);
        rc = append(e, &everything, "");
        if (rc < 0)
            return rc;
        e->all = false;
    }
    for (unsigned i = e->count; i-- > 0;)
        if (e->notes[i].header.sequence < oldest)
            drop_note(e, i);
    return e->dir_fd >= 0 && (damaged || e->count != before) ? store_file(e) : 0;
}
