#include "cli/mount_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"

#define NAME_SIZE 80 /* of an option's name; a longer one is cut, and stays unknown */

struct output {
    const struct fb_setting *table; /* the flags there are */
    size_t rows;
    char **words;
    int count;
    char *text; /* where the next text goes */
};

/* For fstab, or what we do anyway: a mount is always nosuid and nodev, and what is written is at
 * the source when write(2) returns. */
static bool is_ignored(const char *option)
{
    static const char *const names[] = {
        "defaults", "auto",    "noauto",   "_netdev",    "nofail",   "user",       "nouser",
        "users",    "owner",   "group",    "dev",        "nodev",    "suid",       "nosuid",
        "atime",    "noatime", "relatime", "norelatime", "diratime", "nodiratime", "async",
        "sync",     "dirsync", "silent",   "loud",
    };

    for (size_t i = 0; i < FB_ARRAY_SIZE(names); i++) {
        if (strcmp(option, names[i]) == 0)
            return true;
    }
    return strncmp(option, "x-", 2) == 0 || strncmp(option, "comment=", 8) == 0;
}

/* Writes the next option of *rest, without its escapes, as a flag at out->text. */
static void cut_option(const char **rest, struct output *out)
{
    char *p = out->text;
    const char *s = *rest;

    *p++ = '-';
    *p++ = '-';
    while (*s && *s != ',') {
        if (s[0] == '\\' && s[1])
            s++;
        *p++ = *s++;
    }
    *p++ = 0;
    *rest = *s ? s + 1 : s;
}

/* As every other file system writes them: allow_other. */
static void use_dashes(char *name)
{
    for (; *name && *name != '='; name++) {
        if (*name == '_')
            *name = '-';
    }
}

/* Flags of mount(8) that have another name here. NULL: not one of them. */
static char *flag_for(const char *option)
{
    static char read_only[] = "--read-only", writable[] = "--no-read-only";
    static char exec[] = "--exec", no_exec[] = "--no-exec";

    static const struct {
        const char *option;
        char *flag;
    } names[] = {{"ro", read_only}, {"rw", writable}, {"exec", exec}, {"noexec", no_exec}};

    for (size_t i = 0; i < FB_ARRAY_SIZE(names); i++) {
        if (strcmp(option, names[i].option) == 0)
            return names[i].flag;
    }
    return NULL;
}

/* `option` has dashes; the user wrote it as `written`, in a list. */
static int check_option(const struct output *out, const char *option, const char *written,
                        struct fb_error *err)
{
    int written_len = (int)strcspn(written, ",=");
    char name[NAME_SIZE];
    const char *near;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    if (fb_setting_find(out->table, out->rows, name) ||
        (strncmp(name, "no-", 3) == 0 && fb_setting_find(out->table, out->rows, name + 3)))
        return 0;
    if (strcmp(name, "remount") == 0)
        return fb_error_set(err, -ENOENT,
                            "-o remount: a mount of Forebay keeps its options; `forebay umount` it "
                            "and mount it again");
    near = fb_setting_nearest(out->table, out->rows, name);
    if (near)
        return fb_error_set(err, -ENOENT, "-o %.*s: no such option; did you mean -o %s?",
                            written_len, written, near);
    return fb_error_set(err, -ENOENT, "-o %.*s: no such option; --help lists those there are",
                        written_len, written);
}

static int take_options(const char *list, struct output *out, struct fb_error *err)
{
    while (*list) {
        const char *written = list;
        char *flag = out->text;
        char *option = flag + 2;
        int rc;

        cut_option(&list, out);
        if (!*option || is_ignored(option))
            continue;
        if (flag_for(option)) {
            out->words[out->count++] = flag_for(option);
            continue;
        }
        use_dashes(option);
        rc = check_option(out, option, written, err);
        if (rc)
            return rc;
        out->words[out->count++] = flag;
        out->text = flag + strlen(flag) + 1;
    }
    return 0;
}

/* `-o LIST`, `-oLIST`, and what mount(8) users write: `--options=LIST` is none of ours. */
static const char *options_at(int argc, char **argv, int *at)
{
    if (strncmp(argv[*at], "-o", 2) != 0)
        return NULL;
    if (argv[*at][2])
        return argv[*at] + 2;
    if (*at + 1 >= argc)
        return NULL;
    return argv[++*at];
}

int cli_mount_options(const struct fb_setting *table, size_t count, int argc, char **argv,
                      int *ret_count, char ***ret_words, struct fb_error *err)
{
    struct output out = {.table = table, .rows = count};
    size_t slots = (size_t)argc + 1;
    size_t bytes = 0;
    bool flags = true;

    /* An option of n characters takes at most one slot and n + 3 bytes. */
    for (int i = 0; i < argc; i++) {
        slots += strlen(argv[i]);
        bytes += 4 * strlen(argv[i]) + 4;
    }
    out.words = fb_alloc(slots * sizeof(char *) + bytes);
    if (!out.words)
        return fb_error_set(err, -ENOMEM, "out of memory");
    out.text = (char *)(out.words + slots);
    for (int i = 0; i < argc; i++) {
        const char *list = flags && i > 0 ? options_at(argc, argv, &i) : NULL;
        int rc = list ? take_options(list, &out, err) : 0;

        if (rc) {
            free(out.words);
            return rc;
        }
        if (list)
            continue;
        flags = flags && strcmp(argv[i], "--") != 0;
        out.words[out.count++] = argv[i];
    }
    *ret_count = out.count;
    *ret_words = out.words;
    return 0;
}

/* Takes `rw` out of a list, in place. */
static void drop_rw(char *list)
{
    char *out = list;

    for (char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        size_t whole = len + (p[len] ? 1 : 0);

        if (!(len == 2 && strncmp(p, "rw", 2) == 0)) {
            memmove(out, p, whole);
            out += whole;
        }
        p += whole;
    }
    *out = 0;
}

int cli_mount_helper_args(int argc, char **argv, int *ret_count, char ***ret_words, bool *ret_fake,
                          struct fb_error *err)
{
    static char name[] = "mount";
    char **words = fb_alloc_array((size_t)argc + 2, sizeof *words);
    int count = 0;

    if (!words)
        return fb_error_set(err, -ENOMEM, "out of memory");
    *ret_fake = false;
    words[count++] = name;
    for (int i = 1; i < argc; i++) {
        bool has_value = strcmp(argv[i], "-N") == 0 || strcmp(argv[i], "-t") == 0;

        if (has_value && i + 1 < argc) {
            i++;
        } else if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
            words[count++] = argv[i++];
            drop_rw(argv[i]);
            words[count++] = argv[i];
        } else if (argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-' &&
                   strspn(argv[i] + 1, "sfnvrw") == strlen(argv[i] + 1)) {
            *ret_fake = *ret_fake || strchr(argv[i], 'f');
        } else {
            words[count++] = argv[i];
        }
    }
    *ret_count = count;
    *ret_words = words;
    return 0;
}
