#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/mount_options.h"
#include "cli/preload.h"
#include "core/mem.h"

#define NAME_SIZE_MAX 16 /* of a command */

static const struct cli_command *const commands[] = {
    &cli_mount, &cli_umount, &cli_run,     &cli_status, &cli_streams, &cli_policy,
    &cli_pin,   &cli_unpin,  &cli_warmup,  &cli_evict,  &cli_plan,    &cli_bench,
    &cli_serve, &cli_sim,    &cli_version, NULL,
};

const struct cli_command *const *cli_commands(void)
{
    return commands;
}

const struct cli_command *cli_find(const char *name)
{
    for (const struct cli_command *const *c = commands; *c; c++) {
        if (strcmp((*c)->name, name) == 0)
            return *c;
    }
    return NULL;
}

void cli_print_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

static void print_sentence(const char *format, va_list args) FB_PRINTF(1, 0);

static void print_sentence(const char *format, va_list args)
{
    char text[2 * FB_ERROR_TEXT_MAX];

    vsnprintf(text, sizeof text, format, args);
    fputs("forebay: ", stderr);
    cli_print_text(stderr, text);
    fputc('\n', stderr);
}

int cli_fail(int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_sentence(format, args);
    va_end(args);
    return status;
}

int cli_usage(const struct cli_command *command, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print_sentence(format, args);
    va_end(args);
    fprintf(stderr, "Try `forebay %s --help`.\n", command->name);
    return CLI_USAGE;
}

/* ---- which command ---- */

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/* Levenshtein's distance; `b` is the name of a command. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_SIZE_MAX];
    size_t b_len = strlen(b);

    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t above = row[j];

            row[j] = smallest(above + 1, row[j - 1] + 1, corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[b_len];
}

static int unknown_command(const char *name)
{
    const char *nearest = NULL;
    size_t best = 3;

    for (const struct cli_command *const *c = commands; *c; c++) {
        size_t d = distance(name, (*c)->name);

        if (strlen(name) > 1 && strncmp(name, (*c)->name, strlen(name)) == 0)
            d = 1;
        if (d < best) {
            best = d;
            nearest = (*c)->name;
        }
    }
    if (nearest)
        return cli_fail(CLI_USAGE, "there is no command '%.64s'; did you mean `forebay %s`?", name,
                        nearest);
    return cli_fail(CLI_USAGE, "there is no command '%.64s'; `forebay help` lists those there are",
                    name);
}

static int run_help(int argc, char **argv)
{
    const struct cli_command *command;

    if (argc < 2) {
        cli_print_overview(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--man") == 0) {
        cli_print_manual(stdout);
        return CLI_OK;
    }
    command = cli_find(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    cli_print_help(command, stdout);
    return CLI_OK;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        cli_print_help(command, stdout);
        return CLI_OK;
    }
    return command->run(argc, argv);
}

/* mount(8) calls /sbin/mount.TYPE. */
static bool is_mount_helper(const char *program)
{
    const char *slash = strrchr(program, '/');

    return strcmp(slash ? slash + 1 : program, "mount.forebay") == 0;
}

static int run_mount_helper(int argc, char **argv)
{
    struct fb_error error = {""};
    char **words;
    int count;
    bool fake;
    int status;

    if (cli_mount_helper_args(argc, argv, &count, &words, &fake, &error) != 0)
        return cli_fail(CLI_USAGE, "%s", error.text);
    status = fake ? CLI_OK : run_command(&cli_mount, count, words);
    free(words);
    return status;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    const struct cli_command *command;

    if (argc > 0 && is_mount_helper(argv[0]))
        return run_mount_helper(argc, argv);
    if (!name) {
        cli_print_overview(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return run_help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0)
        name = "version";
    command = cli_find(name);
    if (!command)
        return unknown_command(name);
    return run_command(command, argc - 1, argv + 1);
}

/* ---- signals ---- */

static bool children_ignored;

/* Who starts us may ignore the ends of its children, which we must not: those of ours tell us how
 * they went. */
static void mind_children(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL}, before;

    if (sigaction(SIGCHLD, &usual, &before) == 0)
        children_ignored = before.sa_handler == SIG_IGN;
}

void cli_leave_as_found(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    if (children_ignored)
        (void)sigaction(SIGCHLD, &ignore, NULL);
}

int main(int argc, char **argv)
{
    int status;

    cli_preload_shed(argv);
    mind_children();
    status = dispatch(argc, argv);

    /* A full disk or a closed pipe must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == CLI_OK)
        return CLI_FAILED;
    return status;
}
