#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/mem.h"
#include "doors/fuse/mount.h"
#include "policy/evict.h"

#define CONFIG_ARGS_MAX 4096 /* words of a command line */

#define ROW(name_, letter_, type_, field_, fallback_, choices_, argument_, group_, help_)       \
 {                                                                                              \
  .name = (name_), .letter = (letter_), .type = FB_SETTING_##type_,                             \
  .offset = offsetof(struct fb_config, field_), .fallback = (fallback_), .choices = (choices_), \
  .argument = (argument_), .group = (group_), .help = (help_),                                  \
 }

static const char group_mount[] = "Mount";
static const char group_cache[] = "Cache";
static const char group_daemon[] = "Daemon";

static_assert(offsetof(struct fb_config, mount) == 0, "rows of a mount fit both structs");

/* The rows of a mount come first. */
static const struct fb_setting table[] = {
    ROW("consistency", 0, CHOICE, mount.consistency, "close-to-open", FB_CONSISTENCY_NAMES, NULL,
        group_mount,
        "How changes of the source become visible: at the next open, or (static: immutable data, "
        "fastest) only by `forebay evict`"),
    ROW("metadata-ttl", 0, DURATION, mount.metadata_ttl_ns, "60s", NULL, "TIME", group_mount,
        "How long names and attributes are believed before the source is asked again"),
    ROW("source-timeout", 0, DURATION, mount.source_timeout_ns, "30s", NULL, "TIME", group_mount,
        "How long a request may wait for the source before it fails"),
    ROW("cache", 0, BOOL, mount.cache, "yes", NULL, NULL, group_mount,
        "Keep what is read; --no-cache sends every read to the source"),
    ROW("read-only", 0, BOOL, mount.read_only, NULL, NULL, NULL, group_mount,
        "Refuse writes with EROFS; a static mount always does"),
    ROW("exec", 0, BOOL, mount.exec, "yes", NULL, NULL, group_mount,
        "Let programs be executed from the mount; --no-exec (-o noexec) forbids it"),
    ROW("allow-other", 0, BOOL, mount.allow_other, NULL, NULL, NULL, group_mount,
        "Let other users in, each with the permissions they have on the source"),
    ROW("source-threads", 0, UINT, mount.source_threads, "0", NULL, "N", group_mount,
        "Threads that read the source at a time; 0: 16, or 64 where it takes long to answer"),
    ROW("fuse-threads", 0, UINT, mount.fuse_threads, "0", NULL, "N", group_mount,
        "Threads that take requests from the kernel; 0: one per CPU"),
    ROW("max-background", 0, UINT, mount.max_background, "512", NULL, "N", group_mount,
        "Requests the kernel keeps in flight at a time"),
    ROW("endpoint-url", 0, STRING, mount.endpoint_url, NULL, NULL, "URL", group_mount,
        "Where an object store answers; by default AWS_ENDPOINT_URL, or Amazon's own"),
    ROW("region", 0, STRING, mount.region, NULL, NULL, "NAME", group_mount,
        "Region of the bucket; by default AWS_REGION or the profile's"),
    ROW("profile", 0, STRING, mount.profile, NULL, NULL, "NAME", group_mount,
        "Which keys of ~/.aws/credentials to use; by default AWS_PROFILE"),
    ROW("force-path-style", 0, BOOL, mount.path_style, NULL, NULL, NULL, group_mount,
        "Name the bucket in the path, not in the host's name; so it is done anyway with an "
        "--endpoint-url that is not Amazon's"),
    ROW("sign-request", 0, BOOL, mount.sign_requests, "yes", NULL, NULL, group_mount,
        "Sign requests; --no-sign-request reads public buckets without keys"),
    ROW("uid", 0, STRING, mount.uid, NULL, NULL, "N", group_mount,
        "Owner of the objects of a bucket; by default the user who mounts"),
    ROW("gid", 0, STRING, mount.gid, NULL, NULL, "N", group_mount,
        "Group of the objects of a bucket; by default that of the user who mounts"),
    ROW("umask", 0, STRING, mount.umask, "022", NULL, "OCTAL", group_mount,
        "Permissions that the objects of a bucket do not have"),
    ROW("connections", 0, UINT, mount.connections, "64", NULL, "N", group_mount,
        "Connections to an object store at most; how many are used follows its answers"),
    ROW("part-size", 0, SIZE, mount.part_bytes, "8M", NULL, "SIZE", group_mount,
        "What is written to a bucket goes there in parts, the first thousand of this size, 5M to "
        "64M"),
    ROW("fault", 0, STRING, mount.fault, NULL, NULL, "LIST", group_mount,
        "Make the source slow and unreliable, for demonstrations and tests: "
        "latency=5ms,bandwidth=200M,error=1%"),

    ROW("memory", 'm', SIZE, memory_bytes, NULL, NULL, "SIZE", group_cache,
        "Memory for segments, tables and buffers together; by default, or with 0, a quarter of the "
        "machine's or the control group's, at most 4G"),
    ROW("cache-dir", 'd', STRING, cache_dir, NULL, NULL, "DIR[:DIR]", group_cache,
        "Where cached data lives on disk; several directories are striped. By default "
        "/var/cache/forebay for root, ~/.cache/forebay for others. One daemon owns it"),
    ROW("cache-size", 's', SIZE, cache_bytes, "100G", NULL, "SIZE", group_cache,
        "Disk space to use, never more than the disk has; 0: none, cache in memory only"),
    ROW("free-space-ratio", 0, RATIO, free_space_ratio, "0.1", NULL, "RATIO", group_cache,
        "Share of the cache's file system that stays free"),
    ROW("cache-timeout", 0, DURATION, cache_timeout_ns, "2s", NULL, "TIME", group_cache,
        "How long a read of the cache's disk may take before the source is asked instead"),
    ROW("nvme-fill", 0, RATIO, nvme_fill, "0.8", NULL, "RATIO", group_cache,
        "Share of cache-size that is filled, 0.95 at most: logs and plans need room, too"),
    ROW("pmem-dir", 0, STRING, pmem_dir, NULL, NULL, "DIR", group_cache,
        "A directory on persistent memory, used between memory and disk"),
    ROW("pmem-size", 0, SIZE, pmem_bytes, "0", NULL, "SIZE", group_cache,
        "Persistent memory to use; 0: none"),
    ROW("pmem-fill", 0, RATIO, pmem_fill, "1", NULL, "RATIO", group_cache,
        "Share of pmem-size that is filled"),
    ROW("block-size", 0, SIZE, block_bytes, "256K", NULL, "SIZE", group_cache,
        "Large files are fetched and kept in blocks of this size"),
    ROW("segment-size", 0, SIZE, segment_bytes, "0", NULL, "SIZE", group_cache,
        "Unit of writing and eviction; 0: by the size of each tier, at most 16M"),
    ROW("max-fetches", 0, UINT, max_fetches, "64", NULL, "N", group_cache,
        "Reads that are sent to one source at a time"),
    ROW("evict", 0, CHOICE, evict, "learned", FB_EVICT_NAMES, NULL, group_cache,
        "What leaves a full tier first"),
    ROW("access-log", 0, STRING, access_log, NULL, NULL, "FILE", group_cache,
        "Write down what is asked for, 24 bytes each, for `forebay sim`"),
    ROW("patterns", 0, BOOL, patterns, "yes", NULL, NULL, group_cache,
        "Find out how data sets are read, and fetch and keep accordingly; --no-patterns keeps by "
        "--evict alone"),
    ROW("prefetch", 0, BOOL, prefetch, "yes", NULL, NULL, group_cache,
        "Load what follows in a reader's order, and data sets that are read in random order, "
        "before anybody asks"),
    ROW("prefetch-depth", 0, UINT, prefetch_depth, "0", NULL, "N", group_cache,
        "Files to load ahead of a reader; 0: as many as it takes for none to be late"),
    ROW("stream-ttl", 0, DURATION, stream_ttl_ns, "60s", NULL, "TIME", group_cache,
        "A job silent for that much longer than it ever was has ended: its data goes first"),
    ROW("share-round", 0, DURATION, share_round_ns, "60s", NULL, "TIME", group_cache,
        "How often space moves to those who gain most by it"),
    ROW("share-step", 0, SIZE, share_step_bytes, "640M", NULL, "SIZE", group_cache,
        "How much moves in a round, at most an eighth of the cache"),
    ROW("share-min", 0, SIZE, share_min_bytes, "640M", NULL, "SIZE", group_cache,
        "What is left to each, at most a sixteenth of the cache"),
    ROW("epoch-log", 0, CHOICE, epoch_log, "auto", "auto|on|off", NULL, group_cache,
        "Write the next epoch of a plan to disk in the order in which it will be read; auto: where "
        "the disk reads much faster in sequence than at random"),
    ROW("epoch-log-writes", 0, SIZE, epoch_log_bytes, "0", NULL, "SIZE", group_cache,
        "What that may write in a day; 0: as much as --cache-size"),
    ROW("engine", 0, CHOICE, engine, "auto", "auto|uring|threads", NULL, group_cache,
        "How the disk is read and written: io_uring, or threads where that is forbidden"),

    ROW("foreground", 'f', BOOL, foreground, NULL, NULL, NULL, group_daemon,
        "Stay in the foreground and log to standard error"),
    ROW("metrics", 0, STRING, metrics, "127.0.0.1:9567", NULL, "HOST:PORT", group_daemon,
        "Where /metrics (Prometheus) and /healthz are served; port 0: any free one; off: nowhere"),
    ROW("log-file", 0, STRING, log_file, NULL, NULL, "FILE", group_daemon,
        "The log; by default forebay.log in the (first) cache directory"),
    ROW("log-level", 0, CHOICE, log_level, "info", "error|warn|info|debug", NULL, group_daemon,
        "What is worth a line in the log"),
    ROW("log-size", 0, SIZE, log_bytes, "16M", NULL, "SIZE", group_daemon,
        "The log is rotated when it would grow past this; 0: never"),
    ROW("log-keep", 0, UINT, log_keep, "4", NULL, "N", group_daemon,
        "Old logs that are kept: FILE.1, FILE.2, ..."),
    ROW("config", 'c', STRING, config, NULL, NULL, "FILE", group_daemon,
        "Read settings from an INI file, one `name = value` a line"),
};

const struct fb_setting *fb_config_table(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

size_t fb_config_mount_rows(void)
{
    size_t rows = 0;

    while (table[rows].group == group_mount)
        rows++;
    return rows;
}

bool fb_config_is_of_buckets(const struct fb_setting *row)
{
    return row->offset >= offsetof(struct fb_config, mount.endpoint_url) &&
           row->offset <= offsetof(struct fb_config, mount.part_bytes);
}

const char *fb_config_choice(const char *choices, unsigned position, char *buf, size_t size)
{
    struct fb_setting row = {.type = FB_SETTING_CHOICE, .choices = choices};

    return fb_settings_format(&row, &position, buf, size);
}

/* ---- mount settings and requests ---- */

void fb_mount_settings_defaults(struct fb_mount_settings *settings)
{
    memset(settings, 0, sizeof *settings);
    fb_settings_defaults(table, fb_config_mount_rows(), settings);
}

static void free_env(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}

/* Also of who joins a daemon that was started elsewhere. */
static bool matters(const char *variable)
{
    static const char *const names[] = {"HOME=",      "http_proxy=", "https_proxy=", "HTTPS_PROXY=",
                                        "all_proxy=", "ALL_PROXY=",  "no_proxy=",    "NO_PROXY="};

    if (strncmp(variable, "AWS_", 4) == 0)
        return true;
    for (size_t i = 0; i < FB_ARRAY_SIZE(names); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

int fb_mount_settings_set_env(struct fb_mount_settings *settings, char *const *environment)
{
    size_t count = 0, taken = 0;
    char **env;

    while (environment && environment[count])
        count++;
    env = fb_alloc_array(count + 1, sizeof *env);
    if (!env)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        if (!matters(environment[i]))
            continue;
        env[taken] = fb_strdup(environment[i]);
        if (!env[taken++]) {
            free_env(env);
            return -ENOMEM;
        }
    }
    free_env(settings->env);
    settings->env = env;
    return 0;
}

static char **text_of(struct fb_mount_settings *settings, const struct fb_setting *row)
{
    return (char **)(void *)((char *)settings + row->offset);
}

int fb_mount_settings_copy(struct fb_mount_settings *to, const struct fb_mount_settings *from)
{
    int rc;

    *to = *from;
    to->env = NULL;
    for (size_t i = 0; i < fb_config_mount_rows(); i++) {
        if (table[i].type == FB_SETTING_STRING)
            *text_of(to, &table[i]) = NULL;
    }
    rc = fb_mount_settings_set_env(to, from->env);
    for (size_t i = 0; rc == 0 && i < fb_config_mount_rows(); i++) {
        const char *text =
            table[i].type == FB_SETTING_STRING
                ? *(char *const *)(const void *)((const char *)from + table[i].offset)
                : NULL;

        if (text && !(*text_of(to, &table[i]) = fb_strdup(text)))
            rc = -ENOMEM;
    }
    if (rc)
        fb_mount_settings_free(to);
    return rc;
}

void fb_mount_settings_free(struct fb_mount_settings *settings)
{
    fb_settings_free(table, fb_config_mount_rows(), settings);
    free_env(fb_steal(settings->env));
}

struct fb_mount_request *fb_mount_request_new(const char *source, const char *mountpoint,
                                              const struct fb_mount_settings *from)
{
    struct fb_mount_request *r = fb_alloc(sizeof *r);

    if (!r)
        return NULL;
    fb_list_init(&r->link);
    r->source = fb_strdup(source);
    r->mountpoint = fb_strdup(mountpoint);
    if (!r->source || !r->mountpoint || fb_mount_settings_copy(&r->settings, from) != 0) {
        fb_mount_request_free(r);
        return NULL;
    }
    return r;
}

void fb_mount_request_free(struct fb_mount_request *request)
{
    if (!request)
        return;
    fb_list_remove(&request->link);
    fb_mount_settings_free(&request->settings);
    free(request->name);
    free(request->source);
    free(request->mountpoint);
    free(request);
}

void fb_mount_requests_free(struct fb_list *requests)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, requests) {
        fb_mount_request_free(FB_LIST_ENTRY(it, struct fb_mount_request, link));
    }
}

/* ---- sections of the file ---- */

/* One `key = value` of a section, kept until the settings of all mounts are known. */
struct pair {
    struct fb_list link;
    char *section;
    char *key;
    char *value;
};

static void free_pairs(struct fb_list *pairs)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, pairs) {
        struct pair *p = FB_LIST_ENTRY(it, struct pair, link);

        free(p->section);
        free(p->key);
        free(p->value);
        free(p);
    }
}

static const char *section_mount_name(const char *section)
{
    static const char word[] = "mount ";
    const char *name;

    if (strncmp(section, word, sizeof word - 1) != 0)
        return NULL;
    name = section + sizeof word - 1;
    name += strspn(name, " ");
    return *name ? name : NULL;
}

/* The value is tried out at once, so that a mistake is reported with its line. */
static int try_value(const char *key, const char *value, struct fb_error *err)
{
    struct fb_mount_settings scratch;
    int rc;

    if (strcmp(key, "source") == 0 || strcmp(key, "mountpoint") == 0)
        return *value ? 0 : fb_error_set(err, -EINVAL, "%s: is empty", key);
    fb_mount_settings_defaults(&scratch);
    rc = fb_settings_set(table, fb_config_mount_rows(), &scratch, key, value, err);
    fb_mount_settings_free(&scratch);
    return rc;
}

/* Two mounts of one name would be one, and the first lost without a word. */
static int refuse_second(const struct fb_list *pairs, const char *section, const char *key,
                         struct fb_error *err)
{
    const struct fb_list *it;
    const struct fb_list *tmp;

    if (strcmp(key, "source") != 0 && strcmp(key, "mountpoint") != 0)
        return 0;
    FB_LIST_FOREACH (it, tmp, pairs) {
        const struct pair *p = FB_LIST_ENTRY(it, struct pair, link);

        if (strcmp(p->section, section) == 0 && strcmp(p->key, key) == 0)
            return fb_error_set(err, -EINVAL,
                                "[%s] has a %s already; each mount has a name of its own", section,
                                key);
    }
    return 0;
}

static int take_pair(void *arg, const char *section, const char *key, const char *value,
                     struct fb_error *err)
{
    struct fb_list *pairs = arg;
    struct pair *p;
    int rc;

    if (!section_mount_name(section))
        return fb_error_set(err, -EINVAL, "[%s]: no such section; write [mount NAME]", section);
    rc = try_value(key, value, err);
    if (rc == 0)
        rc = refuse_second(pairs, section, key, err);
    if (rc)
        return rc;
    p = fb_alloc(sizeof *p);
    if (!p)
        return -ENOMEM;
    fb_list_push_back(pairs, &p->link);
    p->section = fb_strdup(section);
    p->key = fb_strdup(key);
    p->value = fb_strdup(value);
    return p->section && p->key && p->value ? 0 : -ENOMEM;
}

static struct fb_mount_request *find_request(struct fb_list *mounts, const char *name)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, mounts) {
        struct fb_mount_request *r = FB_LIST_ENTRY(it, struct fb_mount_request, link);

        if (r->name && strcmp(r->name, name) == 0)
            return r;
    }
    return NULL;
}

static int request_of(const struct fb_config *config, struct fb_list *mounts, const char *name,
                      struct fb_mount_request **ret_request)
{
    struct fb_mount_request *r = find_request(mounts, name);

    if (!r) {
        r = fb_mount_request_new("", "", &config->mount);
        if (!r)
            return -ENOMEM;
        fb_list_push_back(mounts, &r->link);
        r->name = fb_strdup(name);
        if (!r->name)
            return -ENOMEM;
    }
    *ret_request = r;
    return 0;
}

static int replace_text(char **field, const char *value)
{
    char *copy = fb_strdup(value);

    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

static int apply_pair(const struct fb_config *config, struct fb_list *mounts, const struct pair *p,
                      struct fb_error *err)
{
    struct fb_mount_request *r;
    int rc = request_of(config, mounts, section_mount_name(p->section), &r);

    if (rc)
        return rc;
    if (strcmp(p->key, "source") == 0)
        return replace_text(&r->source, p->value);
    if (strcmp(p->key, "mountpoint") == 0)
        return replace_text(&r->mountpoint, p->value);
    return fb_settings_set(table, fb_config_mount_rows(), &r->settings, p->key, p->value, err);
}

static int check_requests(const struct fb_list *mounts, struct fb_error *err)
{
    const struct fb_list *it;
    const struct fb_list *tmp;
    unsigned count = 0;

    FB_LIST_FOREACH (it, tmp, mounts) {
        const struct fb_mount_request *r = FB_LIST_ENTRY(it, struct fb_mount_request, link);

        if (++count > FB_CONFIG_MOUNTS_MAX)
            return fb_error_set(err, -EINVAL, "more than %d mounts in one daemon",
                                FB_CONFIG_MOUNTS_MAX);
        if (!*r->source || !*r->mountpoint)
            return fb_error_set(err, -EINVAL, "[mount %s]: write %s = DIR", r->name,
                                *r->source ? "mountpoint" : "source");
    }
    return 0;
}

static int apply_pairs(const struct fb_config *config, const struct fb_list *pairs,
                       struct fb_list *mounts, struct fb_error *err)
{
    const struct fb_list *it;
    const struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, pairs) {
        int rc = apply_pair(config, mounts, FB_LIST_ENTRY(it, struct pair, link), err);

        if (rc)
            return rc;
    }
    return check_requests(mounts, err);
}

/* ---- loading ---- */

/* Which file to read must be known before the flags count, so they are read twice. */
static int find_file(int argc, char **argv, char **ret_path, struct fb_error *err)
{
    FB_AUTO_FREE char **words = NULL;
    struct fb_config scratch;
    int positional;
    int rc;

    if (argc < 1 || argc > CONFIG_ARGS_MAX)
        return fb_error_set(err, -E2BIG, "too many arguments");
    words = fb_alloc_array((size_t)argc + 1, sizeof *words);
    if (!words)
        return -ENOMEM;
    for (int i = 0; i < argc; i++)
        words[i] = argv[i];
    fb_config_defaults(&scratch);
    rc = fb_settings_from_env(table, FB_ARRAY_SIZE(table), &scratch, err);
    if (rc == 0)
        rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &scratch, argc, words, &positional,
                                   err);
    if (rc == 0)
        *ret_path = fb_steal(scratch.config);
    fb_settings_free(table, FB_ARRAY_SIZE(table), &scratch);
    return rc;
}

static int load_layers(struct fb_config *config, int argc, char **argv, int *ret_positional,
                       struct fb_list *pairs, struct fb_error *err)
{
    FB_AUTO_FREE char *path = NULL;
    int rc = find_file(argc, argv, &path, err);

    if (rc == 0 && path && *path)
        rc = fb_settings_from_ini(table, FB_ARRAY_SIZE(table), config, path, NULL, take_pair, pairs,
                                  err);
    if (rc == 0)
        rc = fb_settings_from_env(table, FB_ARRAY_SIZE(table), config, err);
    if (rc == 0)
        rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), config, argc, argv, ret_positional,
                                   err);
    return rc;
}

void fb_config_defaults(struct fb_config *config)
{
    memset(config, 0, sizeof *config);
    fb_settings_defaults(table, FB_ARRAY_SIZE(table), config);
}

int fb_config_load(struct fb_config *config, int argc, char **argv, int *ret_positional,
                   struct fb_list *mounts, struct fb_error *err)
{
    struct fb_list pairs = FB_LIST_INIT(pairs);
    int rc;

    fb_config_defaults(config);
    rc = fb_mount_settings_set_env(&config->mount, environ);
    if (rc == 0)
        rc = load_layers(config, argc, argv, ret_positional, &pairs, err);
    if (rc == 0 && mounts)
        rc = apply_pairs(config, &pairs, mounts, err);
    free_pairs(&pairs);
    if (rc == -ENOMEM)
        return fb_error_set(err, rc, "out of memory");
    return rc;
}

void fb_config_free(struct fb_config *config)
{
    fb_settings_free(table, FB_ARRAY_SIZE(table), config);
    free_env(fb_steal(config->mount.env));
    for (unsigned i = 0; i < config->dir_count; i++)
        free(config->dirs[i]);
    config->dir_count = 0;
}

const char *fb_config_home(const struct fb_config *config)
{
    return config->dirs[0];
}
