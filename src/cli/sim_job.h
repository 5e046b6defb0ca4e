/*
 * cli/sim_job.h - one invocation of `forebay sim`: what was asked for, and what came of it.
 */
#ifndef FB_CLI_SIM_JOB_H
#define FB_CLI_SIM_JOB_H

#include <stdio.h>

#include "sim/spec.h"

struct sim_options {
    char *policy;
    char *size;
    char *format;
    char *columns;
    bool ignore_size;
    char *warmup;
    double sample;
    uint64_t jobs;
    uint64_t seed;
    bool json;
    char *plot;
    char *html;
};

/* A file that results are written to, opened before the work. */
struct sim_output {
    const char *path;
    FILE *file; /* NULL: none is wanted, or it is written */
    bool is_new;
};

struct sim_job {
    struct sim_options options;
    const char *path;
    struct sim_output plot;
    struct sim_output html;
    struct fb_sim_choice *choice;
    size_t choices;
    struct fb_sim_size *size;
    size_t sizes;
    double warmup_share; /* of the trace's requests; negative: `warmup` instead */
    uint64_t warmup;
    struct fb_trace *trace;
    struct fb_sim *sim;
    struct fb_sim_run *run; /* [choice][size] */
    size_t runs;
    int64_t drawn_ns; /* when the progress bar was */
    const char *doing;
};

/* Results for people, as JSON, as a picture, as a page. Return an exit status; failures have
 * printed their sentence. Files are opened before the work, by open(); what is in them stays until
 * there are results, and close() removes those that are new and were not written. */
int sim_open_outputs(struct sim_job *job);
void sim_close_outputs(struct sim_job *job);
int sim_print_table(const struct sim_job *job);
int sim_print_json(const struct sim_job *job);
int sim_write_plot(struct sim_job *job);
int sim_write_html(struct sim_job *job);

#endif
