/*
 * core/test_dir.h - for unit tests: a directory of their own that leaves nothing behind.
 */
#ifndef FB_CORE_TEST_DIR_H
#define FB_CORE_TEST_DIR_H

#include <cmocka.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/attr.h"

struct fb_test_dir {
    char path[PATH_MAX];
};

static inline void fb_test_dir_make(struct fb_test_dir *d)
{
    const char *tmp = secure_getenv("TMPDIR");

    snprintf(d->path, sizeof d->path, "%s/forebay-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(d->path));
}

static inline int fb_test_dir_remove_one(const char *path, const struct stat *st, int type,
                                         struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void fb_test_dir_remove(struct fb_test_dir *d)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a test's threads have ended by then */
    assert_int_equal(nftw(d->path, fb_test_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* The full path of `name`; the text is valid until the next call in this thread. */
static inline const char *fb_test_dir_path(const struct fb_test_dir *d, const char *name)
{
    static _Thread_local char full[2 * PATH_MAX];

    snprintf(full, sizeof full, "%s/%s", d->path, name);
    return full;
}

/* Writes a file, making the directories above it. */
static inline void fb_test_dir_write(const struct fb_test_dir *d, const char *name,
                                     const char *text)
{
    char full[2 * PATH_MAX];
    FILE *f;

    strcpy(full, fb_test_dir_path(d, name)); /* NOLINT: both have the same size */
    for (char *p = full + strlen(d->path) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    f = fopen(full, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The file as a string, what fits of it; NULL when there is none. Returns buf. */
static inline char *fb_test_dir_read(const struct fb_test_dir *d, const char *name, char *buf,
                                     size_t size)
{
    FILE *f = fopen(fb_test_dir_path(d, name), "re");

    if (!f)
        return NULL;
    buf[fread(buf, 1, size - 1, f)] = 0;
    fclose(f);
    return buf;
}

#endif
