#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bucket_flags.h"
#include "cli/cli.h"
#include "cli/join.h"
#include "cli/preload.h"
#include "cli/start.h"
#include "core/mem.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/paths.h"
#include "daemon/source_dir.h"
#include "daemon/wire.h"
#include "source/source_s3.h"

#define SOURCE_FLAG "--source"
#define SOURCE_ENV  "FOREBAY_SOURCE"

enum {
    NOT_EXECUTABLE = 126, /* as env(1) and nohup(1) have it */
    NOT_FOUND = 127,
};

/* What was written, taken apart. */
struct words {
    int flag_count; /* with the command's name, as argv */
    char **flags;
    unsigned source_count;
    const char *sources[FB_SHARES_MAX];
    char **program; /* ended by NULL */
    char *env;      /* a copy of the variable that `sources` may point into */
};

static const struct fb_setting table[] = {
    {.name = "source",
     .type = FB_SETTING_STRING,
     .argument = "DIR|s3://BUCKET/PREFIX=PATH",
     .group = "Run",
     .help =
         "A directory whose files are read through the cache, or a bucket and the path at which "
         "the program is to find it, which need not exist; may be given several times. Without "
         "it, FOREBAY_SOURCE says DIR[:DIR]"},
};

static const struct fb_setting *own_flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* ---- the command line ---- */

static int add_source(struct words *w, const char *source, struct fb_error *err)
{
    if (!source || !*source)
        return fb_error_set(err, -EINVAL, SOURCE_FLAG ": needs a value; write " SOURCE_FLAG "=DIR");
    if (w->source_count == FB_SHARES_MAX)
        return fb_error_set(err, -EINVAL, SOURCE_FLAG ": more than %d sources", FB_SHARES_MAX);
    w->sources[w->source_count++] = source;
    return 0;
}

/* As strsep() with a colon, but that of s3:// divides nothing. */
static char *next_source(char **rest)
{
    char *part = *rest;
    char *colon = part ? strchr(fb_source_is_s3(part) ? part + sizeof "s3:" - 1 : part, ':') : NULL;

    if (colon)
        *colon++ = 0;
    *rest = colon;
    return part;
}

static int take_env(struct words *w, struct fb_error *err)
{
    const char *set = secure_getenv(SOURCE_ENV);
    char *rest;
    char *part;
    int rc = 0;

    if (!set || !*set)
        return 0;
    w->env = fb_strdup(set);
    if (!w->env)
        return fb_error_set(err, -ENOMEM, "out of memory");
    rest = w->env;
    while (rc == 0 && (part = next_source(&rest))) {
        if (*part)
            rc = add_source(w, part, err);
    }
    return rc;
}

/* Flags end where `--` stands; a word that is no flag before it is for fb_config_load() to find. */
static int take_words(int argc, char **argv, struct words *w, struct fb_error *err)
{
    static const char with_value[] = SOURCE_FLAG "=";
    int rc = 0;
    int i = 0;

    for (; rc == 0 && i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], with_value, sizeof with_value - 1) == 0)
            rc = add_source(w, argv[i] + sizeof with_value - 1, err);
        else if (strcmp(argv[i], SOURCE_FLAG) != 0)
            w->flags[w->flag_count++] = argv[i];
        else if (i + 1 < argc && argv[i + 1][0] != '-')
            rc = add_source(w, argv[++i], err);
        else
            rc = add_source(w, NULL, err);
    }
    if (rc)
        return rc;
    if (i + 1 >= argc)
        return fb_error_set(err, -EINVAL,
                            "write the program behind `--`: forebay run --source DIR -- PROGRAM");
    w->program = argv + i + 1;
    return w->source_count ? 0 : take_env(w, err);
}

/* ---- sources ---- */

/* As the user sees it who came to the working directory by a link. NULL: no other way than ours. */
static char *as_seen(const char *source)
{
    const char *pwd = secure_getenv("PWD");
    struct stat here;
    struct stat there;

    if (source[0] == '/' || !pwd || !fb_path_is_plain(pwd) || stat(".", &here) != 0 ||
        stat(pwd, &there) != 0 || here.st_dev != there.st_dev || here.st_ino != there.st_ino)
        return NULL;
    return fb_asprintf("%s/%s", pwd, source);
}

static int name_source(const char *source, char **ret_path, char **ret_name, struct fb_error *err)
{
    int rc = fb_source_dir_check_url(source, err);

    if (rc)
        return rc;
    rc = fb_path_absolute(source, ret_path);
    if (rc)
        return fb_error_set(err, rc, "the source '%s': %s", source, fb_strerror(rc));
    fb_path_tidy(*ret_path);
    *ret_name = as_seen(source);
    if (*ret_name)
        fb_path_tidy(*ret_name);
    return 0;
}

/* The last `=/` divides: a prefix may well have such in it (dt=2024/), a path hardly. */
static int place_bucket(const char *source, char **ret_uri, char **ret_name, struct fb_error *err)
{
    FB_AUTO_FREE char *uri = fb_strdup(source);
    char *at = NULL;

    for (char *p = uri; p && (p = strstr(p, "=/")); p++)
        at = p;
    if (!uri)
        return fb_error_set(err, -ENOMEM, "out of memory");
    if (!at)
        return fb_error_set(err, -EINVAL,
                            "%s: write at which path the program is to find it: " SOURCE_FLAG
                            " %s=/data",
                            source, source);
    *at = 0;
    *ret_name = fb_strdup(at + 1);
    if (!*ret_name)
        return fb_error_set(err, -ENOMEM, "out of memory");
    fb_path_tidy(*ret_name);
    if (!fb_path_is_plain(*ret_name) || strchr(*ret_name, ':'))
        return fb_error_set(err, -EINVAL,
                            "'%s' cannot stand for a bucket: write an absolute path without `..` "
                            "and `:`, and not the root directory",
                            at + 1);
    return fb_s3_uri_canonical(uri, ret_uri, err);
}

/* No path stands for two buckets, and none hides another. */
static int check_places(const struct fb_share_request *r, struct fb_error *err)
{
    for (unsigned i = 0; i < r->count; i++) {
        for (unsigned j = 0; j < r->count; j++) {
            if (i == j || !fb_source_is_s3(r->sources[i].path) ||
                !fb_source_is_s3(r->sources[j].path) ||
                !fb_path_below(r->sources[i].name, r->sources[j].name))
                continue;
            return fb_error_set(err, -EINVAL, "%s is to be seen at %s, where %s is",
                                r->sources[j].path, r->sources[j].name, r->sources[i].path);
        }
    }
    return 0;
}

static bool has_bucket(const struct fb_share_request *r)
{
    bool has = false;

    for (unsigned i = 0; i < r->count; i++)
        has = has || fb_source_is_s3(r->sources[i].path);
    return has;
}

/* The texts of the request's sources are `texts`, to be freed either way. */
static int share_request(const struct words *w, const struct fb_config *config,
                         char *texts[2 * FB_SHARES_MAX], struct fb_share_request *ret_request,
                         struct fb_error *err)
{
    *ret_request = (struct fb_share_request){.pid = getpid(), .settings = &config->mount};
    for (unsigned i = 0; i < w->source_count; i++) {
        int rc = fb_source_is_s3(w->sources[i])
                     ? place_bucket(w->sources[i], &texts[2 * i], &texts[2 * i + 1], err)
                     : name_source(w->sources[i], &texts[2 * i], &texts[2 * i + 1], err);

        if (rc)
            return rc;
        ret_request->sources[ret_request->count++] =
            (struct fb_share_source){.path = texts[2 * i], .name = texts[2 * i + 1]};
    }
    return check_places(ret_request, err);
}

static json_t *attach_json(const struct fb_config *config, const struct fb_share_request *request)
{
    json_t *sources = json_array();

    for (unsigned i = 0; i < request->count; i++) {
        const struct fb_share_source *s = &request->sources[i];

        json_array_append_new(sources, json_pack("{s:o*, s:o*}", "path", fb_wire_path(s->path),
                                                 "name", s->name ? fb_wire_path(s->name) : NULL));
    }
    return json_pack("{s:s, s:o*, s:o*, s:o*, s:o*}", "op", "attach", "sources", sources,
                     "settings", cli_mount_settings_json(config), "environment",
                     cli_environment_json(config), "cache", cli_cache_settings_json(config));
}

/* ---- running ---- */

static int attach(const struct words *w, const struct fb_config *config, json_t **ret_reply,
                  struct fb_error *err)
{
    struct fb_list none = FB_LIST_INIT(none);
    struct fb_share_request shares;
    struct fb_daemon_options options = {.config = config, .mounts = &none, .shares = &shares};
    char *texts[2 * FB_SHARES_MAX] = {NULL};
    json_t *request = NULL;
    int rc = share_request(w, config, texts, &shares, err);

    if (rc == 0) {
        if (!has_bucket(&shares))
            cli_warn_of_bucket_flags(config);
        request = attach_json(config, &shares);
        rc = request ? cli_join(&options, w->program, request, ret_reply, err) : -ENOMEM;
    }
    json_decref(request);
    for (size_t i = 0; i < FB_ARRAY_SIZE(texts); i++)
        free(texts[i]);
    return rc;
}

static int execute(char **program)
{
    int code;

    cli_leave_as_found();
    execvp(program[0], program);
    code = errno;
    return cli_fail(code == ENOENT ? NOT_FOUND : NOT_EXECUTABLE, "'%.256s': %s", program[0],
                    fb_strerror(code));
}

static int run_program(const struct words *w, const struct fb_config *config)
{
    FB_AUTO_FREE char *library = NULL;
    struct fb_error error = {""};
    json_t *reply = NULL;
    int rc = cli_preload_find(&library, &error);

    if (rc == 0)
        rc = attach(w, config, &reply, &error);
    if (rc == START_CHILD)
        return CLI_OK;
    if (rc == 0)
        rc = cli_preload_set(library, reply, &error);
    json_decref(reply);
    return rc ? cli_join_failed(rc, &error) : execute(w->program);
}

static int run_words(struct words *w, struct fb_error *err)
{
    struct fb_config config;
    int positional = 0;
    int status = CLI_USAGE;
    int rc = fb_config_load(&config, w->flag_count, w->flags, &positional, NULL, err);

    if (rc == 0 && positional > 0)
        rc = fb_error_set(err, -EINVAL, "'%.64s': write `--` before the program", w->flags[1]);
    if (rc == 0 && w->source_count == 0)
        rc = fb_error_set(err, -EINVAL,
                          "write which directory is to be read through the cache: --source DIR, or "
                          "set " SOURCE_ENV);
    /* It is the program that is in the foreground. */
    config.foreground = false;
    if (rc == 0)
        rc = fb_config_resolve(&config, "/", err);
    if (rc == 0)
        status = run_program(w, &config);
    fb_config_free(&config);
    return rc ? cli_usage(&cli_run, "%s", err->text) : status;
}

static int run(int argc, char **argv)
{
    FB_AUTO_FREE char **flags = fb_alloc_array((size_t)argc + 1, sizeof *flags);
    struct words w = {.flags = flags};
    struct fb_error error = {""};
    int status;

    if (!flags)
        return cli_fail(CLI_FAILED, "out of memory");
    if (take_words(argc, argv, &w, &error) != 0)
        status = cli_usage(&cli_run, "%s", error.text);
    else
        status = run_words(&w, &error);
    free(w.env);
    return status;
}

static const char *const without[] = {"read-only",      "exec",       "allow-other", "fuse-threads",
                                      "max-background", "foreground", NULL};

const struct cli_command cli_run = {
    .name = "run",
    .synopsis = "[FLAG]... -- PROGRAM [ARGUMENT]...",
    .summary = "Run a program that reads a slow directory or a bucket through the cache",
    .about =
        "Runs PROGRAM so that what it reads below the sources comes from the cache, under the same "
        "paths as before; nothing is mounted, and root is not needed. What the program cannot get "
        "from the cache, it gets from the source itself. Writing works as it did, and what the "
        "program starts is served as well. Programs that are linked statically, or run as another "
        "user, read the source as if Forebay were not there.\n"
        "\n"
        "A bucket appears at the path written behind it, to PROGRAM and what it starts and to "
        "nobody else; the path need not exist. This needs FUSE. Programs that are linked "
        "statically see nothing there.\n"
        "\n"
        "The daemon starts in the background when none runs for the cache directory, and ends with "
        "the last program that it serves. PROGRAM takes the place of this command: standard input, "
        "signals and the exit status are its own. Status 127: there is no such program; 126: it "
        "cannot be executed; 1: it could not be started with the cache.",
    .example =
        "  forebay run --source /nfs/imagenet -- python train.py --data /nfs/imagenet\n"
        "  forebay run --source /nfs/a --source /nfs/b --memory 16G -- ./job.sh\n"
        "  forebay run --source s3://bucket/imagenet=/data -- python train.py --data /data\n",
    .table = fb_config_table,
    .own = own_flags,
    .without = without,
    .run = run,
};
