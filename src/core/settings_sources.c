/*
 * Settings from the environment and from INI files.
 *
 * inih reads lines into a small buffer of its own, cuts longer ones without a word and takes an
 * indented line for more of the value above it. So it gets its lines from our reader, which refuses
 * what would be cut, removes indentation, and knows the number of the line for the error sentence.
 */
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "core/settings_priv.h"

#define ENV_PREFIX      "FOREBAY_"
#define ENV_NAME_SIZE   (sizeof ENV_PREFIX + FB_SETTING_NAME_MAX)
#define SECTION_MAX     48 /* what inih keeps of a section's name */
#define INI_LINES_LIMIT 100000

struct ini {
    const struct fb_setting *table;
    size_t count;
    void *config;
    const char *section;
    fb_settings_section_fn *other;
    void *arg;
    FILE *file;
    int line;
    int read_rc; /* of the file itself */
    int rc;      /* of the first line that fails; ends the reading */
    struct fb_error error;
};

static void env_name(const char *name, char out[ENV_NAME_SIZE])
{
    char *p = stpcpy(out, ENV_PREFIX);

    FB_ASSERT(strlen(name) <= FB_SETTING_NAME_MAX);
    for (; *name; name++)
        *p++ = *name == '-' ? '_' : (char)toupper((unsigned char)*name);
    *p = 0;
}

int fb_settings_from_env(const struct fb_setting *table, size_t count, void *config,
                         struct fb_error *err)
{
    for (size_t i = 0; i < count; i++) {
        char name[ENV_NAME_SIZE];
        const char *value;
        int rc;

        env_name(table[i].name, name);
        value = secure_getenv(name);
        if (!value || !*value)
            continue;
        rc = fb_setting_assign(&table[i], config, name, value, err);
        if (rc)
            return rc;
    }
    return 0;
}

static char *ini_fail(struct ini *ini, const char *sentence)
{
    ini->rc = fb_error_set(&ini->error, -EINVAL, "%s", sentence);
    return NULL;
}

/* inih's reader: as fgets(). */
static char *ini_read(char *buf, int size, void *arg)
{
    struct ini *ini = arg;
    size_t len;
    size_t indent;

    if (ini->rc)
        return NULL;
    if (!fgets(buf, size, ini->file)) {
        ini->read_rc = ferror(ini->file) ? -errno : 0;
        return NULL;
    }
    if (++ini->line > INI_LINES_LIMIT)
        return ini_fail(ini, "the file has too many lines to be a configuration");
    len = strlen(buf);
    if ((len == 0 || buf[len - 1] != '\n') && !feof(ini->file))
        return ini_fail(ini, "the line is too long; a flag or a variable takes long values");
    indent = strspn(buf, " \t");
    memmove(buf, buf + indent, len - indent + 1);
    if (buf[0] == '[' && strcspn(buf, "]\n") > SECTION_MAX)
        return ini_fail(ini, "the section's name is too long");
    return buf;
}

/* inih's handler: 1 is success. */
static int ini_handle(void *arg, const char *section, const char *key, const char *value)
{
    struct ini *ini = arg;

    if (ini->rc)
        return 0;
    if (!*section || (ini->section && strcmp(section, ini->section) == 0))
        ini->rc = fb_settings_set(ini->table, ini->count, ini->config, key, value, &ini->error);
    else if (ini->other)
        ini->rc = ini->other(ini->arg, section, key, value, &ini->error);
    else
        ini->rc = fb_error_set(&ini->error, -EINVAL, "[%s]: no such section", section);
    return ini->rc == 0;
}

/* inih reads on after a line that it cannot parse, so such a line may come before our failure. */
static int ini_result(struct ini *ini, int bad_line, const char *path, struct fb_error *err)
{
    if (ini->read_rc)
        return fb_error_set(err, ini->read_rc, "%s: %s", path, fb_strerror(ini->read_rc));
    if (bad_line > 0 && (ini->rc == 0 || bad_line < ini->line))
        return fb_error_set(err, -EINVAL, "%s:%d: not understood; write name = value or [section]",
                            path, bad_line);
    if (ini->rc == 0)
        return 0;
    /* -ENOENT is kept for the file itself. */
    return fb_error_set(err, ini->rc == -ENOENT ? -EINVAL : ini->rc, "%s:%d: %s", path, ini->line,
                        ini->error.text);
}

int fb_settings_from_ini(const struct fb_setting *table, size_t count, void *config,
                         const char *path, const char *section, fb_settings_section_fn *other,
                         void *arg, struct fb_error *err)
{
    struct ini ini = {.table = table,
                      .count = count,
                      .config = config,
                      .section = section,
                      .other = other,
                      .arg = arg};
    int bad_line;
    int rc;

    ini.file = fopen(path, "re");
    if (!ini.file) {
        rc = -errno;
        return fb_error_set(err, rc, "%s: %s", path, fb_strerror(rc));
    }
    bad_line = ini_parse_stream(ini_read, &ini, ini_handle, &ini);
    rc = ini_result(&ini, bad_line, path, err);
    fclose(ini.file);
    return rc;
}
