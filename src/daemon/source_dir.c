#include "daemon/source_dir.h"

#include <errno.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "daemon/paths.h"
#include "source/source_fault.h"
#include "source/source_posix.h"

const char *fb_source_health_name(enum fb_source_health health)
{
    static const char *const names[] = {
        [FB_SOURCE_UP] = "up",
        [FB_SOURCE_SUSPECT] = "suspect",
        [FB_SOURCE_DOWN] = "down",
    };

    return (unsigned)health < FB_ARRAY_SIZE(names) ? names[health] : "unknown";
}

static int check_directory(const char *path, struct fb_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0 && errno == ENOENT)
        return fb_error_set(err, -ENOENT, "the source %s does not exist", path);
    if (stat(path, &st) != 0)
        return fb_error_set(err, -errno, "cannot use the source %s: %s", path, fb_strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return fb_error_set(err, -ENOTDIR, "the source %s is not a directory", path);
    return 0;
}

static int check_own_dir(const char *dir, const char *source, struct fb_error *err)
{
    if (fb_path_within(source, dir))
        return fb_error_set(err, -EINVAL,
                            "the cache directory %s lies inside the source %s and would cache "
                            "itself; write another --cache-dir",
                            dir, source);
    if (fb_path_within(dir, source))
        return fb_error_set(err, -EINVAL, "the source %s lies inside the cache directory %s",
                            source, dir);
    return 0;
}

int fb_source_dir_check(const char *source, const struct fb_own_dirs *own, char **ret_source,
                        struct fb_error *err)
{
    FB_AUTO_FREE char *path = NULL;
    int rc = fb_path_canonical(source, &path);

    if (rc)
        return fb_error_set(err, rc, "the source %s: %s", source, fb_strerror(rc));
    rc = check_directory(path, err);
    for (unsigned i = 0; rc == 0 && i < own->count; i++)
        rc = check_own_dir(own->dirs[i], path, err);
    if (rc == 0 && own->pmem_dir)
        rc = check_own_dir(own->pmem_dir, path, err);
    if (rc == 0)
        *ret_source = fb_steal(path);
    return rc;
}

static int open_source(const char *source, const struct fb_mount_settings *settings,
                       struct fb_source **ret_source, struct fb_error *err)
{
    struct fb_posix_config posix = {.root = source, .threads = (unsigned)settings->source_threads};
    struct fb_fault_config fault;
    int rc = fb_source_posix_open(&posix, ret_source, err);

    if (rc || !settings->fault || !*settings->fault)
        return rc;
    rc = fb_fault_parse(settings->fault, &fault, err);
    if (rc) {
        fb_source_close(*ret_source);
        return rc;
    }
    return fb_source_fault_open(*ret_source, &fault, ret_source);
}

int fb_source_dir_open(const char *source, const struct fb_mount_settings *settings,
                       struct fb_source **ret_source, struct fb_error *err)
{
    int rc = open_source(source, settings, ret_source, err);

    return rc ? fb_error_set(err, rc, "cannot open the source %s: %s", source, fb_strerror(rc)) : 0;
}
