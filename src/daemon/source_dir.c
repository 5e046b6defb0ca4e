#include "daemon/source_dir.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "daemon/paths.h"
#include "source/source_fault.h"
#include "source/source_posix.h"
#include "source/source_s3.h"

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

int fb_source_dir_check_url(const char *text, struct fb_error *err)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

    if (len == 0 || strncmp(text + len, "://", 3) != 0 || fb_source_is_s3(text) ||
        access(text, F_OK) == 0)
        return 0;
    return fb_error_set(err, -EINVAL,
                        "%s is neither a directory nor s3://BUCKET/PREFIX; a store that speaks S3 "
                        "is named with --endpoint-url",
                        text);
}

int fb_source_dir_check(const char *source, const struct fb_own_dirs *own, char **ret_source,
                        struct fb_error *err)
{
    FB_AUTO_FREE char *path = NULL;
    int rc;

    if (fb_source_is_s3(source))
        return fb_s3_uri_canonical(source, ret_source, err);
    rc = fb_source_dir_check_url(source, err);
    if (rc)
        return rc;
    rc = fb_path_canonical(source, &path);
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

static int open_s3(const char *source, const struct fb_mount_settings *settings,
                   const struct fb_own_dirs *own, struct fb_source **ret_source,
                   struct fb_error *err)
{
    struct fb_s3_config s3 = {
        .uri = source,
        .endpoint = settings->endpoint_url,
        .region = settings->region,
        .profile = settings->profile,
        .path_style = settings->path_style,
        .unsigned_requests = !settings->sign_requests,
        .connections = (unsigned)settings->connections,
        .part_bytes = settings->part_bytes,
        .timeout_ns = settings->source_timeout_ns,
        .stall_ns = settings->source_timeout_ns / 3,
        .env = (const char *const *)settings->env,
        .journal = own->journal,
    };
    struct fb_owner owner;
    int rc = fb_mount_settings_owner(settings, &owner, err);

    if (rc)
        return rc;
    s3.uid = owner.uid;
    s3.gid = owner.gid;
    s3.umask = owner.umask;
    return fb_source_s3_open(&s3, ret_source, err);
}

static int open_source(const char *source, const struct fb_mount_settings *settings,
                       const struct fb_own_dirs *own, struct fb_source **ret_source,
                       struct fb_error *err)
{
    struct fb_posix_config posix = {.root = source, .threads = (unsigned)settings->source_threads};
    struct fb_fault_config fault;
    int rc = fb_source_is_s3(source) ? open_s3(source, settings, own, ret_source, err)
                                     : fb_source_posix_open(&posix, ret_source, err);

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
                       const struct fb_own_dirs *own, struct fb_source **ret_source,
                       struct fb_error *err)
{
    int rc = open_source(source, settings, own, ret_source, err);

    return rc ? fb_error_set(err, rc, "cannot open the source %s: %s", source, fb_strerror(rc)) : 0;
}

int fb_source_dir_mount(struct fb_cache *cache, const char *source, const char *mountpoint,
                        const struct fb_mount_settings *settings, const struct fb_own_dirs *own,
                        void (*ended)(void *arg), void *arg, struct fb_mount **ret_mount,
                        struct fb_error *err)
{
    struct fb_mount_config config = {
        .mountpoint = mountpoint,
        .fs_name = source,
        .consistency = (enum fb_consistency)settings->consistency,
        .metadata_ttl_ns = settings->metadata_ttl_ns,
        .timeout_ns = settings->source_timeout_ns,
        .bypass = !settings->cache,
        .allow_other = settings->allow_other,
        .read_only = settings->read_only,
        .no_exec = !settings->exec,
        .threads = (unsigned)settings->fuse_threads,
        .max_background = (unsigned)settings->max_background,
        .ended = ended,
        .arg = arg,
    };
    struct fb_source *from = NULL;
    int rc = fb_source_dir_open(source, settings, own, &from, err);

    return rc ? rc : fb_mount_start(cache, from, &config, ret_mount, err);
}
