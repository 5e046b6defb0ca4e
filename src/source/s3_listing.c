#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"
#include "source/s3_key.h"
#include "source/s3_text.h"

struct item {
    uint32_t at; /* where its name is in the page's */
    uint32_t len;
    struct fb_version version;
};

struct items {
    struct item *all;
    unsigned count;
    unsigned room;
};

struct held {
    uint32_t len; /* its name is the first bytes of held_name */
    struct fb_version version;
};

struct fb_s3_listing {
    char *prefix;
    size_t prefix_len;
    fb_s3_entry_fn *entry;
    void *arg;
    struct fb_s3_listing_stats stats;

    /* The page at hand. */
    struct fb_s3_text names; /* each with a zero */
    struct items files;
    struct items directories;
    bool foreign; /* something lies elsewhere: the server does not know what it was asked */

    char held_name[FB_NAME_MAX];
    struct held held[FB_NAME_MAX];
    unsigned held_count;

    /* The last directory, which may come again: at the start of the next page, or for every key
     * below it from a server that knows no delimiter. */
    char directory[FB_NAME_MAX];
    size_t directory_len;
};

int fb_s3_listing_create(const char *prefix, fb_s3_entry_fn *entry, void *arg,
                         struct fb_s3_listing **ret_listing)
{
    struct fb_s3_listing *listing = fb_alloc(sizeof *listing);

    if (!listing)
        return -ENOMEM;
    listing->prefix = fb_strdup(prefix);
    if (!listing->prefix) {
        fb_s3_listing_destroy(listing);
        return -ENOMEM;
    }
    listing->prefix_len = strlen(prefix);
    listing->entry = entry;
    listing->arg = arg;
    *ret_listing = listing;
    return 0;
}

void fb_s3_listing_destroy(struct fb_s3_listing *listing)
{
    if (!listing)
        return;
    free(listing->prefix);
    free(listing->files.all);
    free(listing->directories.all);
    fb_s3_text_free(&listing->names);
    free(listing);
}

void fb_s3_listing_stats(const struct fb_s3_listing *listing, struct fb_s3_listing_stats *ret_stats)
{
    *ret_stats = listing->stats;
}

/* ---- collecting a page ----------------------------------------------------------------------- */

static int items_room(struct items *items)
{
    unsigned room = items->room ? 2 * items->room : 64;
    struct item *all;

    if (items->count < items->room)
        return 0;
    all = fb_alloc_array(room, sizeof *all);
    if (!all)
        return -ENOMEM;
    if (items->count > 0)
        memcpy(all, items->all, items->count * sizeof *all);
    free(items->all);
    items->all = all;
    items->room = room;
    return 0;
}

static int add(struct fb_s3_listing *listing, struct items *items, const char *name, size_t len,
               const struct fb_version *version)
{
    struct item *item;
    int r;

    if (!fb_s3_name_ok(name, len)) {
        listing->stats.invisible++;
        return 0;
    }
    if (listing->files.count + listing->directories.count == FB_S3_PAGE_MAX)
        return -EBADMSG;
    r = items_room(items);
    if (r < 0)
        return r;
    item = &items->all[items->count];
    *item = (struct item){.at = (uint32_t)listing->names.len, .len = (uint32_t)len};
    if (version)
        item->version = *version;
    fb_s3_text_add(&listing->names, name, len);
    fb_s3_text_addc(&listing->names, '\0');
    if (!fb_s3_text_ok(&listing->names))
        return -ENOMEM;
    items->count++;
    return 0;
}

/* The key below the listed directory; NULL for one that is not, and the page is none. */
static const char *below(struct fb_s3_listing *listing, const char *key, size_t len)
{
    if (len >= listing->prefix_len && !memcmp(key, listing->prefix, listing->prefix_len))
        return key + listing->prefix_len;
    listing->foreign = true;
    return NULL;
}

int fb_s3_listing_add(struct fb_s3_listing *listing, const char *key, size_t len,
                      const struct fb_version *version)
{
    const char *name = below(listing, key, len);
    const char *slash;

    if (!name)
        return 0;
    len -= listing->prefix_len;
    if (len == 0) {
        listing->stats.marker = true;
        return 0;
    }
    /* There is a slash only from a server that knows no delimiter. */
    slash = memchr(name, '/', len);
    if (slash)
        return add(listing, &listing->directories, name, (size_t)(slash - name), NULL);
    return add(listing, &listing->files, name, len, version);
}

int fb_s3_listing_add_prefix(struct fb_s3_listing *listing, const char *prefix, size_t len)
{
    const char *name = below(listing, prefix, len);
    const char *slash;

    if (!name)
        return 0;
    len -= listing->prefix_len;
    slash = memchr(name, '/', len);
    return add(listing, &listing->directories, name, slash ? (size_t)(slash - name) : len, NULL);
}

void fb_s3_listing_forget_page(struct fb_s3_listing *listing)
{
    listing->files.count = 0;
    listing->directories.count = 0;
    listing->foreign = false;
    fb_s3_text_clear(&listing->names);
}

/* ---- letting entries go ---------------------------------------------------------------------- */

static int let_go(struct fb_s3_listing *listing, const char *name, size_t len,
                  const struct fb_version *version)
{
    char text[FB_NAME_MAX + 1];
    struct fb_s3_entry entry = {.name = text, .name_len = len, .directory = !version};

    memcpy(text, name, len);
    text[len] = '\0';
    if (version)
        entry.version = *version;
    listing->stats.entries++;
    return listing->entry(listing->arg, &entry);
}

static int let_held_go(struct fb_s3_listing *listing)
{
    const struct held *held = &listing->held[--listing->held_count];

    return let_go(listing, listing->held_name, held->len, &held->version);
}

/* Lets the held files go that `name` has passed, and forgets the one it takes the place of. */
static int pass(struct fb_s3_listing *listing, const char *name, size_t len, bool directory)
{
    int r = 0;

    while (r == 0 && listing->held_count > 0) {
        size_t held_len = listing->held[listing->held_count - 1].len;
        bool begins = len >= held_len && !memcmp(name, listing->held_name, held_len);

        if (begins && len > held_len && (unsigned char)name[held_len] < '/')
            return 0;
        if (begins && len == held_len) {
            listing->held_count--;
            listing->stats.hidden += directory;
        } else {
            r = let_held_go(listing);
        }
    }
    return r;
}

static int take_file(struct fb_s3_listing *listing, const struct item *item)
{
    const char *name = listing->names.data + item->at;
    int r = pass(listing, name, item->len, false);

    if (r < 0)
        return r;
    FB_ASSERT(listing->held_count < FB_NAME_MAX);
    listing->held[listing->held_count++] =
        (struct held){.len = item->len, .version = item->version};
    memcpy(listing->held_name, name, item->len);
    return 0;
}

static int take_directory(struct fb_s3_listing *listing, const struct item *item)
{
    const char *name = listing->names.data + item->at;
    int r = pass(listing, name, item->len, true);

    if (r < 0)
        return r;
    if (listing->directory_len == item->len && !memcmp(listing->directory, name, item->len))
        return 0;
    memcpy(listing->directory, name, item->len);
    listing->directory_len = item->len;
    return let_go(listing, name, item->len, NULL);
}

/* Whether the key of file `a` comes before `b` with a slash. */
static bool file_first(const char *names, const struct item *a, const struct item *b)
{
    size_t len = a->len < b->len ? a->len : b->len;
    int order = memcmp(names + a->at, names + b->at, len);

    if (order)
        return order < 0;
    return a->len <= b->len || (unsigned char)names[a->at + len] < '/';
}

int fb_s3_listing_end_page(struct fb_s3_listing *listing, bool last)
{
    const struct items *files = &listing->files, *directories = &listing->directories;
    unsigned f = 0, d = 0;
    int r = listing->foreign ? -EBADMSG : 0;

    while (r == 0 && (f < files->count || d < directories->count)) {
        bool file = f < files->count &&
                    (d == directories->count ||
                     file_first(listing->names.data, &files->all[f], &directories->all[d]));

        if (file)
            r = take_file(listing, &files->all[f++]);
        else
            r = take_directory(listing, &directories->all[d++]);
    }
    fb_s3_listing_forget_page(listing);
    while (r == 0 && last && listing->held_count > 0)
        r = let_held_go(listing);
    return r;
}
