/*
 * core/settings_priv.h - what the files of the settings share.
 */
#ifndef FB_CORE_SETTINGS_PRIV_H
#define FB_CORE_SETTINGS_PRIV_H

#include "core/settings.h"

#define FB_SETTING_NAME_MAX  48 /* of a setting's name */
#define FB_SETTING_VALUE_MAX 80 /* of a value that an error quotes */

/* Parses `value` into the field. Sentences call the setting `label`: --memory, FOREBAY_MEMORY. */
FB_MUST_CHECK int fb_setting_assign(const struct fb_setting *setting, void *config,
                                    const char *label, const char *value, struct fb_error *err);

/* What to call the value of a flag: SIZE, or the choices. */
const char *fb_setting_argument(const struct fb_setting *setting);

#endif
