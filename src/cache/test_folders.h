/*
 * cache/test_folders.h - for tests of what comes before it is asked for: a cache over folders of
 * numbered files, behind a source that can be slow, or be told to fail.
 */
#ifndef FB_CACHE_TEST_FOLDERS_H
#define FB_CACHE_TEST_FOLDERS_H

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_fault.h"
#include "source/source_posix.h"

static struct fb_test_dir dir;
static struct fb_cache *cache;
static struct fb_source *fault;
static struct fb_volume *volume;

static inline void write_file(const char *name, unsigned number, uint32_t size)
{
    char path[PATH_MAX + 64];
    FB_AUTO_FREE uint8_t *data = fb_alloc(size);
    FB_AUTO_CLOSE int fd = -1;

    assert_non_null(data);
    memset(data, (int)(number % 251), size);
    snprintf(path, sizeof path, "%s/%s", dir.path, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
}

static inline const char *name_of(const char *folder, unsigned i)
{
    static _Thread_local char name[64];

    snprintf(name, sizeof name, "%s/%05u.bin", folder, i);
    return name;
}

/* Each byte of a file is its number. */
static inline void make_folder(const char *folder, unsigned files, uint32_t size)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", dir.path, folder);
    assert_int_equal(mkdir(path, 0755), 0);
    for (unsigned i = 0; i < files; i++)
        write_file(name_of(folder, i), i, size);
}

static inline int remove_source(void **state)
{
    (void)state;
    fb_test_dir_remove(&dir);
    return 0;
}

/* Over a source that takes so long for each request. round_ns: of space; 0: the usual. */
static inline void open_cache_with(bool no_watch, int64_t latency_ns, int64_t round_ns)
{
    struct fb_posix_config posix = {.root = dir.path, .threads = 4};
    struct fb_volume_config config = {.metadata_ttl_ns = 3600 * FB_NS_PER_S,
                                      .timeout_ns = 60 * FB_NS_PER_S};
    struct fb_fault_config slow = {.latency_ns = latency_ns};
    struct fb_cache_config c;
    struct fb_error err = {""};
    struct fb_source *source;

    fb_cache_config_defaults(&c);
    c.memory_bytes = 96ULL << 20;
    c.no_watch = no_watch;
    c.share_round_ns = round_ns;
    if (fb_cache_open(&c, &cache, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_source_fault_open(source, &slow, &fault), 0);
    assert_int_equal(fb_volume_attach(cache, fault, &config, &volume, &err), 0);
}

static inline void open_cache(bool no_watch, int64_t latency_ns)
{
    open_cache_with(no_watch, latency_ns, 0);
}

static inline int teardown(void **state)
{
    (void)state;
    fb_volume_detach(volume);
    fb_cache_close(cache);
    return 0;
}

static inline uint64_t metric(unsigned id)
{
    return fb_metric_get(fb_cache_metrics(cache), id);
}

static inline void read_file(const char *name, unsigned number, uint32_t size)
{
    FB_AUTO_FREE uint8_t *data = fb_alloc(size);
    uint32_t file;

    assert_non_null(data);
    assert_int_equal(fb_cache_stat(volume, name, &file, NULL), 0);
    assert_int_equal(fb_cache_pread(volume, file, 0, size, data), size);
    fb_files_unref(cache->files, file, 1);
    assert_int_equal(data[0], number % 251);
    assert_int_equal(data[size - 1], number % 251);
}

#endif
