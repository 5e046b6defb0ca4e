/*
 * Flags: a walk over argv that moves what is no flag to the front. A value may stand in the same
 * word (--name=value, -xvalue) or in the next; a next word that looks like a flag is taken for one,
 * so a forgotten value is an error and not a value of "--other".
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "core/settings_priv.h"

struct args {
    const struct fb_setting *table;
    size_t count;
    void *config;
    int argc;
    char **argv;
    int next;       /* the word after the one at hand */
    int positional; /* how many are at the front so far */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's distance, where two neighbours swapped count as one; three rows are enough. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][FB_SETTING_NAME_MAX + 1];
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *row = rows[2];
    size_t b_len = strlen(b);

    FB_ASSERT(b_len <= FB_SETTING_NAME_MAX);
    for (size_t j = 0; j <= b_len; j++)
        last[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *spare = before;

        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            row[j] = smaller(last[j], row[j - 1]) + 1;
            row[j] = smaller(row[j], last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
        before = last;
        last = row;
        row = spare;
    }
    return last[b_len];
}

/* A name cut short is near, too: --mem for --memory. */
const char *fb_setting_nearest(const struct fb_setting *table, size_t count, const char *name)
{
    size_t len = strlen(name);
    size_t best = smaller(len / 3 + 1, 3) + 1;
    const char *nearest = NULL;

    if (len < 2 || len > FB_SETTING_NAME_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(name, table[i].name);

        if (strncmp(name, table[i].name, len) == 0)
            distance = 1;
        if (distance < best) {
            best = distance;
            nearest = table[i].name;
        }
    }
    return nearest;
}

/* `name` is what was written after the dashes. */
static int unknown_flag(const struct args *a, const char *name, struct fb_error *err)
{
    const char *no = strncmp(name, "no-", 3) == 0 ? "no-" : "";
    const char *nearest = fb_setting_nearest(a->table, a->count, name);

    if (nearest)
        no = "";
    else if (*no)
        nearest = fb_setting_nearest(a->table, a->count, name + 3);
    if (nearest)
        return fb_error_set(err, -ENOENT, "--%.*s: no such flag; did you mean --%s%s?",
                            FB_SETTING_VALUE_MAX, name, no, nearest);
    return fb_error_set(err, -ENOENT, "--%.*s: no such flag; --help lists those there are",
                        FB_SETTING_VALUE_MAX, name);
}

/* `label` is the flag as the user wrote it: --name or -x. */
static int take_value(struct args *a, const struct fb_setting *s, const char *label,
                      struct fb_error *err)
{
    const char *value = a->next < a->argc ? a->argv[a->next] : NULL;

    if (value && value[0] == '-' && value[1] >= '0' && value[1] <= '9')
        return fb_error_set(err, -EINVAL, "%s: '%.*s': may not be negative", label,
                            FB_SETTING_VALUE_MAX, value);
    if (!value || (value[0] == '-' && value[1]))
        return fb_error_set(err, -EINVAL, "%s: needs a value; write --%s=%s", label, s->name,
                            fb_setting_argument(s));
    a->next++;
    return fb_setting_assign(s, a->config, label, value, err);
}

static int negated_flag(const struct args *a, const char *name, const char *value,
                        struct fb_error *err)
{
    const struct fb_setting *s =
        strncmp(name, "no-", 3) == 0 ? fb_setting_find(a->table, a->count, name + 3) : NULL;

    if (!s)
        return unknown_flag(a, name, err);
    if (s->type != FB_SETTING_BOOL)
        return fb_error_set(err, -EINVAL, "--%s: %s is not a yes or no; write --%s=%s", name,
                            s->name, s->name, fb_setting_argument(s));
    if (value)
        return fb_error_set(err, -EINVAL, "--%s: '%.*s' is not expected here; write --%s alone",
                            name, FB_SETTING_VALUE_MAX, value, name);
    return fb_setting_assign(s, a->config, name, "no", err);
}

/* `word` is what follows the two dashes. */
static int long_flag(struct args *a, const char *word, struct fb_error *err)
{
    size_t len = strcspn(word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    char label[FB_SETTING_VALUE_MAX + 1];
    const struct fb_setting *s;

    /* A name too long for any setting is cut, and so stays unknown. */
    snprintf(label, sizeof label, "--%.*s", (int)smaller(len, sizeof label), word);
    s = fb_setting_find(a->table, a->count, label + 2);
    if (!s)
        return negated_flag(a, label + 2, value, err);
    if (value)
        return fb_setting_assign(s, a->config, label, value, err);
    if (s->type == FB_SETTING_BOOL)
        return fb_setting_assign(s, a->config, label, "yes", err);
    return take_value(a, s, label, err);
}

static const struct fb_setting *find_letter(const struct args *a, char letter)
{
    for (size_t i = 0; i < a->count; i++) {
        if (a->table[i].letter && a->table[i].letter == letter)
            return &a->table[i];
    }
    return NULL;
}

/* -x, -x value, -xvalue, and several switches in one: -abx value. */
static int letter_flags(struct args *a, const char *letters, struct fb_error *err)
{
    for (; *letters; letters++) {
        const struct fb_setting *s = find_letter(a, *letters);
        char label[] = {'-', *letters, 0};
        int rc;

        if (!s)
            return fb_error_set(err, -ENOENT, "%s: no such flag; --help lists those there are",
                                label);
        if (s->type != FB_SETTING_BOOL && letters[1])
            return fb_setting_assign(s, a->config, label, letters + 1, err);
        if (s->type != FB_SETTING_BOOL)
            return take_value(a, s, label, err);
        rc = fb_setting_assign(s, a->config, label, "yes", err);
        if (rc)
            return rc;
    }
    return 0;
}

static void keep_positional(struct args *a, char *word)
{
    a->argv[1 + a->positional++] = word;
}

static int one_word(struct args *a, char *word, struct fb_error *err)
{
    if (word[0] != '-' || !word[1]) {
        keep_positional(a, word);
        return 0;
    }
    if (word[1] != '-')
        return letter_flags(a, word + 1, err);
    return long_flag(a, word + 2, err);
}

int fb_settings_from_args(const struct fb_setting *table, size_t count, void *config, int argc,
                          char **argv, int *ret_positional, struct fb_error *err)
{
    struct args a = {
        .table = table, .count = count, .config = config, .argc = argc, .argv = argv, .next = 1};

    while (a.next < argc) {
        char *word = argv[a.next++];
        int rc;

        if (strcmp(word, "--") == 0)
            break;
        rc = one_word(&a, word, err);
        if (rc)
            return rc;
    }
    while (a.next < argc)
        keep_positional(&a, argv[a.next++]);
    if (1 + a.positional < argc)
        argv[1 + a.positional] = NULL;
    *ret_positional = a.positional;
    return 0;
}
