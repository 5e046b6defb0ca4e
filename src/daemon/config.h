/*
 * daemon/config.h - every setting of the program, in one table.
 *
 * From the table come the flags, the FOREBAY_* variables, the keys of the INI file, --help and the
 * manual page. Its first rows are those of a mount: they have a meaning for each mount on its own,
 * may stand in a `[mount NAME]` section, and travel with a mount request to a running daemon. The
 * rest belongs to the daemon and its cache.
 *
 * A configuration goes through two steps: load (what the user said) and resolve (what it means on
 * this machine: default directories, memory within the control group, sizes within the disk).
 */
#ifndef FB_DAEMON_CONFIG_H
#define FB_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/list.h"
#include "core/error.h"
#include "core/settings.h"
#include "store/tier.h"

#define FB_CONFIG_MOUNTS_MAX 64 /* mounts of one daemon */

struct fb_mount_settings {
    unsigned consistency; /* enum fb_consistency */
    int64_t metadata_ttl_ns;
    int64_t source_timeout_ns;
    bool cache;
    bool read_only;
    bool exec;
    bool allow_other;
    uint64_t source_threads; /* 0: the source's default */
    uint64_t fuse_threads;   /* 0: one per CPU */
    uint64_t max_background;
    char *endpoint_url; /* to part_bytes: of buckets; NULL or "": by the environment */
    char *region;
    char *profile;
    bool path_style;
    bool sign_requests;
    char *uid; /* NULL or "": the user the daemon runs as */
    char *gid;
    char *umask;
    uint64_t connections;
    uint64_t part_bytes;
    char *fault; /* NULL or "": none */

    /* Not of the table: the variables of who asked that name keys and where they are kept, as
     * NAME=VALUE and ended by NULL. Never shown. */
    char **env;
};

struct fb_config {
    struct fb_mount_settings mount; /* first: the rows of a mount fit both structs */

    uint64_t memory_bytes;
    char *cache_dir; /* as the user wrote it: /n1:/n2 */
    uint64_t cache_bytes;
    double free_space_ratio;
    int64_t cache_timeout_ns;
    double nvme_fill;
    char *pmem_dir;
    uint64_t pmem_bytes;
    double pmem_fill;
    uint64_t block_bytes;
    uint64_t segment_bytes;
    uint64_t max_fetches;
    unsigned evict;
    char *access_log;
    bool patterns;
    bool prefetch;
    uint64_t prefetch_depth;
    int64_t stream_ttl_ns;
    int64_t share_round_ns;
    uint64_t share_step_bytes;
    uint64_t share_min_bytes;
    unsigned epoch_log; /* enum fb_epoch_log_use */
    uint64_t epoch_log_bytes;
    unsigned engine; /* enum fb_engine_kind */

    bool foreground;
    char *metrics; /* HOST:PORT or off */
    char *log_file;
    unsigned log_level; /* enum fb_log_level */
    uint64_t log_bytes;
    uint64_t log_keep;
    char *config;

    /* Set by resolve: absolute, without symbolic links as far as they exist. */
    unsigned dir_count;
    char *dirs[FB_TIER_DIRS_MAX];
};

/* A mount that somebody asked for. */
struct fb_mount_request {
    struct fb_list link;
    char *name; /* of its section; NULL elsewhere */
    char *source;
    char *mountpoint;
    struct fb_mount_settings settings;
};

const struct fb_setting *fb_config_table(size_t *ret_count);

/* How many of the rows are those of a mount. */
size_t fb_config_mount_rows(void);

/* Whether a row has no meaning where the source is a directory. */
bool fb_config_is_of_buckets(const struct fb_setting *row);

/* What holds when nobody says anything; to be resolved, too. */
void fb_config_defaults(struct fb_config *config);

/* default < INI file (--config, FOREBAY_CONFIG) < environment < flags. Positional words are left at
 * the front of argv[1...]. The keys of `[mount NAME]` sections are appended to `mounts` as requests
 * with the settings of the whole file and, above them, their own; NULL: such sections are skipped.
 * Errors are of the user's making, with a sentence. Free `config` and `mounts` either way. */
FB_MUST_CHECK int fb_config_load(struct fb_config *config, int argc, char **argv,
                                 int *ret_positional, struct fb_list *mounts, struct fb_error *err);

/* Checks ranges and fills in what depends on the machine. `root` is "/" but for tests (see
 * fb_memory_limit). What was adjusted is said by log warnings. */
FB_MUST_CHECK int fb_config_resolve(struct fb_config *config, const char *root,
                                    struct fb_error *err);

void fb_config_free(struct fb_config *config);

/* The first cache directory: it names the daemon. Resolved configurations only. */
const char *fb_config_home(const struct fb_config *config);
/* The most that a log may have: one that lies beside the cached data, and those before it, have a
 * share of the disk's budget. Resolved configurations only. */
uint64_t fb_config_log_bytes(const struct fb_config *config);

/* The position in "a|b|c" as a word. Returns buf. */
const char *fb_config_choice(const char *choices, unsigned position, char *buf, size_t size);

void fb_mount_settings_defaults(struct fb_mount_settings *settings);
/* Takes over what matters of an environment (environ, or what a request brought). */
FB_MUST_CHECK int fb_mount_settings_set_env(struct fb_mount_settings *settings,
                                            char *const *environment);
FB_MUST_CHECK int fb_mount_settings_copy(struct fb_mount_settings *to,
                                         const struct fb_mount_settings *from);
void fb_mount_settings_free(struct fb_mount_settings *settings);
FB_MUST_CHECK int fb_mount_settings_check(const struct fb_mount_settings *settings,
                                          struct fb_error *err);

/* What the objects of a bucket are shown with. */
struct fb_owner {
    uint32_t uid;
    uint32_t gid;
    uint32_t umask;
};

FB_MUST_CHECK int fb_mount_settings_owner(const struct fb_mount_settings *settings,
                                          struct fb_owner *ret_owner, struct fb_error *err);

/* How long such a mount may take to become live, less than FB_CONTROL_WORK_NS; whoever waits for it
 * waits a few seconds longer. */
int64_t fb_mount_settings_wait_ns(const struct fb_mount_settings *settings);

/* Takes copies of the texts; settings are `from`'s. NULL without memory. */
FB_MUST_CHECK struct fb_mount_request *fb_mount_request_new(const char *source,
                                                            const char *mountpoint,
                                                            const struct fb_mount_settings *from);
void fb_mount_request_free(struct fb_mount_request *request); /* takes NULL */
void fb_mount_requests_free(struct fb_list *requests);

#endif
