/*
 * source/s3_key.h - names: which objects of a bucket appear as which files and directories.
 *
 * A source is a bucket and a prefix that is empty or ends in '/'; a path below it is the rest of a
 * key. Keys with `/` make directories: `a/b` is file `b` in directory `a`, and so is every key that
 * ends in `/`, the marker of a directory that may be empty (the bytes of such an object cannot be
 * reached). A component that cannot be the name of a file - empty, `.`, `..`, over FB_NAME_MAX
 * bytes, with a zero byte - makes all keys that have it invisible. Where there are an object `a`
 * and keys below `a/`, the directory is what one sees.
 *
 * Listings. S3 lists keys in the order of their bytes, in pages, with the directories ("common
 * prefixes") of a page in a list of their own. Directory `a/` does not follow file `a` at once:
 * `a!x`, `a-b`, `a.txt` and whatever else goes on with a byte below '/' come between, be it pages
 * of them. So a file is held back until the listing has passed `name/`. How many can be held? When
 * a key k comes, a file f is still held only while k begins with f and goes on with a byte below
 * '/'. So everything held is a beginning of k, and no two of them are equally long: there are at
 * most FB_NAME_MAX, each a beginning of the one that came after it, and the bytes of the last one
 * hold the names of all. They are let go from the last to the first. What comes out is ordered as
 * if every name had a '/' at its end.
 *
 * A server that does not list in order can show a file and a directory of the same name; nothing
 * worse happens.
 */
#ifndef FB_SOURCE_S3_KEY_H
#define FB_SOURCE_S3_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "core/error.h"
#include "proto/file.h"

#define FB_S3_KEY_MAX    1024 /* bytes of a key */
#define FB_S3_BUCKET_MAX 255
#define FB_S3_PAGE_MAX   4096 /* entries in one page; S3 sends 1,000 at most */

/* `s3://bucket` and `s3://bucket/prefix`, with or without a final '/': both texts are malloc'd, the
 * prefix "" or with a final '/'. -EINVAL or -ENAMETOOLONG with a sentence. */
FB_MUST_CHECK int fb_s3_url_parse(const char *url, char **ret_bucket, char **ret_prefix,
                                  struct fb_error *err);

/* A name a file can have. */
bool fb_s3_name_ok(const char *name, size_t len);

/* The key of a path; of a directory that of its marker, which is also the prefix of what is in it.
 * "" is the root, which is a directory: its key is the prefix, which may be "". Gives the length.
 * -ENAMETOOLONG beyond FB_S3_KEY_MAX or for a component over FB_NAME_MAX, -EINVAL for other
 * components that are no names. */
FB_MUST_CHECK ssize_t fb_s3_key_make(const char *prefix, const char *path, bool directory,
                                     char ret_key[FB_S3_KEY_MAX + 1]);

/* An inode number for a key, the same in every run: never 0, nor 1, which is the root's. */
uint64_t fb_s3_ino(const char *key, size_t len);

/* Decodes, in place, a name of a listing made with encoding-type=url: %XX, and '+' for a space,
 * since servers encode a real '+' as %2B. Gives the new length; -EBADMSG for a wrong code. */
FB_MUST_CHECK ssize_t fb_s3_decode(char *text, size_t len);

/* ---- listings -------------------------------------------------------------------------------- */

struct fb_s3_entry {
    const char *name; /* name_len bytes, and a zero */
    size_t name_len;
    bool directory;
    struct fb_version version; /* of a file */
};

/* A negative result ends the listing. `entry` is valid during the call. */
typedef int fb_s3_entry_fn(void *arg, const struct fb_s3_entry *entry);

/* What one listing goes through, page by page: add everything of a page, in the order of the body,
 * then end the page; or forget it, when the body broke off and is asked for again. Entries come
 * out at the end of each page, those held back later. */
struct fb_s3_listing;

/* `prefix` is the key of the directory that is listed. */
FB_MUST_CHECK int fb_s3_listing_create(const char *prefix, fb_s3_entry_fn *entry, void *arg,
                                       struct fb_s3_listing **ret_listing);
void fb_s3_listing_destroy(struct fb_s3_listing *listing); /* takes NULL */

/* The key of an object, or a common prefix, decoded. -EBADMSG when the page has too many. */
FB_MUST_CHECK int fb_s3_listing_add(struct fb_s3_listing *listing, const char *key, size_t len,
                                    const struct fb_version *version);
FB_MUST_CHECK int fb_s3_listing_add_prefix(struct fb_s3_listing *listing, const char *prefix,
                                           size_t len);
void fb_s3_listing_forget_page(struct fb_s3_listing *listing);

/* `last`: there are no more pages. -EBADMSG when the page has a key that does not lie below the
 * directory. */
FB_MUST_CHECK int fb_s3_listing_end_page(struct fb_s3_listing *listing, bool last);

struct fb_s3_listing_stats {
    uint64_t entries;   /* that came out */
    uint64_t invisible; /* keys and common prefixes that cannot be names */
    uint64_t hidden;    /* objects behind a directory of their name */
    bool marker;        /* the listing has the object of the directory itself */
};

/* A directory exists when its listing has an entry, an invisible one, or a marker. */
void fb_s3_listing_stats(const struct fb_s3_listing *listing,
                         struct fb_s3_listing_stats *ret_stats);

#endif
