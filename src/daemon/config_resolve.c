/*
 * What the settings mean on this machine. Nothing here creates anything; all paths are made
 * absolute, since the daemon works from the root directory.
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache/budget.h"
#include "cache/cache.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/mountinfo.h"
#include "core/units.h"
#include "daemon/config.h"
#include "daemon/http.h"
#include "daemon/paths.h"
#include "policy/prefetch.h"
#include "source/s3_parts.h"
#include "source/source_fault.h"

#define MEMORY_DEFAULT_MAX (4ULL << 30)
#define MEMORY_SHARE       0.8 /* of the first LIMIT_SMALL of the machine or control group */
#define MEMORY_SHARE_MORE  0.95
#define LIMIT_SMALL        (1280ULL << 20)
#define ROOT_CACHE_DIR     "/var/cache/forebay"
#define PASSWD_SIZE        16384
#define SEGMENT_MIN        (256ULL << 10)
#define SEGMENT_MAX        (1ULL << 30)
#define PAGE_BYTES         4096
#define TTL_MAX_NS         (365 * 86400 * FB_NS_PER_S)
#define TIMEOUT_MIN_NS     (10 * FB_NS_PER_MS)
#define TIMEOUT_MAX_NS     (3600 * FB_NS_PER_S)
#define THREADS_MAX        1024
#define FUSE_THREADS_MAX   64
#define BACKGROUND_MAX     4096
#define FETCHES_MAX        4096
#define MOUNT_WAIT_MIN_NS  (10 * FB_NS_PER_S)
#define MOUNT_WAIT_MAX_NS  (45 * FB_NS_PER_S)
#define LOG_SHARE          40 /* one part in so many of the disk's budget is for logs */
#define LOG_MIN_BYTES      (64ULL << 10)
#define CONNECTIONS_MAX    4096
#define UMASK_DEFAULT      022
#define UMASK_MAX          0777
#define PART_MIN           (5u << 20) /* S3 takes no smaller part but the last */

static int check_number(const char *name, uint64_t value, uint64_t least, uint64_t most,
                        struct fb_error *err)
{
    if (value >= least && value <= most)
        return 0;
    return fb_error_set(err, -EINVAL,
                        "%s: %" PRIu64 " is out of range; write %" PRIu64 " to %" PRIu64, name,
                        value, least, most);
}

static int check_size(const char *name, uint64_t value, uint64_t least, uint64_t most,
                      struct fb_error *err)
{
    char low[FB_UNITS_TEXT_MAX];
    char high[FB_UNITS_TEXT_MAX];
    char text[FB_UNITS_TEXT_MAX];

    if (value >= least && value <= most)
        return 0;
    return fb_error_set(err, -EINVAL, "%s: %s is out of range; write %s to %s", name,
                        fb_format_size(text, value), fb_format_size(low, least),
                        fb_format_size(high, most));
}

static int check_duration(const char *name, int64_t value, int64_t least, int64_t most,
                          struct fb_error *err)
{
    char low[FB_UNITS_TEXT_MAX];
    char high[FB_UNITS_TEXT_MAX];
    char text[FB_UNITS_TEXT_MAX];

    if (value >= least && value <= most)
        return 0;
    return fb_error_set(err, -EINVAL, "%s: %s is out of range; write %s to %s", name,
                        fb_format_duration(text, value), fb_format_duration(low, least),
                        fb_format_duration(high, most));
}

/* "" or NULL: `fallback`. */
static int parse_number(const char *name, const char *text, int base, uint32_t fallback,
                        uint32_t *ret_number, struct fb_error *err)
{
    unsigned long number;
    char *end;

    *ret_number = fallback;
    if (!text || !*text)
        return 0;
    errno = 0;
    number = strtoul(text, &end, base);
    if (*end || errno || text[0] < '0' || text[0] > '9' || number > UINT32_MAX)
        return fb_error_set(err, -EINVAL, "%s: '%s' is no %snumber", name, text,
                            base == 8 ? "octal " : "");
    *ret_number = (uint32_t)number;
    return 0;
}

int fb_mount_settings_owner(const struct fb_mount_settings *settings, struct fb_owner *ret_owner,
                            struct fb_error *err)
{
    int rc = parse_number("uid", settings->uid, 10, geteuid(), &ret_owner->uid, err);

    if (rc == 0)
        rc = parse_number("gid", settings->gid, 10, getegid(), &ret_owner->gid, err);
    if (rc == 0)
        rc = parse_number("umask", settings->umask, 8, UMASK_DEFAULT, &ret_owner->umask, err);
    if (rc == 0 && ret_owner->umask > UMASK_MAX)
        rc = fb_error_set(err, -EINVAL, "umask: '%s' is more than 0777", settings->umask);
    return rc;
}

int fb_mount_settings_check(const struct fb_mount_settings *settings, struct fb_error *err)
{
    struct fb_fault_config fault;
    struct fb_owner owner;
    int rc = 0;

    rc = check_duration("metadata-ttl", settings->metadata_ttl_ns, 0, TTL_MAX_NS, err);
    if (rc == 0)
        rc = check_duration("source-timeout", settings->source_timeout_ns, TIMEOUT_MIN_NS,
                            TIMEOUT_MAX_NS, err);
    if (rc == 0)
        rc = check_number("source-threads", settings->source_threads, 0, THREADS_MAX, err);
    if (rc == 0)
        rc = check_number("fuse-threads", settings->fuse_threads, 0, FUSE_THREADS_MAX, err);
    if (rc == 0)
        rc = check_number("max-background", settings->max_background, 1, BACKGROUND_MAX, err);
    if (rc == 0)
        rc = fb_mount_settings_owner(settings, &owner, err);
    if (rc == 0)
        rc = check_number("connections", settings->connections, 0, CONNECTIONS_MAX, err);
    if (rc == 0 && settings->part_bytes)
        rc = check_size("part-size", settings->part_bytes, PART_MIN, FB_S3_PART_CAP, err);
    if (rc == 0 && settings->fault && *settings->fault)
        rc = fb_fault_parse(settings->fault, &fault, err);
    return rc;
}

int64_t fb_mount_settings_wait_ns(const struct fb_mount_settings *settings)
{
    int64_t wait_ns = MOUNT_WAIT_MIN_NS + 2 * settings->source_timeout_ns;

    return wait_ns < MOUNT_WAIT_MAX_NS ? wait_ns : MOUNT_WAIT_MAX_NS;
}

/* 0: by the machine. Too much is lowered, too little is refused. */
static int check_memory(const struct fb_config *c, struct fb_error *err)
{
    char asked[FB_UNITS_TEXT_MAX];
    char least[FB_UNITS_TEXT_MAX];

    if (c->memory_bytes == 0 || c->memory_bytes >= FB_MEMORY_MIN)
        return 0;
    return fb_error_set(err, -EINVAL, "memory: %s is too little; write %s or more",
                        fb_format_size(asked, c->memory_bytes),
                        fb_format_size(least, FB_MEMORY_MIN));
}

static int check_ranges(const struct fb_config *c, struct fb_error *err)
{
    struct fb_http_address address;
    int rc = fb_mount_settings_check(&c->mount, err);

    if (rc == 0)
        rc = check_memory(c, err);
    if (rc == 0)
        rc = check_size("block-size", c->block_bytes, FB_BLOCK_MIN, FB_BLOCK_MAX, err);
    if (rc == 0 && (c->block_bytes & (c->block_bytes - 1)))
        rc = fb_error_set(err, -EINVAL, "block-size: write a power of two, such as 256K or 1M");
    if (rc == 0 && c->segment_bytes)
        rc = check_size("segment-size", c->segment_bytes, SEGMENT_MIN, SEGMENT_MAX, err);
    if (rc == 0 && c->segment_bytes % PAGE_BYTES)
        rc = fb_error_set(err, -EINVAL, "segment-size: write a multiple of 4K");
    if (rc == 0)
        rc = check_duration("cache-timeout", c->cache_timeout_ns, TIMEOUT_MIN_NS, TIMEOUT_MAX_NS,
                            err);
    if (rc == 0)
        rc = check_number("max-fetches", c->max_fetches, 1, FETCHES_MAX, err);
    if (rc == 0)
        rc = check_number("prefetch-depth", c->prefetch_depth, 0, FB_PREFETCH_DEPTH_MAX, err);
    if (rc == 0)
        rc = check_number("log-keep", c->log_keep, 0, FB_LOG_KEEP_MAX, err);
    if (rc == 0 && c->pmem_bytes && (!c->pmem_dir || !*c->pmem_dir))
        rc = fb_error_set(err, -EINVAL, "pmem-size: needs a directory; write --pmem-dir DIR");
    if (rc == 0)
        rc = fb_http_parse(c->metrics, &address, err);
    return rc;
}

/* ---- memory ---- */

/* What programs and the kernel need beside the cache grows slower than the memory there is. */
static uint64_t memory_most(uint64_t limit)
{
    uint64_t small = fb_min_u64(limit, LIMIT_SMALL);

    return (uint64_t)((double)small * MEMORY_SHARE + (double)(limit - small) * MEMORY_SHARE_MORE);
}

static int resolve_memory(struct fb_config *c, const char *root, struct fb_error *err)
{
    char asked[FB_UNITS_TEXT_MAX];
    char has[FB_UNITS_TEXT_MAX];
    char given[FB_UNITS_TEXT_MAX];
    uint64_t limit = fb_memory_limit(root);
    uint64_t most = memory_most(limit);

    if (most < FB_MEMORY_MIN)
        return fb_error_set(
            err, -ENOMEM,
            "this machine or control group has %s of memory, and Forebay needs %s "
            "of it; raise the limit to %s",
            fb_format_size(has, limit), fb_format_size(given, FB_MEMORY_MIN),
            fb_format_size(asked, (uint64_t)((double)FB_MEMORY_MIN / MEMORY_SHARE)));
    if (c->memory_bytes == 0) {
        c->memory_bytes = fb_max_u64(fb_min_u64(MEMORY_DEFAULT_MAX, limit / 4), FB_MEMORY_MIN);
    } else if (c->memory_bytes > most) {
        fb_log_warn("memory: %s is too much of the %s that this machine or control group has; "
                    "%s will be used",
                    fb_format_size(asked, c->memory_bytes), fb_format_size(has, limit),
                    fb_format_size(given, most));
        c->memory_bytes = most;
    }
    return 0;
}

/* ---- directories ---- */

static char *home_directory(void)
{
    const char *home = secure_getenv("HOME");
    FB_AUTO_FREE char *buf = NULL;
    struct passwd pw;
    struct passwd *found = NULL;

    if (home && *home == '/')
        return fb_strdup(home);
    buf = fb_alloc(PASSWD_SIZE);
    if (!buf || getpwuid_r(geteuid(), &pw, buf, PASSWD_SIZE, &found) != 0 || !found)
        return NULL;
    return fb_strdup(pw.pw_dir);
}

static int default_cache_dir(char **ret_dir, struct fb_error *err)
{
    const char *xdg = secure_getenv("XDG_CACHE_HOME");
    FB_AUTO_FREE char *home = NULL;

    if (geteuid() == 0) {
        *ret_dir = fb_strdup(ROOT_CACHE_DIR);
    } else if (xdg && *xdg == '/') {
        *ret_dir = fb_asprintf("%s/forebay", xdg);
    } else {
        home = home_directory();
        if (!home)
            return fb_error_set(err, -ENOENT,
                                "there is no home directory to cache in; write --cache-dir DIR");
        *ret_dir = fb_asprintf("%s/.cache/forebay", home);
    }
    return *ret_dir ? 0 : -ENOMEM;
}

static int add_dir(struct fb_config *c, const char *text, struct fb_error *err)
{
    FB_AUTO_FREE char *path = NULL;
    int rc;

    if (!*text)
        return fb_error_set(err, -EINVAL, "cache-dir: has an empty part; write DIR or DIR:DIR");
    if (c->dir_count == FB_TIER_DIRS_MAX)
        return fb_error_set(err, -EINVAL, "cache-dir: more than %d directories", FB_TIER_DIRS_MAX);
    rc = fb_path_canonical(text, &path);
    if (rc)
        return fb_error_set(err, rc, "cache-dir: %s: %s", text, fb_strerror(rc));
    /* What is cached would be written to a source, and read from there. */
    if (fb_mountinfo_is_below_forebay(path))
        return fb_error_set(err, -EINVAL,
                            "cache-dir: %s lies in a Forebay mount, which would cache itself; "
                            "write a directory on a local disk",
                            path);
    for (unsigned i = 0; i < c->dir_count; i++) {
        if (fb_path_within(c->dirs[i], path) || fb_path_within(path, c->dirs[i]))
            return fb_error_set(err, -EINVAL, "cache-dir: %s and %s lie inside one another", path,
                                c->dirs[i]);
    }
    c->dirs[c->dir_count++] = fb_steal(path);
    return 0;
}

/* What `forebay status` shows is what is used. */
static int rewrite_cache_dir(struct fb_config *c)
{
    FB_AUTO_FREE char *joined = fb_strdup(c->dirs[0]);

    for (unsigned i = 1; joined && i < c->dir_count; i++) {
        char *longer = fb_asprintf("%s:%s", joined, c->dirs[i]);

        free(joined);
        joined = longer;
    }
    if (!joined)
        return -ENOMEM;
    free(c->cache_dir);
    c->cache_dir = fb_steal(joined);
    return 0;
}

static int resolve_dirs(struct fb_config *c, struct fb_error *err)
{
    FB_AUTO_FREE char *copy = NULL;
    char *rest;
    char *part;
    int rc = 0;

    if (!c->cache_dir) {
        rc = default_cache_dir(&c->cache_dir, err);
        if (rc)
            return rc;
    }
    copy = fb_strdup(c->cache_dir);
    if (!copy)
        return -ENOMEM;
    rest = copy;
    while (rc == 0 && (part = strsep(&rest, ":")))
        rc = add_dir(c, part, err);
    return rc ? rc : rewrite_cache_dir(c);
}

/* Makes the path in *field absolute. That a file is a link is left to the kernel, which follows
 * none that another user has put into a directory for all. */
static int resolve_path(const char *name, bool is_file, char **field, struct fb_error *err)
{
    char *path;
    int rc;

    if (!*field || !**field)
        return 0;
    rc = is_file ? fb_path_canonical_parent(*field, &path) : fb_path_canonical(*field, &path);
    if (rc)
        return fb_error_set(err, rc, "%s: %s: %s", name, *field, fb_strerror(rc));
    free(*field);
    *field = path;
    return 0;
}

static int resolve_log(struct fb_config *c, struct fb_error *err)
{
    int rc = resolve_path("access-log", true, &c->access_log, err);

    if (rc)
        return rc;
    if (c->log_file && *c->log_file)
        return resolve_path("log-file", true, &c->log_file, err);
    if (c->foreground)
        return 0;
    free(c->log_file);
    c->log_file = fb_asprintf("%s/forebay.log", fb_config_home(c));
    return c->log_file ? 0 : -ENOMEM;
}

/* ---- size on disk ---- */

/* The file system that a path is on, or will be on once it exists. */
static int file_system_of(const char *path, struct statvfs *ret_fs, dev_t *ret_dev)
{
    FB_AUTO_FREE char *p = fb_strdup(path);
    struct stat st;
    char *slash;

    if (!p)
        return -ENOMEM;
    while (stat(p, &st) != 0) {
        slash = strrchr(p, '/');
        if (!slash || !p[1])
            return -errno;
        slash[slash == p ? 1 : 0] = 0;
    }
    *ret_dev = st.st_dev;
    return statvfs(p, ret_fs) == 0 ? 0 : -errno;
}

/* The size of the disks bounds the budget, not what happens to be free on them today: the layout of
 * segments depends on the budget and must not change between runs. The tier watches free space. */
static void bound_cache_size(struct fb_config *c)
{
    dev_t seen[FB_TIER_DIRS_MAX] = {0};
    unsigned seen_count = 0;
    double total = 0;

    for (unsigned i = 0; i < c->dir_count; i++) {
        struct statvfs fs = {0};
        unsigned j = 0;

        if (file_system_of(c->dirs[i], &fs, &seen[seen_count]) != 0)
            return;
        while (seen[j] != seen[seen_count])
            j++;
        if (j < seen_count)
            continue;
        seen_count++;
        total += (double)fs.f_blocks * (double)fs.f_frsize * (1 - c->free_space_ratio);
    }
    if (total < (double)c->cache_bytes) {
        char asked[FB_UNITS_TEXT_MAX];

        fb_log_debug("cache-size: %s is more than the disk has",
                     fb_format_size(asked, c->cache_bytes));
        c->cache_bytes = fb_align_down((uint64_t)total, 1ULL << 20);
    }
}

uint64_t fb_config_log_bytes(const struct fb_config *c)
{
    uint64_t all = c->cache_bytes / LOG_SHARE;

    if (!c->log_file || c->cache_bytes == 0 || !fb_path_below(fb_config_home(c), c->log_file))
        return c->log_bytes;
    return fb_min_u64(c->log_bytes, fb_max_u64(all / (c->log_keep + 1), LOG_MIN_BYTES));
}

int fb_config_resolve(struct fb_config *config, const char *root, struct fb_error *err)
{
    int rc = check_ranges(config, err);

    if (rc == 0)
        rc = resolve_dirs(config, err);
    if (rc == 0)
        rc = resolve_path("pmem-dir", false, &config->pmem_dir, err);
    if (rc == 0)
        rc = resolve_log(config, err);
    if (rc == -ENOMEM)
        return fb_error_set(err, rc, "out of memory");
    if (rc == 0)
        rc = resolve_memory(config, root, err);
    if (rc)
        return rc;
    bound_cache_size(config);
    return 0;
}
