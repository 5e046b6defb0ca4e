#include "cli/bucket_flags.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/log.h"

#define NAMES_SIZE 256 /* of all flags for buckets */

/* The settings as they would be without flags, but for the one that names a file. */
static int load_base(const struct fb_config *config, struct fb_config *ret_base)
{
    char name[] = "forebay";
    char flag[] = "--config";
    char *words[] = {name, flag, config->config, NULL};
    int positional;

    return fb_config_load(ret_base, config->config ? 3 : 1, words, &positional, NULL, NULL);
}

void cli_warn_of_bucket_flags(const struct fb_config *config)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    char names[NAMES_SIZE] = "";
    struct fb_config base;
    int rc = load_base(config, &base);

    for (size_t i = 0; rc == 0 && i < fb_config_mount_rows(); i++) {
        char is[FB_ERROR_TEXT_MAX];
        char usual[FB_ERROR_TEXT_MAX];
        size_t used = strlen(names);
        bool no;

        fb_settings_format(&table[i], config, is, sizeof is);
        fb_settings_format(&table[i], &base, usual, sizeof usual);
        if (!fb_config_is_of_buckets(&table[i]) || strcmp(is, usual) == 0)
            continue;
        no = table[i].type == FB_SETTING_BOOL && strcmp(is, "no") == 0;
        snprintf(names + used, sizeof names - used, "%s--%s%s", used ? ", " : "", no ? "no-" : "",
                 table[i].name);
    }
    fb_config_free(&base);
    if (*names)
        fb_log_warn("of no effect where the source is a directory, as they are for buckets: %s",
                    names);
}
