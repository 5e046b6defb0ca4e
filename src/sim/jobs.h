/*
 * sim/jobs.h - data sets and the jobs that read them, as tables: what sim/jobs_run.c runs.
 *
 * A set is a directory of files, or of directories of files; names sort in the order of their
 * numbers. Files larger than a block are read by blocks, smaller ones whole: one such piece is an
 * item. A job is one phase after another. A phase reads items of a set in some order as PyTorch's
 * DataLoader does: batch b is read by worker b mod `workers`, item after item, each followed by
 * decode_s; a worker is at most FB_JOB_BATCHES_AHEAD batches ahead; batches are computed on in
 * order, compute_s an item. Without workers the program reads, decodes and computes by itself, in
 * turn.
 */
#ifndef FB_SIM_JOBS_H
#define FB_SIM_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_JOB_BLOCK         (4U << 20)
#define FB_JOB_BATCHES_AHEAD 2 /* a worker; PyTorch's prefetch_factor */
#define FB_JOB_PHASES        2
#define FB_JOB_WORKERS_MAX   32

/* prefix, the number with zeros in front of it, suffix. */
struct fb_job_names {
    const char *prefix;
    const char *suffix;
    uint8_t width;
    bool are_months; /* 185001, 185002, ... instead of the number */
};

struct fb_job_set {
    const char *path; /* of its directory; no slash at either end */
    uint32_t dirs;    /* directories in it; 0: the files lie in it */
    uint32_t files;   /* in each */
    struct fb_job_names dir_name;
    struct fb_job_names file_name;
    uint64_t mean_bytes; /* of a file */
    double spread;       /* sigma of the logarithm of sizes; 0: all are alike */
};

enum fb_job_order {
    FB_JOB_IN_ORDER, /* all items as they lie */
    FB_JOB_ONE_EACH, /* the same file of each directory, in order */
    FB_JOB_SHUFFLED, /* all items, in another order each round */
    FB_JOB_DRAWN,    /* any item, each as likely, again and again */
    FB_JOB_ZIPF,     /* the k-th most popular with probability ~ 1/k^zipf, scattered over the set;
                      * jobs on one set agree on what is popular */
};

struct fb_job_phase {
    uint32_t set;
    enum fb_job_order order;
    uint32_t rounds; /* of a whole order */
    uint32_t reads;  /* of draws, in all */
    double zipf;
    uint64_t read_bytes; /* of an item at a time; 0: all of it */
    uint32_t workers;
    uint32_t batch;
    double decode_s;
    double compute_s;
};

struct fb_job {
    const char *name;
    const char *pattern; /* what the paper calls it */
    unsigned number;     /* the paper's */
    unsigned phases;
    struct fb_job_phase phase[FB_JOB_PHASES];
    double tail_s; /* computed on what was read, after it */
};

struct fb_job_mix {
    const struct fb_job_set *sets;
    size_t set_count;
    const struct fb_job *jobs;
    size_t job_count;
    double arrival_mean_s; /* Poisson; the order of jobs is drawn, too */
};

/* When each job comes, the first at 0: gaps are exponential, and who is next is drawn by lot. */
void fb_job_arrivals(const struct fb_job_mix *mix, uint64_t seed, double *ret_s);

/* The 18 jobs of IGTCache's Table 3, a tenth of the size. */
extern const struct fb_job_mix fb_job_mix_18;

/* Jobs 9, 13, 14 and 16, for the cases of the paper's section 5.4: another tenth. */
extern const struct fb_job_mix fb_job_mix_4;

#endif
