#include <string.h>

#include "core/settings_priv.h"

#define HELP_WIDTH 100
#define LABEL_MAX  30 /* a longer label has a line of its own */
#define LABEL_SIZE 256
#define LABEL_GAP  2

static const char *group_of(const struct fb_setting *s)
{
    return s->group ? s->group : "Options";
}

static bool is_on(const char *text)
{
    static const struct fb_setting row = {.type = FB_SETTING_BOOL};
    bool on = false;

    return fb_setting_assign(&row, &on, "", text, NULL) == 0 && on;
}

/* A switch that is off is what anyone expects of a switch. */
static bool shows_default(const struct fb_setting *s)
{
    if (!s->fallback || !*s->fallback)
        return false;
    return s->type != FB_SETTING_BOOL || is_on(s->fallback);
}

/* `  -m, --memory SIZE`; a switch that is on by default shows how to turn it off. */
static size_t format_label(const struct fb_setting *s, char out[LABEL_SIZE])
{
    bool is_switch = s->type == FB_SETTING_BOOL;
    char letter[] = "-x, ";
    int len;

    letter[1] = s->letter;
    len = snprintf(out, LABEL_SIZE, "  %s--%s%s%s%s", s->letter ? letter : "    ",
                   is_switch && shows_default(s) ? "[no-]" : "", s->name, is_switch ? "" : " ",
                   is_switch ? "" : fb_setting_argument(s));
    return (size_t)len < LABEL_SIZE ? (size_t)len : LABEL_SIZE - 1;
}

static size_t label_column(const struct fb_setting *table, size_t count)
{
    char label[LABEL_SIZE];
    size_t widest = 0;

    for (size_t i = 0; i < count; i++) {
        size_t len = format_label(&table[i], label);

        if (len <= LABEL_MAX && len > widest)
            widest = len;
    }
    return widest + LABEL_GAP;
}

/* Prints `text` word by word from column `at`, breaking to column `indent`; returns the column. */
static size_t print_wrapped(FILE *out, const char *text, size_t at, size_t indent)
{
    while (*(text += strspn(text, " "))) {
        size_t len = strcspn(text, " ");

        if (at > indent && at + 1 + len > HELP_WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", (int)len, text);
        at += len;
        text += len;
    }
    return at;
}

static void print_row(const struct fb_setting *s, size_t column, FILE *out)
{
    char label[LABEL_SIZE];
    char fallback[LABEL_SIZE];
    size_t len = format_label(s, label);
    size_t at;

    fputs(label, out);
    if (len + LABEL_GAP > column) {
        fputc('\n', out);
        len = 0;
    }
    fprintf(out, "%*s", (int)(column - len), "");
    at = print_wrapped(out, s->help ? s->help : "", column, column);
    if (shows_default(s)) {
        snprintf(fallback, sizeof fallback, "[default: %s]", s->fallback);
        print_wrapped(out, fallback, at, column);
    }
    fputc('\n', out);
}

/* Whether no row before this one opened its group. */
static bool opens_group(const struct fb_setting *table, size_t row)
{
    for (size_t i = 0; i < row; i++) {
        if (strcmp(group_of(&table[i]), group_of(&table[row])) == 0)
            return false;
    }
    return true;
}

void fb_settings_help(const struct fb_setting *table, size_t count, FILE *out)
{
    size_t column = label_column(table, count);
    const char *blank = "";

    for (size_t g = 0; g < count; g++) {
        if (!opens_group(table, g))
            continue;
        fprintf(out, "%s%s:\n", blank, group_of(&table[g]));
        blank = "\n";
        for (size_t i = g; i < count; i++) {
            if (strcmp(group_of(&table[i]), group_of(&table[g])) == 0)
                print_row(&table[i], column, out);
        }
    }
}
