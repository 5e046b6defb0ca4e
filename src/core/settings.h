/*
 * core/settings.h - settings from one table: flag, environment, INI file, help text.
 *
 * A table row names a field of the caller's configuration struct. From it come the flag (--name
 * VALUE or --name=VALUE, booleans also as --name and --no-name), the variable FOREBAY_NAME (dashes
 * become underscores), the INI key `name`, the line of --help and of the manual page. Later layers
 * win: default < INI file < environment < flag. Strings are copied and owned by the struct; release
 * them with fb_settings_free().
 */
#ifndef FB_CORE_SETTINGS_H
#define FB_CORE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/attr.h"
#include "core/error.h"

enum fb_setting_type {
    FB_SETTING_BOOL,     /* bool */
    FB_SETTING_UINT,     /* uint64_t */
    FB_SETTING_SIZE,     /* uint64_t, bytes */
    FB_SETTING_DURATION, /* int64_t, nanoseconds */
    FB_SETTING_RATIO,    /* double */
    FB_SETTING_STRING,   /* char * (NULL when default is NULL) */
    FB_SETTING_CHOICE,   /* unsigned: position in `choices`, words separated by '|' */
};

struct fb_setting {
    const char *name; /* "free-space-ratio" */
    char letter;      /* one-letter form of the flag, or 0 */
    enum fb_setting_type type;
    size_t offset;        /* of the field in the configuration struct */
    const char *fallback; /* default, as a user would write it; NULL: zero or NULL */
    const char *choices;  /* for CHOICE */
    const char *argument; /* what --help calls the value: "SIZE", "DIR" */
    const char *help;     /* one sentence */
    const char *group;    /* heading under which --help lists it */
};

/* Sets every field to its default, whatever was there (no string is freed). The table must be
 * valid: a default that does not parse, or a name over 48 characters, is a programmer error. */
void fb_settings_defaults(const struct fb_setting *table, size_t count, void *config);

void fb_settings_free(const struct fb_setting *table, size_t count, void *config);

/* The row of that name, or NULL. */
const struct fb_setting *fb_setting_find(const struct fb_setting *table, size_t count,
                                         const char *name);

/* The name that `name` was probably meant to be, or NULL. */
const char *fb_setting_nearest(const struct fb_setting *table, size_t count, const char *name);

/* One value by name. -ENOENT: no such setting; -EINVAL: bad value; both with a sentence in err that
 * names the setting, the value and what is expected. */
FB_MUST_CHECK int fb_settings_set(const struct fb_setting *table, size_t count, void *config,
                                  const char *name, const char *value, struct fb_error *err);

/* All FOREBAY_* variables of the table. An empty one counts as unset. An unknown FOREBAY_ variable
 * is ignored: others use the prefix too. */
FB_MUST_CHECK int fb_settings_from_env(const struct fb_setting *table, size_t count, void *config,
                                       struct fb_error *err);

/* Parses flags out of argv (argv[0] is the command's name); what is no flag is moved, in order, to
 * the front of argv[1...] and counted in ret_positional. `--` ends the flags and is dropped: all
 * words after it are positional, whatever they look like. Where words were used up, argv[1 +
 * *ret_positional] is NULL, so argv + 1 can be executed. An unknown flag is -ENOENT, with a
 * sentence that suggests the nearest name. A value that begins with a dash must be written
 * --name=VALUE. */
FB_MUST_CHECK int fb_settings_from_args(const struct fb_setting *table, size_t count, void *config,
                                        int argc, char **argv, int *ret_positional,
                                        struct fb_error *err);

/* Sections of an INI file: keys of `section` (or before any section) go into config; other sections
 * are given to `other` (may be NULL: then they are an error), which returns 0 or sets err.
 * Sentences name file and line. -ENOENT means only that there is no such file; an unknown key is
 * -EINVAL. Lines have at most 198 characters (inih's buffer); a longer one is an error, never cut.
 */
typedef int fb_settings_section_fn(void *arg, const char *section, const char *key,
                                   const char *value, struct fb_error *err);

FB_MUST_CHECK int fb_settings_from_ini(const struct fb_setting *table, size_t count, void *config,
                                       const char *path, const char *section,
                                       fb_settings_section_fn *other, void *arg,
                                       struct fb_error *err);

/* The lines of --help: grouped, aligned, with defaults, at most 100 columns wide. */
void fb_settings_help(const struct fb_setting *table, size_t count, FILE *out);

/* The present value as a user would write it; setting it again changes nothing. Returns buf. */
const char *fb_settings_format(const struct fb_setting *setting, const void *config, char *buf,
                               size_t size);

#endif
