#include "sim/spec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/units.h"

#define RANGE_SIZES 16

/* How many words a comma makes of the text. */
static size_t count_words(const char *text)
{
    size_t count = 1;

    for (; *text; text++)
        count += *text == ',';
    return count;
}

static char *copy_word(const char *text, size_t len)
{
    char *word = fb_alloc(len + 1);

    if (word)
        memcpy(word, text, len);
    return word;
}

/* ---- policies ---- */

static int unknown_policy(const char *name, size_t len, struct fb_error *err)
{
    return fb_error_set(err, -EINVAL,
                        "there is no policy '%.*s'; `forebay sim --help` lists those there are",
                        (int)fb_min_u64(len, 64), name);
}

static void set_defaults(struct fb_sim_choice *choice)
{
    size_t i = 0;

    for (const struct fb_sim_param *p = choice->policy->params; p && p->key; p++)
        choice->param[i++] = p->fallback;
}

/* key=value, ended by a colon or the text's end. */
static int set_param(struct fb_sim_choice *choice, const char *text, size_t len,
                     struct fb_error *err)
{
    size_t key_len = strcspn(text, "=");
    size_t i = 0;

    for (const struct fb_sim_param *p = choice->policy->params; p && p->key; p++, i++) {
        char *end;
        double value;

        if (key_len >= len || strlen(p->key) != key_len || memcmp(p->key, text, key_len) != 0)
            continue;
        value = strtod(text + key_len + 1, &end);
        if (end != text + len || !(value >= p->min && value <= p->max))
            return fb_error_set(err, -EINVAL,
                                "policy %s: '%.*s': the value must be a number from %g to %g",
                                choice->policy->name, (int)len, text, p->min, p->max);
        choice->param[i] = value;
        return 0;
    }
    return fb_error_set(err, -EINVAL,
                        "policy %s: '%.*s' is no parameter; `forebay sim --help` lists them as "
                        "key=value",
                        choice->policy->name, (int)fb_min_u64(len, 64), text);
}

static int parse_policy(struct fb_sim_choice *choice, const char *text, size_t len,
                        struct fb_error *err)
{
    size_t at;

    choice->text = copy_word(text, len);
    if (!choice->text)
        return -ENOMEM;
    text = choice->text;
    at = strcspn(text, ":");
    choice->policy = fb_sim_policy_find(text, at);
    if (!choice->policy)
        return unknown_policy(text, at, err);
    set_defaults(choice);
    while (text[at] == ':') {
        size_t param_len = strcspn(text + at + 1, ":");
        int rc = set_param(choice, text + at + 1, param_len, err);

        if (rc)
            return rc;
        at += 1 + param_len;
    }
    return 0;
}

int fb_sim_parse_policies(const char *text, struct fb_sim_choice **ret_choices, size_t *ret_count,
                          struct fb_error *err)
{
    size_t count = count_words(text);
    struct fb_sim_choice *choices;

    if (count > FB_SIM_SPEC_MAX)
        return fb_error_set(err, -EINVAL, "at most %d policies can be given", FB_SIM_SPEC_MAX);
    choices = fb_alloc_array(count, sizeof *choices);
    if (!choices)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        size_t len = strcspn(text, ",");
        int rc = parse_policy(&choices[i], text, len, err);

        if (rc) {
            fb_sim_free_policies(choices, count);
            return rc;
        }
        text += len + 1;
    }
    *ret_choices = choices;
    *ret_count = count;
    return 0;
}

void fb_sim_free_policies(struct fb_sim_choice *choices, size_t count)
{
    for (size_t i = 0; choices && i < count; i++)
        free(choices[i].text);
    free(choices);
}

/* ---- sizes ---- */

static int wrong_size(const char *text, size_t len, struct fb_error *err)
{
    return fb_error_set(err, -EINVAL,
                        "size '%.*s': write a share of the trace's footprint up to 100%%, a size "
                        "like 512M, or a range like 0.1%%..100%%",
                        (int)fb_min_u64(len, 64), text);
}

static int parse_size(struct fb_sim_size *size, const char *text, size_t len, struct fb_error *err)
{
    int rc;

    size->text = copy_word(text, len);
    if (!size->text)
        return -ENOMEM;
    size->share = -1;
    if (len > 0 && text[len - 1] == '%')
        rc = fb_parse_ratio(size->text, &size->share);
    else
        rc = fb_parse_size(size->text, &size->amount);
    if (rc || (size->share < 0 && size->amount == 0) || size->share == 0)
        return wrong_size(text, len, err);
    return 0;
}

/* Sizes between two, both included; `size` has room for RANGE_SIZES. */
static int parse_range(struct fb_sim_size *size, const char *text, size_t len, size_t dots,
                       struct fb_error *err)
{
    struct fb_sim_size *last = &size[RANGE_SIZES - 1];
    int rc = parse_size(&size[0], text, dots, err);

    if (rc == 0)
        rc = parse_size(last, text + dots + 2, len - dots - 2, err);
    if (rc)
        return rc;
    if ((size->share < 0) != (last->share < 0) || size->share > last->share ||
        size->amount > last->amount)
        return wrong_size(text, len, err);
    for (size_t i = 1; i < RANGE_SIZES - 1; i++) {
        double at = (double)i / (RANGE_SIZES - 1);

        size[i].share = -1;
        if (size->share >= 0) {
            size[i].share = size->share * pow(last->share / size->share, at);
            size[i].text = fb_asprintf("%.3g%%", size[i].share * 100);
        } else {
            size[i].amount = (uint64_t)((double)size->amount *
                                        pow((double)last->amount / (double)size->amount, at));
            size[i].text = fb_asprintf("%llu", (unsigned long long)size[i].amount);
        }
        if (!size[i].text)
            return -ENOMEM;
    }
    return 0;
}

/* Where the two dots of a range are; 0: it is none. */
static size_t find_dots(const char *text, size_t len)
{
    const char *dots = memmem(text, len, "..", 2);

    return dots ? (size_t)(dots - text) : 0;
}

int fb_sim_parse_sizes(const char *text, struct fb_sim_size **ret_sizes, size_t *ret_count,
                       struct fb_error *err)
{
    size_t words = count_words(text);
    struct fb_sim_size *sizes;
    size_t count = 0;
    int rc = 0;

    if (words > FB_SIM_SPEC_MAX / RANGE_SIZES)
        return fb_error_set(err, -EINVAL, "at most %d sizes can be given",
                            FB_SIM_SPEC_MAX / RANGE_SIZES);
    sizes = fb_alloc_array(words * RANGE_SIZES, sizeof *sizes);
    if (!sizes)
        return -ENOMEM;
    for (size_t i = 0; i < words && rc == 0; i++) {
        size_t len = strcspn(text, ",");
        size_t dots = find_dots(text, len);

        rc = dots ? parse_range(&sizes[count], text, len, dots, err)
                  : parse_size(&sizes[count], text, len, err);
        count += dots ? RANGE_SIZES : 1;
        text += len + 1;
    }
    if (rc) {
        fb_sim_free_sizes(sizes, count);
        return rc;
    }
    *ret_sizes = sizes;
    *ret_count = count;
    return 0;
}

void fb_sim_free_sizes(struct fb_sim_size *sizes, size_t count)
{
    for (size_t i = 0; sizes && i < count; i++)
        free(sizes[i].text);
    free(sizes);
}

uint64_t fb_sim_size_of(const struct fb_sim_size *size, uint64_t footprint)
{
    if (size->share < 0)
        return size->amount;
    /* 0.29 of 100 is 28.999999999999996 in binary. */
    return fb_max_u64((uint64_t)(size->share * (double)footprint + 1e-6), 1);
}
