#include "sim/jobs_ahead.h"

#include <errno.h>

#include "core/mem.h"

#define READERS    1024
#define WINDOW_MAX 16 /* blocks: 64 MB */
#define STRIDE     4
#define SUCCESSORS 4
#define CHAIN      2 /* files ahead */

struct reader {
    uint32_t pid;
    uint32_t file; /* it read last */
    uint32_t next; /* block */
    uint32_t window;
    uint32_t run; /* blocks in a row */
};

struct successors {
    uint32_t file[SUCCESSORS];
    uint32_t count[SUCCESSORS]; /* 0: free */
};

struct fb_jobs_ahead {
    const struct fb_jobs_world *world;
    enum fb_jobs_ahead_kind kind;
    struct reader reader[READERS];
    struct successors *after; /* of each file */
};

int fb_jobs_ahead_new(const struct fb_jobs_world *world, enum fb_jobs_ahead_kind kind,
                      struct fb_jobs_ahead **ret_ahead)
{
    struct fb_jobs_ahead *a = fb_alloc(sizeof *a);

    if (!a)
        return -ENOMEM;
    a->world = world;
    a->kind = kind;
    if (kind == FB_JOBS_AHEAD_MARKOV) {
        a->after = fb_alloc_array(world->file_count, sizeof *a->after);
        if (!a->after) {
            free(a);
            return -ENOMEM;
        }
    }
    *ret_ahead = a;
    return 0;
}

void fb_jobs_ahead_free(struct fb_jobs_ahead *a)
{
    if (a)
        free(a->after);
    free(a);
}

static unsigned blocks_after(const struct fb_jobs_world *w, uint32_t file, uint32_t block,
                             uint32_t count, uint32_t *items)
{
    const struct fb_jobs_file *f = &w->files[file];
    unsigned n = 0;

    for (uint32_t b = block + 1; b < f->blocks && n < count; b++)
        items[n++] = f->first_item + b;
    return n;
}

static void learn(struct successors *s, uint32_t file)
{
    unsigned least = 0;

    for (unsigned i = 0; i < SUCCESSORS; i++) {
        if (s->count[i] && s->file[i] == file) {
            s->count[i]++;
            return;
        }
        if (s->count[i] < s->count[least])
            least = i;
    }
    s->file[least] = file;
    s->count[least] = 1;
}

static unsigned chain_after(const struct fb_jobs_ahead *a, uint32_t file, uint32_t *items)
{
    unsigned n = 0;

    for (unsigned k = 0; k < CHAIN; k++) {
        const struct successors *s = &a->after[file];
        unsigned best = 0;

        for (unsigned i = 1; i < SUCCESSORS; i++) {
            if (s->count[i] > s->count[best])
                best = i;
        }
        if (s->count[best] == 0)
            break;
        file = s->file[best];
        items[n++] = a->world->files[file].first_item;
    }
    return n;
}

unsigned fb_jobs_ahead_of(struct fb_jobs_ahead *a, const struct fb_jobs_read *read,
                          uint32_t ret_items[FB_JOBS_AHEAD_MAX])
{
    uint32_t file = a->world->item_file[read->item];
    uint32_t block = read->item - a->world->files[file].first_item;
    struct reader *r = &a->reader[read->pid % READERS];
    bool is_known = r->pid == read->pid;
    bool goes_on = is_known && r->file == file && r->next == block && block > 0;
    unsigned n = 0;

    if (a->kind == FB_JOBS_AHEAD_MARKOV) {
        if (is_known && r->file != file)
            learn(&a->after[r->file], file);
        n = chain_after(a, file, ret_items);
    }
    if (!goes_on) {
        r->window = 0;
        r->run = 0;
    }
    r->run++;
    if (a->kind == FB_JOBS_AHEAD_READAHEAD && (goes_on || block == 0)) {
        r->window = r->window ? 2 * r->window : 1;
        if (r->window > WINDOW_MAX)
            r->window = WINDOW_MAX;
        n = blocks_after(a->world, file, block, r->window, ret_items);
    } else if (a->kind == FB_JOBS_AHEAD_STRIDE && r->run % STRIDE == 0) {
        n = blocks_after(a->world, file, block, STRIDE, ret_items);
    }
    r->pid = read->pid;
    r->file = file;
    r->next = block + 1;
    return n;
}
