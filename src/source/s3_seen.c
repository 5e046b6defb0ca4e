/*
 * What listings told of late: names that were never looked up before are answered from there.
 *
 * A program that opens files by their names, and lists nothing, costs three requests a file: HEAD,
 * a listing of one key, GET. So a directory in which some names were asked for is listed in the
 * background, and what that shows is the answer for a moment: one request for a thousand names.
 *
 *     ASKED_FIRST names asked for ──► listed ──► answers, for KEPT_NS at most ──► listed again
 *                                                      └─ too few to pay for it: not for a while
 *
 * Who asks while the first page is on its way waits for it: that takes no longer than an answer of
 * its own, which would be two requests. And who lists the whole directory, and is content with what
 * is that old, has it from here.
 *
 * Only what is there is answered. A name that a listing does not have may have come since, and is
 * asked for. How old an answer may be is for the caller to say (max_age_ns of a job), and who looks
 * again at something known always gets the server's word. Whatever is changed through this source
 * makes it forget everything here, and nothing is listed while a change is under way.
 *
 * Bounded: DIRS_MAX directories, NAMES_MAX names in one, ALL_NAMES_MAX in all of them, PAGES_MAX
 * requests. A longer directory is known as far as that.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_priv.h"
#include "source/s3_text.h"

#define ASKED_FIRST   2
#define KEPT_NS       (5 * FB_NS_PER_S)
#define PATIENCE_NS   (10 * FB_NS_PER_S) /* for a page */
#define PAUSE_NS      (15 * FB_NS_PER_S) /* after a listing that did not pay; doubled each time */
#define PAUSES_MAX    6
#define PAYS          2 /* answers a page */
#define DIRS_MAX      256u
#define NAMES_MAX     10000u
#define ALL_NAMES_MAX 32768u
#define PAGES_MAX     64u /* some may be empty */

struct name {
    uint32_t at; /* in the text */
    uint32_t len;
    bool directory;
    bool wrong;                /* as we know by now */
    struct fb_version version; /* of a file */
};

struct dir {
    struct fb_list link; /* the least recently used first */
    struct fb_s3 *s3;
    uint64_t hash;
    unsigned asked; /* of the server, since there is nothing to answer from */
    unsigned pauses;
    int64_t not_before_ns;

    /* A listing, and what it told. */
    int64_t since_ns; /* 0: there is none */
    unsigned answers;
    struct fb_s3_pages pages;
    bool whole;             /* every entry is here */
    struct fb_list waiters; /* for the first page */
    struct name *names;
    uint32_t count, room;
    uint32_t *slots; /* a name's number and one, by the hash of the name; as many as twice `room` */
    struct fb_s3_text text;

    char key[];
};

struct fb_s3_seen {
    struct fb_list dirs;
    unsigned dir_count;
    uint32_t names;
};

/* ---- names ----------------------------------------------------------------------------------- */

static uint32_t *slot_of(const struct dir *dir, const char *name, size_t len)
{
    uint32_t mask = 2 * dir->room - 1, at = (uint32_t)fb_hash64(name, len) & mask;

    while (dir->slots[at]) {
        const struct name *n = &dir->names[dir->slots[at] - 1];

        if (n->len == len && memcmp(dir->text.data + n->at, name, len) == 0)
            break;
        at = (at + 1) & mask;
    }
    return &dir->slots[at];
}

static int make_room(struct dir *dir)
{
    uint32_t room = dir->room ? 2 * dir->room : 128;
    struct name *names = fb_alloc_array(room, sizeof *names);
    uint32_t *slots = fb_alloc_array(2 * (size_t)room, sizeof *slots);

    if (!names || !slots) {
        free(names);
        free(slots);
        return -ENOMEM;
    }
    if (dir->count > 0)
        memcpy(names, dir->names, dir->count * sizeof *names);
    free(dir->names);
    free(dir->slots);
    dir->names = names;
    dir->slots = slots;
    dir->room = room;
    for (uint32_t i = 0; i < dir->count; i++)
        *slot_of(dir, dir->text.data + names[i].at, names[i].len) = i + 1;
    return 0;
}

static int add_name(void *arg, const struct fb_s3_entry *entry)
{
    struct dir *dir = arg;
    struct fb_s3_seen *seen = dir->s3->seen;
    size_t at = dir->text.len;
    uint32_t *slot;
    int r = dir->count == dir->room ? make_room(dir) : 0;

    if (r < 0 || dir->count == NAMES_MAX || seen->names == ALL_NAMES_MAX)
        return -ENOSPC;
    slot = slot_of(dir, entry->name, entry->name_len);
    fb_s3_text_add(&dir->text, entry->name, entry->name_len);
    if (*slot || !fb_s3_text_ok(&dir->text))
        return -ENOSPC;
    dir->names[dir->count] = (struct name){.at = (uint32_t)at,
                                           .len = (uint32_t)entry->name_len,
                                           .directory = entry->directory,
                                           .version = entry->version};
    *slot = ++dir->count;
    seen->names++;
    return 0;
}

/* ---- directories ----------------------------------------------------------------------------- */

static void tell(struct dir *dir, bool listed)
{
    struct fb_list waiters;

    fb_list_init(&waiters);
    fb_list_splice(&waiters, &dir->waiters);
    /* The directory may go meanwhile. */
    while (!fb_list_empty(&waiters)) {
        struct fb_s3_waiter *w = FB_LIST_ENTRY(waiters.next, struct fb_s3_waiter, link);

        fb_list_remove(&w->link);
        w->done(w, listed);
    }
}

static void forget_names(struct dir *dir)
{
    fb_s3_pages_end(dir->s3, &dir->pages);
    dir->whole = false;
    dir->s3->seen->names -= dir->count;
    free(fb_steal(dir->names));
    free(fb_steal(dir->slots));
    fb_s3_text_free(&dir->text);
    dir->count = dir->room = 0;
    dir->since_ns = 0;
    dir->asked = 0;
    tell(dir, false);
}

static void dir_free(struct dir *dir)
{
    forget_names(dir);
    fb_list_remove(&dir->link);
    dir->s3->seen->dir_count--;
    free(dir);
}

static struct dir *dir_new(struct fb_s3 *s3, const char *key, size_t len, uint64_t hash)
{
    struct dir *dir = fb_alloc(sizeof *dir + len + 1);

    if (!dir)
        return NULL;
    dir->s3 = s3;
    dir->hash = hash;
    fb_list_init(&dir->waiters);
    memcpy(dir->key, key, len);
    s3->seen->dir_count++;
    return dir;
}

/* The one of a key, now the most recently used; NULL without memory. What is old goes. */
static struct dir *dir_at(struct fb_s3 *s3, const char *key, size_t len, int64_t now_ns)
{
    uint64_t hash = fb_hash64(key, len);
    struct dir *found = NULL;
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->seen->dirs) {
        struct dir *dir = FB_LIST_ENTRY(it, struct dir, link);

        if (s3->seen->dir_count > DIRS_MAX) {
            dir_free(dir); /* the one at hand comes last */
            continue;
        }
        if (dir->since_ns > 0 && dir->since_ns + KEPT_NS <= now_ns && !dir->pages.out) {
            bool paid = dir->answers >= PAYS * dir->pages.asked;

            dir->pauses = paid ? 0 : dir->pauses < PAUSES_MAX ? dir->pauses + 1 : PAUSES_MAX;
            dir->not_before_ns = paid ? 0 : now_ns + (PAUSE_NS << dir->pauses) / 2;
            forget_names(dir);
        }
        if (dir->hash == hash && strlen(dir->key) == len && memcmp(dir->key, key, len) == 0)
            found = dir;
    }
    if (!found)
        found = dir_new(s3, key, len, hash);
    else
        fb_list_remove(&found->link);
    if (found)
        fb_list_push_back(&s3->seen->dirs, &found->link);
    return found;
}

/* ---- listing --------------------------------------------------------------------------------- */

static void fetch_page(struct dir *dir);

static void page_done(struct fb_s3_call *call)
{
    struct dir *dir = call->arg;

    int r = fb_s3_pages_come(&dir->pages);

    /* What has come is true whatever becomes of the rest. */
    dir->whole = r == 0 && dir->pages.ended;
    if (r == 0 && !dir->pages.ended && dir->pages.asked < PAGES_MAX)
        fetch_page(dir);
    else
        fb_s3_pages_end(dir->s3, &dir->pages);
    tell(dir, true);
}

static void fetch_page(struct dir *dir)
{
    fb_s3_pages_fetch(dir->s3, &dir->pages, dir->key, fb_now_ns() + PATIENCE_NS, page_done, dir);
}

static void list(struct dir *dir, int64_t now_ns)
{
    if (fb_s3_is_changing(dir->s3) || fb_s3_pages_begin(&dir->pages, dir->key, add_name, dir) < 0)
        return;
    dir->since_ns = now_ns;
    dir->answers = 0;
    fetch_page(dir);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

/* Whether there is an answer, and what it is. */
static bool find(struct dir *dir, const char *name, struct fb_attr *ret_attr)
{
    struct fb_s3_entry entry = {.name = name, .name_len = strlen(name)};
    uint32_t slot = dir->room ? *slot_of(dir, name, entry.name_len) : 0;
    char key[FB_S3_KEY_MAX + FB_NAME_MAX + 2];
    const struct name *n;

    snprintf(key, sizeof key, "%s%s/", dir->key, name);
    /* An object may stand behind a directory that only we know of. */
    if (slot == 0 || dir->names[slot - 1].wrong || fb_s3_kept_has(dir->s3, key))
        return false;
    n = &dir->names[slot - 1];
    entry.directory = n->directory;
    entry.version = n->version;
    fb_s3_entry_attr(dir->s3, dir->key, &entry, ret_attr);
    return true;
}

/* The directory that a path lies in, and its name there; NULL without one, or memory. */
static struct dir *dir_of(struct fb_s3 *s3, const char *path, int64_t now_ns, const char **ret_name)
{
    char key[FB_S3_KEY_MAX + 1];
    ssize_t len = fb_s3_key_make(s3->prefix, path, false, key);
    const char *slash = strrchr(path, '/');

    *ret_name = slash ? slash + 1 : path;
    return len < 0 || !**ret_name ? NULL : dir_at(s3, key, (size_t)len - strlen(*ret_name), now_ns);
}

bool fb_s3_seen_find(struct fb_s3 *s3, struct fb_source_job *job)
{
    int64_t now_ns = fb_now_ns();
    const char *name;
    struct dir *dir;

    if (job->max_age_ns <= 0)
        return false;
    if (!s3->seen) {
        s3->seen = fb_alloc(sizeof *s3->seen);
        if (!s3->seen)
            return false;
        fb_list_init(&s3->seen->dirs);
    }
    dir = dir_of(s3, job->path, now_ns, &name);
    if (!dir)
        return false;
    job->age_ns = now_ns - dir->since_ns;
    if (dir->since_ns > 0 && job->age_ns <= job->max_age_ns && find(dir, name, &job->attr)) {
        dir->answers++;
        return true;
    }
    job->age_ns = 0;
    if (dir->since_ns == 0 && ++dir->asked >= ASKED_FIRST && now_ns >= dir->not_before_ns)
        list(dir, now_ns);
    return false;
}

bool fb_s3_seen_wait(struct fb_s3 *s3, const char *path, struct fb_s3_waiter *waiter)
{
    const char *name;
    struct dir *dir = s3->seen ? dir_of(s3, path, fb_now_ns(), &name) : NULL;

    if (!dir || !dir->pages.out || dir->pages.asked > 1)
        return false;
    fb_list_push_back(&dir->waiters, &waiter->link);
    return true;
}

bool fb_s3_seen_list(struct fb_s3 *s3, const char *dir_key, int64_t max_age_ns,
                     fb_s3_entry_fn *entry, void *arg)
{
    int64_t now_ns = fb_now_ns();
    const struct dir *dir =
        s3->seen && max_age_ns > 0 ? dir_at(s3, dir_key, strlen(dir_key), now_ns) : NULL;
    int r = 0;

    if (!dir || !dir->whole || dir->count == 0 || now_ns - dir->since_ns > max_age_ns)
        return false;
    for (uint32_t i = 0; i < dir->count; i++) {
        if (dir->names[i].wrong)
            return false;
    }
    for (uint32_t i = 0; i < dir->count && r == 0; i++) {
        const struct name *n = &dir->names[i];
        struct fb_s3_entry e = {.name = dir->text.data + n->at,
                                .name_len = n->len,
                                .directory = n->directory,
                                .version = n->version};

        r = entry(arg, &e);
    }
    return r == 0;
}

void fb_s3_seen_wrong(struct fb_s3 *s3, const char *path)
{
    const char *name;
    struct dir *dir = s3->seen ? dir_of(s3, path, fb_now_ns(), &name) : NULL;
    uint32_t slot = dir && dir->room ? *slot_of(dir, name, strlen(name)) : 0;

    if (slot > 0)
        dir->names[slot - 1].wrong = true;
    else if (dir && dir->pages.out)
        forget_names(dir); /* it may come yet */
}

void fb_s3_seen_forget(struct fb_s3 *s3)
{
    struct fb_list *it, *tmp;

    if (!s3->seen)
        return;
    FB_LIST_FOREACH (it, tmp, &s3->seen->dirs) {
        struct dir *dir = FB_LIST_ENTRY(it, struct dir, link);

        forget_names(dir);
    }
}

void fb_s3_seen_free(struct fb_s3 *s3)
{
    struct fb_list *it, *tmp;

    if (!s3->seen)
        return;
    FB_LIST_FOREACH (it, tmp, &s3->seen->dirs)
        dir_free(FB_LIST_ENTRY(it, struct dir, link));
    free(fb_steal(s3->seen));
}
