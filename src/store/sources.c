/*
 * The list of sources: which small number stands for which URI, kept in the file `sources` of the
 * first persistent directory, one line each:
 *
 *     NUMBER SUM URI          SUM: 16 hexadecimal digits over "NUMBER URI"
 *
 * A number that was given to one source must never mean another: the tables of contents know files
 * by it. So a line that does not check is dropped with its number, and numbers met in tables are
 * not given out again even if the list was lost. (Then those items are never asked for, and age
 * away.)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "io/durable.h"
#include "store/store_priv.h"

#define SOURCES_MAX      4096
#define SOURCES_FILE     "sources"
#define SOURCES_FILE_MAX (32u << 20)
#define URI_MAX          4096

struct source {
    uint16_t id;
    char *uri; /* as in the file: escaped */
};

struct fb_sources {
    struct fb_mutex lock; /* FB_RANK_SEGMENT; also while the list is written: that is rare */
    int dir_fd;
    uint32_t next_id;
    uint32_t count;
    struct source list[SOURCES_MAX];
};

/* Lines end at newlines, so an URI must not contain one. */
static char *escape(const char *uri)
{
    size_t len = strlen(uri), n = 0;
    char *text = len <= URI_MAX ? fb_alloc(3 * len + 1) : NULL;

    for (size_t i = 0; text != NULL && i < len; i++) {
        if (uri[i] == '\n' || uri[i] == '%')
            n += (size_t)sprintf(text + n, "%%%02X", (unsigned)(unsigned char)uri[i]);
        else
            text[n++] = uri[i];
    }
    return text;
}

static uint64_t line_sum(uint16_t id, const char *uri)
{
    return fb_hash64_seed(uri, strlen(uri), id);
}

static void parse_line(struct fb_sources *s, const char *line)
{
    unsigned id;
    unsigned long long sum;
    int at = 0;

    if (sscanf(line, "%5u %16llx%n", &id, &sum, &at) != 2 || line[at++] != ' ' || id > UINT16_MAX)
        return;
    /* The number is taken even where the line is no good. */
    fb_sources_seen(s, (uint16_t)id);
    if (sum != line_sum((uint16_t)id, line + at) || s->count == SOURCES_MAX)
        return;
    s->list[s->count].uri = fb_strdup(line + at);
    if (s->list[s->count].uri != NULL)
        s->list[s->count++].id = (uint16_t)id;
}

static void parse(struct fb_sources *s, char *text)
{
    char *line, *rest = text;

    while ((line = strsep(&rest, "\n")) != NULL)
        parse_line(s, line);
}

int fb_sources_open(int dir_fd, struct fb_sources **ret_sources)
{
    struct fb_sources *s = fb_alloc(sizeof *s);
    FB_AUTO_FREE char *text = NULL;
    size_t size;
    int rc = 0;

    if (s == NULL)
        return -ENOMEM;
    fb_mutex_init(&s->lock, FB_RANK_SEGMENT);
    s->dir_fd = dir_fd;
    if (dir_fd >= 0)
        rc = fb_durable_read(dir_fd, SOURCES_FILE, SOURCES_FILE_MAX, &text, &size);
    if (rc == 0 && text != NULL)
        parse(s, text);
    else if (rc != 0 && rc != -ENOENT)
        fb_log_warn("the cache's list of sources cannot be read: %s", fb_strerror(rc));
    *ret_sources = s;
    return 0;
}

void fb_sources_close(struct fb_sources *sources)
{
    if (sources == NULL)
        return;
    for (uint32_t i = 0; i < sources->count; i++)
        free(sources->list[i].uri);
    fb_mutex_destroy(&sources->lock);
    free(sources);
}

void fb_sources_seen(struct fb_sources *sources, uint16_t id)
{
    if (id >= sources->next_id)
        sources->next_id = (uint32_t)id + 1;
}

static int save(struct fb_sources *s) FB_REQUIRES(&s->lock)
{
    FB_AUTO_FREE char *text = NULL;
    size_t size = 0;
    FILE *f;
    bool bad;

    if (s->dir_fd < 0)
        return 0;
    f = open_memstream(&text, &size);
    if (f == NULL)
        return -errno;
    for (uint32_t i = 0; i < s->count; i++)
        fprintf(f, "%u %016llx %s\n", s->list[i].id,
                (unsigned long long)line_sum(s->list[i].id, s->list[i].uri), s->list[i].uri);
    bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return -ENOMEM;
    return fb_durable_write(s->dir_fd, SOURCES_FILE, text, size);
}

static int add(struct fb_sources *s, char *text, uint16_t *ret_id) FB_REQUIRES(&s->lock)
{
    int rc;

    if (s->count == SOURCES_MAX || s->next_id > UINT16_MAX)
        return -ENOSPC;
    s->list[s->count++] = (struct source){.id = (uint16_t)s->next_id, .uri = text};
    rc = save(s);
    if (rc < 0) {
        s->count--; /* a number that is not kept must not be used */
        return rc;
    }
    *ret_id = (uint16_t)s->next_id++;
    return 0;
}

int fb_sources_id(struct fb_sources *sources, const char *uri, uint16_t *ret_id)
{
    char *text = escape(uri);
    int rc = 0;
    uint32_t i;

    if (text == NULL)
        return strlen(uri) > URI_MAX ? -ENAMETOOLONG : -ENOMEM;
    fb_mutex_lock(&sources->lock);
    for (i = 0; i < sources->count && strcmp(sources->list[i].uri, text) != 0; i++)
        continue;
    if (i < sources->count) {
        *ret_id = sources->list[i].id;
    } else {
        rc = add(sources, text, ret_id);
        if (rc == 0)
            text = NULL;
    }
    fb_mutex_unlock(&sources->lock);
    free(text);
    return rc;
}
