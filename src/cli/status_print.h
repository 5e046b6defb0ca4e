/*
 * cli/status_print.h - one daemon's status for people: mounts, hit ratios, a bar for each tier.
 */
#ifndef FB_CLI_STATUS_PRINT_H
#define FB_CLI_STATUS_PRINT_H

#include <jansson.h>
#include <stdio.h>

void cli_print_daemon(FILE *out, const json_t *daemon);

#endif
