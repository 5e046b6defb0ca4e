#include "cli/cli.h"
#include "daemon/version.h"

static int run(int argc, char **argv)
{
    if (argc > 1)
        return cli_usage(&cli_version, "'%.64s': version takes no argument", argv[1]);
    printf("forebay %s\n", fb_version_text());
    return CLI_OK;
}

const struct cli_command cli_version = {
    .name = "version",
    .synopsis = "",
    .summary = "Print the version",
    .about = "Prints the version of the program. `forebay status` shows that of running daemons.",
    .example = "  forebay version\n",
    .run = run,
};
