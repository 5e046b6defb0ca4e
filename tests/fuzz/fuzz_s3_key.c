/*
 * Names: URLs, paths, encoded keys; and listings of a bucket whose keys are the lines of the input,
 * in pages whose length its first byte gives.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"
#include "fuzz.h"
#include "source/s3_key.h"

#define KEYS_MAX    64
#define ENTRIES_MAX 64

const char *const fb_fuzz_seeds[] = {
    "s3://bucket/prefix/x",
    "a/b c/d+e/%2F%00%ff",
    "\x02\na\na!x\na-b\na.txt\na/b\nab\nb/\nb/c\n",
    "\x01\na\na\na/\na//b\n./x\n../y\na/../b\n\n/\n",
    "\x03\n!\n!!\n!!!\n!!!/x\n!!/x\n!/x\n",
    NULL,
};

const char *const fb_fuzz_words[] = {
    "/",   "//",  "/a",    "a",      "a/", "a!",   "a-",   "a.",
    "a0",  "\n",  "\na\n", "\na/\n", ".",  "..",   "%",    "%2",
    "%2F", "%00", "+",     "s3://",  "!",  "\xff", "\x01", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    NULL,
};

struct key {
    char *bytes;
    size_t len;
};

struct bucket {
    struct key keys[KEYS_MAX];
    unsigned count;
};

struct seen {
    char names[ENTRIES_MAX][FB_NAME_MAX + 2]; /* with a final slash */
    bool directories[ENTRIES_MAX];
    unsigned count;
};

/* What comes out is ordered, so nothing comes twice, and is a name. */
static int see(void *arg, const struct fb_s3_entry *entry)
{
    struct seen *seen = arg;
    char *name = seen->names[seen->count];

    FB_ASSERT(seen->count < ENTRIES_MAX && fb_s3_name_ok(entry->name, entry->name_len));
    memcpy(name, entry->name, entry->name_len);
    memcpy(name + entry->name_len, "/", 2);
    FB_ASSERT(seen->count == 0 || strcmp(seen->names[seen->count - 1], name) < 0);
    seen->directories[seen->count++] = entry->directory;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct key *)a)->bytes, ((const struct key *)b)->bytes);
}

/* The lines of a text, sorted, each once. */
static void fill(struct bucket *bucket, char *text)
{
    unsigned unique = 0;
    char *line;

    bucket->count = 0;
    while (bucket->count < KEYS_MAX && (line = strsep(&text, "\n"))) {
        if (*line)
            bucket->keys[bucket->count++] = (struct key){line, strlen(line)};
    }
    qsort(bucket->keys, bucket->count, sizeof bucket->keys[0], compare);
    for (unsigned i = 0; i < bucket->count; i++) {
        if (i == 0 || strcmp(bucket->keys[i].bytes, bucket->keys[unique - 1].bytes) != 0)
            bucket->keys[unique++] = bucket->keys[i];
    }
    bucket->count = unique;
}

/* Every key can be found in what was seen, unless its first component is no name. */
static void check_complete(const struct bucket *bucket, const struct seen *seen)
{
    for (unsigned i = 0; i < bucket->count; i++) {
        const struct key *key = &bucket->keys[i];
        size_t len = strcspn(key->bytes, "/");
        bool directory = key->bytes[len] == '/', found = false;

        for (unsigned k = 0; k < seen->count; k++)
            found |= !strncmp(seen->names[k], key->bytes, len) && seen->names[k][len] == '/' &&
                     (seen->directories[k] || !directory);
        FB_ASSERT(found == fb_s3_name_ok(key->bytes, len));
    }
}

static void list(const struct bucket *bucket, unsigned page)
{
    static struct seen seen;
    struct fb_s3_listing *listing;
    const struct fb_version version = {.size = 1};
    const char *last = NULL;
    unsigned in_page = 0;
    int r = 0;

    seen.count = 0;
    if (fb_s3_listing_create("", see, &seen, &listing) < 0)
        return;
    for (unsigned i = 0; r == 0 && i < bucket->count; i++) {
        const struct key *key = &bucket->keys[i];
        size_t len = strcspn(key->bytes, "/") + 1;

        if (len > key->len)
            r = fb_s3_listing_add(listing, key->bytes, key->len, &version);
        else if (!last || strncmp(last, key->bytes, len) != 0)
            r = fb_s3_listing_add_prefix(listing, key->bytes, len);
        if (len <= key->len)
            last = key->bytes;
        if (r == 0 && ++in_page == page) {
            r = fb_s3_listing_end_page(listing, false);
            in_page = 0;
        }
    }
    if (r == 0)
        r = fb_s3_listing_end_page(listing, true);
    FB_ASSERT(r == 0 || r == -ENOMEM);
    fb_s3_listing_destroy(listing);
    if (r == 0)
        check_complete(bucket, &seen);
}

static void check_names(char *text, size_t size)
{
    char *bucket = NULL, *prefix = NULL;
    char key[FB_S3_KEY_MAX + 1];
    ssize_t len;

    if (fb_s3_url_parse(text, &bucket, &prefix, NULL) == 0) {
        FB_ASSERT(strlen(prefix) <= FB_S3_KEY_MAX);
        FB_ASSERT(!*prefix || prefix[strlen(prefix) - 1] == '/');
        len = fb_s3_key_make(prefix, "a", true, key);
        FB_ASSERT(len == -ENAMETOOLONG || key[len - 1] == '/');
    }
    free(bucket);
    free(prefix);
    len = fb_s3_key_make("p/", text, false, key);
    if (len >= 0)
        FB_ASSERT((size_t)len == strlen(key) && len <= FB_S3_KEY_MAX && !strstr(key, "//"));
    len = fb_s3_decode(text, size);
    FB_ASSERT(len == -EBADMSG || (len >= 0 && (size_t)len <= size));
    FB_ASSERT(fb_s3_ino(text, size) > 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FB_AUTO_FREE char *text = fb_alloc(size + 1);
    static struct bucket bucket;

    if (!text)
        return 0;
    if (size > 1) {
        memcpy(text, data + 1, size - 1);
        fill(&bucket, text);
        list(&bucket, 1 + data[0] % 9);
    }
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    check_names(text, size);
    return 0;
}
