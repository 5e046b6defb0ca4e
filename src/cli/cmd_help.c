/*
 * --help and the manual page, both from the commands and their tables of flags.
 */
#include <string.h>

#include "cli/cli.h"
#include "core/mem.h"
#include "core/units.h"
#include "daemon/config.h"
#include "daemon/status.h"
#include "daemon/version.h"

#define WIDTH 100

static const char overview_about[] =
    "Forebay keeps GPUs fed from slow storage: a directory on any file system, or an S3 bucket, "
    "becomes fast through a cache in memory and on disk, behind a mount, or for one program "
    "without.";

static const char overview_example[] = "  forebay mount /nfs/imagenet /data\n"
                                       "  forebay status\n"
                                       "  forebay umount /data\n"
                                       "  forebay run --source /nfs/imagenet -- python train.py\n";

/* Paragraphs are ended by newlines; each is broken at WIDTH. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = 0;

    for (; *text; text += strspn(text, " ")) {
        size_t len = strcspn(text, " \n");

        if (column && column + 1 + len > WIDTH) {
            fputc('\n', out);
            column = 0;
        } else if (column) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)len, text);
        column += len;
        text += len;
        while (*text == '\n') {
            fputc('\n', out);
            column = 0;
            text++;
        }
    }
    fputc('\n', out);
}

void cli_print_overview(FILE *out)
{
    fprintf(out, "Usage: forebay COMMAND ...\n\n");
    print_wrapped(out, overview_about);
    fprintf(out, "\nExample:\n%s\nCommands:\n", overview_example);
    for (const struct cli_command *const *c = cli_commands(); *c; c++)
        fprintf(out, "  %-8s %s\n", (*c)->name, (*c)->summary);
    fprintf(out, "\n`forebay help COMMAND` teaches each with an example.\n");
}

static void print_fields(FILE *out)
{
    size_t count;
    const struct fb_status_field *fields = fb_status_fields(&count);

    fprintf(out, "\nMembers of each daemon in --json:\n");
    for (size_t i = 0; i < count; i++)
        fprintf(out, "  %s\n      %s\n", fields[i].name, fields[i].help);
}

static bool is_without(const struct cli_command *command, const char *name)
{
    for (const char *const *w = command->without; w && *w; w++) {
        if (strcmp(*w, name) == 0)
            return true;
    }
    return false;
}

static void print_flags(FILE *out, const struct cli_command *command)
{
    size_t own_count = 0;
    size_t count;
    const struct fb_setting *own = command->own ? command->own(&own_count) : NULL;
    const struct fb_setting *table = command->table(&count);
    FB_AUTO_FREE struct fb_setting *rows = fb_alloc_array(own_count + count, sizeof *rows);
    size_t used = 0;

    for (size_t i = 0; rows && i < own_count; i++)
        rows[used++] = own[i];
    for (size_t i = 0; rows && i < count; i++) {
        if (!is_without(command, table[i].name))
            rows[used++] = table[i];
    }
    fb_settings_help(rows, used, out);
}

void cli_print_help(const struct cli_command *command, FILE *out)
{
    fprintf(out, "Usage: forebay %s%s%s\n\n%s.\n\n", command->name, *command->synopsis ? " " : "",
            command->synopsis, command->summary);
    print_wrapped(out, command->about);
    fprintf(out, "\nExample:\n%s", command->example);
    if (command->table) {
        fputc('\n', out);
        print_flags(out, command);
    }
    if (command == &cli_status)
        print_fields(out);
    if (command->more)
        command->more(out);
}

/* ---- the manual page ---- */

/* A line that begins with a dot or a quote would be a command of roff. */
static void print_roff(FILE *out, const char *text)
{
    bool begin = true;

    for (; *text; text++) {
        if (begin && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        begin = *text == '\n';
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void print_roff_paragraphs(FILE *out, const char *text)
{
    for (const char *p = text; *p;) {
        const char *end = strstr(p, "\n\n");
        size_t len = end ? (size_t)(end - p) : strlen(p);

        for (size_t i = 0; i < len; i++)
            print_roff(out, (char[]){p[i], 0});
        fputs(end ? "\n.PP\n" : "\n", out);
        p += len + (end ? 2 : 0);
    }
}

static void print_roff_flag(FILE *out, const struct fb_setting *s)
{
    fputs(".TP\n.B ", out);
    if (s->letter)
        fprintf(out, "\\-%c, ", s->letter);
    fputs("\\-\\-", out);
    print_roff(out, s->name);
    if (s->type != FB_SETTING_BOOL) {
        fputs(" \\fI", out);
        print_roff(out, s->argument ? s->argument : s->choices ? s->choices : "VALUE");
        fputs("\\fR", out);
    }
    fputc('\n', out);
    print_roff(out, s->help);
    if (s->fallback && *s->fallback) {
        fputs(" (default: ", out);
        print_roff(out, s->fallback);
        fputc(')', out);
    }
    fputs(".\n", out);
}

static void print_roff_flags(FILE *out, const struct fb_setting *(*flags)(size_t *ret_count))
{
    size_t count;
    const struct fb_setting *table = flags(&count);

    for (size_t i = 0; i < count; i++)
        print_roff_flag(out, &table[i]);
}

static void print_roff_command(FILE *out, const struct cli_command *c)
{
    fputs(".SS forebay ", out);
    print_roff(out, c->name);
    fputc(' ', out);
    print_roff(out, c->synopsis);
    fputc('\n', out);
    print_roff_paragraphs(out, c->about);
    fputs(".PP\n.EX\n", out);
    print_roff(out, c->example);
    fputs(".EE\n", out);
    if (c->own)
        print_roff_flags(out, c->own);
    if (c->table && c->table != fb_config_table)
        print_roff_flags(out, c->table);
}

void cli_print_manual(FILE *out)
{
    size_t count;
    const struct fb_setting *table = fb_config_table(&count);

    fprintf(out, ".TH FOREBAY 1 \"\" \"forebay %s\"\n.SH NAME\n", fb_version_text());
    fputs("forebay \\- a cache that keeps GPUs fed from slow storage\n.SH SYNOPSIS\n", out);
    fputs(".B forebay\n.I command\n[\\fIargument\\fR]...\n.SH DESCRIPTION\n", out);
    print_roff_paragraphs(out, overview_about);
    fputs(".SH COMMANDS\n", out);
    for (const struct cli_command *const *c = cli_commands(); *c; c++)
        print_roff_command(out, *c);
    fputs(".SH SETTINGS\n", out);
    print_roff_paragraphs(
        out,
        "Each is a flag of mount, run and serve, a variable (FOREBAY_ and the name in capitals, "
        "with underscores) and a key of the file given with --config. A flag wins over a "
        "variable, a variable over the file. Sizes are written 10G, durations 60s.");
    for (size_t i = 0; i < count; i++)
        print_roff_flag(out, &table[i]);
    fputs(
        ".SH EXIT STATUS\n0: done. 1: it could not be done. 2: it was not understood. run: that of "
        "the program.\n",
        out);
    fputs(".SH FILES\n.TP\n.I /var/cache/forebay, ~/.cache/forebay\nThe cache, and its log.\n",
          out);
    fputs(".TP\n.I /run/forebay, $XDG_RUNTIME_DIR/forebay\nSockets of running daemons; "
          "FOREBAY_RUNTIME_DIR names another directory.\n",
          out);
    fputs(".SH SEE ALSO\n.BR mount (8),\n.BR fusermount3 (1)\n", out);
}
