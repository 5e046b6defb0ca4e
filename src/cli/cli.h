/*
 * cli/cli.h - the subcommands of the program.
 *
 * Exit status: 0 done, 1 it could not be done, 2 it was not understood. Messages for people go to
 * standard error, one sentence each, as `forebay: sentence`.
 */
#ifndef FB_CLI_CLI_H
#define FB_CLI_CLI_H

#include <stdio.h>

#include "base/attr.h"
#include "core/error.h"
#include "core/settings.h"

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_INTERRUPTED = 130,
};

struct cli_command {
    const char *name;
    const char *synopsis; /* after `forebay NAME` */
    const char *summary;  /* one line */
    const char *about;    /* paragraphs, for --help and the manual page */
    const char *example;
    /* Flags; NULL: none. */
    const struct fb_setting *(*table)(size_t *ret_count);
    /* Flags beside those, and names (ended by NULL) of those that mean nothing here; NULL: none. */
    const struct fb_setting *(*own)(size_t *ret_count);
    const char *const *without;
    /* What --help ends with; NULL: nothing more. */
    void (*more)(FILE *out);
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct cli_command cli_mount;
extern const struct cli_command cli_umount;
extern const struct cli_command cli_run;
extern const struct cli_command cli_serve;
extern const struct cli_command cli_status;
extern const struct cli_command cli_evict;
extern const struct cli_command cli_streams;
extern const struct cli_command cli_policy;
extern const struct cli_command cli_pin;
extern const struct cli_command cli_unpin;
extern const struct cli_command cli_warmup;
extern const struct cli_command cli_bench;
extern const struct cli_command cli_plan;
extern const struct cli_command cli_sim;
extern const struct cli_command cli_version;

/* All commands, ended by NULL. */
const struct cli_command *const *cli_commands(void);

/* NULL when there is none of that name. */
const struct cli_command *cli_find(const char *name);

void cli_print_overview(FILE *out);
void cli_print_help(const struct cli_command *command, FILE *out);
void cli_print_manual(FILE *out);

/* Prints `forebay: sentence` and returns `status`. */
int cli_fail(int status, const char *format, ...) FB_PRINTF(2, 3);

/* The same for a usage error, with a hint at --help. */
int cli_usage(const struct cli_command *command, const char *format, ...) FB_PRINTF(2, 3);

/* Before another program takes this process over: signals as they were. */
void cli_leave_as_found(void);

/* Prints text from elsewhere (names, sentences) with control characters made visible. */
void cli_print_text(FILE *out, const char *text);

#endif
