/*
 * cli/sim_job.h - one invocation of `forebay sim`: what was asked for, and what came of it.
 */
#ifndef FB_CLI_SIM_JOB_H
#define FB_CLI_SIM_JOB_H

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

struct sim_job {
    struct sim_options options;
    const char *path;
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
 * printed their sentence. */
int sim_print_table(const struct sim_job *job);
int sim_print_json(const struct sim_job *job);
int sim_write_plot(const struct sim_job *job, const char *path);
int sim_write_html(const struct sim_job *job, const char *path);

#endif
