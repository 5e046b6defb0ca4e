/*
 * OPENDIR and READDIR: pages of a listing, fetched one ahead of the reader.
 *
 * Entries are numbered as they come out of the listing (s3_key.h), and the number is the cookie. A
 * directory keeps the page that is read and the next one; so its memory is bounded, however many
 * keys there are. Who goes back further than that has the listing begin anew.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_priv.h"

#define PAGES_MAX   2
#define PATIENCE_NS (10 * FB_NS_PER_S) /* for a page that nobody waits for */

struct page {
    char *data; /* struct fb_source_dirent ... */
    size_t used, room;
    uint64_t first, last; /* cookies; first > last: empty */
    int64_t come_ns;
};

struct dir {
    struct fb_source_handle base;
    struct fb_list link;
    struct fb_s3 *s3;
    char key[FB_S3_KEY_MAX + 1];
    struct fb_s3_pages listed;
    struct page pages[PAGES_MAX]; /* the second follows the first */
    unsigned page_count;
    uint64_t next_cookie;
    struct fb_s3_op *waiting; /* OPENDIR or READDIR */
};

struct dir_op {
    struct fb_s3_op base;
    struct dir *dir;
};

static struct dir *dir_at(struct fb_source_handle *handle)
{
    return FB_CONTAINER_OF(handle, struct dir, base);
}

struct fb_source_handle *fb_s3_dir_of(struct fb_list *link)
{
    return &FB_LIST_ENTRY(link, struct dir, link)->base;
}

/* ---- pages, for whoever lists ---------------------------------------------------------------- */

static int page_entry(struct fb_s3_call *call, const struct fb_s3_xml_entry *entry)
{
    struct fb_s3_pages *pages = FB_CONTAINER_OF(call, struct fb_s3_pages, call);
    struct fb_version version;

    if (entry->prefix)
        return fb_s3_listing_add_prefix(pages->listing, entry->key, entry->key_len);
    version = fb_s3_version(entry->size, entry->mtime_ns, entry->etag);
    return fb_s3_listing_add(pages->listing, entry->key, entry->key_len, &version);
}

static void page_restart(struct fb_s3_call *call)
{
    fb_s3_listing_forget_page(FB_CONTAINER_OF(call, struct fb_s3_pages, call)->listing);
}

int fb_s3_pages_begin(struct fb_s3_pages *pages, const char *key, fb_s3_entry_fn *entry, void *arg)
{
    pages->out = pages->ended = pages->failed = false;
    pages->asked = 0;
    pages->token[0] = '\0';
    return fb_s3_listing_create(key, entry, arg, &pages->listing);
}

void fb_s3_pages_fetch(struct fb_s3 *s3, struct fb_s3_pages *pages, const char *key,
                       int64_t deadline_ns, void (*done)(struct fb_s3_call *call), void *arg)
{
    pages->call = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = "",
        .query = {{"list-type", "2"},
                  {"delimiter", "/"},
                  {"prefix", key},
                  {"continuation-token", pages->token}},
        .query_count = pages->token[0] ? 4 : 3,
        .entry = page_entry,
        .restart = page_restart,
        .deadline_ns = deadline_ns,
        .done = done,
        .arg = arg,
    };
    pages->out = true;
    pages->asked++;
    fb_s3_http_submit(s3->http, &pages->call);
}

int fb_s3_pages_come(struct fb_s3_pages *pages)
{
    struct fb_s3_call *call = &pages->call;
    int r;

    pages->out = false;
    if (call->result < 0)
        return call->result;
    /* It would go round and round. */
    if (call->answer->truncated && strcmp(pages->token, call->answer->token) == 0)
        return -EIO;
    r = fb_s3_listing_end_page(pages->listing, !call->answer->truncated);
    if (r < 0) {
        /* Part of it may have gone out: it cannot be asked for again, and is no end either. */
        pages->failed = true;
        return r == -EBADMSG ? -EIO : r;
    }
    pages->ended = !call->answer->truncated;
    snprintf(pages->token, sizeof pages->token, "%s", call->answer->token);
    return 0;
}

void fb_s3_pages_end(struct fb_s3 *s3, struct fb_s3_pages *pages)
{
    if (pages->out)
        fb_s3_http_cancel(s3->http, &pages->call);
    pages->out = false;
    fb_s3_listing_destroy(fb_steal(pages->listing));
}

void fb_s3_entry_attr(const struct fb_s3 *s3, const char *dir_key, const struct fb_s3_entry *entry,
                      struct fb_attr *ret_attr)
{
    char key[FB_S3_KEY_MAX + FB_NAME_MAX + 2];

    snprintf(key, sizeof key, "%s%s%s", dir_key, entry->name, entry->directory ? "/" : "");
    if (entry->directory) {
        fb_s3_dir_attr(s3, key, ret_attr);
        return;
    }
    fb_s3_file_attr(s3, key, 0, 0, "", ret_attr);
    ret_attr->version = entry->version;
    ret_attr->atime_ns = entry->version.mtime_ns;
    ret_attr->blocks = (entry->version.size + 511) / 512;
}

/* ---- entries --------------------------------------------------------------------------------- */

static int add_entry(void *arg, const struct fb_s3_entry *entry)
{
    struct dir *dir = arg;
    struct page *page = &dir->pages[dir->page_count];
    size_t length = (sizeof(struct fb_source_dirent) + entry->name_len + 8) & ~(size_t)7;
    struct fb_source_dirent *d;

    if (page->used + length > page->room) {
        size_t room = page->room ? page->room * 2 : FB_SOURCE_LIST_BYTES;
        char *data = realloc(page->data, room);

        if (!data)
            return -ENOMEM;
        page->data = data;
        page->room = room;
    }
    d = (struct fb_source_dirent *)(void *)(page->data + page->used);
    memset(d, 0, length);
    d->length = (uint32_t)length;
    d->name_len = (uint8_t)entry->name_len;
    d->type = entry->directory ? DT_DIR : DT_REG;
    d->cookie = dir->next_cookie++;
    memcpy(d->name, entry->name, entry->name_len);
    fb_s3_entry_attr(dir->s3, dir->key, entry, &d->attr);
    d->ino = d->attr.ino;
    d->has_attr = true;
    d->no_xattrs = true;
    page->used += length;
    page->last = d->cookie;
    return 0;
}

static void page_free(struct page *page)
{
    free(fb_steal(page->data));
    page->used = page->room = 0;
}

static void drop_first(struct dir *dir)
{
    page_free(&dir->pages[0]);
    dir->pages[0] = dir->pages[1];
    dir->pages[1] = (struct page){.data = NULL};
    dir->page_count--;
}

static void drop_all(struct dir *dir)
{
    for (unsigned i = 0; i < PAGES_MAX; i++)
        page_free(&dir->pages[i]);
    dir->page_count = 0;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void serve(struct dir *dir);

static void page_done(struct fb_s3_call *call)
{
    struct dir *dir = call->arg;
    struct page *page = &dir->pages[dir->page_count];
    int r;

    page->first = dir->next_cookie;
    page->last = page->first - 1;
    page->come_ns = fb_now_ns();
    r = fb_s3_pages_come(&dir->listed);
    if (r == 0 && page->used > 0)
        dir->page_count++;
    else
        page_free(page);
    /* An error is for whoever waits; without anybody the page is asked for again in time. */
    if (r < 0 && dir->waiting) {
        struct fb_s3_op *op = fb_steal(dir->waiting);
        bool opening = op->job->op == FB_SOURCE_OPENDIR;

        fb_s3_op_end(op, r == -ENOENT ? -EIO : r);
        if (opening)
            fb_s3_closedir(&dir->base);
        return;
    }
    serve(dir);
}

static void fetch_page(struct dir *dir)
{
    int64_t deadline_ns = dir->waiting ? dir->waiting->job->deadline_ns : fb_now_ns() + PATIENCE_NS;

    if (dir->listed.out || dir->listed.ended || dir->listed.failed || dir->page_count == PAGES_MAX)
        return;
    fb_s3_pages_fetch(dir->s3, &dir->listed, dir->key, deadline_ns, page_done, dir);
}

static int begin_listing(struct dir *dir)
{
    fb_s3_pages_end(dir->s3, &dir->listed);
    dir->next_cookie = 1;
    drop_all(dir);
    return fb_s3_pages_begin(&dir->listed, dir->key, add_entry, dir);
}

/* ---- readers --------------------------------------------------------------------------------- */

/* As many entries behind the cookie as fit into one batch; whether those are all of the page. */
static int take_batch(const struct page *page, struct fb_source_job *job, bool *ret_all)
{
    size_t at = 0, until;

    while (at < page->used) {
        const struct fb_source_dirent *d = (const void *)(page->data + at);

        if (d->cookie > job->cookie)
            break;
        at += d->length;
    }
    until = at;
    while (until < page->used) {
        const struct fb_source_dirent *d = (const void *)(page->data + until);

        if (until + d->length - at > FB_SOURCE_LIST_BYTES)
            break;
        until += d->length;
    }
    job->data = malloc(until - at + 1);
    if (!job->data)
        return -ENOMEM;
    memcpy(job->data, page->data + at, until - at);
    job->data_len = until - at;
    *ret_all = until == page->used;
    return 0;
}

static void serve_opendir(struct dir *dir)
{
    struct fb_s3_op *op = dir->waiting;
    struct fb_s3_listing_stats stats;
    bool there;

    fb_s3_listing_stats(dir->listed.listing, &stats);
    there = stats.entries > 0 || stats.invisible > 0 || stats.hidden > 0 || stats.marker ||
            dir->page_count > 0 || !*op->job->path || fb_s3_kept_has(dir->s3, dir->key);
    if (!there && !dir->listed.ended) {
        fetch_page(dir);
        return;
    }
    dir->waiting = NULL;
    if (there) {
        fb_s3_dir_attr(dir->s3, dir->key, &op->job->attr);
        op->job->handle = &dir->base;
    }
    fb_s3_op_end(op, there ? 0 : -ENOENT);
    if (!there)
        fb_s3_closedir(&dir->base);
}

static void serve(struct dir *dir)
{
    struct fb_s3_op *op = dir->waiting;
    bool all = false;
    int r = 0;

    if (!op)
        return;
    if (op->job->op == FB_SOURCE_OPENDIR) {
        serve_opendir(dir);
        return;
    }
    while (dir->page_count > 0 && dir->pages[0].last <= op->job->cookie)
        drop_first(dir);
    if (dir->page_count > 0) {
        r = take_batch(&dir->pages[0], op->job, &all);
        op->job->age_ns = fb_now_ns() - dir->pages[0].come_ns;
    } else if (dir->listed.failed) {
        r = -EIO;
    }
    op->job->at_end = all && dir->page_count == 1 && dir->listed.ended;
    if (dir->page_count > 0 || dir->listed.ended || dir->listed.failed) {
        dir->waiting = NULL;
        fb_s3_op_end(op, r);
    }
    fetch_page(dir);
}

static void cancel(struct fb_s3_op *base)
{
    struct dir_op *op = FB_CONTAINER_OF(base, struct dir_op, base);
    struct dir *dir = op->dir;
    bool opening = base->job->op == FB_SOURCE_OPENDIR;

    dir->waiting = NULL;
    fb_s3_op_end(base, -ETIMEDOUT);
    if (opening)
        fb_s3_closedir(&dir->base);
}

void fb_s3_opendir(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct dir *dir = fb_alloc(sizeof *dir);
    struct dir_op *op;
    ssize_t n;

    if (!dir) {
        fb_source_job_finish(job, -ENOMEM);
        return;
    }
    dir->s3 = s3;
    fb_list_push_back(&s3->dirs, &dir->link);
    n = fb_s3_key_make(s3->prefix, job->path, true, dir->key);
    if (n >= 0)
        n = begin_listing(dir);
    if (n < 0) {
        fb_s3_closedir(&dir->base);
        fb_source_job_finish(job, n == -EINVAL ? -ENOENT : (int)n);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, cancel);
    if (!op) {
        fb_s3_closedir(&dir->base);
        return;
    }
    op->dir = dir;
    dir->waiting = &op->base;
    if (fb_s3_seen_list(s3, dir->key, job->max_age_ns, add_entry, dir)) {
        dir->pages[0].first = 1;
        dir->pages[0].come_ns = fb_now_ns() - job->max_age_ns;
        dir->page_count = 1;
        dir->listed.ended = true;
        serve(dir);
        return;
    }
    page_free(&dir->pages[0]);
    dir->next_cookie = 1;
    fetch_page(dir);
}

void fb_s3_readdir(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct dir *dir = dir_at(job->handle);
    struct dir_op *op;
    uint64_t oldest = dir->page_count > 0 ? dir->pages[0].first : dir->next_cookie;

    /* Nobody waits for an earlier one any more, or it would not be asked again. */
    if (dir->waiting)
        cancel(dir->waiting);
    if (job->cookie + 1 < oldest && begin_listing(dir) < 0) {
        fb_source_job_finish(job, -ENOMEM);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, cancel);
    if (!op)
        return;
    op->dir = dir;
    dir->waiting = &op->base;
    serve(dir);
}

void fb_s3_closedir(struct fb_source_handle *handle)
{
    struct dir *dir = dir_at(handle);

    fb_s3_pages_end(dir->s3, &dir->listed);
    drop_all(dir);
    fb_list_remove(&dir->link);
    free(dir);
}
