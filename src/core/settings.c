#include "core/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/settings_priv.h"
#include "core/units.h"

#define RATIO_DIGITS 15

/* What to call a value of a type that is wrong, and what to do about it. */
struct advice {
    const char *noun;
    const char *expected;
};

static const struct advice advices[] = {
    [FB_SETTING_BOOL] = {"a yes or no", "write yes or no (or on, off, true, false, 1, 0)"},
    [FB_SETTING_UINT] = {"a whole number", "write digits only, such as 8"},
    [FB_SETTING_SIZE] = {"a size", "write a number with K, M, G or T, such as 10G"},
    [FB_SETTING_DURATION] = {"a duration", "write a number with ms, s, m, h or d, such as 60s"},
    [FB_SETTING_RATIO] = {"a ratio", "write a number from 0 to 1 or a percentage, such as 80%"},
};

struct unit {
    const char *name;
    uint64_t size;
};

static void *field_of(const struct fb_setting *s, void *config)
{
    return (char *)config + s->offset;
}

static const void *const_field_of(const struct fb_setting *s, const void *config)
{
    return (const char *)config + s->offset;
}

static int parse_bool(const char *text, bool *ret)
{
    static const char *const yes[] = {"yes", "on", "true", "1"};
    static const char *const no[] = {"no", "off", "false", "0"};

    for (size_t i = 0; i < FB_ARRAY_SIZE(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *ret = strcasecmp(text, yes[i]) == 0;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_uint(const char *text, uint64_t *ret)
{
    uint64_t value = 0;
    bool too_large = false;

    if (!*text)
        return -EINVAL;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(value, 10ULL, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            too_large = true;
    }
    if (too_large)
        return -ERANGE;
    *ret = value;
    return 0;
}

static int parse_choice(const char *choices, const char *text, unsigned *ret)
{
    size_t text_len = strlen(text);
    unsigned position = 0;

    for (const char *word = choices;; position++) {
        size_t len = strcspn(word, "|");

        if (len == text_len && strncasecmp(word, text, len) == 0) {
            *ret = position;
            return 0;
        }
        if (!word[len])
            return -EINVAL;
        word += len + 1;
    }
}

static int assign_string(char **field, const char *value)
{
    char *copy = fb_strdup(value);

    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

/* The field keeps its value when this fails. */
static int parse_into(const struct fb_setting *s, void *field, const char *value)
{
    switch (s->type) {
    case FB_SETTING_BOOL:
        return parse_bool(value, field);
    case FB_SETTING_UINT:
        return parse_uint(value, field);
    case FB_SETTING_SIZE:
        return fb_parse_size(value, field);
    case FB_SETTING_DURATION:
        return fb_parse_duration(value, field);
    case FB_SETTING_RATIO:
        return fb_parse_ratio(value, field);
    case FB_SETTING_STRING:
        return assign_string(field, value);
    case FB_SETTING_CHOICE:
        return parse_choice(s->choices, value, field);
    }
    return -EINVAL;
}

/* "a, b or c" from "a|b|c". */
static void list_choices(const char *choices, char *out, size_t size)
{
    size_t used = 0;

    out[0] = 0;
    for (const char *word = choices; used < size;) {
        size_t len = strcspn(word, "|");
        const char *next = word[len] ? word + len + 1 : NULL;
        const char *glue = !next ? "" : strchr(next, '|') ? ", " : " or ";

        used += (size_t)snprintf(out + used, size - used, "%.*s%s", (int)len, word, glue);
        if (!next)
            return;
        word = next;
    }
}

static int complain(const struct fb_setting *s, int rc, const char *label, const char *value,
                    struct fb_error *err)
{
    char choices[512];

    if (rc == -ENOMEM)
        return fb_error_set(err, rc, "%s: out of memory", label);
    if (s->type == FB_SETTING_CHOICE) {
        list_choices(s->choices, choices, sizeof choices);
        return fb_error_set(err, -EINVAL, "%s: '%.*s' is not among the choices; write %s", label,
                            FB_SETTING_VALUE_MAX, value, choices);
    }
    if (rc == -ERANGE)
        return fb_error_set(err, -EINVAL, "%s: '%.*s' is too large for %s; %s", label,
                            FB_SETTING_VALUE_MAX, value, advices[s->type].noun,
                            advices[s->type].expected);
    return fb_error_set(err, -EINVAL, "%s: '%.*s' is not %s; %s", label, FB_SETTING_VALUE_MAX,
                        value, advices[s->type].noun, advices[s->type].expected);
}

int fb_setting_assign(const struct fb_setting *setting, void *config, const char *label,
                      const char *value, struct fb_error *err)
{
    int rc = parse_into(setting, field_of(setting, config), value);

    return rc ? complain(setting, rc, label, value, err) : 0;
}

const struct fb_setting *fb_setting_find(const struct fb_setting *table, size_t count,
                                         const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

const char *fb_setting_argument(const struct fb_setting *setting)
{
    if (setting->argument)
        return setting->argument;
    return setting->choices ? setting->choices : "VALUE";
}

static size_t field_size(enum fb_setting_type type)
{
    switch (type) {
    case FB_SETTING_BOOL:
        return sizeof(bool);
    case FB_SETTING_UINT:
    case FB_SETTING_SIZE:
        return sizeof(uint64_t);
    case FB_SETTING_DURATION:
        return sizeof(int64_t);
    case FB_SETTING_RATIO:
        return sizeof(double);
    case FB_SETTING_STRING:
        return sizeof(char *);
    case FB_SETTING_CHOICE:
        return sizeof(unsigned);
    }
    return 0;
}

void fb_settings_defaults(const struct fb_setting *table, size_t count, void *config)
{
    for (size_t i = 0; i < count; i++) {
        const struct fb_setting *s = &table[i];
        int rc;

        FB_ASSERT(strlen(s->name) <= FB_SETTING_NAME_MAX);
        memset(field_of(s, config), 0, field_size(s->type));
        if (!s->fallback)
            continue;
        rc = parse_into(s, field_of(s, config), s->fallback);
        FB_ASSERT(rc == 0);
    }
}

void fb_settings_free(const struct fb_setting *table, size_t count, void *config)
{
    for (size_t i = 0; config && i < count; i++) {
        char **field;

        if (table[i].type != FB_SETTING_STRING)
            continue;
        field = field_of(&table[i], config);
        free(*field);
        *field = NULL;
    }
}

int fb_settings_set(const struct fb_setting *table, size_t count, void *config, const char *name,
                    const char *value, struct fb_error *err)
{
    const struct fb_setting *s = fb_setting_find(table, count, name);
    const char *near;

    if (s)
        return fb_setting_assign(s, config, name, value, err);
    near = fb_setting_nearest(table, count, name);
    if (near)
        return fb_error_set(err, -ENOENT, "%.*s: no such setting; did you mean %s?",
                            FB_SETTING_VALUE_MAX, name, near);
    return fb_error_set(err, -ENOENT, "%.*s: no such setting; --help lists those there are",
                        FB_SETTING_VALUE_MAX, name);
}

/* Exactly, in the largest unit that divides the value: units are in ascending order. */
static void format_exact(char *buf, size_t size, uint64_t value, const struct unit *units,
                         size_t count)
{
    size_t best = 0;

    for (size_t i = 1; value && i < count && value % units[i].size == 0; i++)
        best = i;
    snprintf(buf, size, "%" PRIu64 "%s", value / units[best].size, units[best].name);
}

static void format_size(char *buf, size_t size, uint64_t bytes)
{
    static const struct unit units[] = {
        {"", 1}, {"K", 1ULL << 10}, {"M", 1ULL << 20}, {"G", 1ULL << 30}, {"T", 1ULL << 40},
    };

    format_exact(buf, size, bytes, units, FB_ARRAY_SIZE(units));
}

static void format_duration(char *buf, size_t size, int64_t ns)
{
    static const struct unit units[] = {
        {"ns", 1},
        {"us", FB_NS_PER_US},
        {"ms", FB_NS_PER_MS},
        {"s", FB_NS_PER_S},
        {"m", 60 * FB_NS_PER_S},
        {"h", 3600 * FB_NS_PER_S},
        {"d", 86400 * FB_NS_PER_S},
    };

    if (ns == 0)
        snprintf(buf, size, "0s");
    else
        format_exact(buf, size, (uint64_t)ns, units, FB_ARRAY_SIZE(units));
}

/* As few decimals as read back to the same number. */
static void format_ratio(char *buf, size_t size, double ratio)
{
    double back;

    for (int digits = 0; digits <= RATIO_DIGITS; digits++) {
        snprintf(buf, size, "%.*f", digits, ratio);
        if (fb_parse_ratio(buf, &back) == 0 && memcmp(&back, &ratio, sizeof back) == 0)
            return;
    }
}

static void format_choice(char *buf, size_t size, const char *choices, unsigned position)
{
    for (; position > 0 && choices; position--) {
        choices = strchr(choices, '|');
        choices = choices ? choices + 1 : NULL;
    }
    snprintf(buf, size, "%.*s", choices ? (int)strcspn(choices, "|") : 0, choices ? choices : "");
}

const char *fb_settings_format(const struct fb_setting *setting, const void *config, char *buf,
                               size_t size)
{
    const void *field = const_field_of(setting, config);

    switch (setting->type) {
    case FB_SETTING_BOOL:
        snprintf(buf, size, "%s", *(const bool *)field ? "yes" : "no");
        break;
    case FB_SETTING_UINT:
        snprintf(buf, size, "%" PRIu64, *(const uint64_t *)field);
        break;
    case FB_SETTING_SIZE:
        format_size(buf, size, *(const uint64_t *)field);
        break;
    case FB_SETTING_DURATION:
        format_duration(buf, size, *(const int64_t *)field);
        break;
    case FB_SETTING_RATIO:
        format_ratio(buf, size, *(const double *)field);
        break;
    case FB_SETTING_STRING:
        snprintf(buf, size, "%s", *(char *const *)field ? *(char *const *)field : "");
        break;
    case FB_SETTING_CHOICE:
        format_choice(buf, size, setting->choices, *(const unsigned *)field);
        break;
    }
    return buf;
}
