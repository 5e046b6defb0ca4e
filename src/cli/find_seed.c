#include "cli/find_seed.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/listing.h"
#include "core/mem.h"
#include "epoch/seed_search.h"

#define STEP_SEEDS (UINT64_C(1) << 20)

struct finder {
    const struct cli_find *find;
    unsigned count; /* orders */
    const char *orders[FB_SEED_ORDERS];
    struct fb_names *names[FB_SEED_ORDERS];
    struct fb_seed_search *search;
    uint64_t accesses;
    uint64_t known;      /* of them, files of the data set */
    bool is_believed;    /* and not dropped; another epoch may have begun */
    uint64_t dropped_at; /* the access that ended the last belief */
};

/* ---- orders ---- */

/* An order that the directory does not have is left out. */
static int take_order(struct finder *f, const char *order, struct fb_error *err)
{
    struct cli_listing how = {
        .dir = f->find->dir, .order = order, .extensions = f->find->extensions};
    struct fb_names *names;
    int rc = cli_list(&how, &names, err);

    if (rc)
        return rc;
    f->names[f->count] = names;
    f->orders[f->count++] = order;
    rc = fb_names_index(names);
    return rc ? fb_error_set(err, rc, "out of memory for %u names", fb_names_count(names)) : 0;
}

static int take_orders(struct finder *f, struct fb_error *err)
{
    bool is_list = strncmp(f->find->order, CLI_LIST_PREFIX, sizeof CLI_LIST_PREFIX - 1) == 0;
    struct fb_error ignored = {""};
    int rc = take_order(f, is_list ? f->find->order : "imagefolder", is_list ? err : &ignored);

    if (rc == 0 || (rc == -ENOENT && !is_list))
        rc = take_order(f, "sorted", err);
    return rc;
}

static int open_search(struct finder *f, struct fb_error *err)
{
    struct fb_seed_config config = {.order_count = f->count,
                                    .seed_limit = f->find->seed_limit,
                                    .any_worker = true,
                                    .level = fb_scan_best()};

    for (unsigned o = 0; o < f->count; o++)
        config.counts[o] = fb_names_count(f->names[o]);
    f->search = fb_seed_search_new(&config);
    return f->search ? 0 : fb_error_set(err, -ENOMEM, "out of memory for a search");
}

/* ---- accesses ---- */

static int feed(struct finder *f, const char *path)
{
    uint32_t files[FB_SEED_ORDERS];
    bool is_known = false;
    int rc;

    for (unsigned o = 0; o < f->count; o++) {
        if (fb_names_find(f->names[o], path, strlen(path), &files[o]))
            is_known = true;
        else
            files[o] = FB_SEED_NO_FILE;
    }
    f->accesses++;
    f->known += is_known;
    rc = fb_seed_search_feed(f->search, files);
    while (rc >= 0 && fb_seed_search_state(f->search) == FB_SEED_SEARCH)
        rc = fb_seed_search_step(f->search, STEP_SEEDS);
    if (fb_seed_search_state(f->search) == FB_SEED_BELIEVED) {
        f->is_believed = true;
    } else if (f->is_believed && !fb_seed_search_belief(f->search)) {
        f->is_believed = false;
        f->dropped_at = f->accesses;
    }
    return rc < 0 ? rc : 0;
}

static int feed_all(struct finder *f, struct fb_error *err)
{
    FILE *in = fopen(f->find->accesses, "re");
    FB_AUTO_FREE char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;

    if (!in)
        return fb_error_set(err, -errno, "the accesses %s: %s", f->find->accesses,
                            fb_strerror(errno));
    while (rc == 0 && (len = getline(&line, &room, in)) >= 0) {
        if (len > 0 && line[len - 1] == '\n')
            line[--len] = 0;
        if (len > 0)
            rc = feed(f, cli_listing_strip(f->find->dir, line));
    }
    fclose(in);
    return rc ? fb_error_set(err, rc, "out of memory for an epoch") : 0;
}

/* ---- what was found ---- */

static const char *const rule_names[] = {
    [FB_EPOCH_USUAL] = "usual",       [FB_EPOCH_RESEED] = "reseed",
    [FB_EPOCH_CONTINUE] = "continue", [FB_EPOCH_RESHUFFLE] = "reshuffle",
    [FB_EPOCH_FIXED] = "fixed",
};

static const char *const generator_names[] = {
    [FB_TORCH_GLOBAL] = "global",
    [FB_TORCH_LOADER] = "loader",
    [FB_TORCH_SAMPLER] = "sampler",
};

static void print_flags(const struct finder *f, const struct fb_seed_belief *b)
{
    const struct fb_shuffle_spec *spec = &b->shuffle;

    printf("--order %s --sampler %s --seed %" PRIu64, f->orders[b->order], spec->sampler->name,
           spec->seed);
    if (spec->rule != spec->sampler->rule)
        printf(" --rule %s", rule_names[spec->rule]);
    if (strcmp(spec->sampler->name, "torch-random") == 0)
        printf(" --generator %s", generator_names[spec->generator]);
    if (spec->persistent_workers)
        printf(" --persistent-workers");
    if (b->world > 1)
        printf(" --world %u --rank %u", b->world, b->rank);
    if (b->batch)
        printf(" --batch %u --workers %u", b->batch, b->workers);
    if (b->epoch)
        printf(" --first-epoch %" PRIu64, b->epoch);
    fputc('\n', stdout);
}

static int say_nothing_found(const struct finder *f)
{
    if (f->known < FB_SEED_ENOUGH)
        return cli_fail(CLI_FAILED,
                        "%s names %" PRIu64 " files of %s; a seed is believed after %d or more",
                        f->find->accesses, f->known, f->find->dir, FB_SEED_ENOUGH);
    if (f->dropped_at)
        return cli_fail(CLI_FAILED,
                        "%s: a seed was found, but line %" PRIu64 " contradicts it; were these "
                        "the reads of one process?",
                        f->find->accesses, f->dropped_at);
    return cli_fail(CLI_FAILED,
                    "no seed below %" PRIu64 " explains %s; are these the first reads of a "
                    "process in an epoch? --seed-limit 4294967296 searches them all",
                    f->find->seed_limit, f->find->accesses);
}

int cli_find_seed(const struct cli_find *find)
{
    struct finder f = {.find = find};
    struct fb_error error = {""};
    int status = CLI_OK;
    int rc = take_orders(&f, &error);

    if (rc == 0)
        rc = open_search(&f, &error);
    if (rc == 0)
        rc = feed_all(&f, &error);
    if (rc)
        status = cli_fail(CLI_FAILED, "%s", error.text);
    else if (f.is_believed)
        print_flags(&f, fb_seed_search_belief(f.search));
    else
        status = say_nothing_found(&f);
    fb_seed_search_free(f.search);
    for (unsigned o = 0; o < f.count; o++)
        fb_names_free(f.names[o]);
    return status;
}
