#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/units.h"
#include "source/source_fault.h"

#define SETTINGS_MAX 32   /* in one text */
#define ERRNO_MAX    4095 /* the largest a system call returns */

static int parse_number(const char *text, uint64_t max, uint64_t *ret_number)
{
    char *end;
    unsigned long long n;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno || *end || n > max)
        return -EINVAL;
    *ret_number = n;
    return 0;
}

static int parse_errno(const char *text, int *ret_code)
{
    uint64_t n;
    int r = parse_number(text, ERRNO_MAX, &n);

    if (r == 0)
        *ret_code = (int)n;
    return r;
}

/* -ENOENT: no such setting. */
static int set(struct fb_fault_config *config, const char *name, const char *value)
{
    if (!strcmp(name, "latency"))
        return fb_parse_duration(value, &config->latency_ns);
    if (!strcmp(name, "jitter"))
        return fb_parse_duration(value, &config->jitter_ns);
    if (!strcmp(name, "bandwidth"))
        return fb_parse_size(value, &config->bandwidth);
    if (!strcmp(name, "error"))
        return fb_parse_ratio(value, &config->error);
    if (!strcmp(name, "errno"))
        return parse_errno(value, &config->error_code);
    if (!strcmp(name, "short"))
        return fb_parse_ratio(value, &config->short_read);
    if (!strcmp(name, "hang"))
        return fb_parse_ratio(value, &config->hang);
    if (!strcmp(name, "seed"))
        return parse_number(value, UINT64_MAX, &config->seed);
    return -ENOENT;
}

static int parse_one(char *word, struct fb_fault_config *config, struct fb_error *err)
{
    char *value = strchr(word, '=');
    int r;

    if (!value)
        return fb_error_set(err, -EINVAL, "fault setting \"%s\" has no value; write name=value",
                            word);
    *value++ = '\0';
    r = set(config, word, value);
    if (r == -ENOENT)
        return fb_error_set(err, -EINVAL,
                            "there is no fault setting \"%s\"; there are latency, jitter, "
                            "bandwidth, error, errno, short, hang and seed",
                            word);
    if (r < 0)
        return fb_error_set(err, -EINVAL, "fault setting %s cannot be \"%s\"", word, value);
    return 0;
}

int fb_fault_parse(const char *text, struct fb_fault_config *ret_config, struct fb_error *err)
{
    FB_AUTO_FREE char *copy = fb_strdup(text);
    struct fb_fault_config config = {0};
    char *rest = copy, *word;
    int r = copy ? 0 : -ENOMEM;

    for (int i = 0; r == 0 && *rest && (word = strsep(&rest, ",")); i++) {
        r = parse_one(word, &config, err);
        if (r == 0 && i >= SETTINGS_MAX)
            r = fb_error_set(err, -EINVAL, "too many fault settings");
        if (!rest)
            break;
    }
    if (r == 0)
        *ret_config = config;
    return r;
}
